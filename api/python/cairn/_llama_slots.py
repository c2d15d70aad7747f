# SPDX-License-Identifier: Apache-2.0
"""Slot files of llama-server, to and from branches.

  u32 "ggsq", u32 version, u32 words, words, then a state. The words are ids, or as llama-server has them:
  u32 2^32 - 1, u32 1, u32 ids, ids, u32 pictures, u32 where each begins, the pictures
"""

import dataclasses
import errno
import os
import pathlib
import stat
import struct

import numpy

from . import _llama_state
from ._cache_branch import CacheBranch, agreement
from ._errors import (Conflict, Corruption, Evicted, InvalidArgument, IoError, ModelMismatch, NoSpace, NotFound,
                      UnsupportedFormat)
from ._llama_branch import about, check_model, open_branch, save_rows, shape_and_form
from ._llama_model import Planes, spec_of

MAGIC = 0x67677371
VERSIONS = {3: False, 4: True}  # And whether there are words for rotations.
NULL, PACKED_VERSION = 0xFFFFFFFF, 1
PARTIAL = ".cairn-part"  # At the end of the name of a file that is being written.
_HEADER = struct.Struct("<III")


@dataclasses.dataclass
class Slot:
    path: pathlib.Path
    version: int
    packed: bool
    ids: list
    state: _llama_state.State
    identity: tuple  # The file's, as it was read.


def identity_of(info):
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def read(path, follow=True):
    """A Slot. NotFound, InvalidArgument (no slot file; pictures), UnsupportedFormat (another llama.cpp), Corruption
    (truncated or damaged), Conflict (was written to meanwhile), IoError."""
    path = pathlib.Path(path)
    memory, identity = _bytes_of(path, follow)
    if memory.size < _HEADER.size:
        raise Corruption(f"{path}: has {memory.size} bytes, less than a slot file's header")
    magic, version, count = _HEADER.unpack_from(memory)
    if magic != MAGIC:
        raise InvalidArgument(f"{path}: is no slot file")
    if version not in VERSIONS:
        raise UnsupportedFormat(f"{path}: version {version} of llama.cpp's slot files; 3 and 4 are known")
    end = _HEADER.size + 4 * count
    if end > memory.size:
        raise Corruption(f"{path}: ends within its {count} words of ids, at byte {memory.size}")
    words = memory[_HEADER.size:end].view(numpy.uint32)
    packed = count > 0 and int(words[0]) == NULL
    ids = _unpacked(path, words) if packed else words
    if (ids >= 1 << 31).any():
        raise InvalidArgument(f"{path}: has pictures; a branch has ids of text alone")
    try:
        state = _llama_state.parse(memory, end, rotations=VERSIONS[version])
    except Corruption as error:
        raise Corruption(f"{path}: {error}") from None
    if state.length == 0:
        raise InvalidArgument(f"{path}: is of an empty slot")
    if state.length > ids.size:
        raise Corruption(f"{path}: has KV of {state.length} tokens and {ids.size} ids")
    return Slot(path, version, packed, ids.tolist(), state, identity)


def _bytes_of(path, follow):
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such file") from None
    except OSError as error:
        raise IoError(f"{path}: {error.strerror}") from None
    before = os.fstat(file)
    if not stat.S_ISREG(before.st_mode):
        os.close(file)
        raise InvalidArgument(f"{path}: is no regular file")
    with os.fdopen(file, "rb", buffering=0) as held:
        memory, at = numpy.empty(before.st_size, numpy.uint8), 0
        try:
            while at < memory.size and (more := held.readinto(memory[at:])) > 0:
                at += more
        except OSError as error:
            raise IoError(f"{path}: {error.strerror}, at byte {at}") from None
        if at < memory.size or identity_of(os.fstat(file)) != identity_of(before):
            raise Conflict(f"{path}: was written to while it was read; try again")
        return memory, identity_of(before)


def _unpacked(path, words):
    if words.size < 4 or words[1] != PACKED_VERSION:
        raise UnsupportedFormat(f"{path}: ids in a form of llama-server that is not known")
    count = int(words[2])
    if count > words.size - 4:
        raise Corruption(f"{path}: has {count} ids in {words.size} words")
    if words[3 + count] != 0:
        raise InvalidArgument(f"{path}: has pictures; a branch has ids of text alone")
    if words.size != 4 + count:
        raise Corruption(f"{path}: its ids end before their {words.size} words do")
    return words[3:3 + count]


