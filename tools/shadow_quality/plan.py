# SPDX-License-Identifier: Apache-2.0
"""The measurements: policies by the names that the report uses, and which texts each runs on."""

import dataclasses

from .oracle import Spec
from .policies import BEST_TOKENS, Quest, Shadow, Window

STEPS = 64  # Teacher-forced, a text.
CHANNELS = 192  # A layer's keys in SmolLM2-135M, all heads.
BUDGETS = (128, 256, 512, 1024)
DEFAULT = Spec()


def _but(**changed):
    return Shadow(dataclasses.replace(DEFAULT, **changed))


# At each text. The published class has 48 outlier chunks, 0.3 % of those of 128K tokens; 6 is what was scaled to 4K.
EVERYWHERE = {
    "default": Shadow(),
    "published, 48 outliers": Shadow(Spec.published(CHANNELS)),
    "published, 6 outliers": Shadow(Spec.published(CHANNELS, outlier_chunks=6)),
    "Quest, pages of 16": Quest(),
    "window": Window(),
    "window, 8 sinks": Window(sinks=8),
    "best tokens": BEST_TOKENS,
}
# One thing changed of the default.
GRID = {
    "chunks of 2": _but(chunk_tokens=2),
    "chunks of 8": _but(chunk_tokens=8),
    "chunks of 16": _but(chunk_tokens=16),
    "keys exact": _but(keys="exact"),
    "keys int8": _but(keys="int8"),
    "keys low rank, 30": _but(keys="low rank", rank=30),
    "keys low rank, 95 % of the energy": _but(keys="low rank", rank_energy=0.95),
    "no outliers": _but(outlier_share=0.0),
    "outliers 1 %": _but(outlier_share=0.01),
    "no sinks": _but(sink_tokens=0),
    "landmarks 16 bits": _but(landmark_bits=16),
    "landmarks 8 bits": _but(landmark_bits=8),
}
# At several budgets, for the plot.
CURVES = ("default", "published, 48 outliers", "published, 6 outliers", "Quest, pages of 16", "window", "best tokens")
# The policies that look for the needle, and their budgets.
SEEKERS = {
    "default": (128, 256, 512), "published, 48 outliers": (256,), "published, 6 outliers": (256,),
    "Quest, pages of 16": (256,), "window": (256,), "best tokens": (256,)}
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


def policy(name):
    return EVERYWHERE.get(name) or GRID[name]


def budget_of(tokens):
    """The default's at this length."""
    return DEFAULT.budget(tokens)


def runs_of(source, grid):
    """[(name, budget)] on a text; budgets of one policy are neighbours, so that it is prepared once."""
    usual = budget_of(source.tokens)
    runs = []
    for name in EVERYWHERE:
        budgets = BUDGETS if grid and name in CURVES else (usual,)
        runs += [(name, budget) for budget in budgets]
    return runs + ([(name, usual) for name in GRID] if grid else [])
