# SPDX-License-Identifier: Apache-2.0
"""A model of llama.cpp as a store describes it: its identity by the GGUF's content, its groups by what a context keeps,
and the rows in the bytes of a state as tensors of those groups."""

import dataclasses
import pathlib

import numpy

from . import _core, _digest, _gguf, _states
from ._errors import Corruption, InvalidArgument
from ._llama_state import DTYPES, ELEMENT_BYTES, type_name

_DTYPES = {"f32": numpy.float32, "f16": numpy.float16, "bf16": numpy.uint16, "opaque": numpy.uint8}
# Windows that begin at multiples of their length, which no state says.
_CHUNKED = ("llama4",)


@dataclasses.dataclass(frozen=True)
class Group:
    """Layers of one section with equal rows. section None: states of recurrent layers."""

    name: str
    section: int | None
    layers: tuple  # Numbers within the section.
    rows: tuple  # Of one layer: K and V, or its states.


class Weights:
    """A GGUF file, or several of a model that was split: what its header says, and a digest of all its bytes."""

    def __init__(self, path):
        self.parts = _gguf.parts_of(path)
        self.settings = _gguf.settings_of(self.parts[0])
        self.architecture = str(self.settings.get("general.architecture", ""))
        self.name = str(self.settings.get("general.name") or pathlib.Path(path).stem)
        if self.architecture in _CHUNKED:
            raise InvalidArgument(f"model: {self.architecture} has windows that begin at multiples of their length, "
                                  "and states do not say where")
        if any(key.startswith(f"{self.architecture}.rope.dimension_sections") for key in self.settings):
            raise InvalidArgument(f"model: {self.architecture} has positions of several numbers (M-RoPE), and a branch "
                                  "has one for each token")

    def number(self, key, default=0):
        value = self.settings.get(f"{self.architecture}.{key}", default)
        return value if isinstance(value, int) else default

    @property
    def window(self):
        return self.number("attention.sliding_window")

    def digest(self):
        """Of all bytes, and not of the file's name. OSError."""
        digests = _digest.Digests(_digest.cache_directory())
        digest = digests.of_files(self.parts, named=False)
        digests.save()
        return digest

    def heads(self, row):
        """(heads, elements) of a row of K or V."""
        elements = row.bytes // ELEMENT_BYTES[row.type]
        heads, width = self.number("attention.head_count"), self.number("embedding_length")
        head = self.number("attention.key_length") or (width // heads if heads else 0)
        return (elements // head, head) if head and elements % head == 0 else (1, elements)


def groups_of(shape):
    """The Groups of what a context keeps."""
    groups = []

    def add(name, section, number, rows):
        """The layer joins the group of its section that has its rows."""
        same = [group for group in groups if group.section == section and group.rows == rows and
                (section is not None or _states.fit(len(group.layers) + 1, sum(row.bytes for row in rows)))]
        if same:
            at = groups.index(same[0])
            groups[at] = dataclasses.replace(same[0], layers=(*same[0].layers, number))
            return
        count = 1 + sum(group.section == section for group in groups)
        groups.append(Group(f"{name} {count}" if count > 1 else name, section, (number,), rows))

    for section, attention in enumerate(shape.attention):
        for number, key in enumerate(attention.keys):
            rows = (key, attention.values[number]) if attention.values else (key,)
            add("window" if section else "attention", section, number, rows)
    recurrent = len(shape.states) // 2
    for number in range(recurrent):
        add("recurrent", None, number, (shape.states[number], shape.states[recurrent + number]))
    return groups


def spec_of(weights, shape, digest, revision="", window=None):
    """The ModelSpec. window: as llama.cpp's library says; None: as the file does."""
    window = weights.window if window is None else window
    if len(shape.attention) > 1 and not window:
        raise InvalidArgument(f"model: {weights.architecture} has layers with a window, and its file does not say how "
                              "long it is")
    layers = weights.number("block_count")
    kept = sum(len(section.keys) for section in shape.attention) + len(shape.states) // 2
    if layers and kept > layers:
        raise InvalidArgument(f"state: is of {kept} layers; {weights.name} has {layers}")
    groups = [_layer_group(weights, group, window) for group in groups_of(shape)]
    identity = _core.ModelIdentity(weights.name, revision=revision, weights_digest=digest, cache_dtype=_types(shape))
    return _core.ModelSpec(identity, groups)


def _types(shape):
    words = []
    for section in shape.attention:
        for rows, turned in ((section.keys, section.rotation[0]), (section.values, section.rotation[1])):
            names = sorted({type_name(row.type) for row in rows})
            words.append("+".join(names) + (f" rotated by {turned}" if turned else ""))
    return "llama.cpp " + "/".join(words)


def _layer_group(weights, group, window):
    if group.section is None:
        planes = [_core.Plane(name, role="state", row_bytes=row.bytes, dtype="opaque")
                  for name, row in zip(("first", "second"), group.rows) if row.bytes]
        return _core.LayerGroup(group.name, layers=len(group.layers), planes=planes,
                                retention=_core.Retention("checkpoint"))
    planes = []
    for (name, role), row in zip((("k", "key"), ("v", "value")), group.rows):
        dtype = DTYPES.get(row.type, "opaque")
        heads, elements = weights.heads(row) if dtype != "opaque" else (1, row.bytes)
        planes.append(_core.Plane(name, role=role, heads=heads, dtype=dtype,
                                  row_bytes=elements * ELEMENT_BYTES.get(row.type, 1)))
    retention = _core.Retention("window", window=window) if group.section else _core.Retention("all")
    return _core.LayerGroup(group.name, layers=len(group.layers), planes=planes, retention=retention)


class Planes:
    """The rows in the bytes of a State, as views for a store to read or write."""

    def __init__(self, spec, state):
        self._groups = list(zip(groups_of(state.shape), spec.groups))
        self._spec, self._state = spec, state
        self._orders = []  # Of each section: (first position, cells, where each position's cell is; None: in order).
        self._tensors = {}
        for section in state.sections:
            self._orders.append((0, 0, None) if section is None else _order(section.positions))

    @property
    def sections(self):
        return len(self._orders)

    def first(self, section=0):
        """The first position that a section has."""
        return self._orders[section][0]

    def view(self, begin, end, states=True):
        """A KvView of what the state has of positions [begin, end); with `states` those of recurrent layers, if they
        are of `end` tokens. None: it has nothing of them."""
        view = None
        for number, (group, described) in enumerate(self._groups):
            if group.section is None:
                part = self._states(number, group, described, end) if states and begin < end else None
            else:
                part = self._rows(number, group, described, begin, end)
            if part is not None:
                view = part if view is None else view + part
        return view

    def _states(self, number, group, described, end):
        state = self._state
        if not state.states or state.state_position != end - 1:
            return None
        recurrent = len(state.states) // 2
        tensors = [[self._array(state.states[which * recurrent + layer], 1, row.bytes)
                    for which, row in enumerate(group.rows) if row.bytes] for layer in group.layers]
        return _core.KvTensors(self._spec, tensors, "TR", group=number).view(end - 1, 1)

    def _rows(self, number, group, described, begin, end):
        first, cells, order = self._orders[group.section]
        begin, end = max(begin, first), min(end, first + cells)
        if begin >= end:
            return None
        if number not in self._tensors:
            self._tensors[number] = self._kv(number, group, described, cells)
        tensors = self._tensors[number]
        if order is None:
            return tensors.view(begin, end - begin, first_token=begin - first)
        return tensors.view(begin, end - begin, slots=order[begin - first:end - first])

    def _kv(self, number, group, described, cells):
        section, transposed = self._state.sections[group.section], self._state.form.transposed
        tensors = []
        for layer in group.layers:
            planes = []
            for plane, offsets in zip(described.planes, (section.keys, section.values)):
                array = self._array(offsets[layer], cells, plane.heads * plane.row_bytes).view(_DTYPES[plane.dtype])
                if transposed and plane.role == "value":
                    planes.append(array.reshape(plane.heads, -1, cells))
                else:
                    planes.append(array.reshape(cells, plane.heads, -1))
            tensors.append(planes)
        return _core.KvTensors(self._spec, tensors, "llama_cpp" if transposed else "token_major", group=number)

    def _array(self, offset, rows, row_bytes):
        return self._state.memory[offset:offset + rows * row_bytes].reshape(rows, row_bytes)


def _order(positions):
    first, cells = int(positions.min()), positions.size
    if first < 0 or int(positions.max()) - first != cells - 1:
        raise Corruption(f"state: {cells} cells have positions from {first} to {int(positions.max())}; a branch has "
                         "each position once")
    if (positions == numpy.arange(first, first + cells)).all():
        return first, cells, None
    order = numpy.argsort(positions).astype(numpy.int64)
    if (numpy.diff(positions[order]) != 1).any():
        raise Corruption("state: several cells have one position; a branch has each position once")
    return first, cells, order
