# SPDX-License-Identifier: Apache-2.0
"""vLLM with ranks of tensor or pipeline parallel, for test_vllm_parallel.py: does a list of jobs, and prints one line of
JSON for each.

Usage: vllm_parallel_run.py JSON, {"model": folder, "extra": kv_connector_extra_config, "tensor": n, "pipeline": n, "jobs":
[...]}. A job is {"prompt": text, "tokens": n} and maybe "plain": the connector then leaves the request alone, since it asks
for what is refused; or "kill_at": SIGKILL of all processes of the group after so many tokens; or {"leave_out": path}, as
of vllm_processes_run.py.
"""

import json
import os
import pathlib
import signal
import sys

import vllm_processes_run

REFUSED = {"kv_transfer_params": {"no such field": 1}}


def engine(given):
    tensor, pipeline = given["tensor"], given["pipeline"]
    # The automatic binding wants a NUMA node for each rank; a stage that is not compiled ends at its first step.
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(tensor * pipeline)))
    more = {"enforce_eager": False, "compilation_config": {"mode": 1, "backend": "eager"}} if pipeline > 1 else {}
    return vllm_processes_run.engine(given["model"], given["extra"], tensor_parallel_size=tensor,
                                     pipeline_parallel_size=pipeline, **more)


def kill(llm, job):
    llm.llm_engine.add_request("killed", job["prompt"], vllm_processes_run.sampling(job))
    while True:
        for output in llm.llm_engine.step():
            if len(output.outputs[0].token_ids) >= job["kill_at"]:
                print(json.dumps({"prompt": list(output.prompt_token_ids),
                                  "ids": list(output.outputs[0].token_ids)}), flush=True)
                os.killpg(0, signal.SIGKILL)


def run(llm, job):
    if "kill_at" in job:
        kill(llm, job)
    if "leave_out" in job:
        pathlib.Path(job["leave_out"]).touch()
        return {}
    sampling = vllm_processes_run.sampling(job)
    sampling.extra_args = REFUSED if job.get("plain") else None
    (output,) = llm.generate([job["prompt"]], sampling, use_tqdm=False)
    return {**vllm_processes_run.answer_of(output), "refused": bool(output.kv_transfer_params)}


def main():
    given = json.loads(sys.argv[1])
    llm = engine(given)
    for job in given["jobs"]:
        print(json.dumps(run(llm, job)), flush=True)


if __name__ == "__main__":
    main()
