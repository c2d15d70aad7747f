# SPDX-License-Identifier: Apache-2.0
"""Property: tools/shadow_quality computes what the arithmetic of a shadow says, and its steps are a model's own.
Method: vectorised functions beside loops over single numbers; a small model with random weights beside
transformers' own attention. That the oracle has the bits of base/shadow is shown by
api/python/tests/test_shadow_oracle.py; SmolLM2 itself is measured by tools/shadow-quality."""

import collections
import math
import pathlib
import struct
import sys

import numpy
import pytest
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from shadow_quality import memory, oracle, policies, traces  # noqa: E402
from shadow_quality.oracle import BLOCK, Spec  # noqa: E402
from shadow_quality.prompts import RoundingCache  # noqa: E402
from shadow_quality.run import Runner  # noqa: E402

f32 = numpy.float32


@pytest.fixture
def draw():
    random = numpy.random.default_rng(7)
    return lambda *shape, dtype="bf16": oracle.round_to(random.standard_normal(shape).astype(f32), dtype)


def bits(values):
    return numpy.asarray(values, f32).view(numpy.uint32).tolist()


@pytest.mark.parametrize("dtype, torch_dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_rounds_as_torch_does_and_up_never_down(dtype, torch_dtype):
    random = numpy.random.default_rng(1)
    values = (random.standard_normal(20_000) * 2.0 ** random.integers(-20, 12, 20_000)).astype(f32)
    rounded = oracle.round_to(values, dtype)
    assert bits(rounded) == bits(torch.from_numpy(values).to(torch_dtype).float().numpy())
    up = oracle.round_up_to(abs(values), dtype)
    near = oracle.round_to(abs(values), dtype)
    assert (up >= abs(values)).all() and bits(oracle.round_to(up, dtype)) == bits(up)
    assert (up[near >= abs(values)] == near[near >= abs(values)]).all()
    theirs = torch.from_numpy(values).to(torch_dtype)
    assert oracle.to_bits(rounded, dtype).tolist() == theirs.view(torch.uint16).tolist()


@pytest.mark.parametrize("length", [1, 31, 64, 100, 128])
def test_warp_sum_is_that_of_lanes(draw, length):
    for row in draw(20, length):
        lanes = [f32(0)] * 32
        for at, value in enumerate(row):
            lanes[at % 32] = value if at < 32 else lanes[at % 32] + value
        for offset in (16, 8, 4, 2, 1):
            lanes = [lanes[lane] + lanes[lane ^ offset] for lane in range(32)]
        assert bits(oracle.warp_sum(row)) == bits(lanes[0]) == bits(lanes[31])


def test_exp_and_log_are_within_two_units_of_the_last_place():
    random = numpy.random.default_rng(2)
    for ours, exact, at in [(oracle.exp, numpy.exp, -random.uniform(0, 87, 100_000)),
                            (oracle.log, numpy.log, numpy.exp(random.uniform(0, 12, 100_000)))]:
        x = at.astype(f32)
        wanted = exact(x.astype(numpy.float64))
        assert (abs(ours(x) - wanted) <= 2 * numpy.spacing(wanted.astype(f32))).all()
    assert oracle.exp(f32([0, -88, -numpy.inf])).tolist() == [1, 0, 0] and oracle.log(f32(1)) == 0


def test_landmarks_and_cosines_are_those_of_each_chunk(draw):
    keys = draw(2, 12, 64)
    keys[1, 4:8] = 0
    marks = oracle.landmarks(keys, 4, "bf16")
    for head in range(2):
        for chunk in range(3):
            rows = keys[head, 4 * chunk:4 * chunk + 4]
            total = ((rows[0] + rows[1]) + rows[2]) + rows[3]
            assert bits(marks[head, chunk]) == bits(oracle.round_to(total * f32(0.25), "bf16"))
    cosines = oracle.least_cosines(keys, marks)
    assert cosines[1, 1] == 0
    wide = numpy.float64(keys[0, :4])
    mark = numpy.float64(marks[0, 0])
    wanted = (wide @ mark / (numpy.linalg.norm(wide, axis=1) * numpy.linalg.norm(mark))).min()
    assert cosines[0, 0] == pytest.approx(wanted, rel=1e-5)


def test_sinks_and_the_least_cosines_are_always_attended():
    cosines = f32([[0.1, 0.2, 0.9, 0.3, 0.3, 0.8, 0.3, 0.7]])
    of = lambda **spec: numpy.flatnonzero(oracle.always_attended(cosines, Spec(**spec))[0]).tolist()
    assert of(sink_tokens=5, outlier_chunks=2) == [0, 1, 3, 4]  # Ties to the lower id.
    assert of(sink_tokens=8, outlier_share=0.003) == [0, 1, 3]  # A share is rounded up.
    assert of(sink_tokens=0, outlier_share=0) == []


@pytest.mark.parametrize("number_of_bits", [4, 8])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_quantiser_is_that_of_single_numbers(draw, number_of_bits, dtype):
    rows = draw(BLOCK, 6, dtype=dtype)
    rows[:, 2] = rows[0, 2]  # Flat.
    low, scale, codes = oracle.quantise(rows, number_of_bits, dtype)
    values = oracle.values_of(low, scale, codes, dtype)
    most = 2**number_of_bits - 1
    for channel in range(6):
        column = rows[:, channel]
        step = oracle.round_up_to((column.max() - column.min()) * f32(1 / most), dtype)
        assert bits(low[0, channel]) == bits(column.min()) and bits(scale[0, channel]) == bits(step)
        for token, x in enumerate(column):
            code = 0 if step == 0 else min(most, math.floor((x - column.min()) * (f32(1) / step) + f32(0.5)))
            assert codes[0, token, channel] == code
            assert bits(values[token, channel]) == bits(oracle.round_to(column.min() + f32(code) * step, dtype))
    assert codes.max() == most and (abs(values - rows) <= scale[0] * f32(0.51) + abs(rows) * f32(2**-8)).all()


def test_a_stored_block_has_even_channels_in_the_low_half(draw):
    rows = draw(BLOCK, 4)
    low, scale, codes = oracle.quantise(rows, 4, "bf16")
    stored = oracle.block_bytes(low[0], scale[0], codes[0], 4, "bf16")
    assert struct.unpack("<4H", stored[:8]) == tuple(oracle.to_bits(low[0], "bf16"))
    assert len(stored) == 16 + BLOCK * 2 == memory._rows(BLOCK, 4, 4)
    assert stored[16 + 2 * 5 + 1] == codes[0, 5, 2] | codes[0, 5, 3] << 4


def test_a_last_block_that_is_not_whole_stays(draw):
    marks = draw(BLOCK + 10, 64)
    back = oracle.through_quantiser(marks, 4, "bf16")
    assert (back[BLOCK:] == marks[BLOCK:]).all() and (back[:BLOCK] != marks[:BLOCK]).any()
    assert oracle.through_quantiser(marks, 16, "bf16") is marks


def one_by_one(query, marks, selectable, count, scale):
    worth = {}
    ids = numpy.flatnonzero(selectable)
    for row in query:
        score = {i: f32(scale) * oracle.dot(row, marks[i]) for i in ids}
        most = max(score.values())
        terms = numpy.zeros(len(marks), f32)
        for i in ids:
            terms[i] = oracle.exp(f32([score[i] - most]))[0]
        lse = most + oracle.log(oracle.warp_sum(terms))
        for i in ids:
            worth[i] = max(worth.get(i, -math.inf), score[i] - lse)
    return sorted(sorted(ids, key=lambda i: (-worth[i], i))[:count])


def test_select_is_that_of_single_chunks_with_ties_to_the_lower_id(draw):
    query, marks = draw(2, 5, 3, 64), draw(2, 1, 100, 64)
    marks[:, :, 40:60] = marks[:, :, 20:40]  # Equal chunks.
    selectable = numpy.ones((2, 1, 100), bool)
    selectable[:, :, [0, 1, 33]] = False
    for count in (7, 24, 200):
        chosen = oracle.select(query, marks, selectable, count, 0.125)
        for head in range(2):
            for step in range(5):
                wanted = one_by_one(query[head, step], marks[head, 0], selectable[head, 0], count, 0.125)
                assert chosen[head, step].tolist() == wanted


def test_products_choose_what_the_oracle_chooses(draw):
    keys, query = torch.from_numpy(draw(2, 1056, 64)), torch.from_numpy(draw(2, 3, 20, 64))
    policy = policies.Shadow()
    prepared = policy.prepare(keys, None)
    chosen = policy.choose(prepared, query, 0.125, 128)
    marks, selectable = prepared.marks.numpy()[:, None], ~prepared.always.numpy()[:, None]
    score = oracle.scores(query.permute(0, 2, 1, 3).numpy(), marks, 0.125)
    worth = oracle.chunk_values(score, numpy.broadcast_to(selectable, (2, 20, 256)))
    exact = oracle.top(worth, selectable, 32)
    for head in range(2):
        for step in range(20):
            # A chunk that only one of the two has is as good as the worst that both might have.
            odd = numpy.setxor1d(exact[head, step], chosen[head, step].numpy())
            least = worth[head, step, exact[head, step]].min()
            assert (abs(worth[head, step, odd] - least) < 1e-5).all()
    assert policies.agreement(prepared, query, 0.125, 128, chosen) > 0.999


def test_rotation_is_the_models_and_goes_back(draw):
    rows = draw(3, 40, 64)
    llama = transformers.models.llama.modeling_llama
    emb = llama.LlamaRotaryEmbedding(transformers.LlamaConfig(hidden_size=64, num_attention_heads=1))
    cosines, sines = oracle.turns(numpy.arange(40), emb.inv_freq.numpy())
    turned = oracle.rotate(rows, cosines, sines)
    cos, sin = emb(torch.zeros(1), torch.arange(40)[None])
    theirs, _ = llama.apply_rotary_pos_emb(*[torch.from_numpy(rows)[None]] * 2, cos, sin)
    assert abs(turned - theirs[0].numpy()).max() < 1e-5
    assert abs(oracle.rotate(turned, cosines, -sines) - rows).max() < 1e-5


def test_low_rank_keeps_what_lies_in_its_basis(draw):
    flat = (draw(100, 5) @ draw(5, 48)).astype(f32)
    u, basis = oracle.basis(flat, Spec(keys="low rank", rank=5), "bf16")
    assert u.shape == (100, 5) and abs(oracle.rebuild_low_rank(u, basis, "bf16") - flat).max() < 0.03 * abs(flat).max()
    assert (basis.max(1) >= abs(basis).max(1) * 0.99).all()  # Rounding may make two of a size.
    assert len(oracle.basis(flat, Spec(keys="low rank", rank_energy=0.9999), "bf16")[1]) == 5
    assert len(oracle.basis(flat, Spec(keys="low rank", rank=1000), "bf16")[1]) == 48


class Tiny:
    """A model of this many layers with random weights, as Runner wants it."""

    def __init__(self):
        torch.manual_seed(3)
        self.config = transformers.LlamaConfig(
            vocab_size=96, hidden_size=96, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
            num_key_value_heads=2, max_position_embeddings=1024)
        self.model = transformers.LlamaForCausalLM(self.config).eval()
        self.frequencies = self.model.model.rotary_emb.inv_freq.numpy()

    def prompt(self, ids):
        cache = RoundingCache(config=self.config)
        self.model(torch.tensor([ids]), past_key_values=cache)
        return cache, [(layer.keys[0].bfloat16(), layer.values[0].bfloat16()) for layer in cache.layers]


@pytest.fixture(scope="module")
def tiny():
    with torch.no_grad():
        yield Tiny()


def test_steps_at_once_are_the_models_own(tiny):
    ids = torch.randint(96, (332,), generator=torch.Generator().manual_seed(1)).tolist()
    cache, prompt = tiny.prompt(ids[:320])
    runner = Runner(tiny, prompt)
    full = runner.full(ids[320:])
    # The steps' rows are rounded as well; noise in the last bit of fp32 may round one the other way.
    theirs = tiny.model(torch.tensor([ids[320:]]), past_key_values=cache).logits[0]
    assert (full.logits - theirs).abs().max() < 0.01 * theirs.abs().max()
    everything = runner.run(policies.Shadow(Spec(keys="exact")), ids[320:], 320)
    assert torch.equal(everything.logits, full.logits) and everything.mass == pytest.approx(1) and everything.error == 0
    assert everything.compared(full)[1] == 1 and abs(everything.compared(full)[0]) < 1e-6
    published = policies.Shadow(Spec.published(32, outlier_chunks=6))
    for policy in (policies.Shadow(), published, policies.Quest(), policies.Window(4), policies.BEST_TOKENS):
        many = runner.run(policy, ids[320:], 64)
        few = runner.run(policy, ids[320:325], 64)  # Later steps change nothing.
        assert (many.logits[:5] - few.logits).abs().max() < 0.01 * theirs.abs().max()
        assert 0 < many.mass < 1 and many.error > 0 and many.tokens < 320
        assert all(torch.equal(a[:, :5], b) for a, b in zip(many.chosen[:1], few.chosen[:1]))


def test_the_lru_is_that_of_thirty_lines_and_the_best_is_better():
    random = numpy.random.default_rng(5)
    trace = numpy.zeros((30, 2, 40), bool)
    for step in range(30):
        for head in range(2):
            trace[step, head, random.permutation(min(40, 8 + step))[:6]] = True
    for capacity in (6, 12, 20):
        held = traces.lru_residents(trace, capacity)
        for head in range(2):
            buffer = collections.OrderedDict()
            for step in range(30):
                assert sorted(buffer) == numpy.flatnonzero(held[step, head]).tolist()
                # Within a step the lower id counts as the newer.
                for chunk in numpy.flatnonzero(trace[step, head])[::-1]:
                    buffer[chunk] = step
                    buffer.move_to_end(chunk)
                while len(buffer) > capacity:
                    buffer.popitem(last=False)
        best = traces.best_residents(trace, capacity)
        assert (best.sum(-1) <= capacity).all() and traces.hit_rate(trace, best) >= traces.hit_rate(trace, held)
    everything = [residents(trace, 40) for residents in (traces.best_residents, traces.lru_residents)]
    assert traces.hit_rate(trace, everything[0]) == traces.hit_rate(trace, everything[1])


def test_disk_faults_are_counted_by_chunk():
    trace = numpy.zeros((4, 1, 8), bool)
    trace[:, 0, [0, 1]] = True  # Page 0; then pages 2 and 3 in turn, in a DRAM of two pages.
    trace[0::2, 0, 5] = True
    trace[1::2, 0, 7] = True
    nothing = numpy.zeros_like(trace)
    faults = lambda share, prefetch=False, held=nothing: traces.disk_faults(trace, held, 2, share, prefetch, warm=1)[0]
    assert faults(1) == pytest.approx(1 / 9)  # Chunk 7, once.
    assert faults(0.5) == pytest.approx(3 / 9)
    assert faults(0.25) == pytest.approx(9 / 9)
    assert faults(0.5, held=trace) == 0
    assert traces.disk_faults(trace, nothing, 2, 0.5, False, warm=1)[1] == 1  # One page per step.
    assert faults(0.5, prefetch=True) == pytest.approx(3 / 9)  # The other page is never that of the step before.


def test_memory_counts_what_is_stored():
    geometry = memory.Geometry(2, 3, 64)
    assert geometry.full(1024) == 2 * 3 * 1024 * 256
    int4 = memory.device_bytes(Spec(outlier_share=0, sink_tokens=0), 1056, geometry, 0)
    # 16 blocks of keys, 4 of landmarks, 32 tokens of the window.
    assert int4 == 2 * 3 * (16 + 4) * (64 * 32 + 256) + 2 * 3 * 32 * 256
    spec = Spec(keys="low rank", rank=30, outlier_share=0, sink_tokens=0, landmark_bits=16)
    low = memory.device_bytes(spec, 1056, geometry, 0)
    assert low == 2 * (1024 + 192) * 60 + 2 * 3 * (256 * 128 + 32 * 256)
