# SPDX-License-Identifier: Apache-2.0
"""The state of a sequence as llama.cpp writes it: where in its bytes the rows of each layer are, and such bytes built.

  a state:   sections of attention (two in models with windows: all positions, then the window), states of recurrent
             layers, or both, one behind the other
  attention: u32 streams; of each u32 cells; where there are any: a cell each i32 position, u32 sequences, i32 each;
             u32 transposed, u32 layers, from llama.cpp b11549 on u32 rotation of K, u32 of V; of each layer
             i32 type, u64 row's bytes, rows; then V likewise, or transposed i32 type, u32 element's bytes,
             u32 elements, values by element
  states:    u32 cells; a cell each i32 position, u32 sequences, i32 each; u32 transposed, u32 layers; of each
             recurrent layer i32 type, u64 bytes, bytes; then the second state of each likewise

Nothing in it says which sections there are, so the forms are tried, and one must explain every byte.
"""

import dataclasses
import itertools
import struct

import numpy

from ._errors import Corruption

MAGIC = 0xAF143CD8  # Before the state of a sequence in memory; behind it the sequence's number.
CELLS_MAX = 1 << 28
LAYERS_MAX = 1 << 12
STREAMS_MAX = 1 << 10
_CELL = numpy.dtype([("position", "<i4"), ("sequences", "<u4"), ("sequence", "<i4")])
_STATE_CELL = numpy.dtype([("position", "<i4"), ("sequences", "<u4")])


