# SPDX-License-Identifier: Apache-2.0
"""Property: where vLLM's model runs in another process, rows go through slots of shared memory: no slot is read before it
was written, none is lost, blocks are held until they were copied, and what goes wrong costs that KV alone.
Method: vllm_remote_driver.py, over the production code of both sides. test_vllm_processes.py has real engines."""

import time
import types

import pytest
import torch
from vllm.lora.request import LoRARequest
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec
from vllm.v1.request import RequestStatus

import cairn
import test_vllm_recurrent
import test_vllm_tokens
from cairn import _vllm_settings
from cairn._vllm_slot_messages import Report
from vllm_adapter import adapter_in
from vllm_driver import BLOCK, DIM, LAYERS, SHAPE, Scheduled, config_of, request_of, roots, table, wave
from vllm_remote_driver import RemoteEngine

PROMPT = [3 * i % 97 for i in range(101)]
DRAWN = [40, 41, 42, 43, 44]
REQUESTS_MAX = 400  # Until a disk is full.
SMALL = 1 << 16  # An area of 16 slots of 21 tokens.


@pytest.fixture
def engine_of(exported, monkeypatch, tmp_path):
    made = []

    def make(*groups, order="NHD", backend="FLASH_ATTN", **extra):
        made.append(RemoteEngine(*config_of(exported, monkeypatch, tmp_path / "store",
                                            *(groups or (FullAttentionSpec(**SHAPE),)), backend=backend), order, **extra))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def all_is_free(engine):
    counts = engine.transfers.slots.counts()
    return counts["free"] == counts["slots"] and not engine.scheduler.has_pending_push_work() \
        and not engine.transfers.begun and engine.store.metrics()["leases"] == 0


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_to_the_token_through_slots_of_any_size(engine_of, order):
    """Slots of few tokens, so that there are parts, and one that has all."""
    for name, area in (("small", SMALL), ("large", 1 << 20)):
        engine = engine_of(order=order, shared_memory_bytes=area, namespace=name)
        prompt = PROMPT
        assert engine.run(request_of("first", prompt, seed=5), table(1), DRAWN)[0] == 0
        (info,) = engine.store.list_branches("first", namespace=name)[0]
        branch = engine.store.get_branch(info.id)
        assert branch.tokens().tolist() == [*prompt, *DRAWN, 0] and branch.kv_lengths == [106]
        assert branch.sampler_at()[0] == 107
        other = [*prompt, *DRAWN[:3], 9, 9]
        loaded, rows = engine.run(request_of("second", other), table(11), [1])
        assert loaded == 104 and torch.equal(rows[:104], engine.rows(other, 0)[:104])
        assert all_is_free(engine)
        parts = -(-106 // engine.transfers.shape.capacity)
        assert engine.transfers.slots.counts()["uses"] > 2 * parts and (parts > 1) == (name == "small")
        engine.close()


def test_a_window_in_parts(engine_of):
    engine = engine_of(FullAttentionSpec(**SHAPE), SlidingWindowSpec(sliding_window=32, **SHAPE),
                       shared_memory_bytes=2 * SMALL)
    prompt = [5 * i % 89 for i in range(120)]
    engine.run(request_of("first", prompt), table(1, 2), [7, 8])
    full, window = table(21, 2)
    tables = (full, [0 if i < 4 else block for i, block in enumerate(window)])  # Left behind by the window.
    loaded, rows = engine.run(request_of("second", [*prompt, 1]), tables, [])
    assert loaded == 120 and engine.transfers.shape.capacity < 60
    expected = engine.rows([*prompt, 1], 0)
    assert torch.equal(rows[:120, :LAYERS], expected[:120, :LAYERS])
    assert torch.equal(rows[120 - 32:120, LAYERS:], expected[120 - 32:120, LAYERS:])
    assert all_is_free(engine)


def test_opaque_blocks_of_which_none_is_free(engine_of):
    """The save waits; what could not be copied in time is copied when the request is over."""
    engine = engine_of(backend="CPU_ATTN", order="HND", shared_memory_bytes=SMALL)
    assert engine.transfers.shape.capacity == BLOCK
    taken = [engine.transfers.slots.begin_load() for _ in range(engine.transfers.slots.slots)]
    request = request_of("waits", PROMPT)
    assert engine.add(request, table(1)) == 0
    engine.compute_all(request, table(1))
    assert engine.scheduler._side.sequences["waits"].length == 0
    assert engine.scheduler.get_kv_connector_stats().data["waits"] == 1
    assert engine.over(request, table(1)) and engine.scheduler.has_pending_push_work()
    engine.step_of([])
    assert not engine.released
    for use in taken:
        engine.transfers.slots.end_restore(use, False)
    engine.until(lambda: engine.released == {"waits"})
    loaded, rows = engine.run(request_of("same", [*PROMPT, 1]), table(11), [])
    assert loaded == 96 and torch.equal(rows[:96], engine.rows(PROMPT, 0)[:96])
    assert all_is_free(engine)


def test_blocks_are_held_until_they_were_copied(engine_of):
    engine = engine_of()
    request = request_of("first", PROMPT)
    engine.add(request, table(1))
    output = engine.output_of([Scheduled("first", 0, 101, table(1), PROMPT)], [])
    meta = engine.scheduler.build_connector_meta(output)
    assert [copy.rows[0].end for copy in meta.saves] == [101]
    request.num_computed_tokens = 101
    assert engine.over(request, table(1), RequestStatus.FINISHED_ABORTED, drawn=None)
    engine.step_of([])
    engine.step_of([])
    assert not engine.released  # The rank has not copied yet.
    engine.give(engine.rank_step(meta, [Scheduled("first", 0, 101, table(1), PROMPT)]))
    engine.until(lambda: engine.released == {"first"})
    assert all_is_free(engine) and engine.run(request_of("next", [*PROMPT, 1]), table(11), [])[0] == 101


@pytest.mark.parametrize("when", ["found", "restoring", "told", "copied"])
def test_a_load_that_is_given_up(engine_of, when):
    engine = engine_of(shared_memory_bytes=SMALL)
    engine.run(request_of("first", PROMPT), table(1), [])
    request, tables = request_of("given up", [*PROMPT, 5]), table(11)
    assert engine.add(request, tables) == 101
    meta = None
    if when == "told":
        while not (meta := engine.scheduler.build_connector_meta(engine.output_of([], []))).loads:
            pass
    if when == "copied":
        engine.until(lambda: "given up" in engine.received)
    elif when == "restoring":
        engine.step_of([])
    assert not engine.over(request, tables, RequestStatus.FINISHED_ABORTED, drawn=None)
    for _ in range(5 if meta else 0):
        engine.step_of([])
    assert ("given up" in engine.received) == (when == "copied")
    if meta:
        assert engine.transfers.slots.counts()["left"] > 0  # A rank may still read it.
        engine.give(engine.rank_step(meta, []))
    engine.until(lambda: "given up" in engine.received)
    engine.until(lambda: not engine.scheduler.has_pending_push_work())
    assert all_is_free(engine) and not engine.bad
    assert engine.run(request_of("next", [*PROMPT, 1]), tables, [])[0] == 101


def test_a_request_that_ends_before_vllm_knows_that_its_load_failed(engine_of, monkeypatch):
    """It counts as loaded there, and none of its blocks is: they are not kept, and vLLM frees them with the load."""
    engine = engine_of()
    engine.run(request_of("first", PROMPT), table(1), [])
    request, tables = request_of("second", [*PROMPT, 5]), table(11)
    with monkeypatch.context() as patch:
        failing_from(engine, patch, 50)
        assert engine.add(request, tables) == 101
        while not (meta := engine.scheduler.build_connector_meta(engine.output_of([], []))).loads:
            pass
        engine.give(engine.rank_step(meta, []))
    meta = engine.scheduler.build_connector_meta(engine.output_of([], []))
    assert meta.over and "second" not in engine.received and not engine.transfers.loads
    assert not engine.over(request, tables, RequestStatus.FINISHED_ABORTED, drawn=None)
    engine.give(engine.rank_step(meta, []))
    engine.until(lambda: "second" in engine.received)
    assert all_is_free(engine) and not engine.released and not engine.store.list_branches("second")[0]
    assert engine.run(request_of("third", [*PROMPT, 5]), table(21), [])[0] == 101


def test_a_preempted_request_finds_what_it_saved(engine_of):
    engine = engine_of(shared_memory_bytes=SMALL)
    request = request_of("preempted", PROMPT)
    engine.add(request, table(1))
    engine.compute_all(request, table(1))
    request.num_computed_tokens = 0
    loaded, asynchronous = engine.scheduler.get_num_new_matched_tokens(request, 0)
    assert (loaded, asynchronous) == (100, True)
    loaded, rows = engine.run(request_of("other", PROMPT), table(21), [])
    assert loaded == 100 and torch.equal(rows, engine.rows(PROMPT, 0)[:100])
    assert not engine.over(request, table(1), RequestStatus.FINISHED_ABORTED, drawn=None)
    assert all_is_free(engine)


def failing_from(engine, monkeypatch, position, error=cairn.IoError):
    bring = engine.transfers._bring_rows

    def fail(hit, part, begin, end):
        if end > position:
            raise error("not now")
        bring(hit, part, begin, end)

    monkeypatch.setattr(engine.transfers, "_bring_rows", fail)


@pytest.mark.parametrize("area, error", [(SMALL, cairn.Corruption), (1 << 20, cairn.IoError)])
def test_what_cannot_be_restored_is_computed_again(engine_of, monkeypatch, area, error):
    """Whole blocks before it are loaded, and the next request gets all."""
    engine = engine_of(shared_memory_bytes=area)
    engine.run(request_of("first", PROMPT), table(1), [])
    request, tables = request_of("second", [*PROMPT, 5]), table(11)
    with monkeypatch.context() as patch:
        failing_from(engine, patch, 50, error)
        assert engine.add(request, tables) == 101
        engine.until(lambda: "second" in engine.received)
    assert engine.bad == set(tables[0][3:7]) and not engine.failed
    assert torch.equal(engine.read(48, tables), engine.rows(PROMPT, 0)[:48])
    assert engine.scheduler.get_num_new_matched_tokens(request, 48) == (0, False)
    request.num_computed_tokens = 48
    engine.compute_all(request, tables)
    assert not engine.over(request, tables)
    loaded, rows = engine.run(request_of("third", [*PROMPT, 5, 6]), table(21), [])
    assert loaded == 102 and torch.equal(rows[:102], engine.rows([*PROMPT, 5], 0))
    assert all_is_free(engine)


def test_state_of_other_weights_is_not_used_at_all(engine_of, monkeypatch):
    engine = engine_of(shared_memory_bytes=SMALL)
    engine.run(request_of("first", PROMPT), table(1), [])
    assert engine.add(request_of("second", [*PROMPT, 5]), table(11)) == 101
    engine.scheduler.reset_cache()
    engine.until(lambda: "second" in engine.received)
    assert engine.bad == set(table(11)[0][:7])


def test_groups_that_cannot_be_restored_are_named_by_request(engine_of, monkeypatch):
    engine = engine_of(FullAttentionSpec(**SHAPE), SlidingWindowSpec(sliding_window=32, **SHAPE))
    engine.run(request_of("first", PROMPT), table(1, 2), [])
    failing_from(engine, monkeypatch, 50)
    assert engine.add(request_of("second", [*PROMPT, 5]), table(21, 2)) == 101
    engine.until(lambda: "second" in engine.received)
    assert engine.failed == {"second"} and not engine.bad


def test_a_rank_that_fails_to_copy(engine_of, monkeypatch):
    """Rows that it has not saved are in no append; what it has not loaded is computed again."""
    engine = engine_of()
    rank = engine.worker._side

    def fail(*copy):
        raise cairn.IoError("not now")

    request = request_of("first", PROMPT)
    engine.add(request, table(1))
    with monkeypatch.context() as patch:
        patch.setattr(rank, "_copy_rows", fail)
        engine.compute_all(request, table(1))
    assert not engine.store.list_branches("first")[0] and engine.transfers.slots.counts()["failed"] == 1
    assert engine.over(request, table(1))  # Now it is copied.
    engine.until(lambda: "first" in engine.released)
    with monkeypatch.context() as patch:
        patch.setattr(rank, "_copy_rows", fail)
        assert engine.add(request_of("second", [*PROMPT, 5]), table(11)) == 101
        engine.until(lambda: "second" in engine.received)
    assert engine.bad == set(table(11)[0][:7]) and all_is_free(engine)


def test_a_rank_that_cannot_map_the_area(engine_of, caplog):
    """Said once; requests go on without Cairn, also one that is being loaded, and one whose blocks are held."""
    engine = engine_of()
    engine.run(request_of("first", PROMPT), table(1), [])
    engine.worker._side.close()
    address = engine.scheduler._side.area.address.split(":")
    wrong = ":".join([*address[:3], "0" * 32, *address[4:]])
    assert engine.add(request_of("loading", [*PROMPT, 5]), table(11)) == 101
    while not (meta := engine.scheduler.build_connector_meta(engine.output_of([], []))).loads:
        pass
    saved = request_of("saved", [7, *PROMPT])
    engine.add(saved, table(21))
    held = engine.scheduler.build_connector_meta(engine.output_of([Scheduled("saved", 0, 102, table(21), [])], []))
    saved.num_computed_tokens = 102
    assert engine.over(saved, table(21))
    meta.address = held.address = wrong
    with caplog.at_level("ERROR", "vllm.cairn"):
        for one in (meta, held):
            engine.give(engine.rank_step(one, []))
        engine.until(lambda: "saved" in engine.released)
    assert caplog.text.count("rank 0 cannot use the shared memory: Conflict") == 1
    assert engine.bad == set(table(11)[0][:7]) and engine.received >= {"loading"}
    assert engine.run(request_of("next", [*PROMPT, 1]), table(11), [])[0] == 0
    assert not engine.store.list_branches("saved")[0] and not engine.store.list_branches("next")[0]


def test_a_rank_that_never_reports(engine_of):
    """Blocks are free in time, which is counted; a report that comes behind that changes nothing."""
    engine = engine_of(hold_seconds=0.01)
    request = request_of("held", PROMPT)
    engine.add(request, table(1))
    output = engine.rank_step(engine.scheduler.build_connector_meta(
        engine.output_of([Scheduled("held", 0, 101, table(1), PROMPT)], [])), [])
    late, output.kv_connector_worker_meta = output.kv_connector_worker_meta, None
    engine.give(output)
    request.num_computed_tokens = 101
    assert engine.over(request, table(1))
    time.sleep(0.02)
    engine.until(lambda: "held" in engine.released)
    data = engine.scheduler.get_kv_connector_stats().data
    assert data["given_up"] == 1 and data["errors"] == {"DeadlineExceeded": 1}
    assert engine.transfers.slots.counts()["left"] == 1
    output.kv_connector_worker_meta = late
    engine.scheduler.update_connector_output(output)
    assert all_is_free(engine) and not engine.store.list_branches("held")[0]


def test_reports_of_what_is_not_under_way_change_nothing(engine_of):
    engine = engine_of()
    request = request_of("first", PROMPT)
    engine.add(request, table(1))
    engine.compute_all(request, table(1))
    before = engine.transfers.slots.counts()
    for slot, use, rank in ((99, 1, 0), (0, 1, 0), (0, 77, 0), (0, 1, 5)):
        engine.transfers.report(Report(rank, slot, use, True))
    assert engine.transfers.slots.counts() == {**before, "strange": before["strange"] + 4}
    assert engine.scheduler.get_kv_connector_stats().data["errors"]


def test_a_full_disk_ends_what_is_kept_and_frees_the_slots(engine_of):
    engine = engine_of(options={"segment_bytes": 1 << 18, "max_bytes": 10 << 18, "evict": "never"})
    for number in range(REQUESTS_MAX):
        engine.run(request_of(f"r{number}", [(number * 7 + 3 * i) % 997 for i in range(150)]), table(1), [])
        if not engine.scheduler._side.shared.held.usable:
            break
    assert "NoSpace" in engine.scheduler.get_kv_connector_stats().data["errors"] and all_is_free(engine)


def test_requests_that_arrive_together_copy_their_prompt_once(engine_of):
    engine = engine_of()
    requests, scheduled = wave()
    assert [engine.add(one, step.tables, step.computed) for one, step in zip(requests, scheduled)] == [0] * 4
    engine.step_of(scheduled)
    assert engine.transfers.slots.counts()["uses"] == 1
    for one, step in zip(requests, scheduled):
        one.num_computed_tokens = 122
        engine.over(one, step.tables)
    engine.until(lambda: not engine.scheduler.has_pending_push_work())
    assert len(engine.store.list_branches("wave")[0]) == 4 and len(roots(engine.store)) == 1
    assert engine.transfers.slots.counts()["uses"] == 4
    for one in requests:
        again = [*one.all_token_ids[:122], 5]
        loaded, rows = engine.run(request_of(f"{one.request_id} again", again), table(25), [])
        assert loaded == 122 and torch.equal(rows[:122], engine.rows(again, 0)[:122])


def test_requests_with_adapters_are_left_alone(engine_of, tmp_path):
    engine = engine_of()
    engine.run(request_of("first", PROMPT), table(1), [])
    request = request_of("poet", PROMPT)
    request.lora_request = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet")))
    assert engine.run(request, table(11), [])[0] == 0 and not engine.store.list_branches("poet")[0]


def test_what_is_left_when_the_engine_stops(engine_of, tmp_path):
    """Rows that were not copied are lost; ids are not."""
    engine = engine_of()
    request = request_of("first", PROMPT)
    engine.add(request, table(1))
    engine.compute_all(request, table(1), 90)
    engine.compute_all(request, table(1))
    assert engine.over(request, table(1), drawn=7) is False  # All of its rows were copied with the steps.
    other = request_of("second", [9, *PROMPT])
    engine.add(other, table(11))
    engine.compute_all(other, table(11), 100)
    other.num_computed_tokens = 102
    assert engine.over(other, table(11), drawn=8)
    engine.close()
    with cairn.Store(tmp_path / "store") as store:
        for name, length in (("first", 101), ("second", 100)):
            (info,) = store.list_branches(name)[0]
            assert store.get_branch(info.id).kv_lengths == [length]
            assert store.get_branch(info.id).tokens().tolist()[-1] == (7 if name == "first" else 8)


def test_settings_that_cannot_be_are_refused_by_name(engine_of):
    for extra, said in (({"shared_memory_bytes": 100}, "'shared_memory_bytes' is 100; one token .* takes 384"),
                        ({"shared_memory_bytes": "1"}, "'shared_memory_bytes' is '1'"),
                        ({"shared_memory_bytes": True}, "'shared_memory_bytes' is True"),
                        ({"hold_seconds": -1}, "'hold_seconds' is -1"), ({"hold_seconds": "a"}, "'hold_seconds'"),
                        ({"shared_memory_bytes": 1 << 47}, "bytes")):
        with pytest.raises((ValueError, cairn.Error), match=said):
            engine_of(**extra)


class Recurrent(RemoteEngine, test_vllm_recurrent.Engine):
    pass


@pytest.mark.parametrize("area", [SMALL, 1 << 20])
def test_states_go_with_the_part_that_they_are_the_end_of(exported, monkeypatch, tmp_path, area):
    engine = Recurrent(*config_of(exported, monkeypatch, tmp_path / "store", *test_vllm_recurrent.GROUPS), "HND",
                       shared_memory_bytes=area)
    prompt = test_vllm_recurrent.PROMPT
    for name, first, expected in (("first", 1, 0), ("second", 21, 112)):
        request, tables = request_of(name, [*prompt, first]), table(first, 3)
        assert engine.add(request, tables) == expected
        if expected:
            engine.until(lambda: "second" in engine.received)
            engine.check([*prompt, first][:expected], tables)
        engine.compute_up_to(request, tables, *(end for end in (64, 112) if end > expected), 131)
        if engine.over(request, tables):
            engine.until(lambda: name in engine.released)
    assert all_is_free(engine) and not engine.failed
    engine.close()


class Device(test_vllm_tokens.DeviceEngine, RemoteEngine):
    pass


def test_blocks_on_a_device(exported, monkeypatch, tmp_path):
    """The scheduler's process opens none; of the rank's copies each waits for the stream."""
    gpu, opened, events = cairn.Gpu.simulated(0), [], []
    monkeypatch.setattr(_vllm_settings, "current_platform", types.SimpleNamespace(is_cuda=lambda: True))
    monkeypatch.setattr(cairn.Gpu, "open", staticmethod(lambda ordinal: opened.append(ordinal) or gpu))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(
        record_event=lambda: events.append(1) or types.SimpleNamespace(cuda_event=0)))
    latent = MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=2 * DIM, dtype=torch.bfloat16)
    engine = Device(*config_of(exported, monkeypatch, tmp_path / "store", latent), gpu)
    assert engine.run(request_of("first", PROMPT), table(1), DRAWN)[0] == 0
    other = [*PROMPT, *DRAWN[:2], 9, 9]
    loaded, rows = engine.run(request_of("second", other), table(11), [1])
    assert loaded == 103 and torch.equal(rows[:103], engine.rows(other, 0)[:103])
    assert opened == [0] and len(events) >= 3
    engine.close()
