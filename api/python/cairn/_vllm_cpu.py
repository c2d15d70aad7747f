# SPDX-License-Identifier: Apache-2.0
"""Where vLLM's attention for processors leaves rows inside a block: seen in a block that its own op writes.

A block holds, of each head, all keys and then all values. In f32 and f16 keys lie [element][token] and values
[token][element]; in bf16 some processors pack both, so that bf16 stays opaque on all of them: a store may move. They
pack each head by itself.
"""

import torch
from vllm import _custom_ops as ops

DTYPES = (torch.float32, torch.float16)
_SEED = 1  # Any values that differ will do.


def has_rows(spec, cache_dtype):
    """Whether blocks of this KVCacheSpec hold keys [element][token] and values [token][element]."""
    if spec.dtype not in DTYPES or spec.head_size != spec.head_size_v:
        return False
    heads, tokens, elements = spec.num_heads, spec.block_size, spec.head_size
    blocks = torch.zeros(2, heads, tokens, 2 * elements, dtype=spec.dtype)
    keys, values = _some_rows(tokens, heads, elements, spec.dtype)
    try:
        _write(keys, values, blocks, cache_dtype)
    except Exception:  # Whatever another version makes of the call, the connector does without rows.
        return False
    seen_keys, seen_values = planes_of(blocks)
    return torch.equal(seen_keys[1].transpose(0, 1), keys) and torch.equal(seen_values[1].transpose(0, 1), values) \
        and not blocks[0].any()


def packs_by_head(spec, cache_dtype):
    """Whether a head of a block has the bytes that a block of this head alone has, whatever they are."""
    if spec.dtype not in (*DTYPES, torch.bfloat16) or spec.head_size != spec.head_size_v:
        return False
    heads, tokens, elements = 2, spec.block_size, spec.head_size
    keys, values = _some_rows(tokens, heads, elements, spec.dtype)
    blocks = torch.zeros(2, heads, tokens, 2 * elements, dtype=spec.dtype)
    try:
        _write(keys, values, blocks, cache_dtype)
        for head in range(heads):
            alone = torch.zeros(2, 1, tokens, 2 * elements, dtype=spec.dtype)
            _write(keys[:, head:head + 1].contiguous(), values[:, head:head + 1].contiguous(), alone, cache_dtype)
            if not torch.equal(alone[:, 0], blocks[:, head]):
                return False
    except Exception:  # As above.
        return False
    return bool(blocks[1].any())


def _some_rows(tokens, heads, elements, dtype):
    generator = torch.Generator().manual_seed(_SEED)
    return (torch.randn(tokens, heads, elements, generator=generator).to(dtype) for _ in "kv")


def _write(keys, values, blocks, cache_dtype):
    """Into the second block, as CPUAttentionBackendImpl.do_kv_cache_update."""
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
    count, heads, tokens, _ = blocks.shape
    isa = _get_attn_isa(blocks.dtype, tokens, keys.shape[2], cache_dtype)
    key_cache, value_cache = blocks.view(count, heads, 2 * tokens, -1).chunk(2, dim=2)
    ops.cpu_attn_reshape_and_cache(keys, values, key_cache, value_cache, torch.arange(tokens, 2 * tokens), isa,
                                   k_scale=1.0, v_scale=1.0, kv_cache_dtype=cache_dtype)


def planes_of(tensor):
    """Keys and values of a layer's tensor [block][head][token][2 * element], each as [block][head][token][element]."""
    blocks, heads, tokens, both = tensor.shape
    elements = both // 2
    of_block, of_head = tensor.stride(0), tokens * both
    shape, first = (blocks, heads, tokens, elements), tensor.storage_offset()
    return (tensor.as_strided(shape, (of_block, of_head, 1, tokens), first),
            tensor.as_strided(shape, (of_block, of_head, elements, 1), first + tokens * elements))
