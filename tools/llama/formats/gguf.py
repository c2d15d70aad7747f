# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file (version 3) of a Llama model: what llama.cpp reads.

  "GGUF", u32 version, u64 tensors, u64 pairs
  pairs:    text key, u32 type, value; a text is u64 length and bytes, an array u32 type, u64 count, values
  tensors:  text name, u32 dimensions, u64 each (the innermost first), u32 type, u64 offset
  content:  at a multiple of 32 bytes, each tensor too
"""

import struct

import numpy

from formats import llama2c
from formats.llama2c import BOS, EOS, FIRST_BYTE, FIRST_TEXT, UNKNOWN

ALIGNMENT = 32
VERSION = 3
# Types of values.
U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
PACKED = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
# Types of tensors, and of files whose matrices are such.
TENSOR_F32, TENSOR_F16 = 0, 1
# Types of tokens.
NORMAL, UNKNOWN_TOKEN, CONTROL, BYTE = 1, 2, 3, 6


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value_bytes(kind, value):
    return text(value) if kind == TEXT else struct.pack(PACKED[kind], value)


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value_bytes(kind, value)


def array(key, kind, values):
    return (text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) +
            b"".join(value_bytes(kind, value) for value in values))


def token_type(token):
    if token >= FIRST_TEXT:
        return NORMAL
    if token >= FIRST_BYTE:
        return BYTE
    return UNKNOWN_TOKEN if token == UNKNOWN else CONTROL


def metadata(model, tokenizer, f16):
    tokens = range(model.vocab_size)
    return [
        pair("general.architecture", TEXT, "llama"),
        pair("general.name", TEXT, "cairn-llama"),
        pair("general.file_type", U32, TENSOR_F16 if f16 else TENSOR_F32),
        pair("llama.vocab_size", U32, model.vocab_size),
        pair("llama.context_length", U32, model.max_positions),
        pair("llama.embedding_length", U32, model.dim),
        pair("llama.block_count", U32, model.layers),
        pair("llama.feed_forward_length", U32, model.hidden_dim),
        pair("llama.attention.head_count", U32, model.heads),
        pair("llama.attention.head_count_kv", U32, model.kv_heads),
        pair("llama.attention.layer_norm_rms_epsilon", F32, llama2c.NORM_EPSILON),
        pair("llama.rope.dimension_count", U32, model.head_dim),
        pair("llama.rope.freq_base", F32, llama2c.ROTARY_BASE),
        pair("tokenizer.ggml.model", TEXT, "llama"),
        array("tokenizer.ggml.tokens", TEXT, [llama2c.token_text(tokenizer, token) for token in tokens]),
        array("tokenizer.ggml.scores", F32, tokenizer.scores),
        array("tokenizer.ggml.token_type", I32, [token_type(token) for token in tokens]),
        pair("tokenizer.ggml.bos_token_id", U32, BOS),
        pair("tokenizer.ggml.eos_token_id", U32, EOS),
        pair("tokenizer.ggml.unknown_token_id", U32, UNKNOWN),
        pair("tokenizer.ggml.add_bos_token", BOOL, True),
        pair("tokenizer.ggml.add_space_prefix", BOOL, True),
    ]


def tensors(model):
    """{name in llama.cpp: weights}. Its rotation of Llama pairs neighbours, as llama2.c's does."""
    weights = model.weights
    named = {"token_embd.weight": weights["embedding"], "output_norm.weight": weights["final_norm"]}
    if not model.shared_classifier:
        named["output.weight"] = weights["classifier"]
    names = {"attention_norm": "attn_norm", "wq": "attn_q", "wk": "attn_k", "wv": "attn_v", "wo": "attn_output",
             "ffn_norm": "ffn_norm", "w1": "ffn_gate", "w2": "ffn_down", "w3": "ffn_up"}
    for layer in range(model.layers):
        named |= {f"blk.{layer}.{there}.weight": weights[here][layer] for here, there in names.items()}
    return named


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


def write(path, model, tokenizer, f16):
    pairs, named = metadata(model, tokenizer, f16), tensors(model)
    infos, contents, at = [], [], 0
    for name, values in named.items():
        half = f16 and values.ndim > 1  # llama.cpp wants norms in float32.
        content = numpy.ascontiguousarray(values, "<f2" if half else "<f4").tobytes()
        shape = values.shape[::-1]
        infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape,
                                              TENSOR_F16 if half else TENSOR_F32, at))
        contents += [content, padding(len(content))]
        at += len(content) + len(contents[-1])
    header = b"GGUF" + struct.pack("<IQQ", VERSION, len(named), len(pairs)) + b"".join(pairs + infos)
    path.write_bytes(b"".join([header, padding(len(header)), *contents]))
