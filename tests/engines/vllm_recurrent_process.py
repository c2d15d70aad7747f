# SPDX-License-Identifier: Apache-2.0
"""vLLM with a model that has recurrent layers, for test_vllm_recurrent.py: processes one behind the other, or beside
each other, which this one is forked into, since imports take longer than all that they do.

Usage: vllm_recurrent_process.py JSON, {"folder": for the model, "stages": [{name: {"extra": kv_connector_extra_config
or null, "jobs": [...]}, ...}, ...]}. The runs of a stage are processes beside each other; each leaves one line of JSON
for each job in the folder, in <name>.jsonl. Before a job vLLM's own cache is emptied. A job is as for vllm_process.py:
{"prompt": ids, "tokens": n} and maybe "kill_at"; with "of", [name, line, m], the prompt goes on from that answer and
its first m ids; with "fails" no load goes well; {"prompts": [ids, ...], "tokens": n} arrive together.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys

import vllm_process  # Its environment.
from vllm_forks import run_stages

SHAPE = {"vocab_size": 128, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 2048}
# vLLM makes blocks of attention as large as a state: this many tokens. States are kept at the end of each.
BLOCK = 96


# What engines import as they start: once, for all of them.
IMPORTED = ("vllm.entrypoints.llm", "vllm.model_executor.models.qwen3_next", "vllm.v1.engine.core",
            "vllm.v1.worker.cpu_worker", "cairn.vllm")


def make_model(folder):
    """Three gated delta layers and one of attention, with weights that are drawn."""
    import torch
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
    torch.manual_seed(5)
    model = Qwen3NextForCausalLM(Qwen3NextConfig(
        **SHAPE, linear_num_key_heads=1, linear_num_value_heads=1, linear_key_head_dim=128, linear_value_head_dim=128,
        num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32, shared_expert_intermediate_size=32))
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.15)
    model.to(torch.bfloat16).save_pretrained(folder)


def answers(llm, job):
    from vllm import SamplingParams
    sampling = SamplingParams(temperature=0, max_tokens=job["tokens"], logprobs=2, ignore_eos=True)
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    return [vllm_process.answer_of(output, output.outputs[0]) for output in
            llm.generate(prompts, sampling, use_tqdm=False)]


def kill(llm, job, write):
    """Ends itself behind so many tokens."""
    prompt, sampling = vllm_process.request(job)
    llm.llm_engine.add_request("killed", prompt, sampling)
    while True:
        for output in llm.llm_engine.step():
            if len(output.outputs[0].token_ids) == job["kill_at"]:
                write({"ids": list(output.outputs[0].token_ids)})
                os.kill(os.getpid(), signal.SIGKILL)


def with_prompt(folder, job):
    if "of" not in job:
        return job
    name, line, count = job["of"]
    answer = json.loads((folder / f"{name}.jsonl").read_text().splitlines()[line])
    return {**job, "prompt": answer["prompt"] + answer["ids"][:count] + job["prompt"]}


def run(folder, name, wanted):
    llm = vllm_process.engine(str(folder / "model"), wanted["extra"], prefix_caching=True, skip_tokenizer_init=True,
                              prefix_cache_retention_interval=BLOCK,
                              mamba_ssm_cache_dtype="float32")  # Else it depends on the processor.
    with open(folder / f"{name}.jsonl", "w") as file:
        def write(answer):
            print(json.dumps(answer), file=file, flush=True)

        for job in (with_prompt(folder, job) for job in wanted["jobs"]):
            assert llm.reset_prefix_cache()
            if "kill_at" in job:
                kill(llm, job, write)
            elif "prompts" in job:
                write({"answers": answers(llm, job)})
            else:
                with vllm_process.failing_loads(0) if "fails" in job else contextlib.nullcontext():
                    write(vllm_process.generate(llm, job))


def main():
    wanted = json.loads(sys.argv[1])
    folder = pathlib.Path(wanted["folder"])
    make_model(folder / "model")
    run_stages(IMPORTED, wanted["stages"], lambda name, one: run(folder, name, one))


if __name__ == "__main__":
    main()
