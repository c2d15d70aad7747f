# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of docs/shadow.md, one function a step, in numpy: the bits of base/shadow and of the kernels.

Numbers are fp32 in the order written; no fused multiply-add, no library's exp or log. A bf16 or fp16
value is held as the fp32 of the same value. Leading axes (layers, heads) are free: keys are
[..., tokens, channels]. Bases of low rank alone depend on the solver of eigenvectors.
"""

import dataclasses

import numpy

LANES = 32  # Partial sums that make a sum.
BLOCK = 64  # Rows that share their scales, and the unit in which a shadow grows.
TILE = 256  # Chunks whose exponentials are summed relative to a maximum of their own.

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


def _padded(values, multiple, filler):
    """The last axis made a multiple of that."""
    missing = -values.shape[-1] % multiple
    return numpy.concatenate([values, numpy.full((*values.shape[:-1], missing), filler, f32)], -1) if missing else values


def warp_sum(values):
    """The sum over the last axis as a warp makes it: lane l adds elements l, l + 32, ... to 0; then a butterfly.

    Lanes l and l ^ o hold the same after the exchange over o, so that half of them says it all.
    """
    values = _padded(values, LANES, 0)
    part = f32(0)
    for at in range(0, values.shape[-1], LANES):
        part = part + values[..., at:at + LANES]
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        part = part[..., :lanes] + part[..., lanes:]
    return part[..., 0]


def dot(a, b):
    return warp_sum(a * b)


_hex = lambda text: f32(float.fromhex(text))
# log 2 in two parts: the first has so few bits that its products with whole numbers are exact.
_LN2_HIGH, _LN2_LOW = _hex("0x1.63p-1"), _hex("-0x1.bd0106p-13")
_LOG2_E, _SHIFT, _ROOT_HALF_BITS = _hex("0x1.715476p+0"), _hex("0x1.8p+23"), 0x3F3504F3
_EXP_TERMS = [_hex(term) for term in (
    "0x1.6d117cp-10", "0x1.120be2p-7", "0x1.555518p-5", "0x1.5554dcp-3", "0x1p-1")]
_LOG_TERMS = [f32(2) / f32(k) for k in (9, 7, 5, 3)]


def exp(x):
    """e^x: 0 below -87 and for NaN, e^88 above 88."""
    x = numpy.asarray(x, f32)
    bounded = numpy.clip(numpy.nan_to_num(x, nan=-numpy.inf), f32(-87), f32(88))
    shifted = bounded * _LOG2_E + _SHIFT
    whole = shifted - _SHIFT
    r = (bounded - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = numpy.full_like(r, _EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        p = p * r + term
    y = f32(1) + (r + (r * r) * p)
    exponent = whole.astype(numpy.int32).view(numpy.uint32)
    return numpy.where(x >= -87, (y.view(numpy.uint32) + (exponent << 23)).view(f32), f32(0))


def log(x):
    """The natural logarithm of normal numbers; minus infinity of 0, less and NaN."""
    x = numpy.asarray(x, f32)
    bits = x.view(numpy.uint32) + numpy.uint32(0x3F800000 - _ROOT_HALF_BITS)
    k = ((bits >> 23).astype(numpy.int32) - 127).astype(f32)
    f = ((bits & numpy.uint32(0x7FFFFF)) + numpy.uint32(_ROOT_HALF_BITS)).view(f32) - f32(1)
    s = f / (f32(2) + f)
    z = s * s
    series = numpy.full_like(z, _LOG_TERMS[0])
    for term in _LOG_TERMS[1:]:
        series = series * z + term
    series = series * z
    h = f32(0.5) * f * f
    return numpy.where(x > 0, k * _LN2_HIGH - ((h - (s * (h + series) + k * _LN2_LOW)) - f), f32(-numpy.inf))


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
    outlier_chunks: int = 0  # Their number; overrides the share if it is not 0.
    budget_tokens: int = 0
    rank: int = 0
    rank_energy: float = 0.0

    @staticmethod
    def published(channels, outlier_chunks=48):
        """The published setting. channels: of the keys of a layer, all heads together."""
        return Spec(chunk_tokens=8, keys="low rank", landmark_bits=16, local_tokens=32, sink_tokens=0,
                    outlier_chunks=outlier_chunks, budget_tokens=2048, rank=max(1, min(channels, 1024) * 160 // 1024))

    def budget(self, length):
        tokens = self.budget_tokens or min(2048, length // 8)
        return max(1, tokens // self.chunk_tokens) * self.chunk_tokens


def covered_tokens(length, spec):
    """So many first tokens have a shadow; those behind are the local window. 0: attention is dense."""
    return max(0, length - spec.local_tokens) // BLOCK * BLOCK


def landmarks(keys, chunk, dtype):
    """The mean of each chunk's keys: [..., chunks, channels]. REQUIRES: whole chunks."""
    by_chunk = keys.reshape(*keys.shape[:-2], -1, chunk, keys.shape[-1])
    total = f32(0)
    for token in range(chunk):
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


