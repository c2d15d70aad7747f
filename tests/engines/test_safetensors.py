# SPDX-License-Identifier: Apache-2.0
"""Property: the package `safetensors` reads every tensor of an export with the bits that the branch has, through numpy
and through torch; and a file that the package writes again, tensors in its own order, is imported as well.
Method: one model with groups of every dtype, appended from random bytes."""

import json

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import cairn

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn,
          "f8e5m2": torch.float8_e5m2, "i8": torch.int8, "u8": torch.uint8}
TOKENS = 40


@pytest.fixture
def exported(tmp_path):
    """(path, {dtype: KvBuffer}) of one branch for each dtype."""
    files = {}
    with cairn.Store(tmp_path / "store", create_if_missing=True, segment_bytes="1MiB") as store:
        for dtype in DTYPES:
            spec = cairn.ModelSpec.of(f"toy-{dtype}", layers=2, kv_heads=3, head_dim=8, dtype=dtype)
            kv = cairn.KvBuffer(spec, TOKENS)
            kv.bytes[:] = np.random.default_rng(len(files)).integers(0, 256, len(kv.bytes), np.uint8)
            branch = store.create_branch(store.register_model(spec), dtype)
            branch.append(range(TOKENS), kv)
            path = tmp_path / f"{dtype}.safetensors"
            branch.export(path)
            files[dtype] = (path, spec, kv)
    return files


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tensor_has_its_bits(exported, dtype):
    path, _, kv = exported[dtype]
    with safetensors.safe_open(path, framework="pt") as file:
        group = json.loads(file.metadata()["kv_data"])["groups"][0]
        assert set(file.keys()) == {"tokens", *group["tensors"]}
        assert file.get_tensor("tokens").tolist() == list(range(TOKENS))
        for layer in range(2):
            for plane, name in enumerate("kv"):
                tensor = file.get_tensor(f"kv.{group['group']}.{layer}.{name}")
                assert tensor.dtype == DTYPES[dtype] and tensor.shape == (3, TOKENS, 8)
                assert bits(tensor) == np.ascontiguousarray(kv.numpy(layer, plane)).tobytes()


def test_raw_bytes_agree(exported):
    for path, _, _ in exported.values():
        entries = dict(safetensors.deserialize(path.read_bytes()))
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                assert bytes(entries[name]["data"]) == bits(file.get_tensor(name))


def test_what_the_package_writes_again_is_imported(exported, tmp_path):
    path, spec, kv = exported["bf16"]
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    again = tmp_path / "again.safetensors"
    safetensors.torch.save_file(safetensors.torch.load_file(path), again, metadata=metadata)
    with cairn.Store(":memory:", create_if_missing=True) as other:
        branch = other.import_branch(again)
        back = cairn.KvBuffer(spec, TOKENS)
        branch.restore(back)
        assert back == kv and branch.tokens().tolist() == list(range(TOKENS))
