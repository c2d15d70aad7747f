# SPDX-License-Identifier: Apache-2.0
"""Branches as safetensors files, and forests, which are MessagePack: what Python reads of them, and what comes back."""

import json
import pathlib
import struct

import numpy as np
import pytest

import cairn


def read(path):
    """(metadata, {tensor: (dtype, shape, bytes)}) of a safetensors file, by the format's own rules."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert (8 + length) % 8 == 0
    metadata = header.pop("__metadata__")
    body = data[8 + length:]
    assert sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in header.values()) == len(body)
    return metadata, {name: (tensor["dtype"], tensor["shape"], body[slice(*tensor["data_offsets"])])
                      for name, tensor in header.items()}


@pytest.fixture
def filled(chat, spec):
    kv = cairn.KvBuffer(spec, 30)
    kv.bytes[:] = np.random.default_rng(5).integers(0, 256, len(kv.bytes), np.uint8)
    chat.append(range(100, 130), kv, sampler=cairn.SamplerState(temperature=0.5))
    return chat, kv


def test_a_file_holds_the_tensors_of_the_branch(filled, spec, tmp_path):
    chat, kv = filled
    made = chat.export(tmp_path / "chat.safetensors")
    assert (made.begin, made.end, made.kv_ends) == (0, 30, [30])
    assert made.file_bytes == (tmp_path / "chat.safetensors").stat().st_size
    metadata, tensors = read(tmp_path / "chat.safetensors")
    assert metadata["format"] == "cairn-branch" and metadata["version"] == "1"
    assert metadata["model_id"] == "toy" and metadata["sequence_length"] == "30"
    assert metadata["snapshot_id"] == made.snapshot_id and "base_snapshot_id" not in metadata
    assert json.loads(metadata["sampling_config"])["temperature"] == 0.5
    dtype, shape, ids = tensors["tokens"]
    assert (dtype, shape) == ("U32", [30]) and np.frombuffer(ids, np.uint32).tolist() == list(range(100, 130))
    group = json.loads(metadata["kv_data"])["groups"][0]
    assert group["positions"] == [[0, 30]] and len(group["tensors"]) == 4
    for layer in range(2):
        for plane, name in enumerate("kv"):
            dtype, shape, rows = tensors[f"kv.{group['group']}.{layer}.{name}"]
            assert (dtype, shape) == ("BF16", [2, 30, 4])
            assert rows == np.ascontiguousarray(kv.numpy(layer, plane)).tobytes()


def test_a_branch_comes_back_in_another_store(filled, spec, tmp_path):
    chat, kv = filled
    path = tmp_path / "chat.safetensors"
    chat.export(path)
    with pytest.raises(cairn.AlreadyExists):
        chat.export(path)
    chat.export(str(path), replace=True)
    with cairn.Store(tmp_path / "other", create_if_missing=True, segment_bytes="1MiB") as other:
        copy = other.import_branch(path)
        assert copy.info().name == "chat" and copy.tokens().tolist() == chat.tokens().tolist()
        back = cairn.KvBuffer(spec, 30)
        copy.restore(back)
        assert back == kv and copy.sampler_at() == chat.sampler_at()
        with pytest.raises(cairn.AlreadyExists):
            other.import_branch(path)
        named = other.import_branch(path, name="x", namespace="y", model=other.models()[0])
        assert (named.info().name, named.info().namespace) == ("x", "y")
        with pytest.raises(cairn.NotFound):
            other.import_branch(tmp_path / "none")
        with pytest.raises(cairn.InvalidArgument):
            other.import_branch(tmp_path / "a\0b")


def test_parts_name_each_other(filled, tmp_path):
    chat, _ = filled
    first = chat.export(tmp_path / "1", end=10)
    second = chat.export(tmp_path / "2", begin=10, kv_begin=0)
    assert second.base_snapshot_id == first.snapshot_id
    metadata, _ = read(tmp_path / "2")
    assert (metadata["start_pos"], metadata["end_pos"]) == ("10", "30")
    with cairn.Store(":memory:", create_if_missing=True) as other:
        with pytest.raises(cairn.NotFound, match=first.snapshot_id):
            other.import_branch(tmp_path / "2")
        other.import_branch(tmp_path / "1")
        assert len(other.import_branch(tmp_path / "2")) == 30


def test_a_damaged_file_is_refused(filled, tmp_path):
    chat, _ = filled
    path = tmp_path / "chat"
    chat.export(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with cairn.Store(":memory:", create_if_missing=True) as other:
        with pytest.raises(cairn.Corruption, match="digest"):
            other.import_branch(path)
        path.write_bytes(data[:-1])
        with pytest.raises(cairn.Corruption):
            other.import_branch(path)
        assert other.list_branches() == ([], "")


def test_a_forest_comes_back_as_a_whole(filled, store, tmp_path):
    chat, _ = filled
    chat.fork(12, "fork").append([1, 2, 3])
    made = store.export_forest(tmp_path / "all")
    assert (made.models, made.branches, made.tokens) == (1, 2, 33)
    # The records of MessagePack: maps without anything nested in them.
    data = (tmp_path / "all").read_bytes()
    assert data[0] & 0xF0 == 0x80 and b"forest" in data and len(data) == made.file_bytes
    with cairn.Store(":memory:", create_if_missing=True) as other:
        brought = other.import_forest(tmp_path / "all")
        assert (brought.branches, brought.tokens) == (2, 33)
        assert other.find_branch("fork").tokens().tolist() == [*range(100, 112), 1, 2, 3]
        with pytest.raises(cairn.AlreadyExists):
            other.import_forest(tmp_path / "all")
    assert store.export_forest(tmp_path / "all", namespace="none", replace=True).branches == 0
