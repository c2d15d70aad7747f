# SPDX-License-Identifier: Apache-2.0
"""Property: what requests have in common is stored once, whether they come together or one behind the other; salts and
adapters share nothing; KV that was evicted comes back in its place.
Method: vllm_driver.py."""

import torch
from vllm.lora.request import LoRARequest
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

import cairn
from vllm_adapter import adapter_in
from vllm_driver import (
    HEADS, LAYERS, SHAPE, Engine, Scheduled, config_of, request_of, roots, shared_and_own, table, wave,
)


def test_requests_that_arrive_together_keep_their_prompt_once(exported, monkeypatch, tmp_path):
    """In a cold store, with blocks that vLLM computes once; what each has of its own is loaded right."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    store = engine.worker._shared.store
    requests, scheduled = wave()
    assert [engine.add(one, step.tables, step.computed) for one, step in zip(requests, scheduled)] == [0] * 4
    engine.step_of(scheduled)
    for one, step in zip(requests, scheduled):
        engine.end(one, step.tables)
    engine.step_of([])
    assert len(store.list_branches("wave")[0]) == 4 and len(roots(store)) == 1
    row = store.models()[0].spec.groups[0].planes[0].row_bytes * 2 * HEADS * LAYERS
    assert store.namespaces()[0].bytes < (122 + 3 * 10) * row + 4 * 200  # Ids and what tells of a branch.
    for one in requests:
        again = [*one.all_token_ids[:122], 5]
        loaded, rows = engine.run(request_of("again", again), table(25), [])
        assert loaded == 122 and torch.equal(rows[:122], engine.rows(again, 0)[:122])
    engine.close()


def test_a_prompt_that_another_request_is_amid_of_is_kept_once(exported, monkeypatch, tmp_path):
    """Its chunks are stored step by step; who joins goes on from them, and from what others store of it later."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    store, prompt = engine.worker._shared.store, [3 * i % 97 for i in range(112)]
    ids = [*prompt, 1, 2], [*prompt, 3, 4], [*prompt, 5, 6]
    long, joins, alone = requests = [request_of(name, some) for name, some in zip(("long", "joins", "alone"), ids)]
    tables = shared_and_own(range(1, 8), 8, 1), shared_and_own(range(1, 8), 9, 1), ([*range(10, 18)],)
    engine.add(long, tables[0])
    engine.add(alone, tables[2])  # Computes the same for itself.
    engine.step_of([Scheduled("long", 0, 64, tables[0], ids[0][:64]),
                    Scheduled("alone", 0, 64, tables[2], ids[2][:64])])
    assert engine.add(joins, tables[1], 112) == 0
    engine.step_of([Scheduled("joins", 112, 2, tables[1], ids[1])],
                   [Scheduled("long", 64, 50, tables[0], ids[0]), Scheduled("alone", 64, 50, tables[2], ids[2])])
    for one, of_one in zip(requests, tables):
        engine.end(one, of_one)
    engine.step_of([])
    assert len(roots(store)) == 1
    shared = [max(step.end for step in store.find_branch(info.name).path()[:-1]) for name in ("joins", "alone")
              for info in store.list_branches(name)[0]]
    assert shared == [112, 112]
    for some in ids:
        again = [*some, 9]
        loaded, rows = engine.run(request_of("again", again), table(25), [])
        assert loaded == 114 and torch.equal(rows[:114], engine.rows(again, 0)[:114])
    engine.close()


def test_together_or_not_salts_and_adapters_share_nothing(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    store, prompt = engine.worker._shared.store, list(range(100))
    requests = [request_of(name, prompt) for name in ("plain", "salted", "adapted")]
    requests[1].cache_salt = "tenant"
    requests[2].lora_request = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet")))
    for i, one in enumerate(requests):
        assert engine.add(one, table(1 + 10 * i)) == 0
    engine.step_of([Scheduled(one.request_id, 0, 100, table(1 + 10 * i), prompt) for i, one in enumerate(requests)])
    assert len(roots(store)) == 3
    engine.close()


def evict(store, branch):
    """Other content comes until nothing can be restored of the branch."""
    for i in range(200):
        if branch.restorable_length() == 0:
            return
        other = store.create_branch(store.models()[0], f"other-{i}", namespace="others")
        rows = cairn.KvBuffer(store.models()[0].spec, 1000)
        other.append([i] * 1000, rows)
    raise AssertionError("it is not evicted")


def test_what_was_evicted_is_stored_again_when_it_comes_back(exported, monkeypatch, tmp_path):
    """In its place: for every branch that has these tokens, and without a copy of them."""
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    config.kv_transfer_config.kv_connector_extra_config["options"] = {
        "segment_bytes": 256 << 10, "max_bytes": 10 * (256 << 10), "evict": "kv"}
    engine = Engine(config, cache, "NHD")
    store, prompt = engine.worker._shared.store, [3 * i % 97 for i in range(101)]
    engine.run(request_of("first", prompt), table(1), [40, 41, 42, 43, 44])
    (info,) = store.list_branches("first")[0]
    branch = store.find_branch(info.name)
    evict(store, branch)
    # Two that come together, in blocks of their own: one of them heals it, the other one finds that.
    requests = [request_of(name, [*prompt, *some]) for name, some in (("back", [40, 41, 7]), ("too", [40, 41, 8, 9]))]
    tables = table(1), table(11)
    assert [engine.add(one, of_one) for one, of_one in zip(requests, tables)] == [0, 0]
    engine.step_of([Scheduled(one.request_id, 0, one.num_tokens, of_one, list(one.all_token_ids))
                    for one, of_one in zip(requests, tables)])
    for one, of_one in zip(requests, tables):
        engine.end(one, of_one)
    engine.step_of([])
    assert branch.restorable_length() == 103 and len(branch) == 107
    assert {store.find_branch(store.list_branches(name)[0][0].name).path()[0].node for name in ("back", "too")} \
        == {branch.path()[0].node}
    assert store.metrics()["filled_bytes"] > 0
    for last in ([40, 41, 7, 1], [40, 41, 8, 9, 1]):
        again = [*prompt, *last]
        loaded, rows = engine.run(request_of("again", again), table(21), [])
        assert loaded == len(again) - 1 and torch.equal(rows[:loaded], engine.rows(again, 0)[:loaded])
    engine.close()


def test_a_window_that_has_left_what_was_evicted_fills_none_of_it(exported, monkeypatch, tmp_path):
    """No block of it is there any more; what follows is stored."""
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", SlidingWindowSpec(sliding_window=32, **SHAPE))
    config.kv_transfer_config.kv_connector_extra_config["options"] = {
        "segment_bytes": 256 << 10, "max_bytes": 10 * (256 << 10), "evict": "kv"}
    engine = Engine(config, cache, "NHD")
    store, prompt = engine.worker._shared.store, [3 * i % 97 for i in range(80)]
    engine.run(request_of("first", prompt), table(1), [])
    evict(store, store.find_branch(store.list_branches("first")[0][0].name))
    (blocks,) = table(11)
    longer = [*prompt, *range(60)]
    assert engine.run(request_of("back", longer), ([0] * 5 + blocks[5:],), [])[0] == 0
    (info,) = store.list_branches("back")[0]
    assert store.find_branch(info.name).restorable_length() == 140
    loaded, rows = engine.run(request_of("again", [*longer, 1]), table(21), [])
    assert loaded == 140 and torch.equal(rows[108:140], engine.rows([*longer, 1], 0)[108:140])
    engine.close()
