# SPDX-License-Identifier: Apache-2.0
"""The plot of docs/shadow_quality.md."""

import matplotlib

from . import plan, texts

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  The backend comes first.

# The same bytes of the same results.
pyplot.rcParams["svg.hashsalt"] = "cairn"
pyplot.rcParams["svg.fonttype"] = "none"  # Text as text: a quarter of the size.
_COLOURS = {"default": "#0072b2", "published, 48 outliers": "#e69f00", "published, 6 outliers": "#d55e00",
            "Quest, pages of 16": "#009e73", "window": "#999999", "best tokens": "#000000"}


def _curves(axes, found, names):
    for run in plan.CURVES:
        values = [found.mean(names, run, "kl", budget) for budget in plan.BUDGETS]
        if None not in values:
            axes.plot(plan.BUDGETS, values, marker="o", label=run, color=_COLOURS[run])
    axes.set_xscale("log", base=2)
    axes.set_xticks(plan.BUDGETS, [str(budget) for budget in plan.BUDGETS])
    axes.set_yscale("log")
    axes.set_xlabel("budget, selected tokens of 4096")
    axes.set_ylabel("KL to full attention, nats")
    axes.legend(frameon=False, fontsize=8)


def _bars(axes, found, names):
    runs = [run for run in ["default", *plan.GRID] if found.mean(names, run, "kl") is not None]
    axes.barh(runs, [found.mean(names, run, "kl") for run in runs],
              color=["#0072b2" if run == "default" else "#7fb8d9" for run in runs])
    axes.invert_yaxis()
    axes.set_xlabel("KL, nats, budget 512, one thing changed")
    axes.tick_params(axis="y", labelsize=8)


def draw(found, path):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    _curves(left, found, list(texts.GRID))
    _bars(right, found, list(texts.GRID))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
