# SPDX-License-Identifier: Apache-2.0
"""A process with vLLM whose weights change while it runs, for test_vllm_weights.py: prints one line of JSON.

Usage: vllm_weights_process.py JSON, {"model": folder, "extra": kv_connector_extra_config or null, "folder": for an
adapter}. The line has, for each step, tokens that were found, ids and their logprobs.
"""

import json
import os
import pathlib
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="WARNING",
                  HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1")

import torch
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.lora.request import LoRARequest

IDS = list(range(7, 307))


def write_adapter(folder, model, seed):
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or hidden // heads
    draw = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, out in (("q_proj", heads * dim), ("k_proj", kv_heads * dim), ("v_proj", kv_heads * dim)):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[at + ".lora_A.weight"] = torch.randn(8, hidden, generator=draw) * 0.05
            tensors[at + ".lora_B.weight"] = torch.randn(out, 8, generator=draw) * 0.05
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 8, "lora_alpha": 64, "target_modules": ["q_proj", "k_proj", "v_proj"],
         "bias": "none", "task_type": "CAUSAL_LM", "base_model_name_or_path": model}))


def change(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05)


def main():
    job = json.loads(sys.argv[1])
    folder = pathlib.Path(job["folder"]) / "poet"
    transfer = None if job["extra"] is None else KVTransferConfig(
        kv_connector="CairnConnector", kv_connector_module_path="cairn.vllm", kv_role="kv_both",
        kv_load_failure_policy="recompute", kv_connector_extra_config=job["extra"])
    llm = LLM(job["model"], max_model_len=512, dtype="float32", enforce_eager=True, seed=1, enable_prefix_caching=False,
              enable_lora=True, max_lora_rank=8, kv_transfer_config=transfer)
    steps = {}

    def ask(step, lora=None):
        (out,) = llm.generate([{"prompt_token_ids": IDS}], SamplingParams(temperature=0, max_tokens=8, logprobs=1),
                              lora_request=lora, use_tqdm=False)
        said = out.outputs[0]
        steps[step] = [out.num_cached_tokens or 0, list(said.token_ids),
                       [step[token].logprob for token, step in zip(said.token_ids, said.logprobs)]]

    def poet(**more):
        return LoRARequest("poet", 1, str(folder), **more)

    ask("base")
    ask("base again")
    write_adapter(folder, job["model"], 1)
    ask("adapter", poet())
    ask("adapter again", poet())
    write_adapter(folder, job["model"], 2)
    ask("replaced", poet(load_inplace=True))
    ask("replaced again", poet())
    ask("replaced and found", poet())
    llm.apply_model(change)
    assert llm.reset_prefix_cache(reset_connector=True)
    ask("reset")
    ask("reset again")
    ask("adapter after a reset", poet())
    print(json.dumps(steps), flush=True)


if __name__ == "__main__":
    main()
