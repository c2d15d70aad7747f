# SPDX-License-Identifier: Apache-2.0
"""The rotation in the description of a model, as an adapter has found it, and as a store has it already."""

import dataclasses

from . import _core

_ROUNDING = 2 ** -20  # Relative: frequencies that are one, computed by two libraries in fp32.


@dataclasses.dataclass(frozen=True)
class Frequencies:
    """A candidate: an engine's fp32 frequencies and its scale of cosine and sine."""

    inv_freq: tuple[float, ...]
    mscale: float = 1.0
    lasting: bool = True  # False: the engine changes them with the length of a sequence.


@dataclasses.dataclass(frozen=True)
class Turn:
    """How the rows of a plane turn. No frequencies: they never turn."""

    frequencies: Frequencies | None = None
    pairing: str = "unset"
    first: int = 0

    @property
    def spec(self):
        if self.frequencies is None:
            return _core.RotarySpec("none")
        return _core.RotarySpec("applied", self.pairing, first=self.first, width=2 * len(self.frequencies.inv_freq))


def turned_group(group, turns):
    """The LayerGroup with the rotation of its planes. turns: by the plane's name; None: the plane stays as it is."""
    turns = {plane.name: turns[plane.name] for plane in group.planes
             if turns.get(plane.name) is not None and plane.dtype != "opaque"}
    planes = [_with_rotary(plane, turns[plane.name].spec) if plane.name in turns else plane for plane in group.planes]
    frequencies = {turn.frequencies for turn in turns.values() if turn.frequencies is not None}
    if len(frequencies) == 1 and (one := frequencies.pop()).lasting:
        return with_angles(group, planes, one.inv_freq, one.mscale)
    return with_angles(group, planes)


def with_angles(group, planes, inv_freq=(), mscale=1.0):
    return _core.LayerGroup(group.name, layers=group.layers, planes=planes, retention=group.retention,
                            optional=group.optional, inv_freq=list(inv_freq), mscale=mscale, packing=group.packing)


def _with_rotary(plane, rotary):
    return _core.Plane(plane.name, role=plane.role, heads=plane.heads, row_bytes=plane.row_bytes, dtype=plane.dtype,
                       rotary=rotary, sealed_as=plane.sealed_as, state_parts=plane.state_parts)


def settled(store, spec, earlier):
    """The spec, with the store's word on the rotation of a group where another one would only be in the way of its KV:
    frequencies that differ by rounding, which libraries compute with another last bit in each version; and planes that
    are described as the adapter's earlier versions did, by guess or not at all. Those stay without frequencies, so
    nothing is turned by them.

    earlier: the spec of those versions.
    """
    for known in (model.spec for model in store.models()):
        if (known.identity, known.variant, known.shard) == (spec.identity, spec.variant, spec.shard):
            groups = [_settled(*each) for each in zip(spec.groups, known.groups, earlier.groups)]
            return _core.ModelSpec(spec.identity, groups + spec.groups[len(groups):], variant=spec.variant,
                                   shard=spec.shard, logical=spec.logical, extent_tokens=spec.extent_tokens)
    return spec


def _settled(ours, theirs, earlier):
    guessed = [plane.rotary for plane in earlier.planes]
    if not theirs.inv_freq and [plane.rotary for plane in theirs.planes] == guessed \
            and ".rotary." in _difference(theirs, ours):
        return with_angles(ours, [_with_rotary(*pair) for pair in zip(ours.planes, guessed)])
    if len(ours.inv_freq) == len(theirs.inv_freq) and all(
            abs(a - b) <= _ROUNDING * abs(b)
            for a, b in zip([*ours.inv_freq, ours.mscale], [*theirs.inv_freq, theirs.mscale])):
        return with_angles(ours, ours.planes, theirs.inv_freq, theirs.mscale)
    return ours


def _difference(*groups):
    one, other = (_core.ModelSpec("any", [group]) for group in groups)
    return one.first_difference(other)
