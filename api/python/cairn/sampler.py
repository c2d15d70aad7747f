# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers as SamplerStates, so that the next draw comes out the same.

    chat.append(ids, kv, sampler=cairn.sampler.save(rng, temperature=0.7))
    ...
    position, state = chat.sampler_at()
    cairn.sampler.load(state, rng)

rng: numpy's Generator, BitGenerator or RandomState, or a torch.Generator. What is loaded is equal to what
was saved, bit for bit; a state of another kind of generator is refused by name.
"""

import json

import numpy as np

from . import _core
from ._errors import InvalidArgument

_VERSION = 1  # The form of all blobs below.


def save(generator, **fields):
    """The SamplerState of a generator; `fields` are its others (temperature, top_p, top_k, last_logits, ...)."""
    name, blob = state_bytes(generator)
    return _core.SamplerState("named", blob_name=name, blob_version=_VERSION, blob=blob, **fields)


def load(state, generator):
    """Sets a generator, of the kind that was saved, to a SamplerState. InvalidArgument: it is of another kind."""
    if state.generator != "named" or state.blob_version != _VERSION:
        raise InvalidArgument(f"state: is of generator {state.generator!r}, {state.blob_name!r} in version "
                              f"{state.blob_version}; cairn.sampler.save made none of these")
    set_state_bytes(generator, state.blob_name, state.blob)


def state_bytes(generator):
    """(kind, state): the kind of a generator as "numpy.PCG64" or "torch.cpu", and its state as bytes."""
    if _is_torch(generator):
        return f"torch.{generator.device.type}", generator.get_state().numpy().tobytes()
    holder = _numpy_holder(generator)
    state = holder.get_state(legacy=False) if isinstance(holder, np.random.RandomState) else holder.state
    return _numpy_kind(holder, state), json.dumps(state, default=_array_to_json, sort_keys=True).encode()


def set_state_bytes(generator, kind, state):
    """Sets a generator to what state_bytes gave."""
    own, _ = state_bytes(generator)
    if kind != own:
        raise InvalidArgument(f"state: is of {kind!r}, and the generator is a {own!r}")
    if _is_torch(generator):
        import torch

        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        return
    decoded = json.loads(state, object_hook=_array_from_json)
    holder = _numpy_holder(generator)
    if isinstance(holder, np.random.RandomState):
        holder.set_state(decoded)
    else:
        holder.state = decoded


def _is_torch(generator):
    return type(generator).__module__.startswith("torch") and hasattr(generator, "get_state")


def _numpy_holder(generator):
    """The object whose state it is."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator
    if isinstance(generator, (np.random.BitGenerator, np.random.RandomState)):
        return generator
    raise InvalidArgument(f"generator: a {type(generator).__name__} is none of numpy's or torch's")


def _numpy_kind(holder, state):
    prefix = "numpy.random_state." if isinstance(holder, np.random.RandomState) else "numpy."
    return prefix + state["bit_generator"]


def _array_to_json(value):
    if isinstance(value, np.ndarray):
        return {"array": value.dtype.str, "values": value.tolist()}
    return value.item()  # Numbers of numpy.


def _array_from_json(value):
    return np.array(value["values"], value["array"]) if "array" in value else value
