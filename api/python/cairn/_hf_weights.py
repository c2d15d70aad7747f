# SPDX-License-Identifier: Apache-2.0
"""Whether the weights of a transformers model are still those that were digested."""

import hashlib

import torch

from . import _core, _digest
from ._errors import InvalidArgument

_PLAIN = (str, int, float, bool, type(None))
# In the dictionary of each module of PEFT that holds adapters.
_ADAPTED = "_active_adapter"


def _parts(model):
    """All parameters and buffers, [(name, tensor)], and the settings of adapters, [(name, text)]."""
    tensors, settings, waiting, seen = [], [], [("", model)], set()
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        fields = module.__dict__
        for held in (fields["_parameters"], fields["_buffers"]):
            tensors += [(path + name, tensor) for name, tensor in held.items() if tensor is not None]
        if _ADAPTED in fields:
            settings.append((path, _settings(fields)))
        waiting += [(f"{path}{name}.", child) for name, child in fields["_modules"].items() if child is not None]
    return tensors, settings


def _settings(fields):
    """Which adapters are on or merged, and their scales: all plain attributes, since each version has others."""
    return repr(sorted((name, str(value)) for name, value in fields.items() if name != "training" and _is_plain(value)))


def _is_plain(value):
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN) or isinstance(value, (list, tuple)) and all(map(_is_plain, value))


def fingerprint_of(model):
    """Changes with the place, the version or the sample of any tensor, and with adapters. Takes microseconds a tensor.

    Not seen: bytes outside the sample that are written past torch's count of versions (through `.data`, or from
    another library).
    """
    tensors, settings = _parts(model)
    regions, versions, copies = [], [], []
    for _, tensor in tensors:
        versions.append(None if tensor.is_inference() else tensor._version)
        if tensor.device.type == "cpu":
            memory = tensor if tensor.is_contiguous() else tensor.untyped_storage()
        elif tensor.is_meta:
            continue
        else:
            step = max(1, tensor.numel() // 64)
            memory = tensor.detach().flatten()[::step].cpu().contiguous()
            copies.append(memory)  # Held until it is hashed.
        regions.append((memory.data_ptr(), memory.nbytes if isinstance(memory, torch.Tensor) else memory.nbytes()))
    return _core._hash_samples(regions), tuple(versions), tuple(settings)


def digest_of(model):
    """A digest of names, types, shapes and all bytes of parameters and buffers, and of the settings of adapters.

    InvalidArgument: of weights that it cannot read.
    """
    if getattr(model, "is_quantized", False):
        raise _unreadable("the model is quantised, and may be held in another form than it is saved")
    tensors, settings = _parts(model)
    pieces = {}  # One for each place in memory: weights may be tied.
    for name, tensor in tensors:
        if tensor.is_meta or tensor.layout != torch.strided:
            raise _unreadable(f"{name} is not in memory")
        if _place(tensor) not in pieces:
            pieces[_place(tensor)] = _pieces(tensor)
    hashes = iter(_digest.hash_each(piece for some in pieces.values() for piece in some))
    content = {place: b"".join(next(hashes) for _ in some) for place, some in pieces.items()}
    digest = hashlib.sha256(repr(settings).encode())
    for name, tensor in tensors:
        digest.update(f"\n{name}\0{tuple(tensor.shape)}\0{tensor.dtype}\0".encode() + content[_place(tensor)])
    return _digest.FORM + digest.hexdigest()


def _place(tensor):
    return str(tensor.device), tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _pieces(tensor):
    with torch.no_grad():
        raw = tensor.detach().to("cpu").contiguous().flatten().view(torch.uint8).numpy()
    return [raw[at:at + _digest.CHUNK_BYTES] for at in range(0, raw.size, _digest.CHUNK_BYTES)]


def _unreadable(why):
    return InvalidArgument(f"weights_digest: {why}; give identity=cairn.ModelIdentity(..., weights_digest=...), a text "
                           "that changes whenever the weights do")
