# SPDX-License-Identifier: Apache-2.0
"""Generators of numpy through a store and back: the next draws are the same, bit for bit."""

import numpy as np
import pytest

import cairn

MAKERS = {
    "numpy.PCG64": np.random.default_rng,
    "numpy.PCG64DXSM": lambda seed: np.random.Generator(np.random.PCG64DXSM(seed)),
    "numpy.MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "numpy.Philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "numpy.SFC64": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "numpy.random_state.MT19937": np.random.RandomState,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_next_draws_are_the_same(chat, kind):
    generator = MAKERS[kind](7)
    generator.standard_normal(3)
    generator.random(dtype=np.float32) if "random_state" not in kind else generator.randn(1)  # Leaves half a number.
    chat.append([1], sampler=cairn.sampler.save(generator, temperature=0.5, top_k=40))
    wanted = generator.standard_normal(100), generator.integers(0, 2**31, 50) if hasattr(generator, "integers") else 0

    other = MAKERS[kind](8)
    position, state = chat.sampler_at()
    cairn.sampler.load(state, other)
    got = other.standard_normal(100), other.integers(0, 2**31, 50) if hasattr(other, "integers") else 0
    assert position == 1 and (state.blob_name, state.temperature, state.top_k) == (kind, 0.5, 40)
    assert wanted[0].tobytes() == got[0].tobytes() and np.array_equal(wanted[1], got[1])
    assert cairn.sampler.state_bytes(generator) == cairn.sampler.state_bytes(other)


def test_a_bit_generator_alone():
    generator = np.random.PCG64(3)
    kind, state = cairn.sampler.state_bytes(generator)
    wanted = generator.random_raw(5)
    other = np.random.PCG64(4)
    cairn.sampler.set_state_bytes(other, kind, state)
    assert np.array_equal(other.random_raw(5), wanted)


def test_another_kind_is_refused_by_name():
    state = cairn.sampler.save(np.random.default_rng(1))
    with pytest.raises(cairn.InvalidArgument, match="'numpy.PCG64', and the generator is a 'numpy.MT19937'"):
        cairn.sampler.load(state, MAKERS["numpy.MT19937"](1))
    with pytest.raises(cairn.InvalidArgument, match="philox"):
        cairn.sampler.load(cairn.SamplerState("philox"), np.random.default_rng(1))
    with pytest.raises(cairn.InvalidArgument, match="a int is none of numpy's or torch's"):
        cairn.sampler.save(5)
