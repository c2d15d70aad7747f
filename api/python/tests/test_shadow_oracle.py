# SPDX-License-Identifier: Apache-2.0
"""Property: tools/shadow_quality/oracle.py gives the bits of base/shadow. Method: the record that
tests/base/shadow_record_test.cc holds base/shadow to, of the same rows."""

import dataclasses
import pathlib
import sys

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from shadow_quality import oracle  # noqa: E402
from shadow_quality.oracle import Spec, f32  # noqa: E402

RECORD = (ROOT / "tests" / "base" / "shadow_record.txt").read_text().splitlines()


def mixed(seed, first, count):
    """`count` numbers of SplitMix64 from number `first` on."""
    z = numpy.uint64(seed) + numpy.arange(first + 1, first + 1 + count, dtype=numpy.uint64) * numpy.uint64(
        0x9E3779B97F4A7C15)
    z = (z ^ z >> 30) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> 27) * numpy.uint64(0x94D049BB133111EB)
    return z ^ z >> 31


class Random:
    def __init__(self, seed):
        self._seed, self._at = seed, 0

    def next(self, count):
        self._at += count
        return mixed(self._seed, self._at - count, count)

    def even(self, count):
        """In [-2, 2)."""
        return as_even(self.next(count))


def as_even(drawn):
    return (drawn >> 40).astype(f32) * f32(2**-22) - f32(2)


@dataclasses.dataclass
class Case:
    name: str
    drawn: str
    chunk: int
    landmark_bits: int
    channels: int
    group: int
    length: int

    @property
    def dtype(self):
        return self.name[:4]


CASES = [
    Case("bf16 keys", "keys", 4, 4, 64, 3, 5000),
    Case("fp16 keys", "keys", 8, 8, 128, 4, 2600),
    Case("bf16 wide", "wide", 2, 4, 40, 1, 1100),
    Case("fp16 wide", "wide", 4, 8, 80, 2, 1100),
    Case("bf16 coarse", "coarse", 4, 16, 64, 3, 2600),
    Case("fp16 coarse", "coarse", 16, 4, 72, 2, 2600),
    Case("bf16 tiny", "tiny", 4, 4, 64, 1, 1100),
    Case("fp16 tiny", "tiny", 4, 8, 64, 1, 1100),
]


def of_bits(bits, dtype):
    if dtype == "fp16":
        return bits.astype(numpy.uint16).view(numpy.float16).astype(f32)
    return (bits.astype(numpy.uint32) << 16).view(f32)


def draw_rows(random, dtype, kind, channels, rows):
    mean = random.even(channels)
    drawn = random.next(rows * channels).reshape(rows, channels)
    if kind == "keys":
        return oracle.round_to(mean + as_even(drawn), dtype)
    if kind == "coarse":
        return f32([0, -0.0, 1, -1, 0.5])[drawn[numpy.arange(rows) % 96] % 5]
    if kind == "tiny":
        return of_bits((drawn >> 63) << 15 | (drawn & 0x7FFFFFFF) % 3, dtype)
    unfit = oracle.to_bits(f32(2**15 if dtype == "fp16" else 2**59), dtype).item()
    return of_bits((drawn >> 63) << 15 | (drawn & 0x7FFFFFFF) % unfit, dtype)


def of_record(step, elements):
    """A line of the record: what each element is times a number that follows from its place, added."""
    elements = numpy.ascontiguousarray(elements)
    if elements.dtype == f32:
        elements = elements.view(numpy.uint32)
    flat = elements.reshape(-1).astype(numpy.uint64)
    return f"{int((mixed(1, 0, flat.size) * flat).sum(dtype=numpy.uint64)):016x} {flat.size} {step}"


def stored(rows, bits, dtype):
    return numpy.frombuffer(b"".join(
        oracle.block_bytes(*block, bits, dtype) for block in zip(*oracle.quantise(rows, bits, dtype))), numpy.uint8)


def lines_of(case, seed):
    spec = Spec(chunk_tokens=case.chunk, landmark_bits=case.landmark_bits)
    random = Random(seed)
    covered = oracle.covered_tokens(case.length, spec)
    rows = draw_rows(random, case.dtype, case.drawn, case.channels, covered)
    marks = oracle.landmarks(rows, case.chunk, case.dtype)
    yield "landmarks", oracle.to_bits(marks, case.dtype)
    cosines = oracle.least_cosines(rows, marks)
    yield "cosines", cosines
    always = oracle.always_attended(cosines, spec)
    yield "outliers", numpy.flatnonzero(always)[-(-spec.sink_tokens // spec.chunk_tokens):]
    for bits in (4, 8):
        yield f"keys of {bits} bits", stored(rows, bits, case.dtype)
        yield f"keys of {bits} bits, read", oracle.to_bits(oracle.through_quantiser(rows, bits, case.dtype), case.dtype)
    marks = oracle.through_quantiser(marks, case.landmark_bits, case.dtype)
    query = random.even(case.group * case.channels).reshape(case.group, case.channels)
    score = numpy.where(always, f32(-numpy.inf), oracle.scores(query, marks, 0.125))
    yield "scores", score
    yield "log sums", oracle.log_sums(score)
    yield "worth", oracle.chunk_values(score, ~always)
    yield "selected", oracle.select(query, marks, ~always, spec.budget(case.length) // spec.chunk_tokens, 0.125)


@pytest.mark.parametrize("number, case", list(enumerate(CASES)), ids=[case.name for case in CASES])
def test_a_shadow_is_that_on_record(number, case):
    ours = [of_record(f"{case.name}: {step}", elements) for step, elements in lines_of(case, 10 + number)]
    assert ours == [line for line in RECORD if f" {case.name}: " in line] and len(ours) == 11


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_keys_of_low_rank_are_those_on_record(dtype):
    random = Random(100)
    vectors = draw_rows(random, dtype, "keys", 192, 30)
    coefficients = draw_rows(random, dtype, "keys", 30, 20)
    rebuilt = oracle.to_bits(oracle.rebuild_low_rank(coefficients, vectors, dtype), dtype)
    assert of_record(f"{dtype} low rank: rebuilt", rebuilt) in RECORD


def test_exp_and_log_are_those_on_record():
    drawn = Random(200).next(100_000)
    least, end = numpy.uint64(0x00800000), numpy.uint64(0x7F800000)
    normal = (least + (drawn[1::2] & 0x7FFFFFFF) % (end - least)).astype(numpy.uint32).view(f32)
    assert of_record("exp", oracle.exp(as_even(drawn[0::2]) * f32(64))) in RECORD
    assert of_record("log", oracle.log(normal)) in RECORD


def test_log_sums_of_many_heads_are_those_on_record():
    score = Random(300).even(64 * 600).reshape(64, 600)
    assert of_record("log sums", oracle.log_sums(score)) in RECORD
