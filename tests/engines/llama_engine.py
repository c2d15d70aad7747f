# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's C API out of the wheel xllamacpp, as far as tests compute with it.

The wheel brings no header: of the struct of parameters those fields are set whose place its defaults show (b11549).
"""

import ctypes
import pathlib
import struct
import sys

import numpy
import xllamacpp

PATH = str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")))
N_BATCH = 512
F32, F16, Q4_0, Q8_0, BF16 = 0, 1, 2, 8, 30  # ggml's types.


class _Parameters(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)),
                ("embd", ctypes.c_void_p), ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


_POINTER, _INT = ctypes.c_void_p, ctypes.c_int32
library = ctypes.CDLL(PATH)
for _name, _result, _arguments in [
        ("llama_model_default_params", _Parameters, []), ("llama_context_default_params", _Parameters, []),
        ("llama_model_load_from_file", _POINTER, [ctypes.c_char_p, _Parameters]),
        ("llama_init_from_model", _POINTER, [_POINTER, _Parameters]), ("llama_free", None, [_POINTER]),
        ("llama_model_free", None, [_POINTER]), ("llama_batch_init", Batch, [_INT] * 3),
        ("llama_decode", _INT, [_POINTER, Batch]), ("llama_model_get_vocab", _POINTER, [_POINTER]),
        ("llama_vocab_n_tokens", _INT, [_POINTER]),
        ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [_POINTER, _INT]),
        ("llama_get_memory", _POINTER, [_POINTER]), ("llama_memory_seq_rm", ctypes.c_bool, [_POINTER] + [_INT] * 3),
        ("llama_memory_seq_pos_max", _INT, [_POINTER, _INT]),
        ("llama_state_seq_save_file", ctypes.c_size_t,
         [_POINTER, ctypes.c_char_p, _INT, _POINTER, ctypes.c_size_t]),
        ("llama_state_seq_load_file", ctypes.c_size_t,
         [_POINTER, ctypes.c_char_p, _INT, _POINTER, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]),
        ("llama_log_set", None, [_POINTER, _POINTER])]:
    _function = getattr(library, _name)
    _function.restype, _function.argtypes = _result, _arguments


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _log(level, text, _):
    if level == 4:  # An error.
        sys.stderr.write(text.decode(errors="replace"))


library.llama_log_set(_log, None)
library.llama_backend_init()


class Model:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.pointer = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
        assert self.pointer, path
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.pointer))

    def context(self, **options):
        return Context(self, **options)

    def close(self):
        library.llama_model_free(self.pointer)


class Context:
    """n_seq: sequences. unified: they share one stream of cells. flash: V lies by rows."""

    def __init__(self, model, n_ctx=2048, n_seq=2, type_k=F16, type_v=F16, flash=True, unified=True, swa_full=False):
        parameters = library.llama_context_default_params()
        raw = (ctypes.c_char * 512).from_buffer(parameters)
        struct.pack_into("<IIII", raw, 0, n_ctx, N_BATCH, N_BATCH, n_seq)
        struct.pack_into("<ii", raw, 28, 1, 1)
        struct.pack_into("<i", raw, 52, int(flash))
        struct.pack_into("<ii", raw, 104, type_k, type_v)
        struct.pack_into("<??", raw, 140, swa_full, unified)
        self.model = model
        self.pointer = library.llama_init_from_model(model.pointer, parameters)
        assert self.pointer
        self.memory = library.llama_get_memory(self.pointer)
        self._batch = library.llama_batch_init(N_BATCH, 0, 1)

    def decode(self, tokens, position, sequence=0):
        """Logits behind the last of the tokens."""
        batch = self._batch
        for begin in range(0, len(tokens), N_BATCH):
            some = tokens[begin:begin + N_BATCH]
            batch.n_tokens = len(some)
            for i, token in enumerate(some):
                batch.token[i], batch.pos[i] = token, position + begin + i
                batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, i == len(some) - 1
            assert library.llama_decode(self.pointer, batch) == 0
        logits = library.llama_get_logits_ith(self.pointer, len(some) - 1)
        return numpy.ctypeslib.as_array(logits, (self.model.vocabulary,)).copy()

    def greedy(self, logits, position, count, sequence=0):
        """(ids, bits of the logits behind each)."""
        ids, bits = [], []
        for _ in range(count):
            ids.append(int(logits.argmax()))
            logits = self.decode(ids[-1:], position, sequence)
            bits.append(logits.tobytes())
            position += 1
        return ids, bits

    def remove(self, begin, end=-1, sequence=0):
        return library.llama_memory_seq_rm(self.memory, sequence, begin, end)

    def length(self, sequence=0):
        return library.llama_memory_seq_pos_max(self.memory, sequence) + 1

    def save_file(self, path, tokens, sequence=0):
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        return library.llama_state_seq_save_file(self.pointer, str(path).encode(), sequence, array, len(tokens))

    def load_file(self, path, sequence=0, room=65536):
        """The ids that llama.cpp restored from a file of its own form, or None: it refused."""
        array, count = (ctypes.c_int32 * room)(), ctypes.c_size_t()
        read = library.llama_state_seq_load_file(self.pointer, str(path).encode(), sequence, array, room,
                                                 ctypes.byref(count))
        return list(array[:count.value]) if read else None

    def close(self):
        library.llama_free(self.pointer)


def prompt_of(model, tokens, seed=1):
    return numpy.random.default_rng(seed).integers(3, model.vocabulary, tokens).tolist()
