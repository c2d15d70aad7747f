# SPDX-License-Identifier: Apache-2.0
"""Writes a Hugging Face directory of a Llama model: what from_pretrained reads."""

import json
import struct

import numpy

from formats import llama2c
from formats.llama2c import BOS, EOS, FIRST_TEXT


def in_halves(weights, heads):
    """[heads * head_dim, dim]: rows 2i and 2i+1 of each head become rows i and i + head_dim/2."""
    rows, dim = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, dim)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, dim)


def tensors(model):
    """{name in transformers: weights}, in the order of the file."""
    weights = model.weights
    named = {"model.embed_tokens.weight": weights["embedding"]}
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}."
        named |= {
            prefix + "input_layernorm.weight": weights["attention_norm"][layer],
            prefix + "self_attn.q_proj.weight": in_halves(weights["wq"][layer], model.heads),
            prefix + "self_attn.k_proj.weight": in_halves(weights["wk"][layer], model.kv_heads),
            prefix + "self_attn.v_proj.weight": weights["wv"][layer],
            prefix + "self_attn.o_proj.weight": weights["wo"][layer],
            prefix + "post_attention_layernorm.weight": weights["ffn_norm"][layer],
            prefix + "mlp.gate_proj.weight": weights["w1"][layer],
            prefix + "mlp.down_proj.weight": weights["w2"][layer],
            prefix + "mlp.up_proj.weight": weights["w3"][layer],
        }
    named["model.norm.weight"] = weights["final_norm"]
    if not model.shared_classifier:
        named["lm_head.weight"] = weights["classifier"]
    return named


def to_bfloat16(values):
    """The upper halves, rounded to nearest, ties to even. Weights are finite."""
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_safetensors(path, named, dtype):
    """Eight bytes of length, a JSON header, and the tensors one behind the other."""
    convert, code = {"float32": (lambda values: numpy.ascontiguousarray(values, "<f4"), "F32"),
                     "bfloat16": (to_bfloat16, "BF16")}[dtype]
    header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, values in named.items():
        parts.append(convert(values).tobytes())
        header[name] = {"dtype": code, "shape": list(values.shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # Tensors begin at a multiple of eight.
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))


def config(model, dtype):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.dim,
        "intermediate_size": model.hidden_dim,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_positions,
        "rms_norm_eps": llama2c.NORM_EPSILON,
        "rope_theta": llama2c.ROTARY_BASE,
        "rope_parameters": {"rope_type": "default", "rope_theta": llama2c.ROTARY_BASE},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": model.shared_classifier,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "dtype": dtype,
        "torch_dtype": dtype,  # The same, for libraries before transformers 4.56.
        "use_cache": True,
    }


def merges(tokenizer):
    """llama2.c joins the neighbours whose joined piece has the best score; a list of merges in the
    order of the scores says the same."""
    known = set(tokenizer.pieces[FIRST_TEXT:])
    found = []
    for token in range(FIRST_TEXT, len(tokenizer.pieces)):
        piece = tokenizer.pieces[token]
        for cut in range(1, len(piece)):
            if piece[:cut] in known and piece[cut:] in known:
                pair = [llama2c.visible(piece[:cut]), llama2c.visible(piece[cut:])]
                found.append((-tokenizer.scores[token], token, pair))
    return [pair for _, _, pair in sorted(found, key=lambda merge: merge[:2])]


def tokenizer_json(tokenizer):
    names = [llama2c.token_text(tokenizer, token) for token in range(len(tokenizer.pieces))]
    special = [{"id": token, "content": names[token], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for token in range(llama2c.FIRST_BYTE)]
    begin = {"SpecialToken": {"id": names[BOS], "type_id": 0}}
    single = [begin, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single + [{"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {names[BOS]: {"id": names[BOS], "ids": [BOS], "tokens": [names[BOS]]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": names[llama2c.UNKNOWN], "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {name: token for token, name in enumerate(names)},
            "merges": merges(tokenizer)},
    }


def tokenizer_config(model):
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "<unk>", "model_max_length": model.max_positions, "clean_up_tokenization_spaces": False}


def write(folder, model, tokenizer, dtype):
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors(model), dtype)
    for name, content in {
        "config.json": config(model, dtype),
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS},
        "tokenizer.json": tokenizer_json(tokenizer),
        "tokenizer_config.json": tokenizer_config(model),
    }.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
