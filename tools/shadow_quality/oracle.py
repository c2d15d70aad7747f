# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a shadow, one function a step, in numpy: what kernels must equal bit for bit.

Numbers are fp32 in the order written; no fused multiply-add, no library's exp or log. A bf16 or fp16
value is held as the fp32 of the same value. Leading axes (layers, heads) are free: keys are
[..., tokens, channels]. Low rank alone is fp64 and depends on the eigenvector solver.
"""

import dataclasses

import numpy

LANES = 32  # Of a warp.
BLOCK = 64  # Rows that share their scales, and the unit in which a shadow grows.

f32 = numpy.float32


# ------------------------------------------------------------------ the element types


def round_to(values, dtype):
    """To nearest even, of "bf16" or "fp16"."""
    values = numpy.asarray(values, f32)
    if dtype == "fp16":
        with numpy.errstate(over="ignore"):
            return values.astype(numpy.float16).astype(f32)
    bits = values.view(numpy.uint32)
    rounded = ((bits + (bits >> 16 & 1) + numpy.uint32(0x7FFF)) & numpy.uint32(0xFFFF0000)).view(f32)
    return numpy.where(numpy.isnan(values), values, rounded)


def round_up_to(values, dtype):
    """To the next value of the type that is not less. For values that are not negative."""
    values = numpy.asarray(values, f32)
    if dtype == "fp16":
        with numpy.errstate(over="ignore"):
            near = values.astype(numpy.float16)
        up = numpy.nextafter(near, numpy.float16(numpy.inf))
        return numpy.where(near.astype(f32) < values, up, near).astype(f32)
    bits = values.view(numpy.uint32)
    return ((bits + numpy.uint32(0xFFFF)) & numpy.uint32(0xFFFF0000)).view(f32)


def to_bits(values, dtype):
    """The 16 bits of values of the type."""
    values = numpy.ascontiguousarray(values, f32)
    if dtype == "fp16":
        return values.astype(numpy.float16).view(numpy.uint16)
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


# ------------------------------------------------------------------ sums, exponentials, logarithms


def warp_sum(values):
    """The sum over the last axis as a warp makes it: lane l adds elements l, l + 32, ...; then a butterfly.

    Lanes l and l ^ o hold the same after the exchange over o, so that half of them says it all.
    """
    length = values.shape[-1]
    whole = -(-max(length, 1) // LANES) * LANES
    if whole != length:
        values = numpy.concatenate([values, numpy.zeros((*values.shape[:-1], whole - length), f32)], -1)
    part = values[..., :LANES]
    for at in range(LANES, whole, LANES):
        part = part + values[..., at:at + LANES]
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        part = part[..., :lanes] + part[..., lanes:]
    return part[..., 0]


def dot(a, b):
    return warp_sum(a * b)


# log(2) in two parts: products of the first with whole numbers below 2^10 are exact.
_LN2_HIGH, _LN2_LOW = f32(0.693145751953125), f32(1.42860682030941723e-6)
_LOG2_E, _ROOT_HALF = f32(1.4426950408889634), f32(0.70710678118654752)
_EXP_LEAST = f32(-87.0)  # Below it the result is 0, before it leaves the normal numbers.
_EXP_TERMS = [f32(1 / k) for k in (5040, 720, 120, 24, 6, 2, 1, 1)]
_LOG_TERMS = [f32(1 / k) for k in (9, 7, 5, 3)]


def exp(x):
    """e^x for x <= 0: x = n log 2 + r, Taylor of degree 7 in r. NaN for NaN."""
    x = numpy.asarray(x, f32)
    bounded = numpy.maximum(x, _EXP_LEAST)  # maximum keeps NaN.
    n = numpy.floor(bounded * _LOG2_E + f32(0.5))
    r = (bounded - n * _LN2_HIGH) - n * _LN2_LOW
    power = numpy.full_like(r, _EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        power = power * r + term
    scaled = numpy.ldexp(power, numpy.nan_to_num(n).astype(numpy.int32))
    return numpy.where(x < _EXP_LEAST, f32(0), scaled)


def log(x):
    """log x for normal x >= 1: x = m 2^e with m around 1, log m = 2 artanh((m - 1) / (m + 1))."""
    m, e = numpy.frexp(numpy.asarray(x, f32))
    low = m < _ROOT_HALF
    m, e = numpy.where(low, m + m, m), (e - low).astype(f32)
    f = m - f32(1)
    s = f / (f + f32(2))
    z = s * s
    series = numpy.full_like(z, _LOG_TERMS[0])
    for term in _LOG_TERMS[1:]:
        series = series * z + term
    twice = s + s
    return e * _LN2_HIGH + (e * _LN2_LOW + (twice + twice * z * series))


# ------------------------------------------------------------------ what a shadow is made of


@dataclasses.dataclass(frozen=True)
class Spec:
    """ShadowSpec. budget_tokens 0: min(2048, length / 8), a multiple of the chunk; rank 0: by rank_energy."""

    chunk_tokens: int = 4
    keys: str = "int4"  # Or "exact", "int8", "low rank".
    landmark_bits: int = 4  # Or 8, 16.
    local_tokens: int = 32
    sink_tokens: int = 8
    outlier_share: float = 0.003
    outlier_chunks: int = 0  # Not 0: so many, instead of the share.
    budget_tokens: int = 0
    rank: int = 0
    rank_energy: float = 0.0

    @staticmethod
    def published(channels, outlier_chunks=48):
        """The published setting. channels: of the keys of a layer, all heads together."""
        return Spec(chunk_tokens=8, keys="low rank", landmark_bits=16, local_tokens=32, sink_tokens=0,
                    outlier_chunks=outlier_chunks, budget_tokens=2048, rank=round(0.156 * channels))

    def budget(self, length):
        tokens = self.budget_tokens or min(2048, length // 8)
        return tokens // self.chunk_tokens * self.chunk_tokens


def covered_tokens(length, spec):
    """So many first tokens have a shadow; those behind are the local window. 0: attention is dense."""
    return max(0, length - spec.local_tokens) // BLOCK * BLOCK


def landmarks(keys, chunk, dtype):
    """The mean of each chunk's keys: [..., chunks, channels]. REQUIRES: whole chunks."""
    by_chunk = keys.reshape(*keys.shape[:-2], -1, chunk, keys.shape[-1])
    total = by_chunk[..., 0, :]
    for token in range(1, chunk):
        total = total + by_chunk[..., token, :]
    return round_to(total * f32(1 / chunk), dtype)


