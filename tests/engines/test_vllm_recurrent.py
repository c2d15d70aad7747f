# SPDX-License-Identifier: Apache-2.0
"""Property: of a model with recurrent groups cairn.vllm.CairnConnector stores the states that vLLM keeps at the ends of
blocks, each for the tokens that it is the state of, and a hit ends where every group has one. What is shared is stored
once, what was evicted comes back, and what cannot be stored or loaded is computed.
Method: vllm_driver.py, with states that follow from all tokens before them; and real engines, whose model has gated
delta layers, tokens and logprobs beside a run without Cairn (vllm_recurrent_process.py)."""

import dataclasses
import json
import math
import pathlib
import random
import subprocess
import sys

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

import cairn
import vllm_driver
import vllm_recurrent_process
from cairn._vllm_worker import WorkerSide
from test_vllm import same
from test_vllm_sharing import evict
from vllm_driver import BLOCK, BLOCKS, DIM, HEADS, LAYERS, SHAPE, Scheduled, config_of, request_of, roots, table

# A convolution's and a recurrence's.
STATES = MambaSpec(block_size=BLOCK, shapes=((3, 8), (2, 4, 4)), dtypes=(torch.bfloat16, torch.float32),
                   mamba_cache_mode="align", page_size_padded=256)
STATE_BYTES = 3 * 8 * 2 + 2 * 4 * 4 * 4
GROUPS = STATES, FullAttentionSpec(**SHAPE), STATES
RECURRENT = 0, 2
PROMPT = [3 * i % 97 for i in range(130)]


