# SPDX-License-Identifier: Apache-2.0
"""Where vLLM's attention for processors leaves rows inside a block: seen in a block that its own op writes.

A block holds, of each head, all keys and then all values. In f32 and f16 keys lie [element][token] and values
[token][element]; in bf16 some processors pack both, so that bf16 stays opaque on all of them: a store may move.
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
    generator = torch.Generator().manual_seed(_SEED)
    keys, values = (torch.randn(tokens, heads, elements, generator=generator).to(spec.dtype) for _ in "kv")
    try:
        _write(keys, values, blocks, cache_dtype)
    except Exception:  # Whatever another version makes of the call, the connector does without rows.
        return False
    seen_keys, seen_values = planes_of(blocks)
    return torch.equal(seen_keys[1].transpose(0, 1), keys) and torch.equal(seen_values[1].transpose(0, 1), values) \
        and not blocks[0].any()


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
