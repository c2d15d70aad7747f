# SPDX-License-Identifier: Apache-2.0
"""vLLM with its default processes, for test_vllm_processes.py: does a list of jobs, and prints one line of JSON for each.

Usage: vllm_processes_run.py JSON, as of vllm_process.py. A job is {"together": texts, "tokens": n}; or {"cancel": text,
"tokens": n}, a request that is over while it is loaded; or {"leave_out": path}, from which on the connector leaves out
rows (vllm_leaves_out_rows.py).
"""

import json
import os
import pathlib
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="WARNING", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")

BLOCK = 32


def engine(model, extra, **more):
    from vllm import LLM
    from vllm.config import KVTransferConfig
    transfer = None if extra is None else KVTransferConfig(
        kv_connector="CairnConnector", kv_connector_module_path="vllm_leaves_out_rows", kv_role="kv_both",
        kv_load_failure_policy="recompute", kv_connector_extra_config=extra)
    return LLM(model=model, kv_transfer_config=transfer, **{
        "dtype": "bfloat16", "max_model_len": 2048, "block_size": BLOCK, "enforce_eager": True, "seed": 1,
        "enable_prefix_caching": False, **more})


def sampling(job):
    from vllm import SamplingParams
    return SamplingParams(temperature=0, max_tokens=job["tokens"], logprobs=2, ignore_eos=True)


def answer_of(output):
    """As vllm_process.answer_of."""
    said = output.outputs[0]
    steps = [sorted((one.logprob for one in step.values()), reverse=True) for step in said.logprobs]
    return {"prompt": list(output.prompt_token_ids), "ids": list(said.token_ids), "cached": output.num_cached_tokens,
            "leads": [best[0] - best[1] for best in steps],
            "logprobs": [step[token].logprob for token, step in zip(said.token_ids, said.logprobs)]}


def run(llm, job):
    if "leave_out" in job:
        pathlib.Path(job["leave_out"]).touch()
        return []
    if "cancel" in job:
        llm.llm_engine.add_request("cancelled", job["cancel"], sampling(job))
        llm.llm_engine.abort_request(["cancelled"])
        return []
    return [answer_of(one) for one in llm.generate(job["together"], sampling(job), use_tqdm=False)]


def main():
    given = json.loads(sys.argv[1])
    llm = engine(given["model"], given["extra"])
    for job in given["jobs"]:
        print(json.dumps(run(llm, job)), flush=True)


if __name__ == "__main__":
    main()
