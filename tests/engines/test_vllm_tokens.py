# SPDX-License-Identifier: Apache-2.0
"""Property: where an attention backend keeps a row for each token, cairn.vllm.CairnConnector stores and loads to the
token: tails of blocks and decoded tokens, from any block to any other, of several cache groups, in either order of
heads and tokens. What it cannot do is refused by name when it is made.
Method: vllm_driver.py. test_vllm.py has real engines."""

import types

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.lora.request import LoRARequest
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec, FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec)
from vllm.v1.request import RequestStatus

import cairn
from cairn import _shared, _vllm_settings
from vllm_adapter import adapter_in
from vllm_driver import BLOCK, BLOCKS, HEADS, DIM, LAYERS, SHAPE, Engine, config_of, request_of, table


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_to_the_token(exported, monkeypatch, tmp_path, order):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), order)
    prompt, drawn = [3 * i % 97 for i in range(101)], [40, 41, 42, 43, 44]
    assert engine.run(request_of("first", prompt, seed=5), table(1), drawn)[0] == 0
    store = engine.worker._shared.store
    (info,) = store.list_branches()[0]
    branch = store.find_branch(info.name)
    # The tail of a block, and decoded tokens; the last one that was drawn has no KV.
    assert branch.tokens().tolist() == [*prompt, *drawn, 0] and branch.kv_lengths == [106]
    # A prompt that leaves that one in the middle of what was decoded, in other blocks.
    other = [*prompt, *drawn[:3], 9, 9]
    loaded, rows = engine.run(request_of("second", other), table(11), [1])
    assert loaded == 104
    assert torch.equal(rows[:104], engine.rows(other, 0)[:104])
    # All of a prompt but its last token.
    loaded, rows = engine.run(request_of("third", other), table(21), [])
    assert loaded == len(other) - 1 and torch.equal(rows[:loaded], engine.rows(other, 0)[:loaded])
    assert store.metrics()["leases"] == 0
    engine.close()


@pytest.mark.parametrize("first", ["worker", "scheduler"])
def test_a_request_that_ended_with_the_last_step_is_kept(exported, monkeypatch, tmp_path, first):
    """No step tells the worker of its end."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    prompt, drawn = [3 * i % 97 for i in range(101)], [40, 41, 42, 43, 44]
    engine.run(request_of("only", prompt), table(1), drawn, steps_on=False)
    engine.close(first)
    with cairn.Store(tmp_path / "store") as store:
        branch = store.find_branch(store.list_branches()[0][0].name)
        assert branch.tokens().tolist() == [*prompt, *drawn, 0] and branch.kv_lengths == [106]


def test_each_engine_of_a_process_ends_its_own_requests(exported, monkeypatch, tmp_path):
    """Two that share a store, and count requests alike; the blocks of one are not where the other's worker looks."""
    prompts, drawn = [[3 * i % 97 for i in range(101)], [5 * i % 89 for i in range(90)]], [40, 41, 42, 43, 44]
    engines = [Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
               for _ in prompts]
    for engine, prompt in zip(engines, prompts):
        engine.run(request_of("0", prompt), table(1), drawn, steps_on=False)
    for engine in engines:
        engine.close()
    with cairn.Store(tmp_path / "store") as store:
        branches = [store.find_branch(info.name) for info in store.list_branches("0")[0]]
        kept = sorted((branch.tokens().tolist(), branch.kv_lengths) for branch in branches)
        assert kept == sorted(([*prompt, *drawn, 0], [len(prompt) + len(drawn)]) for prompt in prompts)


