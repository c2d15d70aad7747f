# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's C API, as far as states of sequences need it, out of whichever library has it."""

import ctypes
import os
import pathlib
import sys

import numpy

from ._errors import Corruption, InvalidArgument, InvalidState, UnsupportedFormat

_POINTER, _INT, _SIZE, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t, ctypes.c_bool
MROPE = (8, 24, 40)  # Types of rotation whose positions are several numbers.


class Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = [("n_tokens", _INT), ("token", ctypes.POINTER(_INT)), ("embd", _POINTER), ("pos", ctypes.POINTER(_INT)),
                ("n_seq_id", ctypes.POINTER(_INT)), ("seq_id", ctypes.POINTER(ctypes.POINTER(_INT))),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


_CALLS = {
    "llama_batch_init": (Batch, [_INT] * 3), "llama_batch_free": (None, [Batch]),
    "llama_decode": (_INT, [_POINTER, Batch]),
    "llama_get_model": (_POINTER, [_POINTER]), "llama_get_memory": (_POINTER, [_POINTER]),
    "llama_n_ctx": (ctypes.c_uint32, [_POINTER]), "llama_n_seq_max": (ctypes.c_uint32, [_POINTER]),
    "llama_model_n_swa": (_INT, [_POINTER]), "llama_model_rope_type": (_INT, [_POINTER]),
    "llama_memory_seq_rm": (_BOOL, [_POINTER] + [_INT] * 3), "llama_memory_seq_cp": (None, [_POINTER] + [_INT] * 4),
    "llama_memory_seq_pos_max": (_INT, [_POINTER, _INT]),
    "llama_state_seq_get_size": (_SIZE, [_POINTER, _INT]),
    "llama_state_seq_get_data": (_SIZE, [_POINTER, _POINTER, _SIZE, _INT]),
    "llama_state_seq_set_data": (_SIZE, [_POINTER, _POINTER, _SIZE, _INT]),
}


def _path_of(library):
    """The file of a library that is given as a path, as ctypes has it, as a package, or not at all."""
    if library is None:
        for name in ("llama_cpp", "xllamacpp"):
            if name in sys.modules:
                return _path_of(sys.modules[name])
        raise InvalidArgument("library: is not given, and neither llama_cpp nor xllamacpp is imported")
    if isinstance(library, ctypes.CDLL):
        return library._name
    if isinstance(library, (str, bytes, os.PathLike)):
        return os.fsdecode(library)
    bound = getattr(getattr(library, "llama_cpp", library), "_lib", None)  # llama-cpp-python.
    if isinstance(bound, ctypes.CDLL):
        return bound._name
    files = sorted(file for place in getattr(library, "__path__", []) for file in pathlib.Path(place).glob("*.so"))
    if not files:
        raise InvalidArgument(f"library: {library!r} is no library of llama.cpp")
    return str(files[0])


class Library:
    """Calls on one context. The library is opened again, so that nobody else's declarations change."""

    def __init__(self, library, context):
        path = _path_of(library)
        try:
            opened = ctypes.CDLL(path)
            for name, (result, arguments) in _CALLS.items():
                function = getattr(opened, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise UnsupportedFormat(f"library: {path} has not what llama.cpp has: {error}") from None
        self.calls, self.path, self.context = opened, path, _address(context)

    @property
    def version(self):
        """For messages."""
        try:
            function = self.calls.llama_version
        except AttributeError:
            return "of before b11000"
        function.restype = ctypes.c_char_p
        return function().decode(errors="replace")

    @property
    def memory(self):
        memory = self.calls.llama_get_memory(self.context)
        if not memory:
            raise InvalidArgument("context: keeps nothing of a token (an encoder)")
        return memory

    @property
    def room(self):
        """Tokens that a sequence may have."""
        try:
            function = self.calls.llama_n_ctx_seq
        except AttributeError:  # Then all sequences share the cells.
            return self.calls.llama_n_ctx(self.context)
        function.restype, function.argtypes = ctypes.c_uint32, [_POINTER]
        return function(self.context)

    @property
    def sequences(self):
        return self.calls.llama_n_seq_max(self.context)

    def window(self):
        return self.calls.llama_model_n_swa(self.calls.llama_get_model(self.context))

    def rotation(self):
        return self.calls.llama_model_rope_type(self.calls.llama_get_model(self.context))

    def length(self, sequence):
        return self.calls.llama_memory_seq_pos_max(self.memory, sequence) + 1

    def remove(self, sequence, begin=-1):
        return self.calls.llama_memory_seq_rm(self.memory, sequence, begin, -1)

    def copy(self, source, target, begin, end):
        """Labels cells; moves no bytes where all sequences share a stream."""
        self.calls.llama_memory_seq_cp(self.memory, source, target, begin, end)

    def get(self, sequence):
        """The bytes of a sequence's state. Corruption: fewer came than were promised."""
        size = self.calls.llama_state_seq_get_size(self.context, sequence)
        memory = numpy.empty(size, numpy.uint8)
        got = self.calls.llama_state_seq_get_data(self.context, memory.ctypes.data, size, sequence)
        if size == 0 or got != size:
            raise Corruption(f"llama_state_seq_get_data: gave {got} of {size} bytes of sequence {sequence}")
        return memory

    def set(self, sequence, memory):
        """Replaces a sequence. InvalidState: llama.cpp refuses the bytes, and the sequence is empty."""
        took = self.calls.llama_state_seq_set_data(self.context, memory.ctypes.data, memory.size, sequence)
        if took != memory.size:
            self.remove(sequence)
            raise InvalidState(f"llama_state_seq_set_data: took {took} of {memory.size} bytes for sequence {sequence}; "
                               "llama.cpp's log has the reason (no free cells in the context?)")

    def decode(self, token, position, sequence):
        batch = self.calls.llama_batch_init(1, 0, 1)
        try:
            batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, position
            batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, sequence, 1
            failed = self.calls.llama_decode(self.context, batch)
        finally:
            self.calls.llama_batch_free(batch)
        if failed:
            raise InvalidState(f"llama_decode: {failed} for one token, with which the form of states is looked at")


def _address(context):
    address = context if isinstance(context, int) else ctypes.cast(context, _POINTER).value
    if not address:
        raise InvalidArgument("context: is null")
    return address
