# SPDX-License-Identifier: Apache-2.0
"""vLLM with its own CPU offloading and cairn.vllm.CairnTier behind it, for test_vllm_tier.py: processes one behind the
other, or beside each other, which this one is forked into, since imports take longer than all that they do.

Usage: vllm_tier_process.py JSON, {"folder": for answers, "stages": [{name: {"model": folder, "tier": parameters of the
tier beside its type, or null, "jobs": [...]}, ...}, ...]}. The runs of a stage are processes beside each other; each
leaves one line of JSON for each job in the folder, in <name>.jsonl, and its log in <name>.log. A job is as for
vllm_process.py: {"prompt": text or ids, "tokens": n} and maybe "kill_at"; {"reset": true} empties all that vLLM has.
"""

import json
import os
import pathlib
import signal
import sys
import time

import vllm_process  # Its environment.
from vllm_forks import run_stages

IMPORTED = ("vllm.entrypoints.llm", "vllm.model_executor.models.llama", "vllm.v1.engine.core",
            "vllm.v1.worker.cpu_worker", "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
            "cairn.vllm", "vllm_cpu_spec")
CPU_BYTES = 32 << 20  # vLLM's own tier in memory.


def transfer_of(tier, cpu_bytes=CPU_BYTES):
    """kv_transfer_config with this tier, and the spec that copies without a card."""
    from vllm.config import KVTransferConfig
    if tier is None:
        return None
    return KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config={
        "spec_name": "CpuTieringSpec", "spec_module_path": "vllm_cpu_spec", "cpu_bytes_to_use": cpu_bytes,
        "offload_prompt_only": False, "secondary_tiers": [tier]})


def engine(model, tier):
    from vllm import LLM
    return LLM(model=model, dtype="bfloat16", max_model_len=2048, block_size=vllm_process.BLOCK, enforce_eager=True,
               seed=1, enable_prefix_caching=True, kv_transfer_config=transfer_of(tier),
               mamba_ssm_cache_dtype="float32")  # Else it depends on the processor.


def settle(llm):
    """vLLM copies what a step computed in the next step, and looks whether jobs are over in each."""
    from vllm import SamplingParams
    for _ in range(2):
        llm.generate(["x"], SamplingParams(max_tokens=4), use_tqdm=False)
    tier_of(llm)._calls.held.store  # Raises why there is none.


def tier_of(llm):
    return llm.llm_engine.engine_core.engine_core.scheduler.connector.scheduler.manager.secondary_tiers[0]


def kill(llm, job, write):
    """Ends itself behind that many tokens, once the prompt's chunks were reported as stored; later ones may be under
    way."""
    tier, reported = tier_of(llm), []
    result_of = tier._result_of

    def note(call, outcomes):
        reported.append(len(call.job.keys))
        return result_of(call, outcomes)

    tier._result_of = note
    prompt, sampling = vllm_process.request(job)
    llm.llm_engine.add_request("killed", prompt, sampling)
    while True:
        for output in llm.llm_engine.step():
            ids = list(output.outputs[0].token_ids)
            if len(ids) == job["kill_at"]:
                while max(reported, default=0) < len(output.prompt_token_ids) // vllm_process.BLOCK:
                    tier._take()
                    time.sleep(0.01)
                write({"prompt": list(output.prompt_token_ids), "ids": ids})
                os.kill(os.getpid(), signal.SIGKILL)


def run(folder, name, wanted):
    for number in (1, 2):
        os.dup2(os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    llm = engine(wanted["model"], wanted["tier"])
    with open(folder / f"{name}.jsonl", "w") as file:
        def write(answer):
            print(json.dumps(answer), file=file, flush=True)

        for job in wanted["jobs"]:
            if "reset" in job:
                write({"reset": llm.reset_prefix_cache(reset_connector=True)})
            elif "kill_at" in job:
                kill(llm, job, write)
            else:
                assert llm.reset_prefix_cache()
                write(vllm_process.generate(llm, job))
                if wanted["tier"] is not None:
                    settle(llm)
    llm.llm_engine.engine_core.shutdown()


def main():
    wanted = json.loads(sys.argv[1])
    folder = pathlib.Path(wanted["folder"])
    run_stages(IMPORTED, wanted["stages"], lambda name, one: run(folder, name, one))


if __name__ == "__main__":
    main()
