# SPDX-License-Identifier: Apache-2.0
"""Property: ranks of tensor and pipeline parallel keep one logical model together: what some degrees wrote any other ones
read, what ranks hold alike is saved by one of them, no append lacks a rank, and ranks that do not fit are refused by
field.
Method: vllm_ranks_driver.py, over the production code of all sides. test_vllm_parallel.py has real engines."""

import dataclasses
import json
import time

import pytest
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec
from vllm.v1.request import RequestStatus

import cairn
import test_vllm_recurrent
import vllm_driver
from cairn import _vllm_cpu
from cairn._vllm_ranks import Ranks
from cairn._vllm_sequence import DEGREES
from test_vllm_remote import PROMPT, SMALL, all_is_free
from vllm_driver import BLOCK, DIM, HEADS, LAYERS, SHAPE, Scheduled, config_of, request_of, table
from vllm_ranks_driver import RanksEngine
from vllm_remote_driver import RemoteEngine, sent

FULL = FullAttentionSpec(**SHAPE)
LATENT = MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=2 * DIM, dtype=torch.bfloat16)


@pytest.fixture
def engine_of(exported, monkeypatch, tmp_path):
    made = []

    def make(degrees, *groups, backend="FLASH_ATTN", order="HND", **extra):
        config, cache = config_of(exported, monkeypatch, tmp_path / "store", *(groups or (FULL,)), backend=backend)
        if degrees is None:
            made.append(vllm_driver.Engine(config, cache, order))
        elif degrees == (1, 1):
            made.append(RemoteEngine(config, cache, order, **extra))
        else:
            made.append(RanksEngine(config, cache, *degrees, order, **extra))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def loads(engine, prompt, at, name):
    """How many tokens are loaded of a request of this prompt, all of them right."""
    loaded, rows = engine.run(request_of(name, prompt), table(at, len(engine.groups)), [])
    assert torch.equal(rows[:loaded], engine.rows(prompt, 0)[:loaded])
    return loaded


