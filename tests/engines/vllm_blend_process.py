# SPDX-License-Identifier: Apache-2.0
"""A process with cairn.vllm.BlendLLM, for test_vllm_blend.py: does a list of jobs, a line of JSON for each.

Usage: vllm_blend_process.py JSON, {"model": folder, "extra": kv_connector_extra_config or null (no connector), "jobs":
[...]}. Jobs, all with maybe "salt" (a cache_salt) and "tokens" (to decode):
  {"ids": [...]}               a request as ever
  {"blend": [[...], ...]}      prompts of one BlendLLM.generate, with maybe "kill_at" (SIGKILL before that stage)
  {"params": {...}, "ids"}     a request with these kv_transfer_params
  {"state": true}              what is held: prompts under way, leases, namespaces of the store
  {"asynchronous": [...]}      the stages of a prompt given to an AsyncLLM; the last job
"""

import asyncio
import json
import os
import signal
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="WARNING",
                  HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")

BLOCK = 32
LENGTH_MAX = 4096


def settings_of(wanted):
    from vllm.config import KVTransferConfig
    transfer = None if wanted["extra"] is None else KVTransferConfig(
        kv_connector="BlendConnector", kv_connector_module_path="cairn.vllm", kv_role="kv_both",
        kv_load_failure_policy="recompute", kv_connector_extra_config=wanted["extra"])
    return {"model": wanted["model"], "dtype": "float32", "max_model_len": LENGTH_MAX, "block_size": BLOCK,
            "enforce_eager": True, "seed": 1, "enable_prefix_caching": True, "kv_transfer_config": transfer,
            **wanted.get("more", {})}


def sampling_of(job, **more):
    from vllm import SamplingParams
    return SamplingParams(temperature=0, max_tokens=job.get("tokens", 4), logprobs=1, ignore_eos=True, **more)


def prompt_of(job, ids):
    return {"prompt_token_ids": ids, **({"cache_salt": job["salt"]} if "salt" in job else {})}


def answer_of(output):
    (said,) = output.outputs
    return {"ids": list(said.token_ids), "cached": output.num_cached_tokens,
            "logprobs": [step[token].logprob for token, step in zip(said.token_ids, said.logprobs)],
            "said": output.kv_transfer_params}


def do(llm, job):
    from vllm import LLM
    if "blend" in job:
        if "kill_at" in job:
            kill_at(llm, job["kill_at"])
        outputs = llm.generate([prompt_of(job, ids) for ids in job["blend"]], sampling_of(job), use_tqdm=False)
        return {"answers": [answer_of(output) for output in outputs], "plans": llm.plans}
    if "state" in job:
        return state()
    more = {"extra_args": {"kv_transfer_params": job["params"]}} if "params" in job else {}
    (output,) = LLM.generate(llm, [prompt_of(job, job["ids"])], sampling_of(job, **more), use_tqdm=False)
    return answer_of(output)


def state():
    from cairn import _vllm_settings
    (shared,) = _vllm_settings._in_use.values()
    (engine,) = shared._engines.values()
    return {"prompts": len(engine.scheduler.plans._prompts), "leases": shared.store.metrics()["leases"],
            "requests": len(engine.sequences) + len(engine.scheduler.known),
            "namespaces": sorted(info.name for info in shared.store.namespaces())}


def kill_at(llm, stage):
    """SIGKILL when so many stages are over."""
    wave, over = llm._wave, []

    def count(*arguments):
        if len(over) == stage:
            os.kill(os.getpid(), signal.SIGKILL)
        over.append(wave(*arguments))

    llm._wave = count


async def stages(settings, job):
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    import cairn.vllm
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**settings))
    try:
        prompt = cairn.vllm.Stages(prompt_of(job, job["asynchronous"]), sampling_of(job))
        for number, stage in enumerate(prompt):
            async for output in engine.generate(stage.prompt, stage.sampling_params, request_id=f"stage-{number}"):
                pass
            prompt.took(output)
        return {"answers": [answer_of(output)], "plans": [prompt.plan]}
    finally:
        engine.shutdown()


def main():
    wanted = json.loads(sys.stdin.read())
    jobs = wanted["jobs"]
    if "asynchronous" in jobs[-1]:
        print(json.dumps(asyncio.run(stages(settings_of(wanted), jobs[-1]))), flush=True)
        return
    import cairn.vllm
    llm = cairn.vllm.BlendLLM(**settings_of(wanted))
    for job in jobs:
        print(json.dumps(do(llm, job)), flush=True)


if __name__ == "__main__":
    main()
