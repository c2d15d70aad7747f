# SPDX-License-Identifier: Apache-2.0
"""What contexts, caches and slot files of llama.cpp do with a branch alike."""

import json

from . import _core
from ._errors import Corruption, InvalidArgument, ModelMismatch, NotFound
from ._llama_state import LAYERS_MAX, STREAMS_MAX, Attention, Form, Row, Shape

ABOUT = "application/x-cairn-llama+json"  # Metadata: the shape and form of what was last appended.


def as_ids(tokens):
    ids = [int(token) for token in tokens]
    if any(not 0 <= token < 1 << 31 for token in ids):
        raise InvalidArgument("tokens: one is below 0, as llama.cpp has it where a picture stands; a branch has ids of "
                              "text alone")
    return ids


def open_branch(store, model, name, namespace, ids, durability):
    """The branch of that name, or a new one that begins with what the namespace has of these ids (None: of none)."""
    try:
        if name:
            return store.find_branch(name, namespace=namespace)
    except NotFound:
        pass
    if ids:
        with store.find_prefix(model, ids, namespace=namespace) as hit:
            position = min(hit.exact, hit.restorable)
            if position > 0:
                return hit.fork(position, name, namespace=namespace, durability=durability)
    return store.create_branch(model, name, namespace=namespace, durability=durability)


def check_model(store, branch, spec, model_id):
    there = branch.info().model_id
    if there != model_id:
        other = next(model.spec for model in store.models() if model.id == there)
        raise ModelMismatch(f"branch: is of the model {other.identity.name!r}, not of {spec.identity.name!r}: "
                            f"{other.first_difference(spec)}")


def save_rows(stored, ids, computed, planes, metadata):
    """Stores what the branch lacks of ids, whose KV goes up to `computed`: of ids that it has, and then of others."""
    begin = stored.kept
    if begin < min(len(stored.ids), computed):
        end = min(len(stored.ids), computed)
        kv = planes.view(begin, end)
        if kv is not None:
            stored.fill(kv, end)
    begin = len(stored.ids)
    if begin < len(ids):
        kv = planes.view(begin, computed) if begin < computed else None
        stored.append(ids[begin:], kv, computed, None, metadata)


def sound_length(branch, damaged, readable):
    """The largest length below `damaged` that can be restored; found by halving, and by reading."""
    sound, low, high = 0, 0, damaged
    while high - low > 1:
        middle = (low + high) // 2
        length = branch.restorable_length(middle)
        if length <= sound or readable(length):
            sound, low = max(sound, length), middle
        else:
            high = length
    return sound


def about(shape, form, **more):
    """Metadata that says how to write a state of this shape as its context did."""
    sections = [{"keys": _runs(section.keys), "values": _runs(section.values), "rotation": list(section.rotation)}
                for section in shape.attention]
    words = {"attention": sections, "states": _runs(shape.states), "layers": shape.layers,
             "rotations": form.rotations, "streams": form.streams, "transposed": form.transposed, **more}
    return _core.Metadata(json.dumps(words, separators=(",", ":")).encode(), ABOUT)


def shape_and_form(metadata):
    """(Shape, Form, all words) of such metadata. Corruption: it is none."""
    try:
        words = json.loads(metadata.bytes)
        sections = tuple(Attention(_rows(one["keys"]), _rows(one["values"]), tuple(map(int, one["rotation"])))
                         for one in words["attention"])
        shape = Shape(sections, _rows(words["states"]), int(words["layers"]))
        form = Form(rotations=bool(words["rotations"]), streams=int(words["streams"]),
                    transposed=bool(words["transposed"]))
        if not 1 <= form.streams <= STREAMS_MAX or any(len(one.rotation) != 2 for one in sections):
            raise ValueError("of no state")
        return shape, form, words
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(f"branch: its metadata of llama.cpp's state is none: {error!r}") from None


def _runs(rows):
    """[[layers, type, bytes]] of rows, equal ones behind each other as one."""
    runs = []
    for row in rows:
        if runs and runs[-1][1:] == [row.type, row.bytes]:
            runs[-1][0] += 1
        else:
            runs.append([1, row.type, row.bytes])
    return runs


def _rows(runs):
    if sum(int(count) for count, _, _ in runs) > LAYERS_MAX * 2:
        raise ValueError("too many layers")
    return tuple(Row(int(kind), int(size)) for count, kind, size in runs for _ in range(count))
