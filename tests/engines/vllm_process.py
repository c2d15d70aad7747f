# SPDX-License-Identifier: Apache-2.0
"""A process with vLLM, for test_vllm.py: does a list of jobs, and prints one line of JSON for each.

Usage: vllm_process.py JSON, {"model": folder, "extra": kv_connector_extra_config or null, "jobs": [...]} and maybe
"prefix_caching", vLLM's own. A job is {"prompt": text or ids, "tokens": n} and maybe "seed", "kill_at" (SIGKILL after
so many tokens), or "cancel"; or {"wave": text, "ends": texts, "tokens": n}, prompts of one beginning that arrive
together, and maybe "n" (answers to each), "forget" (what vLLM's own cache has) or "fail_from" (a position beyond which
loads fail).
"""

import contextlib
import json
import os
import signal
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="WARNING",
                  HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")

BLOCK = 32


def engine(model, extra, prefix_caching=False, **more):
    from vllm import LLM
    from vllm.config import KVTransferConfig
    transfer = None if extra is None else KVTransferConfig(
        kv_connector="CairnConnector", kv_connector_module_path="cairn.vllm", kv_role="kv_both",
        kv_load_failure_policy="recompute", kv_connector_extra_config=extra)
    return LLM(model=model, dtype="bfloat16", max_model_len=2048, block_size=BLOCK, enforce_eager=True, seed=1,
               enable_prefix_caching=prefix_caching, kv_transfer_config=transfer, **more)


def request(job):
    from vllm import SamplingParams
    prompt = job["prompt"] if isinstance(job["prompt"], str) else {"prompt_token_ids": job["prompt"]}
    seed = job.get("seed")
    return prompt, SamplingParams(temperature=0 if seed is None else 1, seed=seed, max_tokens=job["tokens"], logprobs=2,
                                  ignore_eos=True)


def generate(llm, job):
    prompt, sampling = request(job)
    (output,) = llm.generate([prompt], sampling, use_tqdm=False)
    return answer_of(output, output.outputs[0])


def answer_of(output, said):
    """leads: by how much the most likely token was more likely than the next one."""
    steps = [sorted((one.logprob for one in step.values()), reverse=True) for step in said.logprobs]
    return {"prompt": list(output.prompt_token_ids), "ids": list(said.token_ids), "cached": output.num_cached_tokens,
            "leads": [best[0] - best[1] for best in steps],
            "logprobs": [step[token].logprob for token, step in zip(said.token_ids, said.logprobs)]}


def wave(llm, job):
    """The answers, and what the store has after them: bytes, places of a first token, and bytes that came back."""
    from vllm import SamplingParams
    if job.get("forget"):
        assert llm.reset_prefix_cache()
    n = job.get("n", 1)
    sampling = SamplingParams(temperature=int(n > 1), n=n, max_tokens=job["tokens"], logprobs=2, ignore_eos=True)
    with failing_loads(job["fail_from"]) if "fail_from" in job else contextlib.nullcontext():
        outputs = llm.generate([job["wave"] + end for end in job["ends"]], sampling, use_tqdm=False)
    return {"answers": [answer_of(output, said) for output in outputs for said in output.outputs], **held()}


@contextlib.contextmanager
def failing_loads(position):
    import cairn
    from cairn._vllm_worker import WorkerSide
    restore = WorkerSide._restore

    def fail(side, start, begin, end, *more):
        if end > position:
            raise cairn.IoError("not now")
        restore(side, start, begin, end, *more)

    WorkerSide._restore = fail
    yield
    WorkerSide._restore = restore


def held():
    from cairn import _vllm_settings
    (shared,) = _vllm_settings._in_use.values()
    store = shared.store
    (space,) = store.namespaces()
    infos, _ = store.list_branches(namespace=space.name)
    return {"bytes": space.bytes, "filled": store.metrics()["filled_bytes"],
            "roots": len({store.get_branch(info.id).path()[0].node for info in infos})}


def kill(llm, job):
    prompt, sampling = request(job)
    llm.llm_engine.add_request("killed", prompt, sampling)
    while True:
        for output in llm.llm_engine.step():
            ids = list(output.outputs[0].token_ids)
            if len(ids) == job["kill_at"]:
                print(json.dumps({"prompt": list(output.prompt_token_ids), "ids": ids}), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)


def cancel(llm, job):
    """A request that is over before it was scheduled, another while it is loaded, a third right behind its load."""
    from cairn._vllm_worker import WorkerSide
    prompt, sampling = request(job)
    llm.llm_engine.add_request("queued", prompt, sampling)
    llm.llm_engine.abort_request(["queued"])
    start_loads = WorkerSide.start_loads

    def start_and_abort(side, meta):
        start_loads(side, meta)
        llm.llm_engine.abort_request(["loading"])

    WorkerSide.start_loads = start_and_abort
    llm.llm_engine.add_request("loading", prompt, sampling)
    llm.llm_engine.step()
    WorkerSide.start_loads = start_loads
    llm.llm_engine.add_request("loaded", prompt, sampling)
    llm.llm_engine.step()
    llm.llm_engine.abort_request(["loaded"])
    while llm.llm_engine.has_unfinished_requests():
        llm.llm_engine.step()
    return {}


def leases():
    from cairn import _vllm_settings
    return [shared.store.metrics()["leases"] for shared in _vllm_settings._in_use.values()]


def main():
    wanted = json.loads(sys.argv[1])
    llm = engine(wanted["model"], wanted["extra"], wanted.get("prefix_caching", False))
    for job in wanted["jobs"]:
        if "kill_at" in job:
            kill(llm, job)
        do = wave if "wave" in job else cancel if job.get("cancel") else generate
        result = do(llm, job)
        print(json.dumps({**result, "leases": leases()}), flush=True)


if __name__ == "__main__":
    main()