def test_a_step_that_broke_off_within_a_load_saves_none_of_it(exported, monkeypatch, tmp_path):
    """At exit: what the scheduler takes for loaded was not, and its blocks hold something else."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    prompt = list(range(100))
    engine.run(request_of("first", prompt), table(1), [])
    request, tables = request_of("broken", prompt), table(11)
    engine.scheduler.on_new_request(request)
    loaded, _ = engine.scheduler.get_num_new_matched_tokens(request, 0)
    engine.scheduler.update_state_after_alloc(request, types.SimpleNamespace(get_block_ids=lambda: tables), loaded)
    request.num_computed_tokens = loaded

    def fail(*arguments, **options):
        raise cairn.IoError("not now")

    monkeypatch.setattr(engine.worker._side, "_restore", fail)
    output = types.SimpleNamespace(
        scheduled_new_reqs=[types.SimpleNamespace(req_id="broken", num_computed_tokens=loaded)],
        scheduled_cached_reqs=types.SimpleNamespace(req_ids=[], num_computed_tokens=[]),
        num_scheduled_tokens={"broken": 1},
        kv_connector_block_state=types.SimpleNamespace(get_block_ids=lambda one: tables))
    engine.worker.bind_connector_metadata(engine.scheduler.build_connector_meta(output))
    engine.worker.start_load_kv(None)
    request.status = RequestStatus.FINISHED_ABORTED
    engine.scheduler.request_finished_all_groups(request, tables)
    engine.close()
    with cairn.Store(tmp_path / "store") as store:
        assert not store.list_branches("broken")[0]


def test_groups_with_a_window(exported, monkeypatch, tmp_path):
    """Loaded before the request is scheduled; of the window what the next token needs."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE),
                               SlidingWindowSpec(sliding_window=32, **SHAPE)), "NHD")
    prompt = [5 * i % 89 for i in range(120)]
    engine.run(request_of("first", prompt), table(1, 2), [7, 8])
    # Blocks that the window has left behind are none.
    full, window = table(21, 2)
    tables = (full, [0 if i < 4 else block for i, block in enumerate(window)])
    loaded, rows = engine.run(request_of("second", [*prompt, 1]), tables, [])
    assert loaded == 120
    expected = engine.rows([*prompt, 1], 0)
    assert torch.equal(rows[:120, :LAYERS], expected[:120, :LAYERS])
    assert torch.equal(rows[120 - 32:120, LAYERS:], expected[120 - 32:120, LAYERS:])
    engine.close()


def test_an_adapter_and_a_salt_are_worlds_of_their_own(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    prompt = list(range(100))
    engine.run(request_of("first", prompt), table(1), [])
    lora = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet")))
    for change in ({"lora_request": lora}, {"cache_salt": "tenant"}):
        request = request_of("other", prompt)
        for name, value in change.items():
            setattr(request, name, value)
        engine.scheduler.on_new_request(request)
        assert engine.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
        engine.scheduler.request_finished_all_groups(request, ([],))
    assert engine.run(request_of("same", prompt), table(11), [])[0] == 99
    engine.close()


def test_a_cancelled_load_holds_nothing(exported, monkeypatch, tmp_path):
    """Cancelled behind its lookup, behind its allocation, and while the worker has it."""
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    prompt, store = list(range(100)), engine.worker._shared.store
    engine.run(request_of("first", prompt), table(1), [])
    tables = table(11)
    for last in range(3):
        request = request_of(f"cancelled-{last}", [*prompt[:99], 5])
        engine.scheduler.on_new_request(request)
        assert engine.scheduler.get_num_new_matched_tokens(request, 0) == (99, False)
        assert store.metrics()["leases"] == 1
        if last > 0:
            engine.scheduler.update_state_after_alloc(
                request, types.SimpleNamespace(get_block_ids=lambda: tables), 99)
        if last > 1:
            engine.step({request.request_id: (99, 1)}, tables, list(request.all_token_ids))
        request.status = RequestStatus.FINISHED_ABORTED
        engine.scheduler.request_finished_all_groups(request, tables)
        engine.step({}, tables, [])
        assert store.metrics()["leases"] == 0
    # The last one computed a token before it was over.
    assert [info.length for info in store.list_branches("cancelled")[0]] == [100]
    assert not engine.worker._side.sequences
    engine.close()


class DeviceTensor:
    """As much of a CUDA tensor as the connector asks for, in the memory of a simulated device."""

    device = torch.device("cuda:0")

    def __init__(self, memory, shape):
        self.memory, self.shape = memory, shape
        self._dense = memory.tensor(list(shape), "bf16")

    def dim(self):
        return len(self.shape)

    def __getitem__(self, part):
        assert part == (..., slice(0, self.shape[-1])), "one plane: all elements of the rows"
        return self._dense


class DeviceEngine(Engine):
    """The worker's blocks are in a device's memory; `tensors` are copies on the host, brought up to date as needed."""

    def __init__(self, config, cache, gpu):
        self.gpu, self.there = gpu, {}
        super().__init__(config, cache, "HND")

    def make(self, order):
        shape = (BLOCKS, 1, BLOCK, 2 * DIM)
        self.tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for name in self.groups[0].layer_names}
        for name, host in self.tensors.items():
            memory = self.gpu.allocate(host.nbytes)
            memory.copy_in(host.view(torch.uint8))
            self.there[name] = DeviceTensor(memory, shape)
        return self.there

    def rows(self, tokens, begin):
        return super().rows(tokens, begin)[:, :, :1]

    def compute(self, index, name, tokens, begin, tables):
        host, memory = self.tensors[name], self.there[name].memory
        memory.copy_out(host.view(torch.uint8))
        super().compute(index, name, tokens, begin, tables)
        memory.copy_in(host.view(torch.uint8))

    def read(self, count, tables):
        for name, host in self.tensors.items():
            self.there[name].memory.copy_out(host.view(torch.uint8))
        return super().read(count, tables)


