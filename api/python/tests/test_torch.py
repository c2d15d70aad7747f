# SPDX-License-Identifier: Apache-2.0
"""Tensors and generators of torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not there: tools/test-engines runs this")

import cairn  # noqa: E402


@pytest.mark.parametrize("dtype, torch_dtype", [("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)])
def test_tensors_go_in_and_come_back(store, dtype, torch_dtype):
    spec = cairn.ModelSpec.of(dtype, layers=2, kv_heads=2, head_dim=8, dtype=torch_dtype)
    assert spec.groups[0].planes[0].dtype == dtype
    chat = store.create_branch(store.register_model(spec))
    tensors = [torch.randn(1, 2, 10, 8).to(torch_dtype) for _ in range(4)]
    pairs = list(zip(tensors[::2], tensors[1::2]))
    chat.append(torch.arange(10), cairn.views.hf(spec, pairs).view())
    back = [torch.zeros_like(tensor) for tensor in tensors]
    room = torch.zeros(10, dtype=torch.int32)
    chat.restore(cairn.views.hf(spec, list(zip(back[::2], back[1::2]))).view(), room)
    assert all(torch.equal(a, b) for a, b in zip(tensors, back)) and room.tolist() == list(range(10))


def test_slices_are_written_in_place(store):
    spec = cairn.ModelSpec.of("s", layers=1, kv_heads=2, head_dim=4, dtype="bf16")
    chat = store.create_branch(store.register_model(spec))
    big = torch.randn(2, 20, 2, 8).to(torch.bfloat16)
    part = big[:, 5:15, :, ::2]  # Every second element of a row.
    chat.append(list(range(10)), cairn.KvView.of(spec, list(part)))
    wanted = part.clone()
    big.zero_()
    chat.restore(cairn.KvView.of(spec, list(part)))
    assert torch.equal(part, wanted) and not big[:, :5].any() and not big[:, :, :, 1::2].any()


def test_buffers_are_tensors_of_torch(chat, spec):
    buffer = cairn.KvBuffer(spec, 4)
    tensor = torch.from_dlpack(buffer.tensor(0, "k"))
    assert tensor.dtype == torch.bfloat16 and list(tensor.shape) == [2, 4, 4]
    tensor.fill_(1.5)
    assert np.all(buffer.numpy(0, "k") == 0x3FC0)


def test_generators(chat):
    generator = torch.Generator().manual_seed(5)
    torch.randn(3, generator=generator)
    chat.append([1], sampler=cairn.sampler.save(generator))
    wanted = torch.randn(50, generator=generator)
    other = torch.Generator().manual_seed(6)
    cairn.sampler.load(chat.sampler_at()[1], other)
    assert torch.equal(torch.randn(50, generator=other), wanted)
    with pytest.raises(cairn.InvalidArgument, match="torch.cpu"):
        cairn.sampler.load(chat.sampler_at()[1], np.random.default_rng(1))