@dataclasses.dataclass(frozen=True)
class Row:
    """What a layer keeps of a position: ggml's type, and bytes."""

    type: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Attention:
    keys: tuple  # A Row for each layer.
    values: tuple  # The same, or none: MLA.
    rotation: tuple = (0, 0)  # Of quantised K and V, by a Hadamard matrix of so many columns; 0: none.


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a context keeps. Two states of one shape can be exchanged, however they are written."""

    attention: tuple = ()  # An Attention for each section.
    states: tuple = ()  # A Row for each recurrent layer's first state, then for each one's second.
    layers: int = 0  # The model's, as the section of states has it.


@dataclasses.dataclass(frozen=True)
class Form:
    """How a context writes it."""

    rotations: bool = True  # There are words for it.
    streams: int = 1
    stream: int = 0  # The one with the sequence's cells; it may be any.
    transposed: bool = False
    whole: bool = False  # All sequences; else one.


@dataclasses.dataclass
class Section:
    """Where rows are: of cell c of layer l at keys[l] + c * row. Transposed values: [element][cell]."""

    positions: numpy.ndarray
    keys: list
    values: list


@dataclasses.dataclass
class State:
    memory: numpy.ndarray  # Bytes.
    shape: Shape
    form: Form
    sections: list  # A Section for each of shape.attention; None: it is empty.
    states: list  # Offsets of shape.states; none: it is empty.
    state_position: int = -1  # They are of the tokens up to this one.

    @property
    def length(self):
        """Tokens that it is of."""
        filled = [section for section in self.sections if section is not None]
        if filled:
            return int(filled[0].positions.max()) + 1
        return self.state_position + 1 if self.states else 0


class _Misfit(Exception):
    def __init__(self, at, why):
        super().__init__(why)
        self.at = at


class _Reader:
    def __init__(self, memory, at):
        self.memory, self.at = memory, at

    def take(self, form, what):
        at = self.skip(struct.calcsize(form), what)
        values = struct.unpack_from(form, self.memory, at)
        return values if len(values) > 1 else values[0]

    def skip(self, count, what):
        if count > self.memory.size - self.at:
            raise _Misfit(self.at, f"ends within {what}")
        self.at += count
        return self.at - count

    def number(self, most, what):
        number = self.take("<I", what)
        if number > most:
            raise _Misfit(self.at - 4, f"has {number} {what}")
        return number


def parse(memory, at=0, *, whole=False, rotations=None):
    """The State in these bytes from `at` on, up to their end. Corruption: no form explains them.

    rotations: whether there are words for them; None: either.
    """
    deepest = _Misfit(at, "is empty")
    for rotations, values, sections, recurrent in itertools.product(
            (True, False) if rotations is None else (rotations,), (True, False), (1, 2, 0), (False, True)):
        if sections + recurrent == 0 or sections == 0 and not values:
            continue
        try:
            return _parse(_Reader(memory, at), Form(rotations, whole=whole), values, sections, recurrent)
        except _Misfit as misfit:
            deepest = max(deepest, misfit, key=lambda one: one.at)
    raise Corruption(f"state: {deepest}, at byte {deepest.at} of {memory.size}")


def _parse(reader, form, values, count, recurrent):
    attention, sections, states, offsets, position, layers = [], [], (), [], -1, 0
    for _ in range(count):
        shape, section, ours = _parse_attention(reader, form, values)
        if attention and shape.keys and ours != form:
            raise _Misfit(reader.at, "has sections of several forms")
        form = ours
        attention.append(shape)
        sections.append(section)
    if recurrent:
        states, offsets, position, layers = _parse_states(reader, form.whole)
    if reader.at != reader.memory.size:
        raise _Misfit(reader.at, "goes on behind its end")
    return State(reader.memory, Shape(tuple(attention), states, layers), form, sections, offsets, position)


def _parse_attention(reader, form, with_values):
    streams = reader.number(STREAMS_MAX, "streams")
    if streams == 0:
        raise _Misfit(reader.at - 4, "has no streams")
    found = None
    for stream in range(streams):
        cells = reader.number(CELLS_MAX, "cells")
        if cells == 0:
            continue
        if found is not None:
            raise _Misfit(reader.at - 4, "has cells in two streams")
        shape, section, transposed = _parse_cells(reader, form, with_values, cells)
        found = shape, section, dataclasses.replace(form, streams=streams, stream=stream, transposed=transposed)
    return found or (Attention((), ()), None, dataclasses.replace(form, streams=streams))


def _parse_cells(reader, form, with_values, cells):
    at = reader.skip(cells * _CELL.itemsize, "cells")
    cell = numpy.frombuffer(reader.memory, _CELL, cells, at)
    if (cell["sequences"] != 1).any():
        raise _Misfit(at, "has cells of several sequences")
    transposed, layers = reader.number(1, "for transposed"), reader.number(LAYERS_MAX, "layers")
    rotation = reader.take("<II", "rotations") if form.rotations else (0, 0)
    keys, values = ([], []), ([], [])
    for rows, offsets in (keys, values)[:2 if with_values else 1]:
        for _ in range(layers):
            if transposed and rows is values[0]:
                kind, element, elements = reader.take("<iII", "a layer")
                row = element * elements
            else:
                kind, row = reader.take("<iQ", "a layer")
            if not 0 < row <= 1 << 24 or not 0 <= kind < 256:
                raise _Misfit(reader.at, f"has rows of type {kind} and {row} bytes")
            rows.append(Row(kind, row))
            offsets.append(reader.skip(cells * row, "rows of a layer"))
    if not layers:
        raise _Misfit(reader.at, "has no layers")
    shape = Attention(tuple(keys[0]), tuple(values[0]), tuple(rotation))
    return shape, Section(cell["position"], keys[1], values[1]), bool(transposed)


def _parse_states(reader, whole):
    cells = reader.number(1, "states of a sequence")
    position = -1
    if cells:
        position, sequences = reader.take("<iI", "a state's cell")
        if sequences != int(whole):
            raise _Misfit(reader.at - 4, f"has a state of {sequences} sequences")
        reader.skip(4 * sequences, "a state's cell")
    if reader.take("<I", "transposed") != 0:
        raise _Misfit(reader.at - 4, "has transposed states")
    layers = reader.number(LAYERS_MAX, "layers")
    rows, offsets = [], []
    while reader.at < reader.memory.size:
        kind, row = reader.take("<iQ", "a state")
        if row > 1 << 40 or not 0 <= kind < 256:
            raise _Misfit(reader.at, f"has a state of type {kind} and {row} bytes")
        rows.append(Row(kind, row))
        offsets.append(reader.skip(cells * row, "a state"))
    if not rows or len(rows) % 2 or len(rows) > 2 * layers:
        raise _Misfit(reader.at, f"has {len(rows)} states in {layers} layers")
    return tuple(rows), offsets if cells else [], position, layers


def build(shape, form, ranges, prefix=b"", sequence=0, memory=None):
    """A State whose headers are there, and whose rows are for the caller to fill in.

    memory: bytes that may be used again, if they suffice.

    ranges: of each section the positions [begin, end) that it has, and behind them, if the shape has states, the
    number of tokens that they are of.
    """
    parts, at = [prefix], len(prefix)

    def add(part):
        nonlocal at
        parts.append(part)
        at += len(part)

    def leave(count):
        nonlocal at
        parts.append(count)
        at += count
        return at - count

    sections = []
    for attention, (begin, end) in zip(shape.attention, ranges):
        cells = end - begin
        add(struct.pack("<I", form.streams) + bytes(4 * form.stream) + struct.pack("<I", cells))
        sections.append(None)
        if cells:
            cell = numpy.zeros(cells, _CELL)
            cell["position"], cell["sequences"], cell["sequence"] = numpy.arange(begin, end), 1, sequence
            add(cell.tobytes())
            add(struct.pack("<II", form.transposed, len(attention.keys)))
            add(struct.pack("<II", *attention.rotation) if form.rotations else b"")
            keys, values = [], []
            for row in attention.keys:
                add(struct.pack("<iQ", row.type, row.bytes))
                keys.append(leave(cells * row.bytes))
            for row in attention.values:
                element = ELEMENT_BYTES.get(row.type, row.bytes)
                add(struct.pack("<iII", row.type, element, row.bytes // element) if form.transposed
                    else struct.pack("<iQ", row.type, row.bytes))
                values.append(leave(cells * row.bytes))
            sections[-1] = Section(cell["position"], keys, values)
        add(bytes(4 * (form.streams - form.stream - 1)))
    offsets, position = [], -1
    if shape.states:
        position = ranges[-1] - 1
        add(struct.pack("<IiI", 1, position, int(form.whole)) + bytes(4 * form.whole))
        add(struct.pack("<II", 0, shape.layers))
        for row in shape.states:
            add(struct.pack("<iQ", row.type, row.bytes))
            offsets.append(leave(row.bytes))
    memory = numpy.empty(at, numpy.uint8) if memory is None or memory.size < at else memory[:at]
    at = 0
    for part in parts:
        if isinstance(part, int):
            at += part
        else:
            memory[at:at + len(part)] = numpy.frombuffer(part, numpy.uint8)
            at += len(part)
    return State(memory, shape, form, sections, offsets, position)


# ggml's types whose rows are single numbers: bytes of one, and cairn's name.
ELEMENT_BYTES = {0: 4, 1: 2, 30: 2}
DTYPES = {0: "f32", 1: "f16", 30: "bf16"}
TYPE_NAMES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}


def type_name(number):
    return TYPE_NAMES.get(number, f"ggml {number}")
