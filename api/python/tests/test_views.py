# SPDX-License-Identifier: Apache-2.0
"""Tensors in the shapes that engines have."""

import types

import numpy as np
import pytest

import cairn


@pytest.fixture
def kv(spec):
    buffer = cairn.KvBuffer(spec, 20)
    buffer.bytes[:] = np.random.default_rng(1).integers(0, 256, len(buffer.bytes), np.uint8)
    return buffer


@pytest.fixture
def filled(chat, kv):
    chat.append(np.arange(20), kv)
    return chat


@pytest.mark.parametrize("shape, layout", [
    ((2, 7, 16, 2, 4), "vllm_nhd"),
    ((2, 7, 2, 16, 4), "vllm_hnd"),
    ((7, 2, 16, 2, 4), "flashinfer_nhd"),
    ((7, 2, 2, 16, 4), "flashinfer_hnd"),
])
def test_vllm(filled, spec, kv, shape, layout):
    caches = {f"model.layers.{layer}.self_attn": np.zeros(shape, np.uint16) for layer in range(2)}
    pools = cairn.views.vllm(spec, caches)
    assert (pools.layout, pools.blocks, pools.tokens_per_block) == (layout, 7, 16)
    filled.restore(pools.view(table=[5, 2]))
    twin = filled.store.create_branch(filled.store.models()[0])
    twin.append(np.arange(20), pools.view(0, 20, table=[5, 2]))
    back = cairn.KvBuffer(spec, 20)
    twin.restore(back)
    assert back == kv


def test_vllm_with_planes_side_by_side(filled, spec, kv):
    """As vLLM 0.32 has them: [blocks][heads][tokens][2 * head_dim]; in memory tokens may lie before heads."""
    for caches in ([np.zeros((7, 2, 16, 8), np.uint16) for _ in range(2)],
                   [np.zeros((7, 16, 2, 8), np.uint16).transpose(0, 2, 1, 3) for _ in range(2)]):
        pools = cairn.views.vllm(spec, caches)
        assert (pools.layout, pools.blocks, pools.tokens_per_block) == ("BHTR", 7, 16)
        filled.restore(pools.view(table=[5, 2]))
        for layer in range(2):
            assert np.array_equal(caches[layer][5, :, :, :4], kv.numpy(layer, "k")[:, :16])
            assert np.array_equal(caches[layer][2, :, :4, 4:], kv.numpy(layer, "v")[:, 16:])
        twin = filled.store.create_branch(filled.store.models()[0])
        twin.append(np.arange(20), pools.view(0, 20, table=[5, 2]))
        back = cairn.KvBuffer(spec, 20)
        twin.restore(back)
        assert back == kv
    for wrong in ((7, 3, 16, 8), (7, 2, 16, 4)):  # Other heads; other elements.
        with pytest.raises(cairn.InvalidArgument, match="no paged cache"):
            cairn.views.vllm(spec, [np.zeros(wrong, np.uint16)] * 2)


def test_a_shape_that_could_be_two_is_refused(spec):
    with pytest.raises(cairn.InvalidArgument, match="vllm_nhd and flashinfer_nhd: give layout"):
        cairn.views.vllm(spec, [np.zeros((2, 2, 16, 2, 4), np.uint16)] * 2)
    assert cairn.views.vllm(spec, [np.zeros((2, 2, 16, 2, 4), np.uint16)] * 2, layout="vllm_nhd").blocks == 2
    with pytest.raises(cairn.InvalidArgument, match="no paged cache"):
        cairn.views.vllm(spec, [np.zeros((3, 7, 16, 2, 4), np.uint16)] * 2)
    with pytest.raises(cairn.InvalidArgument, match="group: 'x' is none of attention"):
        cairn.views.vllm(spec, [np.zeros((2, 7, 16, 2, 4), np.uint16)] * 2, group="x")


def test_sglang(filled, spec, kv):
    pools = [[np.zeros((64, 2, 4), np.uint16) for _ in range(2)] for _ in "KV"]
    slots = np.random.default_rng(2).permutation(64)[:20]
    filled.restore(cairn.views.sglang(spec, *pools).view(slots=slots))
    assert np.array_equal(pools[1][0][slots].transpose(1, 0, 2), kv.numpy(0, "v"))
    with pytest.raises(cairn.InvalidArgument, match="v_buffer"):
        cairn.views.sglang(spec, pools[0], pools[1][:1])


def test_hf(filled, spec, kv):
    """Static caches of a batch of three, and a list of pairs."""
    layers = [types.SimpleNamespace(keys=np.zeros((3, 2, 32, 4), np.uint16), values=np.zeros((3, 2, 32, 4), np.uint16))
              for _ in range(2)]
    cache = types.SimpleNamespace(layers=layers)
    filled.restore(cairn.views.hf(spec, cache, row=1).view(0, 20))
    for layer in range(2):
        assert np.array_equal(layers[layer].values[1, :, :20], kv.numpy(layer, "v"))
        assert not layers[layer].keys[0].any() and not layers[layer].keys[1, :, 20:].any()
    twin = filled.store.create_branch(filled.store.models()[0])
    pairs = [(layer.keys, layer.values) for layer in layers]
    twin.append([1, 2, 3], cairn.views.hf(spec, pairs, layers=[0, 1], row=1).view(0, 3))
    back = cairn.KvBuffer(spec, 3)
    twin.restore(back)
    assert np.array_equal(back.numpy(1, 0), kv.numpy(1, 0)[:, :3])
    with pytest.raises(cairn.InvalidArgument, match="layer 0 .* it is empty"):
        cairn.views.hf(spec, [(None, None)])
