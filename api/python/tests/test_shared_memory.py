# SPDX-License-Identifier: Apache-2.0
"""Memory that two processes see, and copies of KV rows between views: a rank's part and all of it, host and device."""

import os
import subprocess
import sys

import numpy as np
import pytest

import cairn

TOKENS = 12


def random_kv(spec, seed):
    buffer = cairn.KvBuffer(spec, TOKENS)
    buffer.bytes[:] = np.random.default_rng(seed).integers(0, 256, len(buffer.bytes), np.uint8)
    return buffer


def test_another_process_sees_the_same_bytes(tmp_path):
    area = cairn.SharedMemory.create(str(tmp_path), 5000)
    assert area.is_creator and len(area.bytes) >= 5000 and not area.bytes.any()
    area.bytes[:3] = [1, 2, 3]
    program = ("import sys, cairn\n"
               "area = cairn.SharedMemory.map(sys.argv[1])\n"
               "assert list(area.bytes[:3]) == [1, 2, 3] and not area.is_creator\n"
               "area.bytes[4999] = 9\n")
    subprocess.run([sys.executable, "-c", program, area.address], check=True)
    assert area.bytes[4999] == 9 and area.mapped == 1 and area.refused == 0


def test_arrays_keep_an_area_and_it_goes_with_the_last(tmp_path):
    area = cairn.SharedMemory.create(str(tmp_path), 4096)
    address, mapped = area.address, cairn.SharedMemory.map(area.address)
    first, second = area.bytes, mapped.bytes
    del mapped
    first[7] = 5
    assert second[7] == 5
    del area, first
    assert second[7] == 5
    with pytest.raises(cairn.NotFound):
        cairn.SharedMemory.map(address)
    assert os.listdir(tmp_path) == []


def test_a_child_of_fork_has_no_part_of_it(tmp_path):
    area = cairn.SharedMemory.create(str(tmp_path), 4096)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(area.bytes) == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0 and len(area.bytes) == 4096


def test_what_cannot_be_is_named(tmp_path):
    with pytest.raises(cairn.InvalidArgument, match="bytes"):
        cairn.SharedMemory.create(str(tmp_path), 0)
    with pytest.raises(cairn.NotFound):
        cairn.SharedMemory.create(str(tmp_path / "none"), 1)
    with pytest.raises(cairn.InvalidArgument, match="address"):
        cairn.SharedMemory.map("nonsense")
    area = cairn.SharedMemory.create(str(tmp_path), 1)
    parts = area.address.split(":")
    parts[3] = "0" * 32
    with pytest.raises(cairn.Conflict):
        cairn.SharedMemory.map(":".join(parts))
    assert area.refused == 1


def rank_of(spec, rank):
    """One of two ranks: half of the heads of a model of two."""
    group = spec.groups[0]
    planes = [cairn.Plane(plane.name, role=plane.role, heads=1, row_bytes=plane.row_bytes, dtype=plane.dtype,
                          rotary=plane.rotary) for plane in group.planes]
    return cairn.ModelSpec(spec.identity, [cairn.LayerGroup(group.name, layers=group.layers, planes=planes)], logical=[
        cairn.LogicalGroup(group.name, layers=group.layers, heads=2, layer_begin=0, layer_end=group.layers,
                           head_begin=rank, head_end=rank + 1)])


def test_ranks_put_their_rows_into_one_slot_of_shared_memory(tmp_path, spec):
    all_kv, area = random_kv(spec, 1), cairn.SharedMemory.create(str(tmp_path), spec.token_bytes * TOKENS)
    memory = area.bytes[:spec.token_bytes * TOKENS].view(np.uint16).reshape(2, 2, 2, TOKENS, 4)
    slot = cairn.KvTensors(spec, [memory[layer, plane] for layer in range(2) for plane in range(2)], "head_major")
    for number in range(2):
        rank = rank_of(spec, number)
        part = cairn.KvBuffer(rank, TOKENS)
        assert cairn.KvCopier(spec, rank).copy(all_kv, part) == len(part.bytes)
        for layer in range(2):
            for plane in range(2):
                assert np.array_equal(part.numpy(layer, plane)[0], all_kv.numpy(layer, plane)[number])
        assert cairn.KvCopier(rank, spec).copy(part, slot.view()) == len(part.bytes)
    assert bytes(area.bytes[:len(all_kv.bytes)]) == bytes(all_kv.bytes)


def test_a_copy_from_and_to_a_device(spec, gpu):
    kv, back = random_kv(spec, 2), cairn.KvBuffer(spec, TOKENS)
    memory = gpu.allocate(len(kv.bytes))
    size = memory.bytes // 4
    device = cairn.KvTensors(spec, [memory.tensor([2, TOKENS, 4], "bf16", offset=i * size) for i in range(4)],
                             "head_major")
    assert cairn.copy_kv(spec, kv, device.view(), gpus=[gpu]) == len(kv.bytes)
    copier = cairn.KvCopier(spec, spec, gpus=[gpu])
    assert copier.copy(device.view(), back, timeout=5) == len(kv.bytes)
    assert back == kv
    with pytest.raises(cairn.InvalidArgument, match="no such GPU"):
        cairn.copy_kv(spec, kv, device.view())


def test_bad_copies_are_named(spec):
    kv, other = random_kv(spec, 3), cairn.KvBuffer(spec, TOKENS)
    copier = cairn.KvCopier(spec, spec)
    assert copier.copy(kv, other) == len(kv.bytes) and other == kv
    with pytest.raises(cairn.InvalidArgument, match="position"):
        copier.copy(kv, other.view(0, 5))
    with pytest.raises(cairn.InvalidArgument, match="gpu_ready"):
        copier.copy(kv, other, gpu_ready=1)
    with pytest.raises(TypeError, match="from_: must not be None"):
        copier.copy(None, other)
    with pytest.raises(TypeError, match="to: must not be None"):
        copier.copy(kv, None)
    with pytest.raises(cairn.InvalidArgument, match="from_"):
        copier.copy(np.zeros(3), other)
    frozen = np.zeros((2, TOKENS, 4), np.uint16)
    frozen.flags.writeable = False
    tensors = cairn.KvTensors(spec, [frozen] * 4, "head_major")
    with pytest.raises(cairn.InvalidArgument, match="read only"):
        copier.copy(kv, tensors.view())
    wide = cairn.ModelSpec.of("wide", layers=2, kv_heads=2, head_dim=8, dtype="bf16")
    with pytest.raises(cairn.ModelMismatch):
        cairn.KvCopier(spec, wide)
    with pytest.raises(cairn.ModelMismatch):
        copier.copy(cairn.KvBuffer(wide, TOKENS), other)
