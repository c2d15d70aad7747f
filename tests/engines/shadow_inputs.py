# SPDX-License-Identifier: Apache-2.0
"""A prompt and a few steps, made of numbers, that caches of the published names are called with.

Keys before rotation are sums of fewer vectors than the published rank, so that they can be rebuilt. The keys of one
chunk are near to each other; those of as many as the published class always attends to are not, so that the choice of
outliers does not hang on rounding. Queries are numbered: record_shadow.py takes those whose choice does not either.
"""

import types

import numpy
import torch

LAYERS, HEADS, GROUP, ROW = 2, 2, 2, 128
CHUNK, OUTLIERS, LOCAL, BUDGET = 8, 48, 4, 256
TOKENS = 1248  # TOKENS / CHUNK - LOCAL is a multiple of 8: both cover the same chunks.
STEPS = 3
RANK = 160 * HEADS * ROW // 1024
CONFIG = types.SimpleNamespace(num_hidden_layers=LAYERS, num_attention_heads=HEADS * GROUP, num_key_value_heads=HEADS,
                               hidden_size=HEADS * GROUP * ROW, head_dim=ROW, rope_theta=1e6)


def numbers(seed, *shape):
    # RandomState's numbers never change between versions.
    return torch.from_numpy(numpy.random.RandomState(seed).standard_normal(shape)).float()


def rotated(rows, positions):
    """Rows [..., tokens, ROW], of halves that turn together, at positions [..., tokens]."""
    turns = CONFIG.rope_theta ** (-torch.arange(0, ROW, 2, dtype=torch.float64) / ROW)
    angles = positions.double().unsqueeze(-1) * turns
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = rows.float().split(ROW // 2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(rows.dtype)


def prompt(layer):
    """(keys before rotation, keys, values), each [1, HEADS, TOKENS, ROW]."""
    directions = RANK // 2
    basis = numbers(10 + layer, directions, HEADS * ROW)
    of_chunks = numbers(20 + layer, TOKENS // CHUNK, 1, directions)
    far = torch.full((TOKENS // CHUNK, 1, 1), 0.1)
    far[torch.from_numpy(numpy.random.RandomState(30 + layer).permutation(TOKENS // CHUNK - LOCAL)[:OUTLIERS])] = 3.0
    weights = of_chunks + far * numbers(40 + layer, TOKENS // CHUNK, CHUNK, directions)
    rows = (weights.reshape(TOKENS, directions) @ basis / directions).to(torch.bfloat16)
    before = rows.view(1, TOKENS, HEADS, ROW).transpose(1, 2).contiguous()
    values = numbers(50 + layer, 1, HEADS, TOKENS, ROW).to(torch.bfloat16)
    return before, rotated(before, torch.arange(TOKENS)), values


def new_row(layer, step):
    """(keys, values) of a generated token, each [1, HEADS, 1, ROW]."""
    seed = 100 * (step + 1) + layer
    return tuple(numbers(seed + of, 1, HEADS, 1, ROW).to(torch.bfloat16) for of in (10, 20))


def queries(number):
    """Long, so that chunks lie far apart: [1, HEADS * GROUP, 1, ROW]."""
    return (30 * numbers(10_000 + number, 1, HEADS * GROUP, 1, ROW)).to(torch.bfloat16)


def told(value):
    """As the record has arguments and results."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), *value.shape]
    if isinstance(value, tuple):
        return [told(one) for one in value]
    return value if value is None or isinstance(value, int) else "function"


def call_step(call, layer, step, query):
    """A layer of a step, as the published model calls it: (positions, keys, values)."""
    keys, values = new_row(layer, step)
    call("update_kv_cache", new_k_cache=keys, new_v_cache=values, layer_idx=layer)
    at = call("get_retrieval_position_ids", layer_idx=layer, query_states=query)
    values = call("get_value_cache", layer_idx=layer, position_ids=at)
    return at, call("get_key_cache", layer_idx=layer, position_ids=at, rope_func=rotated, cos_sin_cache=None), values


def attention(query, keys, values):
    """[HEADS * GROUP, ROW], in double. Of a tenth of the query, so that more than a few rows matter."""
    heads = query[0, :, 0].double().view(HEADS, GROUP, ROW) / 10
    parts = (heads @ keys[0].double().transpose(1, 2) / ROW**0.5).softmax(-1)
    return (parts @ values[0].double()).view(HEADS * GROUP, ROW)
