# SPDX-License-Identifier: Apache-2.0
"""Property: a model of transformers that attends through cairn.shadow attends to what the oracle of
tools/shadow_quality chooses, and computes what it computes under the oracle. Method: a small model with random
weights; one object keeps the prompt, another goes on from the store. SmolLM2 itself is measured by
tools/shadow-quality."""

import dataclasses

import pytest
import torch
from test_shadow_quality import Tiny

from shadow_quality import policies, through_cairn, traces
from shadow_quality.oracle import Spec
from shadow_quality.run import Runner

TOKENS, STEPS, BUDGET = 700, 8, 64


@pytest.fixture(scope="module")
def tiny():
    with torch.no_grad():
        yield Tiny()


def test_steps_through_cairn_are_those_under_the_oracle(tiny, tmp_path):
    ids = torch.randint(96, (TOKENS + STEPS,), generator=torch.Generator().manual_seed(2)).tolist()
    _, prompt = tiny.prompt(ids[:TOKENS])
    opened = lambda: through_cairn.open_cache(tiny.config, tmp_path / "store", "chat", TOKENS, STEPS, BUDGET)
    with opened() as cache:
        through_cairn.fill(cache, prompt)
    with opened() as cache:
        assert cache.get_kv_len() == TOKENS
        steps = through_cairn.Steps(cache, len(prompt))
        steps.run(tiny.model, ids[TOKENS:TOKENS + 3], TOKENS)
        steps.run(tiny.model, ids[TOKENS + 3:], TOKENS + 3)
        assert cache.get_kv_len() == TOKENS + STEPS
        stats = steps.stats()
    assert stats["wanted"] == STEPS * 2 * 2 * BUDGET // 4 and 0 < stats["faults"] < stats["wanted"]
    result = steps.result()
    assert result.chosen[0].shape == (2, STEPS, BUDGET // 4)

    choices = lambda **changed: through_cairn.oracle_choices(
        steps.queries, prompt, policies.Shadow(dataclasses.replace(Spec(), **changed)), tiny.frequencies, BUDGET)
    assert through_cairn.same_sets(result.chosen, choices()) == 1
    assert through_cairn.same_sets(result.chosen, choices(landmark_bits=16)) < 1

    # Within a step the last that is listed counts as the newest; the traces have it the other way
    # round.
    trace = traces.trace_of(result.chosen, TOKENS // 4)[..., ::-1]
    assert steps.hits() == pytest.approx(traces.hit_rate(trace, traces.lru_residents(trace, 2 * BUDGET // 4)))
    assert 0 < steps.hits() < 1

    runner = Runner(tiny, prompt)
    ours = lambda policy: runner.run(policy, ids[TOKENS:], BUDGET)
    # Noise in the last bit of fp32 may round a step's row the other way.
    near = ours(through_cairn.RoundedQueries()).logits - result.logits
    other = ours(policies.Window()).logits - result.logits
    assert near.abs().max() < 0.01 * result.logits.abs().max() < other.abs().max()