class SlotStore:
    """Slot files of one model in a namespace of a store. weights, digest: of its GGUF."""

    def __init__(self, store, weights, digest, *, namespace="", revision="", durability="process", on_conflict="fork"):
        self.store, self.weights, self.digest = store, weights, digest
        self.namespace, self.revision = namespace, revision
        self.durability, self.on_conflict = durability, on_conflict

    def put(self, name, slot):
        """Makes the branch what the slot is: (its length, of these the tokens that were not there before).

        What the branch has already is not written again. Where it has other tokens, on_conflict: "fork" keeps them in
        a branch called <name>@<its id>. ModelMismatch: of another model, or another KV type, by the field.
        """
        try:
            spec = spec_of(self.weights, slot.state.shape, self.digest, self.revision)
            model = self.store.register_model(spec)
            planes = Planes(spec, slot.state)
        except (InvalidArgument, Corruption, ModelMismatch) as error:
            raise type(error)(f"{slot.path}: {error}") from None
        computed = slot.state.length
        if planes.sections and planes.first() != 0:
            raise InvalidArgument(f"{slot.path}: begins at position {planes.first()}; its context was shifted")
        branch = open_branch(self.store, model, name, self.namespace, slot.ids[:computed], self.durability)
        try:
            check_model(self.store, branch, spec, model.id)
        except ModelMismatch as error:
            raise ModelMismatch(f"{slot.path}: {error}") from None
        stored = CacheBranch(branch, self.durability, self.on_conflict)
        same = agreement(slot.ids, stored.ids)
        stored.kept = branch.restorable_length(min(same, computed)) if same and computed else 0
        stored.settle(slot.ids, whole=True, rewind=False)
        added = len(slot.ids) - len(stored.ids)
        save_rows(stored, slot.ids, computed, planes,
                  about(slot.state.shape, slot.state.form, version=slot.version, packed=slot.packed))
        return len(stored.ids), added

    def get(self, name, path, tokens=None, like=None):
        """Writes the first `tokens` tokens of the branch (None: all with KV) as a slot file; how many those are.

        like: a slot file of the server that shall restore it; by default it is written as the last one that was put.
        NotFound. ModelMismatch: the branch is of another model. Evicted: it has no KV up to there; with windows or
        recurrent layers not every length can be restored. NoSpace, IoError: nothing stands under `path`.
        """
        branch = self.store.find_branch(name, namespace=self.namespace)
        info = branch.info()
        known = next(model.spec for model in self.store.models() if model.id == info.model_id)
        if (known.identity.weights_digest, known.identity.revision) != (self.digest, self.revision):
            raise ModelMismatch(f"branch: {name!r} is of the model {known.identity.name!r}, and not of "
                                f"{self.weights.name!r} as it is in {self.weights.parts[0]}")
        tokens = branch.restorable_length() if tokens is None else tokens
        if not 0 < tokens <= info.length:
            raise InvalidArgument(f"tokens: {tokens}; the branch has {info.length}")
        there = branch.restorable_length(tokens)
        if there != tokens:
            raise Evicted(f"branch: can be restored at {there} tokens, and not at {tokens}")
        shape, form, words = self._form(branch, like)
        if spec_of(self.weights, shape, self.digest, self.revision).groups != known.groups:
            raise ModelMismatch(f"like: {like} has another shape than the branch" if like else
                                "branch: its metadata is of another shape")
        ids = branch.tokens(0, tokens)
        head = _packed(ids) if words.get("packed", True) else ids
        prefix = _HEADER.pack(MAGIC, words.get("version", 4 if form.rotations else 3), head.size) + head.tobytes()
        window = self.weights.window
        ranges = [(0, tokens)] + [(max(0, tokens - window), tokens)] * (len(shape.attention) - 1)
        state = _llama_state.build(shape, form, [*(ranges if shape.attention else []), tokens], prefix)
        branch.restore(Planes(known, state).view(0, tokens), end=tokens, require_kv=True)
        write(path, state.memory)
        return tokens

    def _form(self, branch, like):
        if like is not None:
            slot = read(like)
            return slot.state.shape, slot.state.form, {"packed": slot.packed, "version": slot.version}
        try:
            return shape_and_form(branch.metadata_at()[1])
        except NotFound:
            raise NotFound("branch: nothing of llama.cpp was appended to it, so the form of its slot files is not "
                           "known; give one of the server as `like`") from None


def _packed(ids):
    return numpy.concatenate([numpy.array([NULL, PACKED_VERSION, ids.size], numpy.uint32), ids,
                              numpy.zeros(1, numpy.uint32)])


def write(path, memory):
    """All of the file, or none: it is renamed to its name when it is whole."""
    path = pathlib.Path(path)
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}{PARTIAL}")
    try:
        partial.unlink(missing_ok=True)
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb", buffering=0) as held:
                at = 0
                while at < memory.size:
                    at += held.write(memory[at:])
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        kind = NoSpace if error.errno in (errno.ENOSPC, errno.EDQUOT) else IoError
        raise kind(f"{path}: {error.strerror}") from None