class Engine(vllm_driver.Engine):
    """Its worker leaves a request's state in the block in which a step ends. Of steps that end with a block vLLM keeps
    the state."""

    withheld = ()  # Groups of which it keeps none.

    def make(self, order):
        self.tensors = {}
        for group in self.groups:
            for name in group.layer_names:
                if group.kv_cache_spec is STATES:
                    pages = torch.zeros(BLOCKS, STATES.page_size_bytes, dtype=torch.int8)
                    self.tensors[name] = pages[:, None, None, :STATE_BYTES]
                else:
                    self.tensors[name] = torch.zeros(BLOCKS, HEADS, BLOCK, 2 * DIM, dtype=torch.bfloat16)
        return self.tensors

    def is_recurrent(self, index):
        return self.groups[index // LAYERS].kv_cache_spec is STATES

    def compute(self, index, name, tokens, begin, tables):
        if self.is_recurrent(index):
            block = tables[index // LAYERS][(len(tokens) - 1) // BLOCK]
            self.tensors[name][block] = state_of(tokens, index)
        else:
            super().compute(index, name, tokens, begin, tables)

    def offered(self, scheduled):
        ends = {one.name: (one.tables, one.computed + one.count) for one in scheduled}
        return {name: [(group, tables[group][end // BLOCK - 1], end) for group in RECURRENT
                       if group not in self.withheld and group < len(self.groups)]
                for name, (tables, end) in ends.items() if end % BLOCK == 0}

    def compute_up_to(self, request, tables, *ends):
        for end in ends:
            done, request.num_computed_tokens = request.num_computed_tokens, end
            one = Scheduled(request.request_id, done, end - done, tables, vllm_driver.seen(request)[:end])
            self.step_of([one])

    def load(self, request, tables):
        """The tokens that are loaded, all of them what the model has of these tokens."""
        loaded = self.add(request, tables)
        if loaded > 0:
            self.step_of([])
            results = self.worker.get_transfer_results(set())
            assert results.finished_recving == {request.request_id}
            loaded = 0 if results.failed_recving else loaded
        if loaded > 0:
            self.check(vllm_driver.seen(request)[:loaded], tables)
        request.num_computed_tokens = loaded
        return loaded

    def check(self, tokens, tables):
        rows = self.rows(tokens, 0)
        for index, (name, tensor) in enumerate(self.tensors.items()):
            blocks = tables[index // LAYERS]
            if self.is_recurrent(index):
                state = tensor[blocks[(len(tokens) - 1) // BLOCK]]
                assert torch.equal(state[0, 0], state_of(tokens, index)), f"{name}: the state of other tokens"
            else:
                found = torch.stack([tensor[blocks[i // BLOCK], :, i % BLOCK] for i in range(len(tokens))])
                assert torch.equal(found, rows[:, index]), f"{name}: KV of other tokens"

    def serve(self, request, tables, *ends):
        """All of a request, in steps that end there; the tokens that were loaded."""
        loaded = self.load(request, tables)
        self.compute_up_to(request, tables, *(end for end in ends if end > loaded), request.num_tokens)
        self.end(request, tables)
        self.step_of([])
        return loaded


def state_of(tokens, index):
    state = 1
    for token in tokens:
        state = (state * 33 + token + 7) % 65521
    return torch.tensor([(state * (i + 1) + index) % 251 - 125 for i in range(STATE_BYTES)], dtype=torch.int8)


@pytest.fixture
def engine(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", *GROUPS), "HND")
    yield engine
    engine.close()


def branch_of(store, name):
    (info,) = store.list_branches(name)[0]
    return store.find_branch(info.name)


def test_a_hit_ends_at_the_last_state(engine):
    """Behind it there are ids and KV, and no state."""
    assert engine.serve(request_of("first", PROMPT), table(1, 3), 64, 112) == 0
    store = engine.worker._shared.store
    first = branch_of(store, "first")
    assert (first.restorable_length(111), first.restorable_length()) == (64, 112) and len(first) == len(PROMPT) + 1
    for shared, found in ((110, 64), (112, 112), (63, 0), (129, 112)):
        other = [*PROMPT[:shared], *range(100, 120)]
        assert engine.load(request_of(f"shares-{shared}", other), table(11, 3)) == found


def test_only_the_rest_of_a_hit_is_loaded(engine):
    """vLLM's own prefix cache has the first blocks."""
    engine.serve(request_of("first", PROMPT), table(1, 3), 64, 112)
    tables, again = table(11, 3), request_of("again", PROMPT)
    for index, (name, tensor) in enumerate(engine.tensors.items()):
        engine.compute(index, name, PROMPT[:64], 0, tables)
    assert engine.add(again, tables, 64) == 48
    engine.step_of([])
    engine.check(PROMPT[:112], tables)


def test_a_step_that_ends_within_a_block_stores_nothing(engine):
    request, tables = request_of("first", PROMPT), table(1, 3)
    engine.load(request, tables)
    store = engine.worker._shared.store
    engine.compute_up_to(request, tables, 70, 79)
    assert store.list_branches()[0] == []
    engine.compute_up_to(request, tables, 80, 100)
    assert branch_of(store, "first").kv_lengths == [80, 80, 80]


def test_a_step_with_states_of_some_groups_only_stores_nothing(engine):
    request, tables = request_of("first", PROMPT), table(1, 3)
    engine.load(request, tables)
    engine.withheld = (2,)
    engine.compute_up_to(request, tables, 80)
    assert engine.worker._shared.store.list_branches()[0] == []
    engine.withheld = ()
    engine.compute_up_to(request, tables, 96)
    assert branch_of(engine.worker._shared.store, "first").restorable_length() == 96


def test_decoded_tokens_are_stored_with_each_block(engine):
    """One state a block; a branch goes on from the last."""
    request, tables = request_of("first", PROMPT), table(1, 3)
    engine.load(request, tables)
    engine.compute_up_to(request, tables, 128, 130)
    for token in range(20):
        request.append_output_token_ids(token)
        engine.compute_up_to(request, tables, request.num_tokens)
    engine.end(request, tables)
    engine.step_of([])
    assert engine.load(request_of("goes on", [*PROMPT, *range(20), 5]), table(11, 3)) == 144


def test_a_common_prefix_is_stored_once_and_gets_the_states_that_come_later(engine):
    prompt = [5 * i % 89 for i in range(200)]
    tables = [tuple([first + (3 * i + group) % 13 for i in range(13)] for group in range(3)) for first in (1, 14, 27)]
    engine.serve(request_of("first", prompt), tables[0], 64, 192)
    store = engine.worker._shared.store
    first, bytes_before = branch_of(store, "first"), store.namespaces()[0].bytes
    # It shares tokens that have no state at their end; what it computes of them is not stored again.
    assert engine.serve(request_of("other", [*prompt[:150], *range(50, 100)]), tables[1], 192) == 64
    assert len(roots(store)) == 1
    assert max(step.end for step in branch_of(store, "other").path()[:-1]) == 144
    row, state = 2 * DIM * 2 * HEADS * LAYERS, STATE_BYTES * LAYERS * len(RECURRENT)
    assert store.namespaces()[0].bytes - bytes_before < 48 * row + state + 57 * 4 + 400  # What tells of a branch.
    # A third stops at the end of the shared part, as vLLM lets it: all get that state.
    assert engine.serve(request_of("third", [*prompt[:150], *range(20, 70)]), tables[2], 144, 192) == 64
    assert first.restorable_length(191) == 144
    assert engine.load(request_of("fourth", [*prompt[:150], 1, 2, 3]), tables[1]) == 144


def test_what_was_evicted_comes_back_with_its_state(exported, monkeypatch, tmp_path):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", *GROUPS)
    config.kv_transfer_config.kv_connector_extra_config["options"] = {
        "segment_bytes": 256 << 10, "max_bytes": 10 * (256 << 10), "evict": "kv"}
    engine = Engine(config, cache, "HND")
    store = engine.worker._shared.store
    engine.serve(request_of("first", PROMPT), table(1, 3), 64, 112)
    first = branch_of(store, "first")
    evict(store, first)
    assert engine.serve(request_of("back", PROMPT), table(11, 3), 112) == 0
    assert store.metrics()["filled_bytes"] > 0 and first.restorable_length() == 112
    assert branch_of(store, "back").path()[0].node == first.path()[0].node
    assert engine.load(request_of("again", PROMPT), table(21, 3)) == 112
    engine.close()


def test_a_load_that_fails_is_computed_and_nothing_behind_it_is_stored(engine, monkeypatch):
    engine.serve(request_of("first", PROMPT), table(1, 3), 64, 112)
    with monkeypatch.context() as patch:
        patch.setattr(WorkerSide, "_restore", lambda *a: (_ for _ in ()).throw(cairn.IoError("not now")))
        request, tables = request_of("fails", [*PROMPT, 1, 2]), table(11, 3)
        assert engine.load(request, tables) == 0
    # vLLM asks again before it computes all of it.
    assert engine.scheduler.get_num_new_matched_tokens(request, 0)[0] == 0
    engine.compute_up_to(request, tables, 128, request.num_tokens)
    engine.end(request, tables)
    engine.step_of([])
    assert engine.load(request_of("again", [*PROMPT, 1, 2, 3]), table(21, 3)) == 128


def test_no_state_is_stored_within_a_picture(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", *GROUPS, pictures=True), "HND")
    picture = (70, 20, "0" * 64)
    request, tables = vllm_driver.with_pictures("first", PROMPT, picture), table(1, 3)
    assert engine.serve(request, tables, 64, 80, 96) == 0
    first = branch_of(engine.worker._shared.store, "first")
    assert first.restorable_length(95) == 64 and first.restorable_length() == 96
    assert engine.load(vllm_driver.with_pictures("same", PROMPT, picture), table(11, 3)) == 96
    assert engine.load(vllm_driver.with_pictures("other", PROMPT, (70, 20, "1" * 64)), table(21, 3)) == 64
    engine.close()


def test_a_model_of_states_alone(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", STATES), "HND")
    assert engine.serve(request_of("first", PROMPT), table(1), 64, 112) == 0
    assert engine.serve(request_of("other", [*PROMPT[:100], *range(100, 130)]), table(11), 112) == 64
    assert engine.load(request_of("again", PROMPT), table(21)) == 112
    engine.close()


@pytest.mark.parametrize("change, said", [
    ({"mamba_cache_mode": "none"}, "cache group 0 is recurrent.*'none'.*enable_prefix_caching"),
    ({"num_speculative_blocks": 1}, "cache group 0 is recurrent.*speculative"),
    ({"shapes": ((3, 8), (1 << 20, 4, 4)), "page_size_padded": 128 << 20}, "group 0 .* states of .* bytes together; at most"),
])
def test_what_has_no_checkpoints_is_refused(exported, monkeypatch, tmp_path, change, said):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", dataclasses.replace(STATES, **change))
    with pytest.raises(ValueError, match=said):
        KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)


@pytest.mark.parametrize("change", [
    {"block_size": 2 * BLOCK}, {"shapes": ((8, 3), (2, 4, 4))}, {"dtypes": (torch.float16, torch.float32)}])
def test_states_of_other_blocks_shapes_and_types_are_refused(exported, monkeypatch, tmp_path, change):
    """Of as many bytes."""
    path = tmp_path / "store"
    assert math.prod(STATES.shapes[0]) == 24
    config, cache = config_of(exported, monkeypatch, path, STATES)
    KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache).shutdown()
    config, cache = config_of(exported, monkeypatch, path, dataclasses.replace(STATES, **change))
    with pytest.raises(cairn.ModelMismatch, match="packing|planes"):
        KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)


def drawn(count, seed):
    return random.Random(seed).choices(range(3, 120), k=count)


LONG = {"prompt": drawn(470, 1), "tokens": 14}
SHORT = {"prompt": LONG["prompt"][:200], "tokens": 2}
BETWEEN = {"prompt": LONG["prompt"][:350] + drawn(50, 2), "tokens": 6}
BETWEEN_TOO = {"prompt": LONG["prompt"][:350] + drawn(50, 9), "tokens": 6}
GOES_ON = {"of": ["plain", 1, 12], "prompt": drawn(20, 3), "tokens": 6}
KILLED = {"prompt": drawn(280, 4), "tokens": 12}
RESUMED = {"of": ["plain", 4, 12], "prompt": [], "tokens": 6}
WAVE = {"prompts": [drawn(250, 5) + drawn(40, seed) for seed in (6, 7, 8)], "tokens": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What a process without Cairn says, one that is killed in the end, and one on what that left behind."""
    folder = tmp_path_factory.mktemp("recurrent")
    extra = {"path": str(folder / "store")}
    stages = [{"plain": {"extra": None, "jobs": [SHORT, LONG, BETWEEN, GOES_ON, KILLED, RESUMED, WAVE, BETWEEN_TOO]},
               "first": {"extra": extra, "jobs": [SHORT, LONG, WAVE, {**KILLED, "kill_at": 12}]}},
              {"second": {"extra": extra, "jobs": [LONG, BETWEEN, BETWEEN_TOO, GOES_ON, RESUMED, WAVE,
                                                   {**LONG, "fails": True}]}}]
    done = subprocess.run([sys.executable, pathlib.Path(vllm_recurrent_process.__file__),
                           json.dumps({"folder": str(folder), "stages": stages})],
                          capture_output=True, text=True, check=False)
    print((done.stderr + done.stdout)[-4000:])
    assert done.returncode == 0
    return {name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
            for stage in stages for name in stage}


def test_real_engines_say_what_they_say_without_a_store(runs):
    """In the process that stores it, and in the next one; a load that fails is computed."""
    short, long, between, goes_on, killed, resumed, wave, between_too = runs["plain"]
    for ours, theirs in zip(runs["first"][:2], (short, long), strict=True):
        same(ours, theirs)
    assert runs["first"][3]["ids"] == killed["ids"]
    for ours, theirs in zip(runs["second"][:5], (long, between, between_too, goes_on, resumed), strict=True):
        same(ours, theirs)
    same(runs["second"][6], long)
    for waves in (runs["first"][2], runs["second"][5]):
        for ours, theirs in zip(waves["answers"], wave["answers"], strict=True):
            same(ours, theirs)


def test_real_engines_load_up_to_the_last_state_that_fits(runs):
    block = vllm_recurrent_process.BLOCK
    assert [answer["cached"] for answer in runs["first"][:2]] == [0, 2 * block]
    long, between, between_too, goes_on, resumed, wave, fails = runs["second"]
    assert long["cached"] == 4 * block
    # KV is there up to 3 blocks, and states behind 2 and 4; the next one finds the state that this one left behind 3.
    assert (between["cached"], between_too["cached"]) == (2 * block, 3 * block)
    # Behind the fifth block there is a state that was computed with a decoded token.
    assert goes_on["cached"] == 5 * block
    # All whole blocks are there of what ran when the process was killed.
    assert resumed["cached"] == 3 * block
    assert [answer["cached"] for answer in wave["answers"]] == [3 * block] * 3
    assert fails["cached"] == 0
