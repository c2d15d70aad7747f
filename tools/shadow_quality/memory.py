# SPDX-License-Identifier: Apache-2.0
"""Device memory by count: what a shadow of one sequence needs there."""

import dataclasses

from .oracle import BLOCK, covered_tokens

_ELEMENT = 2  # Bytes, bf16.
_BITS = {"int8": 8, "int4": 4}


@dataclasses.dataclass(frozen=True)
class Geometry:
    layers: int
    kv_heads: int
    channels: int

    def full(self, tokens):
        """Bytes of all keys and values."""
        return self.layers * self.kv_heads * tokens * 2 * self.channels * _ELEMENT


LLAMA_3_8B = Geometry(32, 8, 128)


def _rows(rows, bits, channels):
    """Bytes of rows of one head, in blocks that have a lowest value and a scale for each channel."""
    if bits == 16:
        return rows * channels * _ELEMENT
    blocks = rows // BLOCK
    return blocks * (BLOCK * channels * bits // 8 + 2 * channels * _ELEMENT) + rows % BLOCK * channels * _ELEMENT


def device_bytes(spec, tokens, geometry, budget, buffer=1, keys_kept=False):
    """Keys' form, landmarks, sinks, outliers, local window, and a buffer of `buffer` times the selection's values.

    Rebuilt keys are kept for one layer at a time; keys_kept: for each layer, as the published class does. Exact keys
    lie in the buffer with their values.
    """
    d, heads = geometry.channels, geometry.kv_heads
    covered = covered_tokens(tokens, spec)
    chunks = covered // spec.chunk_tokens
    by_head = _rows(chunks, spec.landmark_bits, d)
    always = (spec.outlier_chunks or spec.outlier_share * chunks) * spec.chunk_tokens + spec.sink_tokens
    by_head += (always + tokens - covered) * 2 * d * _ELEMENT
    selection = budget * d * _ELEMENT
    by_head += buffer * selection
    scratch = 0
    if spec.keys == "exact":
        by_head += buffer * selection
    else:
        by_head += selection if keys_kept else 0
        scratch = 0 if keys_kept else heads * selection
    if spec.keys in _BITS:
        by_head += _rows(covered, _BITS[spec.keys], d)
    by_layer = heads * by_head
    if spec.keys == "low rank":
        by_layer += (covered + heads * d) * spec.rank * _ELEMENT
    return geometry.layers * by_layer + scratch
