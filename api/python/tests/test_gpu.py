# SPDX-License-Identifier: Apache-2.0
"""Tensors in the memory of a device, a simulated one: its memory is what DLPack's capsules name."""

import numpy as np
import pytest

import cairn

TOKENS = 48


@pytest.fixture
def kv(spec):
    buffer = cairn.KvBuffer(spec, TOKENS)
    buffer.bytes[:] = np.random.default_rng(4).integers(0, 256, len(buffer.bytes), np.uint8)
    return buffer


def pool(gpu, blocks=8, tokens=16):
    """A pool of vLLM's: of each layer [plane][block][token][head][row] of bf16."""
    memory = gpu.allocate(2 * 2 * blocks * tokens * 2 * 4 * 2)
    size = memory.bytes // 2
    return memory, [memory.tensor([2, blocks, tokens, 2, 4], "bf16", offset=layer * size) for layer in range(2)]


def test_device_memory_speaks_dlpack(gpu):
    memory, tensors = pool(gpu)
    assert tensors[0].__dlpack_device__() == (2, 0) and gpu.ordinal == 0 and gpu.name
    bits = np.arange(memory.bytes, dtype=np.uint8)
    memory.copy_in(bits)
    back = np.zeros_like(bits)
    memory.copy_out(back)
    assert np.array_equal(bits, back)
    with pytest.raises(cairn.InvalidArgument, match="offset"):
        memory.copy_in(bits, offset=1)
    with pytest.raises(cairn.InvalidArgument, match="shape|offset"):
        memory.tensor([1 << 40, 1 << 40], "bf16")


def test_a_restore_into_device_memory_and_an_append_from_it(store, spec, gpu, kv):
    model = store.register_model(spec)
    chat = store.create_branch(model)
    chat.append(np.arange(TOKENS, dtype=np.uint32), kv)
    memory, tensors = pool(gpu)
    held = cairn.KvTensors(spec, tensors, "vllm_nhd")
    assert held.device == "cuda:0" and held.writable
    table = [6, 1, 3]
    chat.restore(held.view(table=table))
    # The blocks have the rows of the device's memory, and nothing else.
    bits = np.zeros(memory.bytes, np.uint8)
    memory.copy_out(bits)
    blocks = bits.view(np.uint16).reshape(2, 2, 8, 16, 2, 4)[:, :, table].reshape(2, 2, TOKENS, 2, 4)
    for layer in range(2):
        for plane in range(2):
            assert np.array_equal(blocks[layer, plane].transpose(1, 0, 2), kv.numpy(layer, plane))

    twin = store.create_branch(model)
    twin.append(np.arange(TOKENS, dtype=np.uint32), held.view(table=np.array(table, np.int64)), durability="power")
    back = cairn.KvBuffer(spec, TOKENS)
    twin.restore(back)
    assert back == kv


def test_a_table_on_the_device(store, spec, gpu, kv):
    chat = store.create_branch(store.register_model(spec))
    chat.append(np.arange(TOKENS, dtype=np.uint32), kv)
    memory, tensors = pool(gpu)
    slots = np.random.default_rng(1).permutation(8 * 16)[:TOKENS].astype(np.int32)
    there = gpu.allocate(slots.nbytes)
    there.copy_in(slots)
    view = cairn.KvTensors(spec, tensors, "vllm_nhd").view(slots=there.tensor([TOKENS], "i32"))
    del there  # The view keeps the table.
    chat.restore(view)
    bits = np.zeros(memory.bytes, np.uint8)
    memory.copy_out(bits)
    rows = bits.view(np.uint16).reshape(2, 2, 8 * 16, 2, 4)[:, :, slots]
    assert np.array_equal(rows[1, 0].transpose(1, 0, 2), kv.numpy(1, 0))


def test_a_draft_out_of_device_memory(store, spec, gpu, kv):
    chat = store.create_branch(store.register_model(spec))
    draft = chat.begin_append(TOKENS)
    for layer in range(2):
        memory = gpu.allocate(2 * 2 * TOKENS * 4 * 2)
        memory.copy_in(np.stack([kv.numpy(layer, plane) for plane in range(2)]))
        tensor = memory.tensor([2, 2, TOKENS, 4], "bf16")
        draft.put(layer, cairn.KvTensors(spec, tensor, "PHTR", layer_begin=layer).view())
        del memory, tensor  # The draft keeps what it has not read.
    assert draft.commit(np.arange(TOKENS)).wait() == TOKENS
    back = cairn.KvBuffer(spec, TOKENS)
    chat.restore(back)
    assert back == kv


def test_memory_of_a_device_that_the_store_was_not_given_is_refused_by_name(tmp_path, spec, gpu):
    _, tensors = pool(gpu)
    view = cairn.KvTensors(spec, tensors, "vllm_nhd").view(0, 16)
    with cairn.Store(tmp_path / "other", create_if_missing=True) as other:
        chat = other.create_branch(other.register_model(spec))
        with pytest.raises(cairn.InvalidArgument, match="cuda|GPU|gpu|device"):
            chat.append(list(range(16)), view)
        with pytest.raises(cairn.InvalidArgument, match="host"):
            chat.append(gpu.allocate(64).tensor([4], "i32"))


def test_views_of_host_and_device_are_not_one(spec, gpu):
    _, tensors = pool(gpu)
    device = cairn.KvTensors(spec, tensors, "vllm_nhd").view(0, 16)
    host = cairn.KvBuffer(spec, 16).view()
    with pytest.raises(cairn.InvalidArgument, match="different devices"):
        device + host


def test_where_there_is_no_gpu_opening_one_says_so():
    try:
        gpu = cairn.Gpu.open()
    except cairn.NotFound as error:
        assert error.message
    else:
        assert gpu.name
