# SPDX-License-Identifier: Apache-2.0
"""Messages between the scheduler's process, which has the store, and the ranks, which have the model: plain data alone.

With the handshake a rank says how its KV lies. With each step the scheduler says which slots of shared memory to copy
rows into or out of, and with the step's output each rank says what it has copied.
"""

import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

import cairn

from ._vllm_layout import Group, Rows

# What the binding's values are made of; each is a property and an argument of the same name.
_FIELDS = {
    cairn.RotarySpec: ("state", "pairing", "first", "width", "sections", "interleaved"),
    cairn.Plane: ("name", "role", "heads", "row_bytes", "dtype", "rotary", "sealed_as", "state_parts"),
    cairn.Retention: ("kind", "window", "sinks", "chunk"),
    cairn.LayerGroup: ("name", "layers", "planes", "retention", "optional", "inv_freq", "mscale", "packing"),
}
_KINDS = {kind.__name__: kind for kind in _FIELDS}
_OF = "of"  # Where a dictionary says what it was.


def plain(value):
    """The same as dictionaries, lists, numbers and texts."""
    if type(value) in _FIELDS:
        return {_OF: type(value).__name__, **{name: plain(getattr(value, name)) for name in _FIELDS[type(value)]}}
    return [plain(one) for one in value] if isinstance(value, list) else value


def unplain(value):
    if isinstance(value, dict):
        arguments = {name: unplain(one) for name, one in value.items() if name != _OF}
        return _KINDS[value[_OF]](**arguments)
    return [unplain(one) for one in value] if isinstance(value, list) else value


@dataclasses.dataclass
class Handshake(KVConnectorHandshakeMetadata):
    """groups: of _vllm_layout, as fields, whose spec says nothing of rotation. described: the same specs with it."""

    rank: int
    groups: list[dict]
    described: list[dict]
    content: str | None

    @classmethod
    def of(cls, rank, layout, described):
        groups = [{**{field.name: getattr(group, field.name) for field in dataclasses.fields(Group)},
                   "spec": plain(group.spec)} for group in layout.groups]
        return cls(rank, groups, [plain(group.spec) for group in described.groups], layout.content)


@dataclasses.dataclass
class Place:
    """Where the layers of a rank's cache group are among those of all ranks. saves: its heads are not those of a rank
    before it, which saves them for both."""

    layers: int  # Those of all ranks.
    first_layer: int
    saves: bool


@dataclasses.dataclass
class Copy:
    """Rows to copy between blocks and a slot, whose first row of each attention group is that of position `first`.

    done: the id of a request whose last load this is; "": of none.
    """

    slot: int
    use: int  # Its number.
    first: int
    rows: list[Rows]
    request_id: str
    done: str = ""


@dataclasses.dataclass
class Over:
    """A load ended that no Copy tells the end of: it failed, or was given up. bad: blocks that were not loaded."""

    request_id: str
    failed: bool
    bad: list[int]


@dataclasses.dataclass
class SlotStep(KVConnectorMetadata):
    """address: of the area; capacity: tokens of a slot; places: of each rank, one for each cache group."""

    address: str
    slot_bytes: int
    capacity: int
    places: dict[int, list[Place]]
    loads: list[Copy] = dataclasses.field(default_factory=list)
    saves: list[Copy] = dataclasses.field(default_factory=list)
    over: list[Over] = dataclasses.field(default_factory=list)
    released: list[str] = dataclasses.field(default_factory=list)  # Requests whose blocks nobody reads any more.


@dataclasses.dataclass
class Report:
    """A rank has ended the copy for a use. why: what went wrong."""

    rank: int
    slot: int
    use: int
    copied: bool
    why: str = ""


@dataclasses.dataclass
class Reports(KVConnectorWorkerMetadata):
    """Of one rank, or of all behind aggregate(). refused: why a rank does without the area, by rank."""

    reports: list[Report] = dataclasses.field(default_factory=list)
    refused: dict[int, str] = dataclasses.field(default_factory=dict)

    def aggregate(self, other):
        return Reports(self.reports + other.reports, {**self.refused, **other.refused})
