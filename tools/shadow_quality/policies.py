# SPDX-License-Identifier: Apache-2.0
"""Which tokens of the prompt a step attends to, and with which keys: shadows, and what they are compared with.

A policy prepares a layer's prompt once and chooses for all steps at a time: each choice depends on its own
query alone. Preparing is the oracle's arithmetic to the bit; choosing uses matrix products for the scores, which
differ from the oracle in the last bits (agreement() tells how often that matters).
"""

import dataclasses

import numpy
import torch

from . import oracle
from .oracle import Spec

DTYPE = "bf16"


@dataclasses.dataclass
class Prepared:
    """One layer. keys: what attention sees; always: tokens of the covered part that each step attends to."""

    keys: torch.Tensor  # [kv heads, tokens, channels], fp32
    covered: int
    chunk: int = 1
    always: torch.Tensor | None = None  # bool [kv heads, chunks]
    marks: torch.Tensor | None = None  # [kv heads, chunks, channels]; of pages, their bounds
    rank: int = 0


def _chosen_by(values, selectable, count):
    count = min(count, int(selectable.sum(-1).min()))
    values = values.masked_fill(~selectable[:, None], -torch.inf)
    return values.topk(count, dim=-1).indices.sort(dim=-1).values


def _group_values(score, selectable):
    """As oracle.chunk_values, of scores [kv heads, group, steps, chunks]."""
    score = score.masked_fill(~selectable[:, None, None], -torch.inf)
    return (score - score.logsumexp(-1, keepdim=True)).amax(1)


@dataclasses.dataclass(frozen=True)
class Dense:
    """Full attention."""

    def prepare(self, keys, frequencies):
        return Prepared(keys, 0)

    def choose(self, prepared, query, scale, budget):
        return None


@dataclasses.dataclass(frozen=True)
class Shadow:
    spec: Spec = Spec()

    def prepare(self, keys, frequencies):
        spec, chunk = self.spec, self.spec.chunk_tokens
        covered = oracle.covered_tokens(keys.shape[1], spec)
        rows = keys[:, :covered].numpy()
        exact_marks = oracle.landmarks(rows, chunk, DTYPE)
        always = oracle.always_attended(oracle.least_cosines(rows, exact_marks), spec)
        rebuilt, rank = self._rebuilt(rows, frequencies)
        kept = numpy.repeat(always, chunk, axis=-1)[..., None]
        seen = keys.clone()
        seen[:, :covered] = torch.from_numpy(numpy.where(kept, rows, rebuilt))
        marks = oracle.through_quantiser(exact_marks, spec.landmark_bits, DTYPE)
        return Prepared(seen, covered, chunk, torch.from_numpy(always), torch.from_numpy(marks), rank)

    def _rebuilt(self, rows, frequencies):
        """(keys as they come back, rank of the basis)"""
        if self.spec.keys == "exact":
            return rows, 0
        if self.spec.keys != "low rank":
            return oracle.through_quantiser(rows, {"int8": 8, "int4": 4}[self.spec.keys], DTYPE), 0
        heads, tokens, channels = rows.shape
        cosines, sines = oracle.turns(numpy.arange(tokens), frequencies)
        before = oracle.rotate(rows, cosines, -sines).transpose(1, 0, 2).reshape(tokens, -1)
        u, chosen = oracle.basis(before, self.spec, DTYPE)
        again = oracle.rebuild_low_rank(u, chosen, DTYPE).reshape(tokens, heads, channels).transpose(1, 0, 2)
        return oracle.round_to(oracle.rotate(again, cosines, sines), DTYPE), len(chosen)

    def choose(self, prepared, query, scale, budget):
        score = torch.einsum("hgsd,hnd->hgsn", query, prepared.marks) * scale
        values = _group_values(score, ~prepared.always)
        return _chosen_by(values, ~prepared.always, budget // prepared.chunk)


@dataclasses.dataclass(frozen=True)
class Window:
    """The newest tokens, and the first."""

    sinks: int = 0

    def prepare(self, keys, frequencies):
        covered = oracle.covered_tokens(keys.shape[1], Spec())
        always = torch.zeros(keys.shape[0], covered, dtype=torch.bool)
        always[:, :self.sinks] = True
        return Prepared(keys, covered, 1, always)

    def choose(self, prepared, query, scale, budget):
        newest = torch.arange(prepared.covered - budget, prepared.covered)
        return newest.expand(query.shape[0], query.shape[2], budget)


@dataclasses.dataclass(frozen=True)
class Quest:
    """Pages with the bounds of their keys by channel; a page is worth the most that a key within them could score."""

    page: int = 16

    def prepare(self, keys, frequencies):
        covered = oracle.covered_tokens(keys.shape[1], Spec())
        pages = keys[:, :covered].unflatten(1, (-1, self.page))
        bounds = torch.cat([pages.amax(2), pages.amin(2)], dim=-1)
        return Prepared(keys, covered, self.page, torch.zeros(bounds.shape[:2], dtype=torch.bool), bounds)

    def choose(self, prepared, query, scale, budget):
        # The most that q . k can be: q's positive part by the upper bound, its negative part by the lower.
        split = torch.cat([query.clamp(min=0), query.clamp(max=0)], dim=-1)
        score = torch.einsum("hgsd,hnd->hgsn", split, prepared.marks) * scale
        return _chosen_by(_group_values(score, ~prepared.always), ~prepared.always, budget // self.page)


# The oracle: the same choice of single tokens, of their exact keys.
BEST_TOKENS = Shadow(Spec(chunk_tokens=1, keys="exact", landmark_bits=16, sink_tokens=0, outlier_share=0.0))


def attended(prepared, ids, steps):
    """bool [kv heads, steps, prompt tokens]."""
    heads, tokens = prepared.keys.shape[:2]
    mask = torch.ones(heads, steps, tokens, dtype=torch.bool)
    if ids is not None:
        chunks = prepared.always[:, None].expand(-1, steps, -1).clone().scatter_(2, ids, True)
        mask[:, :, :prepared.covered] = chunks.repeat_interleave(prepared.chunk, dim=2)
    return mask


def agreement(prepared, query, scale, budget, ids):
    """Of the chunks that were chosen by products, the share that the oracle's own arithmetic chooses."""
    selectable = ~prepared.always.numpy()[:, None]
    exact = oracle.select(query.permute(0, 2, 1, 3).numpy(), prepared.marks.numpy()[:, None], selectable,
                          budget // prepared.chunk, scale)
    same = [len(numpy.intersect1d(a, b)) for a, b in zip(exact.reshape(-1, exact.shape[-1]),
                                                        ids.reshape(-1, ids.shape[-1]).numpy())]
    return sum(same) / exact.size