_LEAST_SCALE = f32(2**-126)  # Its inverse is finite.


def quantise(rows, bits, dtype):
    """(lowest, scale, codes) of blocks of 64 rows, by channel: [..., blocks, channels] twice, and
    [..., blocks, 64, channels] of uint8. REQUIRES: whole blocks; of numbers that docs/shadow.md calls fit."""
    blocks = rows.reshape(*rows.shape[:-2], -1, BLOCK, rows.shape[-1])
    # The first of equal ones: zeros have two signs.
    low = numpy.take_along_axis(blocks, blocks.argmin(-2)[..., None, :], -2)[..., 0, :]
    spread = blocks.max(-2) - low
    most = f32(2**bits - 1)
    scale = round_up_to(numpy.maximum(spread * (f32(1) / most), _LEAST_SCALE), dtype)
    scale = numpy.where(spread == 0, f32(0), scale)
    inverse = numpy.where(spread == 0, f32(0), f32(1) / numpy.where(spread == 0, f32(1), scale))
    codes = numpy.floor((blocks - low[..., None, :]) * inverse[..., None, :] + f32(0.5))
    return low, scale, numpy.minimum(codes, most).astype(numpy.uint8)


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


def log_sums(score):
    """By query head the logarithm of the sum of e^score, by tiles of chunks: [..., group] of [..., group, chunks]."""
    tiles = _padded(score, TILE, -numpy.inf)
    tiles = tiles.reshape(*tiles.shape[:-1], -1, TILE)
    most_of_tile = numpy.fmax.reduce(tiles, -1)
    most = numpy.fmax.reduce(most_of_tile, -1)
    with numpy.errstate(invalid="ignore"):  # exp makes 0 of the NaN of a tile without any.
        sums = warp_sum(exp(tiles - most_of_tile[..., None]))
        return most + log(warp_sum(sums * exp(most_of_tile - most[..., None])))


def chunk_values(score, selectable):
    """The worth of a chunk to a group: the largest over the group of score minus log of the sum. [..., chunks]."""
    bounded = numpy.where(selectable[..., None, :], score, f32(-numpy.inf))
    return numpy.fmax.reduce(bounded - log_sums(bounded)[..., None], -2)


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
    energies, vectors = energies[::-1].clip(0), vectors[:, ::-1]  # Rounding may leave some below 0.
    rank = spec.rank or int(numpy.searchsorted(numpy.cumsum(energies), spec.rank_energy * energies.sum()) + 1)
    rank = min(rank, len(energies))
    chosen = vectors[:, :rank].T
    largest = numpy.take_along_axis(chosen, numpy.abs(chosen).argmax(1)[:, None], 1)
    chosen = round_to((chosen * numpy.sign(largest)).astype(f32), dtype)
    most = f32(65504) if dtype == "fp16" else _hex("0x1.fep127")
    return round_to((wide @ chosen.T.astype(numpy.float64)).astype(f32).clip(-most, most), dtype), chosen


def rebuild_low_rank(rows, chosen, dtype):
    """Keys before rotation: [tokens, channels], summed in the order of the basis."""
    total = f32(0)
    for r in range(len(chosen)):
        total = total + rows[:, r:r + 1] * chosen[r]
    return round_to(total, dtype)
