# SPDX-License-Identifier: Apache-2.0
"""Property: vLLM with its default processes and cairn.vllm.CairnConnector says what it says without it, and computes less; a
connector that leaves out rows is found by its tokens.
Method: real engines, tokens and logprobs beside a run without Cairn, in one process. test_vllm.py kills a server that
runs with the default processes and starts another one; test_vllm_remote.py has the messages, and what goes wrong."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import cairn
import vllm_processes_run
from test_vllm import BRANCH, CLOSE, LONG, SEGMENT, TEXT, WAVE, same, whole

FOLDER = pathlib.Path(vllm_processes_run.__file__).parent
OTHER = TEXT[20000:23000]
JOBS = [{"together": [LONG["prompt"]], "tokens": 40}, {"together": [BRANCH["prompt"]], "tokens": 20},
        {"together": [WAVE["wave"] + end for end in WAVE["ends"]], "tokens": 8}, {"together": [OTHER], "tokens": 20}]


def start(model, extra, jobs, **settings):
    return subprocess.Popen([sys.executable, FOLDER / "vllm_processes_run.py",
                             json.dumps({"model": str(model), "extra": extra, "jobs": jobs})],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **settings})


def end(process):
    log, _ = process.communicate()
    print(log[-4000:])
    assert process.returncode == 0, log
    return [json.loads(line) for line in log.splitlines() if line.startswith("[") and line[1:2] in "{]"], log


class Runs:
    def __init__(self, model, folder):
        extra = {"path": str(folder / "store"), "namespace": "tests", "options": {"segment_bytes": SEGMENT},
                 "shared_memory_bytes": 8 << 20}  # Slots of eight blocks, so that there are parts.
        long, branch, wave, other = JOBS
        plain = start(model, None, JOBS, VLLM_ENABLE_V1_MULTIPROCESSING="0")
        ours = start(model, extra, [long, branch, wave, long, wave, {"cancel": LONG["prompt"], "tokens": 9},
                                    {"leave_out": str(folder / "leave out")}, other, other],
                     VLLM_ENABLE_V1_MULTIPROCESSING="1", CAIRN_TEST_LEAVE_OUT=str(folder / "leave out"))
        self.plain, self.ours = end(plain), end(ours)
        with cairn.Store(folder / "store") as store:
            self.left = [(store.get_branch(info.id).tokens().tolist(), store.get_branch(info.id).kv_lengths[0])
                         for info in store.list_branches(namespace="tests")[0]]


@pytest.fixture(scope="module")
def runs(exported, tmp_path_factory):
    return Runs(exported.huggingface, tmp_path_factory.mktemp("processes"))


def all_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)


def test_what_is_computed_and_what_is_loaded(runs):
    (long, branch, wave, _), _ = runs.plain
    ours, log = runs.ours
    for answers, theirs in zip(ours, (long, branch, wave, long, wave)):
        all_same(answers, theirs)
    shared = next(i for i, (a, b) in enumerate(zip(long[0]["prompt"], branch[0]["prompt"])) if a != b)
    cached = [[answer["cached"] for answer in answers] for answers in ours[:5]]
    assert cached[:2] == [[0], [whole(shared)]] and cached[3] == [960]
    assert cached[4] == [whole(len(answer["prompt"]) - 1) for answer in wave]
    assert "Cairn: rank" not in log and "keeps nothing more" not in log and "gave up" not in log


def test_what_is_kept(runs):
    """All whole blocks, and all ids; the prompt of requests that come together once."""
    for answers in runs.ours[0][:3]:
        for answer in answers:
            tokens = answer["prompt"] + answer["ids"]
            assert (tokens, whole(len(tokens) - 1)) in runs.left


def test_rows_that_are_left_out_are_found_by_tokens(runs):
    """The counter of hits is that of a right connector."""
    first, second = runs.ours[0][-2:]
    theirs = runs.plain[0][3]
    all_same(first, theirs)
    assert second[0]["cached"] == whole(len(second[0]["prompt"]) - 1) > 900
    # Whatever rounding does to tokens that are as likely as others, it does not move these probabilities.
    apart = [abs(a - b) for a, b in zip(second[0]["logprobs"], theirs[0]["logprobs"])]
    assert second[0]["ids"] != theirs[0]["ids"] and max(apart) > 5 * CLOSE, (second, theirs)
