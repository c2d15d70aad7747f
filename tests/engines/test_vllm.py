# SPDX-License-Identifier: Apache-2.0
"""Property: vLLM with cairn.vllm.CairnConnector says what it says without it, and computes less: in the same
process, and in another one after a SIGKILL in mid-generation, to the largest whole block below the prompt. So does
`vllm serve`. What cannot be loaded is computed again; what cannot be kept is not; state of another model is never
taken. One prompt is stored once, whichever request comes first, and once more in its place when it was evicted.
Method: real engines in processes of their own, tokens and logprobs beside a process without Cairn, since counters of
hits prove nothing.

On a processor vLLM packs blocks, so hits are whole blocks there; test_vllm_tokens.py has hits to the token.
"""

import concurrent.futures
import json
import pathlib
import shutil
import signal
import struct
import subprocess
import sys

import numpy
import pytest

import cairn
import vllm_process
import vllm_server
from conftest import OwnLlama

BLOCK = vllm_process.BLOCK
TEXT = OwnLlama.heldout.read_text()
LONG = {"prompt": TEXT[:3000], "tokens": 80}
BRANCH = {"prompt": TEXT[:2000] + "And the king said", "tokens": 40}
DAMAGED = {"prompt": TEXT[20000:23000], "tokens": 40}
SEEDED = {"prompt": TEXT[40000:41000], "tokens": 40, "seed": 7}
KILLED = {"prompt": TEXT[60000:61500], "tokens": 120}
KILL_AT = 70
# Behind these the most likely token is so by more than what bf16 rounds away, on any processor.
WAVE = {"wave": TEXT[80000:82400], "ends": [" And Moses said", " And the people", " The LORD", " Behold"],
        "tokens": 8}
EIGHT_ANSWERS = {"wave": TEXT[90000:92400], "ends": [""], "tokens": 8, "n": 8}
OTHERS = {"wave": "", "ends": [TEXT[at:at + 2400] for at in range(100000, 119200, 2400)], "tokens": 1}
# Other shapes of a batch round otherwise; bf16 has 8 bits. Other content moves logprobs by whole numbers.
CLOSE = 0.1
SEGMENT = 256 << 10  # Small, so that a small store can be full.
# Where the engine is slow the store seals between its steps; a bit is turned where the KV lies in the log.
SEALS_SLOWLY = {"segment_bytes": SEGMENT, "background_bytes_per_second": 65536}


def vllm(model, extra, *jobs, **more):
    done = subprocess.run([sys.executable, pathlib.Path(vllm_process.__file__),
                           json.dumps({"model": str(model), "extra": extra, "jobs": jobs, **more})],
                          capture_output=True, text=True, check=False)
    log = done.stderr + done.stdout
    print(log[-4000:])
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], log


def extra_of(path, **more):
    return {"path": str(path), "namespace": "tests", "options": {"segment_bytes": SEGMENT}, **more}


def same(ours, theirs):
    """Up to a token that is hardly more likely than another one: there rounding decides, otherwise on each processor."""
    assert ours["prompt"] == theirs["prompt"]
    pairs = list(zip(ours["ids"], theirs["ids"], strict=True))
    equal = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    assert equal == len(pairs) or theirs["leads"][equal] <= CLOSE, (equal, pairs)
    assert max((abs(a - b) for a, b in zip(ours["logprobs"][:equal], theirs["logprobs"])), default=0) <= CLOSE


def whole(tokens):
    return tokens // BLOCK * BLOCK


def branches(store, begin=()):
    """Those whose first tokens are these."""
    found = [store.find_branch(info.name, namespace="tests") for info in store.list_branches(namespace="tests")[0]]
    return [branch for branch in found
            if len(branch) >= len(begin) and branch.tokens(0, len(begin)).tolist() == list(begin)]


