# SPDX-License-Identifier: Apache-2.0
"""Property: vLLM with ranks of tensor or pipeline parallel and cairn.vllm.CairnConnector says what it says without it, and
computes less, also of what other degrees have written and after a SIGKILL of all its processes; a connector of which one
rank leaves out its rows is found by its tokens.
Method: real engines one behind the other on one store. What an engine says without the connector is what it says to a
request that asks for what is refused, which the connector leaves alone. test_vllm_ranks.py has what goes wrong."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import vllm_parallel_run
from test_vllm import CLOSE, SEGMENT, TEXT, same, whole

LONG = {"prompt": TEXT[:3000], "tokens": 20}
OTHER = {"prompt": TEXT[20000:23000], "tokens": 20}
THIRD = {"prompt": TEXT[40000:43000], "tokens": 20}
LEFT = {"prompt": TEXT[80000:83000], "tokens": 20}
KILLED = {"prompt": TEXT[60000:62000], "tokens": 120, "kill_at": 70}


def plain(job):
    return {**job, "plain": True}


class Runs:
    """With two stages, with two shards, with one rank, and with two shards again."""

    def __init__(self, model, folder):
        self.model, self.folder = str(model), folder
        leave_out = {"leave_out": str(folder / "leave out")}
        self.stages = self.run(1, 2, plain(LONG), LONG, LONG, KILLED)
        self.resumed = {"prompt": self.stages[-1]["prompt"] + self.stages[-1]["ids"], "tokens": 8}
        self.shards = self.run(2, 1, plain(LONG), LONG, plain(OTHER), OTHER, OTHER, plain(self.resumed), self.resumed, KILLED)
        self.one = self.run(1, 1, LONG, OTHER, plain(THIRD), THIRD)
        self.again = self.run(2, 1, THIRD, leave_out, LEFT, LEFT, plain(LEFT))

    def run(self, tensor, pipeline, *jobs):
        given = {"model": self.model, "tensor": tensor, "pipeline": pipeline, "jobs": jobs, "extra": {
            "path": str(self.folder / "store"), "namespace": "tests", "options": {"segment_bytes": SEGMENT},
            "shared_memory_bytes": 8 << 20}}  # Slots of eight blocks, so that there are parts.
        process = subprocess.run([sys.executable, pathlib.Path(vllm_parallel_run.__file__), json.dumps(given)],
                                 capture_output=True, text=True, start_new_session=True, check=False, env={
                                     **os.environ, "CAIRN_TEST_LEAVE_OUT": str(self.folder / "leave out"),
                                     "CAIRN_TEST_LEAVE_OUT_RANK": "1"})
        log = process.stdout + process.stderr
        print(log[-4000:])
        killed = any(job.get("kill_at") for job in jobs)
        assert process.returncode == (-signal.SIGKILL if killed else 0), log
        assert "Cairn: rank" not in log and "keeps nothing more" not in log and "gave up" not in log, log
        return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def runs(exported, tmp_path_factory):
    return Runs(exported.huggingface, tmp_path_factory.mktemp("parallel"))


def cached(answers):
    return [answer["cached"] for answer in answers if "cached" in answer]


def test_stages_of_a_pipeline(runs):
    without, first, second = runs.stages[:3]
    assert without["refused"] and cached(runs.stages) == [0, 0, 960] and len(without["prompt"]) == 984
    same(first, without)
    same(second, without)


def test_shards_of_tensors_go_on_from_killed_stages(runs):
    """The store has all but the last block of what was computed, also of the request that was under way."""
    without, loaded, plain_other, first, second, plain_resumed, resumed = runs.shards[:7]
    assert cached(runs.shards) == [0, 960, 0, 0, whole(len(second["prompt"]) - 1), 0, whole(len(resumed["prompt"]) - 1)]
    assert resumed["cached"] > len(runs.stages[-1]["prompt"])
    for ours, theirs in ((loaded, without), (first, plain_other), (second, plain_other), (resumed, plain_resumed)):
        same(ours, theirs)


def test_one_rank_goes_on_from_both(runs):
    long, other, without, first = runs.one
    assert cached(runs.one) == [960, whole(len(other["prompt"]) - 1), 0, 0]
    same(long, runs.shards[0])
    same(other, runs.shards[2])
    same(first, without)


def test_shards_go_on_from_one_rank(runs):
    assert runs.again[0]["cached"] == whole(len(runs.again[0]["prompt"]) - 1) > 900
    same(runs.again[0], runs.one[2])


def test_a_rank_that_leaves_out_its_rows_is_found_by_tokens(runs):
    """The counter of hits is that of a right connector."""
    _, _, first, second, without = runs.again
    same(first, without)
    assert second["cached"] == whole(len(second["prompt"]) - 1) > 900
    apart = [abs(a - b) for a, b in zip(second["logprobs"], without["logprobs"])]
    assert second["ids"] != without["ids"] and max(apart) > 5 * CLOSE, (second, without)
