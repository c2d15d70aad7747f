# SPDX-License-Identifier: Apache-2.0
"""Attention for plans of Store.plan_blend, for engines that compute all recomputed tokens in one pass.

An engine that runs a plan's steps from left to right needs nothing of this: at each step the cache holds just the
positions before it, and its own causal attention is right. One that computes scattered tokens at once must not use a
mask that is aligned at the bottom right, as attention kernels do by default: it lets tokens see what comes behind them.
"""

import numpy as np

__all__ = ["recompute_attention", "separators"]


def recompute_attention(q, k, v, mask, original_output=None):
    """Causal attention of the tokens of `mask`, each over all positions up to its own.

    q: queries, [tokens, heads, head_dim], of all tokens or of those of the mask alone. k, v: of all positions,
    [tokens, kv_heads, head_dim], what was loaded and what was computed in place. mask: a bool for each position, as
    BlendPlan.recompute_mask. The result: [tokens of the mask, heads, head_dim]; or, with original_output, a copy of
    that, [tokens, heads, head_dim], in which they are replaced. Computed in float64, given back in q's type.
    """
    mask = np.asarray(mask, dtype=bool)
    q, k, v = np.asarray(q), np.asarray(k), np.asarray(v)
    at = np.flatnonzero(mask)
    if k.shape[0] != mask.size or v.shape[0] != mask.size:
        raise ValueError(f"k and v have {k.shape[0]} and {v.shape[0]} positions, the mask has {mask.size}")
    if q.shape[0] not in (mask.size, at.size):
        raise ValueError(f"q has {q.shape[0]} tokens; the mask has {mask.size}, and {at.size} of it are computed")
    if q.shape[1] % k.shape[1] != 0:
        raise ValueError(f"{q.shape[1]} heads are no multiple of {k.shape[1]} KV heads")
    rows = (q if q.shape[0] == at.size else q[at]).astype(np.float64)
    group = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x.astype(np.float64), group, axis=1) for x in (k, v))
    out = np.empty((at.size, q.shape[1], v.shape[2]), dtype=np.float64)
    for i, position in enumerate(at):
        seen = slice(0, position + 1)
        scores = np.einsum("hd,nhd->hn", rows[i], keys[seen]) / np.sqrt(q.shape[2])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[i] = np.einsum("hn,nhd->hd", weights, values[seen])
    out = out.astype(q.dtype)
    if original_output is None:
        return out
    merged = np.array(original_output, copy=True)
    merged[at] = out
    return merged


def separators(tokenizer, text):
    """Ids of a text that stands between documents, as LMCache's blend_special_str: at the start, behind a space and
    behind a newline, where many tokenizers make other ids of it. The `separators` of a plan's options; a tokenizer of
    transformers."""
    found = []
    for before in ("", " ", "\n"):
        ids = tokenizer.encode(before + text, add_special_tokens=False)
        if ids and ids not in found:
            found.append(ids)
    if not found:
        raise ValueError(f"{text!r} has no tokens")
    return found