class Runs:
    """One process without Cairn, one that is killed, two on what it left behind, and one where requests come in waves,
    with vLLM's own cache of prefixes and a store that is too small for all."""

    def __init__(self, model, folder):
        self.store = folder / "store"
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            plain = pool.submit(vllm, model, None, LONG, BRANCH, DAMAGED, SEEDED, {**KILLED, "tokens": KILL_AT})
            first = pool.submit(vllm, model, extra_of(self.store, options=SEALS_SLOWLY), LONG, BRANCH, DAMAGED, SEEDED,
                                {**KILLED, "kill_at": KILL_AT})
            small = extra_of(folder / "waves", options={"segment_bytes": SEGMENT, "max_bytes": 32 * SEGMENT,
                                                        "evict": "kv"})
            again = {**WAVE, "forget": True}
            waves = pool.submit(vllm, model, small, WAVE, EIGHT_ANSWERS, {**again, "fail_from": 400}, again, OTHERS,
                                again, again, prefix_caching=True)
            self.plain, self.first = plain.result(), first.result()
            self.look_and_damage()
            shutil.copytree(self.store, folder / "copy")
            killed = self.first[1][-1]
            self.resumed = {"prompt": killed["prompt"] + killed["ids"], "tokens": 20}
            second = pool.submit(vllm, model, extra_of(self.store), LONG, BRANCH, {**LONG, "cancel": True}, DAMAGED,
                                 SEEDED, self.resumed, DAMAGED)
            # The copy holds more than this allows, and knows another model only.
            full = {"segment_bytes": SEGMENT, "max_bytes": 16 * SEGMENT, "evict": "never"}
            other = pool.submit(vllm, model, extra_of(folder / "copy", weights_digest="another", options=full), LONG,
                                BRANCH)
            self.second, self.other, self.waves = second.result(), other.result(), waves.result()

    def look_and_damage(self):
        """What the killed process left; then one bit of what it kept of a prompt is turned."""
        with cairn.Store(self.store, **SEALS_SLOWLY) as store:
            self.left = {tuple(branch.tokens().tolist()): branch.kv_lengths[0] for branch in branches(store)}
            (seeded,) = branches(store, self.first[1][3]["prompt"])
            self.sampler = seeded.sampler_at()
            damaged = self.first[1][2]["prompt"]
            (branch,) = branches(store, damaged)
            spec = store.models()[0].spec
            (group,) = spec.groups
            page = group.planes[0]
            rows = [numpy.zeros((1, page.heads, page.row_bytes), numpy.uint8) for _ in range(group.layers)]
            middle = whole(len(damaged) // 2)
            branch.restore(cairn.KvView.of(spec, rows, "THR", position=middle), begin=middle, end=middle + 1)
            row = rows[1][0, 0].tobytes()
        turned = 0
        for file in self.store.glob("log/*.log"):
            data = bytearray(file.read_bytes())
            at = data.find(row)
            if at >= 0:
                data[at] ^= 1
                file.write_bytes(data)
                turned += 1
        assert turned == 1


@pytest.fixture(scope="module")
def runs(exported, tmp_path_factory):
    return Runs(exported.huggingface, tmp_path_factory.mktemp("vllm"))


def test_miss_and_partial_hit(runs):
    status, plain, log = runs.plain
    assert status == 0 and len(plain) == 5, log
    status, first, log = runs.first
    assert status == -signal.SIGKILL and len(first) == 5, log
    for ours, theirs in zip(first[:4], plain):
        same(ours, theirs)
    assert first[4]["ids"] == plain[4]["ids"]
    assert [result["cached"] for result in plain[:4]] == [0, 0, 0, 0]
    # The branch shares some 2000 characters with the first prompt.
    shared = next(i for i, (a, b) in enumerate(zip(first[0]["prompt"], first[1]["prompt"])) if a != b)
    assert [result["cached"] for result in first[:4]] == [0, whole(shared), 0, 0]


def test_all_but_the_last_block_outlives_a_sigkill(runs):
    """Tokens, too, of requests that were over; of the one that was killed all whole blocks."""
    first = runs.first[1]
    for result in first[:3]:
        tokens = tuple(result["prompt"] + result["ids"])
        # The last token that was drawn has no KV.
        assert runs.left[tokens] == whole(len(tokens) - 1)
    killed = first[4]["prompt"] + first[4]["ids"]
    kept = whole(len(killed) - 1)
    assert runs.left[tuple(killed[:kept])] == kept


def test_the_sampler_of_a_request_with_a_seed_is_kept(runs):
    position, state = runs.sampler
    seeded = runs.first[1][3]
    assert (state.generator, state.blob_name, state.temperature) == ("named", "vllm.seed", 1.0)
    seed, drawn = struct.unpack("<qQ", state.blob)
    assert seed == SEEDED["seed"] and position == len(seeded["prompt"]) + drawn


def test_another_process_computes_what_is_left(runs):
    status, second, log = runs.second
    assert status == 0 and len(second) == 7, log
    plain = runs.plain[1]
    same(second[0], plain[0])
    assert (len(second[0]["prompt"]), second[0]["cached"]) == (984, 960)
    same(second[1], plain[1])
    assert second[1]["cached"] == whole(len(second[1]["prompt"]) - 1)
    same(second[4], plain[3])
    # Decoded tokens count like those of a prompt.
    assert second[5]["cached"] == whole(len(second[5]["prompt"]) - 1)


def test_a_process_that_just_ends_keeps_what_it_said_last(runs):
    """vLLM tells of the end of a request with the next step only."""
    _, second, log = runs.second
    said = second[6]["prompt"] + second[6]["ids"]
    with cairn.Store(runs.store) as store:
        of_prompt = [branch.tokens().tolist() for branch in branches(store, second[6]["prompt"])]
    # One is from the first process, one from that which found it damaged, one from its last request.
    assert of_prompt == [said] * 3
    assert "keeps nothing more" not in log


def test_damaged_blocks_are_computed_again(runs):
    """And what was computed takes their place: the next request of that prompt finds all of it."""
    status, second, log = runs.second
    same(second[3], runs.plain[1][2])
    same(second[6], runs.plain[1][2])
    assert "Recovered from KV load failure" in log and log.count("Corruption") == 1
    assert second[6]["cached"] == whole(len(second[6]["prompt"]) - 1)


def test_cancelled_requests_leave_neither_leases_nor_branches(runs):
    assert all(result["leases"] == [0] for result in runs.second[1])
    with cairn.Store(runs.store) as store:
        names = [branch.info().name for branch in branches(store)]
    assert not [name for name in names if name.startswith(("queued", "loading"))]
    assert len([name for name in names if name.startswith("killed")]) == 1


def test_another_model_and_a_full_disk(runs):
    status, other, log = runs.other
    assert status == 0 and len(other) == 2, log
    for ours, theirs in zip(other, runs.plain[1]):
        same(ours, theirs)
        assert ours["cached"] == 0
    assert "Cairn keeps nothing more of request" in log and "NoSpace" in log


def same_answers(ours, theirs):
    for one, other in zip(ours["answers"], theirs["answers"], strict=True):
        same(one, other)


def test_requests_that_arrive_together_store_their_prompt_once(runs):
    """vLLM has the blocks of the first for the others, before the store has any; so with eight answers to a prompt."""
    status, waves, log = runs.waves
    assert status == 0 and len(waves) == 7, log
    first, eight = waves[:2]
    assert len(first["answers"]) == len(WAVE["ends"]) and len(eight["answers"]) == 8
    assert [answer["cached"] > 0 for answer in first["answers"]] == [False, True, True, True]
    assert (first["roots"], eight["roots"]) == (1, 2)
    # Copies would be three, and seven, times as much more.
    assert eight["bytes"] < 2.5 * first["bytes"]


def test_a_load_that_fails_for_requests_that_share_blocks(runs):
    """All are computed again, and what is stored then is right: another wave loads it."""
    _, waves, log = runs.waves
    failed, after = waves[2:4]
    assert "not now" in log and "Recovered from KV load failure" in log
    for wave in (failed, after):
        same_answers(wave, waves[0])
        assert wave["answers"][0]["cached"] == whole(len(wave["answers"][0]["prompt"]) - 1)


def test_evicted_kv_is_stored_again_by_the_next_request_that_computes_it(runs):
    waves = runs.waves[1]
    others, back, after = waves[4:]
    assert back["answers"][0]["cached"] == 0 and others["filled"] == 0 < back["filled"]
    assert back["roots"] == others["roots"]
    same_answers(back, waves[0])
    same_answers(after, waves[0])
    assert after["answers"][0]["cached"] == whole(len(after["answers"][0]["prompt"]) - 1)
    assert after["filled"] == back["filled"]


def test_a_server_that_was_killed_goes_on(runs, exported, tmp_path):
    """By the command of docs/engines.md, with the engine in a process of its own."""
    (tmp_path / "model").symlink_to(exported.huggingface)
    job = {**LONG, "tokens": 20}
    answers = []
    for name in ("first", "second"):
        with vllm_server.Server(tmp_path, name) as server:
            answers.append(server.complete(job))
            server.kill()
    first, second = answers
    plain = {key: runs.plain[1][0][key][:20] for key in ("ids", "logprobs")}
    for answer in answers:
        same(answer, {**plain, "prompt": runs.plain[1][0]["prompt"]})
    assert (first["cached"], second["cached"]) == (0, whole(len(second["prompt"]) - 1))
