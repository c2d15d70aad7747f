# SPDX-License-Identifier: Apache-2.0
"""How the KV of some positions lies in a slot of shared memory: alike in the scheduler's process and in each rank.

Each layer and plane of a group has rows for `capacity` positions, head by head, one behind the other; a recurrent layer
has one state. Layers and heads are those of all ranks, so the rows of a rank that has some of the heads lie together.
"""

import dataclasses

import torch

import cairn

ALIGN_BYTES = 64
SLOTS = 16  # Fewer where an area has no room for a block in each.


@dataclasses.dataclass(frozen=True)
class SlotShape:
    slot_bytes: int
    capacity: int  # Positions.

    @classmethod
    def of(cls, layout, area_bytes):
        """Of an area of this size. ValueError: it has no room for one block."""
        least = _bytes_of(layout, layout.step)
        if least > area_bytes:
            raise ValueError(f"kv_connector_extra_config: 'shared_memory_bytes' is {area_bytes}; "
                             f"one {'block' if layout.step > 1 else 'token'} of this model takes {least}")
        slot_bytes = max(area_bytes // SLOTS // ALIGN_BYTES * ALIGN_BYTES, least)
        per_step = max(1, sum(group.spec.token_bytes for group in layout.groups if not group.recurrent) * layout.step)
        steps = slot_bytes // per_step
        while steps > 1 and _bytes_of(layout, steps * layout.step) > slot_bytes:
            steps -= 1  # For what the alignment of planes takes.
        return cls(slot_bytes, max(1, steps) * layout.step)


class SlotMemory:
    """Views of the slots of an area, a numpy array of bytes, in this process."""

    def __init__(self, layout, shape, area):
        self.layout, self.shape, self._area = layout, shape, area
        self.spec = layout.spec()
        self._slots = {}  # Number -> KvTensors of each group.

    def view(self, slot, first, rows):
        """These Rows, in a slot that begins with position `first`."""
        held = self._slots.get(slot)
        if held is None:
            held = self._slots[slot] = self._tensors_of(slot)
        whole = None
        for one in rows:
            recurrent = self.layout.groups[one.group].recurrent
            view = held[one.group].view(one.begin, one.end - one.begin,
                                        first_token=0 if recurrent else one.begin - first)
            whole = view if whole is None else whole + view
        return whole

    def _tensors_of(self, slot):
        memory = torch.from_numpy(cairn.KvSlots.memory_of(self._area, self.shape.slot_bytes, slot))
        held, at = [], 0
        for group in self.layout.groups:
            planes = []
            for _ in range(group.spec.layers):
                for shape, dtype, size in _planes_of(group, self.shape.capacity):
                    planes.append(memory[at:at + size].view(dtype).view(shape))
                    at += _aligned(size)
            held.append(cairn.KvTensors(self.spec, planes, "HTR", group=group.index))
        return held


def _planes_of(group, capacity):
    """(shape, dtype, bytes) of each plane of a layer."""
    tokens = 1 if group.recurrent else capacity
    for _, _, width in group.planes:
        dtype = torch.uint8 if group.packed else getattr(torch, group.dtype)
        yield (group.heads, tokens, width), dtype, group.heads * tokens * width * dtype.itemsize


def _bytes_of(layout, capacity):
    return sum(group.spec.layers * sum(_aligned(size) for _, _, size in _planes_of(group, capacity))
               for group in layout.groups)


def _aligned(size):
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES
