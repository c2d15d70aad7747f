# SPDX-License-Identifier: Apache-2.0
"""Reads the files of llama2.c, version 0 (tools/llama/checkpoint.h, tokenizer.cc)."""

import dataclasses
import struct

import numpy

UNKNOWN, BOS, EOS = 0, 1, 2
FIRST_BYTE = 3
FIRST_TEXT = FIRST_BYTE + 256
NORM_EPSILON = 1e-5
ROTARY_BASE = 10000.0


@dataclasses.dataclass
class Model:
    """Shapes, and weights by the checkpoint's own names: float32, [layer] before the rest."""

    dim: int
    hidden_dim: int
    layers: int
    heads: int
    kv_heads: int
    vocab_size: int
    max_positions: int
    shared_classifier: bool
    weights: dict

    @property
    def head_dim(self):
        return self.dim // self.heads


@dataclasses.dataclass
class Tokenizer:
    pieces: list  # bytes; those below FIRST_TEXT are of no use.
    scores: list


def read_checkpoint(path):
    raw = path.read_bytes()
    header = struct.Struct("<7i")
    if len(raw) < header.size:
        raise ValueError(f"{path}: {len(raw)} bytes, no header of {header.size}")
    dim, hidden, layers, heads, kv_heads, vocab, positions = header.unpack_from(raw)
    shared, vocab = vocab > 0, abs(vocab)
    if min(dim, hidden, layers, heads, kv_heads, vocab, positions) < 1 or dim % heads != 0:
        raise ValueError(f"{path}: no llama2.c header")
    head_dim = dim // heads
    shapes = {
        "embedding": (vocab, dim),
        "attention_norm": (layers, dim),
        "wq": (layers, heads * head_dim, dim),
        "wk": (layers, kv_heads * head_dim, dim),
        "wv": (layers, kv_heads * head_dim, dim),
        "wo": (layers, dim, heads * head_dim),
        "ffn_norm": (layers, dim),
        "w1": (layers, hidden, dim),
        "w2": (layers, dim, hidden),
        "w3": (layers, hidden, dim),
        "final_norm": (dim,),
        "rotary": (positions, head_dim),  # Two tables; every reader computes them itself.
    }
    if not shared:
        shapes["classifier"] = (vocab, dim)
    counts = {name: int(numpy.prod(shape)) for name, shape in shapes.items()}
    wanted = header.size + 4 * sum(counts.values())
    if len(raw) != wanted:
        raise ValueError(f"{path}: {len(raw)} bytes, expected {wanted}")
    weights, at = {}, header.size
    for name, shape in shapes.items():
        weights[name] = numpy.frombuffer(raw, "<f4", counts[name], at).reshape(shape)
        at += 4 * counts[name]
    del weights["rotary"]
    return Model(dim, hidden, layers, heads, kv_heads, vocab, positions, shared, weights)


def read_tokenizer(path, vocab_size):
    raw, at = path.read_bytes(), 4  # The length of the longest piece comes first.
    pieces, scores = [], []
    for token in range(vocab_size):
        if at + 8 > len(raw):
            raise ValueError(f"{path}: ends before token {token} of {vocab_size}")
        score, length = struct.unpack_from("<fi", raw, at)
        at += 8
        if not 0 <= length <= len(raw) - at:
            raise ValueError(f"{path}: token {token} has a length of {length}")
        pieces.append(raw[at:at + length])
        scores.append(score)
        at += length
    if at != len(raw):
        raise ValueError(f"{path}: {len(raw) - at} bytes follow the last of {vocab_size} tokens")
    return Tokenizer(pieces, scores)


def token_text(tokenizer, token):
    """A token as vocabularies of other engines write it: a space is U+2581."""
    if token < FIRST_BYTE:
        return ("<unk>", "<s>", "</s>")[token]
    if token < FIRST_TEXT:
        return f"<0x{token - FIRST_BYTE:02X}>"
    return visible(tokenizer.pieces[token])


def visible(piece):
    return piece.decode().replace(" ", "\u2581")
