# SPDX-License-Identifier: Apache-2.0
"""Property: what vLLM's model computes behind blocks that could not be loaded is never stored: not of the step whose load
failed, not of one that was built before that was known, not when a chunk computes a part of them again, and not of other
requests that find them in vLLM's prefix cache.

Method: vllm_driver.py; the blocks that are wrong hold rows of other tokens.
"""

import types

import pytest
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

import cairn
from vllm_driver import SHAPE, Engine, Scheduled, config_of, request_of, shared_and_own, table

PROMPT = [3 * i % 97 for i in range(96)]
IDS = [*PROMPT, *range(1, 33)]
NONSENSE = [7] * 200
LATER = [*range(51, 71)]


@pytest.fixture
def engine(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    engine.run(request_of("first", PROMPT), table(11), [])
    yield engine
    engine.close()


@pytest.fixture
def fails_from(engine, monkeypatch):
    def set_to(position):
        worker = engine.worker._side
        restore = type(worker)._restore

        def fail(start, begin, end, *more):
            if end > position:
                raise cairn.IoError("not now")
            restore(worker, start, begin, end, *more)
        monkeypatch.setattr(worker, "_restore", fail)
    return set_to


def abort(engine, request, tables, computed):
    request.num_computed_tokens, request.status = computed, RequestStatus.FINISHED_ABORTED
    engine.scheduler.request_finished_all_groups(request, tables)
    engine.step_of([])


def wrong_rows(engine, ids):
    """Of what the store has of a later request with these ids, whose blocks vLLM's prefix cache has."""
    loaded, rows = engine.run(request_of("again", [*ids, 1]), table(25), [])
    return loaded, sum(not torch.equal(rows[i], engine.rows(ids, 0)[i]) for i in range(loaded))


def share(engine, ids, tables, found):
    request = request_of("later", ids)
    assert engine.add(request, tables, found) == 0
    engine.step_of([Scheduled("later", found, len(ids) - found, tables, NONSENSE[:len(ids)])])
    engine.end(request, tables)
    engine.step_of([])
    engine.worker.get_transfer_results(set())


def test_a_chunk_was_taken_for_all_that_is_behind_it(engine, fails_from):
    request, tables = request_of("loads", [*PROMPT, *range(1, 25)]), shared_and_own(range(1, 7), 7)
    assert engine.add(request, tables) == 96
    fails_from(16)
    engine.step_of([Scheduled("loads", 96, 24, tables, NONSENSE[:120])])
    assert engine.worker.get_block_ids_with_load_errors() == {2, 3, 4, 5, 6}
    engine.step_of([], [Scheduled("loads", 16, 16, tables, PROMPT[:32])])
    abort(engine, request, tables, 32)
    fails_from(1000)
    share(engine, [*PROMPT, *LATER], shared_and_own(range(1, 7), 10), 96)
    assert wrong_rows(engine, [*PROMPT, *LATER]) == (96, 0)


def test_blocks_of_the_step_whose_load_failed_were_taken_for_sound(engine, fails_from):
    request, tables = request_of("loads", IDS), shared_and_own(range(1, 7), 7)
    assert engine.add(request, tables) == 96
    fails_from(48)
    engine.step_of([Scheduled("loads", 96, 32, tables, NONSENSE[:128])])
    assert engine.worker.get_block_ids_with_load_errors() == {4, 5, 6}
    engine.step_of([], [Scheduled("loads", 48, 48, tables, IDS[:96])])
    abort(engine, request, tables, 96)
    fails_from(1000)
    share(engine, [*IDS, *LATER], (tables[0][:8] + [20, 21, 22],), 128)
    assert wrong_rows(engine, [*IDS, *LATER]) == (96, 0)


def test_blocks_of_a_step_that_was_built_before_the_load_failed_were_taken_for_sound(engine, fails_from):
    """As vLLM does with asynchronous scheduling."""
    tables = shared_and_own(range(1, 7), 7)
    assert engine.add(request_of("loads", [*PROMPT, *range(1, 49)]), tables) == 96
    fails_from(48)

    def built(new, cached, count):
        return engine.scheduler.build_connector_meta(types.SimpleNamespace(
            scheduled_new_reqs=[types.SimpleNamespace(req_id="loads", num_computed_tokens=at) for at in new],
            scheduled_cached_reqs=types.SimpleNamespace(req_ids=["loads"] * len(cached), num_computed_tokens=cached),
            num_scheduled_tokens={"loads": count},
            kv_connector_block_state=types.SimpleNamespace(get_block_ids=lambda name: tables)))
    for meta in [built([96], [], 32), built([], [128], 16)]:
        engine.worker.bind_connector_metadata(meta)
        engine.worker.start_load_kv(None)
        for name in engine.tensors:
            engine.worker.wait_for_layer_load(name)
        engine.worker.wait_for_save()
        engine.worker.clear_connector_metadata()
    unsound = engine.worker._side.engine.unsound
    assert not unsound.touches(tables[0][:3]) and all(unsound.touches([block]) for block in tables[0][3:9])


def test_blocks_that_chunks_computed_in_pieces_were_never_sound_again(engine, fails_from):
    request, tables = request_of("loads", IDS), shared_and_own(range(1, 7), 7)
    assert engine.add(request, tables) == 96
    fails_from(48)
    engine.step_of([Scheduled("loads", 96, 32, tables, NONSENSE[:128])])
    for begin, end in ((48, 72), (72, 100), (100, 128)):
        assert engine.worker._side.engine.unsound
        engine.step_of([], [Scheduled("loads", begin, end - begin, tables, IDS[:end])])
    assert not engine.worker._side.engine.unsound
    engine.end(request, tables)
    engine.step_of([])
    fails_from(1000)
    assert wrong_rows(engine, IDS) == (128, 0)


def test_nothing_is_stored_that_was_computed_behind_a_load_that_failed(exported, monkeypatch, tmp_path):
    """By who loaded, by who shares the blocks, and in the step that was under way. What is computed again is stored."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    prompt, worker = [3 * i % 97 for i in range(96)], engine.worker._side
    engine.run(request_of("first", prompt), table(11), [])
    ids = [*prompt, *range(1, 25)], [*prompt, *range(51, 71)]
    requests = [request_of(name, some) for name, some in zip(("loads", "shares"), ids)]
    tables = shared_and_own(range(1, 7), 7), shared_and_own(range(1, 7), 10)
    assert [engine.add(one, of_one, computed) for one, of_one, computed in zip(requests, tables, (0, 96))] == [96, 0]
    restore = worker._restore

    def fail_from_48(start, begin, end, *more):
        if end > 48:
            raise cairn.IoError("not now")
        restore(start, begin, end, *more)

    def step(computed, tokens, new=False):
        scheduled = [Scheduled(one.request_id, begin, one.num_tokens - begin, of_one, tokens(one))
                     for one, begin, of_one in zip(requests, computed, tables)]
        engine.step_of(scheduled if new else [], [] if new else scheduled)

    def nonsense(one):
        return [7] * one.num_tokens

    monkeypatch.setattr(worker, "_restore", fail_from_48)
    step((96, 96), nonsense, new=True)
    assert engine.worker.get_block_ids_with_load_errors() == {4, 5, 6}
    for one in requests:
        one.append_output_token_ids(3)
    step([one.num_tokens - 1 for one in requests], nonsense)
    assert not engine.worker._shared.store.list_branches("loads")[0]
    assert not engine.worker._shared.store.list_branches("shares")[0]
    step((48, 96), lambda one: list(one.all_token_ids))
    for one, of_one in zip(requests, tables):
        engine.end(one, of_one)
    engine.step_of([])
    monkeypatch.setattr(worker, "_restore", restore)
    for some in ids:
        again = [*some, 3, 1]
        loaded, rows = engine.run(request_of("again", again), table(21), [])
        assert loaded == len(some) + 1 and torch.equal(rows[:loaded], engine.rows(again, 0)[:loaded])
    assert not engine.worker._side.engine.unsound
    engine.close()