def test_blocks_on_a_device(exported, monkeypatch, tmp_path):
    """Of one plane (MLA), since torch has no tensors of a simulated device; its stream stands for torch's."""
    gpu = cairn.Gpu.simulated(0)
    monkeypatch.setattr(_vllm_settings, "current_platform", types.SimpleNamespace(is_cuda=lambda: True))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cairn.Gpu, "open", staticmethod(lambda ordinal: gpu))
    events = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(
        record_event=lambda: events.append(1) or types.SimpleNamespace(cuda_event=0)))
    latent = MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=2 * DIM, dtype=torch.bfloat16)
    engine = DeviceEngine(*config_of(exported, monkeypatch, tmp_path / "store", latent), gpu)
    prompt, drawn = [3 * i % 97 for i in range(101)], [40, 41, 42]
    assert engine.run(request_of("first", prompt), table(1), drawn)[0] == 0
    other = [*prompt, *drawn[:2], 9, 9]
    loaded, rows = engine.run(request_of("second", other), table(11), [1])
    assert loaded == 103 and torch.equal(rows[:103], engine.rows(other, 0)[:103])
    assert len(events) >= 5  # Of each save, and of the load.
    engine.close()


@pytest.mark.parametrize("name", ["decode_context_parallel_size", "prefill_context_parallel_size",
                                  "data_parallel_size", "nnodes"])
def test_a_larger_world_is_refused(exported, monkeypatch, tmp_path, name):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), **{name: 2})
    for role in KVConnectorRole:
        with pytest.raises(ValueError, match=f"CairnConnector: {name} is 2"):
            KVConnectorFactory.create_connector(config, role, cache)
    assert not (tmp_path / "store").exists()


def test_what_cannot_be_done_is_refused_by_name(exported, monkeypatch, tmp_path):
    path = tmp_path / "store"
    full = FullAttentionSpec(**SHAPE)

    def refused(said, *groups, backend="FLASH_ATTN", extra=None, **parallel):
        config, cache = config_of(exported, monkeypatch, path, *groups, backend=backend, **parallel)
        if extra is not None:
            config.kv_transfer_config.kv_connector_extra_config = extra
        with pytest.raises((ValueError, TypeError, cairn.Error), match=said):
            KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)

    refused("distributed_executor_backend is 'ray'", full, distributed_executor_backend="ray")
    refused("cache group 0 is a ChunkedLocalAttentionSpec", ChunkedLocalAttentionSpec(attention_chunk_size=64, **SHAPE))
    refused("'path', the directory", full, extra={})
    refused("'pth' is none of .*append_tokens", full, extra={"pth": "x"})
    refused("durability", full, extra={"path": str(path), "durability": "safe"})
    refused("no option .max_byte", full, extra={"path": str(path), "options": {"max_byte": 1}})
    # The same model with other shapes is known already.
    engine = Engine(*config_of(exported, monkeypatch, path, full), "NHD")
    engine.close()
    refused("row_bytes|heads|layers|planes", FullAttentionSpec(**{**SHAPE, "num_kv_heads": 2 * HEADS}))


def test_state_of_one_packing_is_not_that_of_another(exported, monkeypatch, tmp_path):
    """A store written for packed blocks refuses one that keeps rows, by name."""
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), backend="CPU_ATTN")
    KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache).shutdown()
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    with pytest.raises(cairn.ModelMismatch, match="packing|planes"):
        KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)


def test_other_adapters_of_the_process_have_its_store_too(tmp_path):
    path = str(tmp_path / "kv.store")
    ours = _vllm_settings.acquire(_vllm_settings.Settings.of({"path": path}))
    other = _shared.acquire(path, {"create_if_missing": True})
    assert other is ours.store
    _vllm_settings.release(ours)
    other.metrics()  # Still open.
    _shared.release(path)
    with pytest.raises(TypeError):
        _vllm_settings.acquire(_vllm_settings.Settings.of({"path": path, "policy": {"no such field": 1}}))
    cairn.Store(path).close()  # What was refused left it to others.