def least_cosines(keys, marks):
    """The least cosine between a chunk's landmark and its keys: [..., chunks]."""
    by_chunk = keys.reshape(*marks.shape[:-1], -1, marks.shape[-1])
    norms = (numpy.sqrt(dot(marks, marks))[..., None] * numpy.sqrt(dot(by_chunk, by_chunk)))
    products = dot(marks[..., None, :], by_chunk)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        cosines = numpy.where(norms == 0, f32(0), products / norms)
    return cosines.min(-1)


def always_attended(cosines, spec):
    """Sinks and outliers: a bool for each chunk, [..., chunks]."""
    chunks = cosines.shape[-1]
    sinks = min(chunks, -(-spec.sink_tokens // spec.chunk_tokens))
    wanted = spec.outlier_chunks or int(numpy.ceil(spec.outlier_share * chunks))
    order = numpy.argsort(cosines[..., sinks:], axis=-1, kind="stable")[..., :wanted] + sinks
    always = numpy.zeros(cosines.shape, bool)
    numpy.put_along_axis(always, order, True, -1)
    always[..., :sinks] = True
    return always


# ------------------------------------------------------------------ the block quantiser


def quantise(rows, bits, dtype):
    """(lowest, scale, codes) of blocks of 64 rows, by channel: [..., blocks, channels] twice, and
    [..., blocks, 64, channels] of uint8. REQUIRES: whole blocks."""
    blocks = rows.reshape(*rows.shape[:-2], -1, BLOCK, rows.shape[-1])
    low, high = blocks.min(-2), blocks.max(-2)
    most = 2**bits - 1
    scale = round_up_to((high - low) * f32(1 / most), dtype)
    with numpy.errstate(divide="ignore", over="ignore"):
        inverse = f32(1) / scale
    # A scale whose inverse overflows is as good as none: the block's values differ by less than 2^-127.
    flat = ~numpy.isfinite(inverse)
    inverse = numpy.where(flat, f32(0), inverse)
    codes = numpy.floor((blocks - low[..., None, :]) * inverse[..., None, :] + f32(0.5))
    return low, scale, numpy.clip(codes, 0, most).astype(numpy.uint8)


def values_of(low, scale, codes, dtype):
    """The rows that codes stand for: [..., rows, channels]."""
    values = round_to(low[..., None, :] + codes.astype(f32) * scale[..., None, :], dtype)
    return values.reshape(*values.shape[:-3], -1, values.shape[-1])


def block_bytes(low, scale, codes, bits, dtype):
    """One block as it is stored: lowest, scales, then codes by row; of 4 bits even channels are the low half."""
    if bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    return to_bits(low, dtype).tobytes() + to_bits(scale, dtype).tobytes() + codes.tobytes()


def through_quantiser(rows, bits, dtype):
    """Rows as they come back; 16 bits, and a last block that is not whole, stay as they are."""
    whole = rows.shape[-2] // BLOCK * BLOCK if bits < 16 else 0
    if whole == 0:
        return rows
    return numpy.concatenate([values_of(*quantise(rows[..., :whole, :], bits, dtype), dtype), rows[..., whole:, :]], -2)


# ------------------------------------------------------------------ a step


def scores(query, marks, scale):
    """[..., group, chunks] of queries [..., group, channels] and landmarks [..., chunks, channels]."""
    return f32(scale) * dot(query[..., :, None, :], marks[..., None, :, :])


def chunk_values(score, selectable):
    """What a chunk is worth to a group: the largest over the group of score minus log of the sum. [..., chunks]."""
    bounded = numpy.where(selectable[..., None, :], score, f32(-numpy.inf))
    most = bounded.max(-1, keepdims=True)
    total = warp_sum(exp(bounded - most))[..., None]
    return (bounded - (most + log(total))).max(-2)


def top(values, selectable, count):
    """The ids of the `count` best, ties to the lower id, in rising order; [..., at most count]."""
    count = min(count, int(selectable.sum(-1).min()))
    ranked = numpy.argsort(-numpy.where(selectable, values, f32(-numpy.inf)), axis=-1, kind="stable")
    return numpy.sort(ranked[..., :count], axis=-1)


def select(query, marks, selectable, count, scale):
    """One step: ids of the chosen chunks, of queries [..., group, channels]."""
    return top(chunk_values(scores(query, marks, scale), selectable), selectable, count)


# ------------------------------------------------------------------ rotation, and keys of low rank


def turns(positions, frequencies):
    """(cosines, sines) [positions, pairs]: the angle is fp32, its functions are rounded once."""
    angles = (numpy.asarray(positions, f32)[:, None] * numpy.asarray(frequencies, f32)).astype(numpy.float64)
    return numpy.cos(angles).astype(f32), numpy.sin(angles).astype(f32)


def rotate(rows, cosines, sines):
    """Pairs of halves (element i with i + channels / 2), in fp32, not rounded to the type. Back: -sines."""
    half = rows.shape[-1] // 2
    x, y = rows[..., :half], rows[..., half:]
    return numpy.concatenate([x * cosines - y * sines, y * cosines + x * sines], -1)


def basis(before, spec, dtype):
    """(rows u [tokens, rank], basis [rank, channels]) of keys before rotation, [tokens, channels of all heads]."""
    wide = before.astype(numpy.float64)
    energies, vectors = numpy.linalg.eigh(wide.T @ wide)
    energies, vectors = energies[::-1], vectors[:, ::-1]
    rank = spec.rank or int(numpy.searchsorted(numpy.cumsum(energies), spec.rank_energy * energies.sum()) + 1)
    rank = min(rank, len(energies))
    chosen = vectors[:, :rank].T
    largest = numpy.take_along_axis(chosen, numpy.abs(chosen).argmax(1)[:, None], 1)
    chosen = round_to((chosen * numpy.sign(largest)).astype(f32), dtype)
    return round_to((wide @ chosen.T.astype(numpy.float64)).astype(f32), dtype), chosen


def rebuild_low_rank(rows, chosen, dtype):
    """Keys before rotation: [tokens, channels], summed in the order of the basis."""
    total = rows[:, :1] * chosen[0]
    for r in range(1, len(chosen)):
        total = total + rows[:, r:r + 1] * chosen[r]
    return round_to(total, dtype)