@pytest.mark.parametrize("first", [None, (2, 1), (4, 1), (1, 2), (2, 2)])
def test_what_some_degrees_wrote_others_read(engine_of, first):
    """Each goes on from what the ones before have written; None: the scheduler and one worker share a process."""
    tokens = list(PROMPT)
    for number, degrees in enumerate([first, (1, 1), (1, 2), (2, 1), None, (2, 2), (4, 1), first]):
        more = {"shared_memory_bytes": SMALL} if number % 2 else {}
        engine = engine_of(degrees, order=("HND", "NHD")[number // 2 % 2], **more)
        known, tokens = len(tokens), [*tokens, 80 + number, 80 + number]
        assert loads(engine, tokens, 1, f"r{number}") == (known if number else 0)
        assert loads(engine, [*tokens, 1], 11, f"again{number}") == len(tokens)
        if degrees not in (None, (1, 1)):
            assert all_is_free(engine)
        engine.close()


def test_a_window_beside_full_attention(engine_of):
    groups = FULL, SlidingWindowSpec(sliding_window=32, **SHAPE)
    prompt = [5 * i % 89 for i in range(120)]
    first = engine_of((2, 2), *groups, shared_memory_bytes=2 * SMALL)
    first.run(request_of("first", prompt), table(1, 2), [])
    first.close()
    for degrees in ((2, 2), (2, 1), (1, 2)):
        engine = engine_of(degrees, *groups)
        full, window = table(21, 2)
        tables = (full, [0 if i < 4 else block for i, block in enumerate(window)])
        loaded, rows = engine.run(request_of("second", [*prompt, 1]), tables, [])
        expected = engine.rows(prompt, 0)
        assert loaded == 120 and torch.equal(rows[:120, :LAYERS], expected[:, :LAYERS])
        assert torch.equal(rows[88:120, LAYERS:], expected[88:, LAYERS:])
        engine.close()


@pytest.mark.parametrize("degrees, groups, savers", [((4, 1), (FULL,), {0, 2}), ((2, 1), (LATENT,), {0}),
                                                     ((2, 2), (LATENT,), {0, 2})])
def test_what_ranks_hold_alike_one_saves_and_all_load(engine_of, monkeypatch, degrees, groups, savers):
    engine = engine_of(degrees, *groups)
    copied = set()
    for number, rank in enumerate(engine.ranks):
        save = rank.worker._side._copy_rows
        monkeypatch.setattr(rank.worker._side, "_copy_rows",
                            lambda *more, save=save, number=number: copied.add(number) or save(*more))
    engine.run(request_of("first", PROMPT), table(1), [])
    assert copied == savers
    assert loads(engine, [*PROMPT, 1], 11, "second") == 101 and copied == set(range(len(engine.ranks)))
    store = engine.store
    assert store.models()[0].spec.token_bytes == len(engine.tensors) * (1 if groups == (LATENT,) else HEADS) * 4 * DIM


def test_a_head_that_a_processor_packs_is_a_page(engine_of, monkeypatch, tmp_path):
    monkeypatch.setattr(_vllm_cpu, "packs_by_head", lambda spec, cache_dtype: True)
    tokens = list(PROMPT)
    for number, degrees in enumerate([(2, 1), (1, 1), None, (1, 2), (4, 1)]):
        engine = engine_of(degrees, backend="CPU_ATTN")
        known = len(tokens) // BLOCK * BLOCK if number else 0
        tokens += [number] * 11
        assert loads(engine, tokens, 1, f"r{number}") == known
        engine.close()
    with cairn.Store(tmp_path / "store") as store:
        (model,) = store.models()
        assert (model.spec.groups[0].planes[0].heads, model.spec.groups[0].packing.split()[-3:-1]) == (HEADS, ["of", "8"])


def test_pages_of_all_heads_that_an_earlier_version_kept_are_not_found_which_is_told(engine_of, monkeypatch, caplog):
    monkeypatch.setattr(_vllm_cpu, "packs_by_head", lambda spec, cache_dtype: False)
    engine = engine_of(None, backend="CPU_ATTN")
    engine.run(request_of("first", PROMPT), table(1), [])
    engine.close()
    monkeypatch.setattr(_vllm_cpu, "packs_by_head", lambda spec, cache_dtype: True)
    for expected in (0, 96):
        engine = engine_of(None, backend="CPU_ATTN")
        assert loads(engine, [*PROMPT, 1], 1, "second") == expected
        assert ("under an identity that an earlier version" in caplog.text) == (expected == 0)
        caplog.clear()
        engine.close()


def test_pages_of_whole_ranks_are_those_of_one_degree(engine_of, monkeypatch):
    """Where heads of a packed block cannot be told apart."""
    monkeypatch.setattr(_vllm_cpu, "packs_by_head", lambda spec, cache_dtype: False)
    for degrees, expected in (((2, 1), 0), ((2, 2), 96), ((1, 1), 0), ((1, 2), 96), ((2, 1), 96), ((4, 1), 96)):
        engine = engine_of(degrees, backend="CPU_ATTN")
        assert loads(engine, [*PROMPT, 1], 1, "same") == expected, degrees
        engine.close()


def test_kv_of_the_own_degrees_alone(engine_of):
    """And where KV is marked with degrees."""
    for degrees, expected in (((2, 1), 0), ((1, 2), 0), ((2, 1), 101), ((1, 1), 0)):
        engine = engine_of(degrees, same_degree=True, namespace="n")
        assert loads(engine, [*PROMPT, 1], 1, "same") == expected
        engine.close()
    engine = engine_of((2, 1), namespace="n")
    assert loads(engine, [*PROMPT, 1], 1, "of all") == 0  # What those have kept is theirs.
    (info,) = engine.store.list_branches("of all", namespace="n")[0]
    position, mark = engine.store.get_branch(info.id).metadata_at()
    assert position == 102 and mark.content_type == DEGREES
    assert json.loads(mark.bytes) == {"begin": 0, "tensor_parallel_size": 2, "pipeline_parallel_size": 1}
    assert {one.name for one in engine.store.namespaces()} == {"n", "n@degrees:2x1", "n@degrees:1x2", "n@degrees:1x1"}


def failing(*copy):
    raise cairn.IoError("not now")


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_fails_to_copy(engine_of, monkeypatch, number):
    """No append lacks its rows; what it has not loaded all compute again."""
    engine = engine_of((2, 1))
    request = request_of("first", PROMPT)
    engine.add(request, table(1))
    with monkeypatch.context() as patch:
        patch.setattr(engine.ranks[number].worker._side, "_copy_rows", failing)
        engine.compute_all(request, table(1))
    assert not engine.store.list_branches("first")[0] and engine.transfers.slots.counts()["failed"] == 1
    assert engine.over(request, table(1))  # Now it is copied.
    engine.until(lambda: "first" in engine.released)
    with monkeypatch.context() as patch:
        patch.setattr(engine.ranks[number].worker._side, "_copy_rows", failing)
        assert engine.add(request_of("second", [*PROMPT, 5]), table(11)) == 101
        engine.until(lambda: "second" in engine.received)
    assert engine.bad == set(table(11)[0][:7])
    assert loads(engine, [*PROMPT, 5], 21, "third") == 101 and all_is_free(engine)


def test_a_rank_that_never_reports(engine_of):
    """The other one's report is not enough; blocks are free in time."""
    engine = engine_of((2, 1), hold_seconds=0.01)
    request = request_of("held", PROMPT)
    engine.add(request, table(1))
    scheduled = [Scheduled("held", 0, 101, table(1), PROMPT)]
    meta = engine.scheduler.build_connector_meta(engine.output_of(scheduled, []))
    outputs = [engine.run_rank(rank, meta, scheduled) for rank in (0, 1)]
    late, outputs[1].kv_connector_worker_meta = outputs[1].kv_connector_worker_meta, None
    engine.give(engine.together(outputs))
    assert not engine.store.list_branches("held")[0]
    request.num_computed_tokens = 101
    assert engine.over(request, table(1))
    time.sleep(0.02)
    engine.until(lambda: "held" in engine.released)
    assert engine.scheduler.get_kv_connector_stats().data["given_up"] == 1
    assert engine.transfers.slots.counts()["left"] == 1
    outputs[1].kv_connector_worker_meta = late
    engine.scheduler.update_connector_output(outputs[1])
    assert all_is_free(engine) and not engine.store.list_branches("held")[0]


def test_a_rank_that_cannot_map_the_area(engine_of, caplog):
    """On another host, say. Its reason is in the log once, and requests go on without Cairn."""
    engine = engine_of((2, 1))
    request = request_of("first", PROMPT)
    engine.add(request, table(1))
    scheduled = [Scheduled("first", 0, 101, table(1), PROMPT)]
    meta = engine.scheduler.build_connector_meta(engine.output_of(scheduled, []))
    wrong = sent(meta)
    parts = meta.address.split(":")
    wrong.address = ":".join([*parts[:3], "0" * 32, *parts[4:]])
    with caplog.at_level("ERROR", "vllm.cairn"):
        engine.give(engine.together([engine.run_rank(0, meta, scheduled), engine.run_rank(1, wrong, scheduled)]))
        for _ in range(2):
            engine.step_of([])
    assert caplog.text.count("rank 1 cannot use the shared memory") == 1
    request.num_computed_tokens = 101
    assert not engine.over(request, table(1), RequestStatus.FINISHED_STOPPED)
    assert loads(engine, [*PROMPT, 1], 11, "next") == 0 and not engine.store.list_branches("")[0]


def shakes_of(engine):
    return {divmod(number, engine.tensor): rank.worker.get_handshake_metadata()
            for number, rank in enumerate(engine.ranks)}


def test_ranks_that_do_not_fit_are_refused_by_field(engine_of):
    shakes = shakes_of(engine_of((2, 2)))
    assert Ranks.of(shakes, (2, 2)).groups[0].heads == HEADS
    group = shakes[1, 1].groups[0]

    def refused(said, number=(1, 1), **changed):
        fields = {name: value for name, value in changed.items() if name in group}
        of_shake = {name: value for name, value in changed.items() if name not in group}
        other = dataclasses.replace(shakes[number], **{"groups": [{**shakes[number].groups[0], **fields}], **of_shake})
        with pytest.raises(ValueError, match=f"CairnConnector: .*{said}"):
            Ranks.of({**shakes, number: other}, (2, 2))

    for name, value in (("block", 32), ("backend", "other"), ("heads", 7), ("all_heads", 3), ("form", "x"),
                        ("dtype", "float16"), ("planes", ())):
        refused(f"ranks 0 and 3 disagree on {name} of cache group 0: ", **{name: value})
    refused("ranks 2 and 3 disagree on layers of cache group 0", layers=("layer.0.0",))
    refused("ranks 0 and 3 disagree on spec of cache group 0", spec={**group["spec"], "packing": "x"})
    refused(r"ranks \[2, 3\] hold heads \[0\] of cache group 0, which has 2", first_head=0)
    refused("ranks 2 and 3 disagree on rotation of cache group 0",
            described=[{**shakes[1, 1].described[0], "mscale": 2.0}])
    refused("ranks 0 and 3 disagree on content settings", content="x")
    refused("ranks 0 and 3 disagree on cache groups: 1, 2", groups=2 * shakes[1, 1].groups)
    refused(r"of 2 x 2 ranks these say how their KV lies: \[0, 1, 2, 2\]", rank=2)
    for missing, said in (([(1, 0)], r"\[0, 1, 3\]"), ([(1, 0), (1, 1)], r"\[0, 1\]")):
        with pytest.raises(ValueError, match=f"of 2 x 2 ranks these say how their KV lies: {said}"):
            Ranks.of({key: shake for key, shake in shakes.items() if key not in missing}, (2, 2))
    turned = {(1 - stage, rank): shake for (stage, rank), shake in shakes.items()}
    with pytest.raises(ValueError, match="layers of cache group 0 in another order"):
        Ranks.of(turned, (2, 2))


def test_layers_of_a_draft_model_stand_behind_those_of_one_stage(engine_of):
    """They have the numbers of layers before them."""
    shakes = shakes_of(engine_of((2, 1)))
    layers = (*shakes[0, 0].groups[0]["layers"], "draft.layer.0.0")
    shakes = {key: dataclasses.replace(shake, groups=[{**shake.groups[0], "layers": layers}])
              for key, shake in shakes.items()}
    assert Ranks.of(shakes, (2, 1)).groups[0].layers == layers


def test_stages_whose_keys_are_turned_otherwise_are_described_without(engine_of):
    shakes = shakes_of(engine_of((1, 2)))
    shakes[1, 0] = dataclasses.replace(shakes[1, 0], described=[{**shakes[1, 0].described[0], "mscale": 2.0}])
    ranks = Ranks.of(shakes, (1, 2))
    assert ranks.described == [ranks.groups[0].spec]


def test_what_cannot_be_done_is_refused_by_name(engine_of, exported, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="cache group 0 is recurrent, of which one rank only is supported; "
                                         "tensor_parallel_size is 2"):
        engine_of((2, 1), *test_vllm_recurrent.GROUPS)
    with pytest.raises(ValueError, match=r"cache group 0 has 1 KV heads in each rank and \[2\] in the model, which are not "
                                         "dealt evenly to tensor_parallel_size 3"):
        engine_of((3, 1))
    with pytest.raises(ValueError, match="rank 3 has no layer of cache group 0"):
        engine_of((1, 4))
    with pytest.raises(ValueError, match="'same_degree' is neither true nor false"):
        engine_of((2, 1), same_degree="yes")
