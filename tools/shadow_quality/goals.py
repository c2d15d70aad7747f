# SPDX-License-Identifier: Apache-2.0
"""The goals of a shadow, beside the measurements."""

from . import plan, report, texts
from .memory import LLAMA_3_8B, Geometry, device_bytes
from .oracle import Spec

_SMOLLM2 = Geometry(30, 3, 64)
_CONTEXT = 122 << 10
_PUBLISHED = ("published, 48 outliers", "published, 6 outliers")


def _row(goal, bound, measured, less=True, digits=3):
    wanted = f"{'<=' if less else '>='} {bound:.3g}"
    if measured is None:
        return [goal, wanted, "-", "not measured"]
    met = measured <= bound if less else measured >= bound
    return [goal, wanted, report.number(measured, digits), "yes" if met else "**no**"]


def _ratio(a, b):
    return None if a is None or b is None else a / b


def _memory_ratio(published):
    ours = device_bytes(plan.DEFAULT, 4096, _SMOLLM2, 512, buffer=2)
    return ours / device_bytes(plan.policy(published).spec, 4096, _SMOLLM2, 512, keys_kept=True)


def of(found):
    """(head, rows) of a table."""
    short = report.SHORT
    kl = found.mean(short, "default", "kl")
    rows = [_row("KL at 4K, budget 512, nats", 0.02, kl, digits=4),
            _row("agreement at 4K, budget 512", 0.85, found.mean(short, "default", "agreement"), less=False)]
    for name in _PUBLISHED:
        rows.append(_row(f"KL over that of {name}, budget 512", 1 / 3, _ratio(kl, found.mean(short, name, "kl"))))
        rows.append(_row(f"device memory over that of {name}, 4K, our buffer twice the selection", 1.25,
                         _memory_ratio(name)))
    for way in ("question in the prompt", "question as steps"):
        losses = [value for values in found.needle(way, "default", 256).values() for value in values]
        by_depth = [report.mean(values) for values in found.needle(way, "default", 256).values()]
        whole = None not in losses
        rows.append(_row(f"needle, {way}, budget 256: worst depth, mean of {len(texts.NEEDLES)} texts, nats a token",
                         0.5, max(by_depth) if whole else None, digits=2))
        rows.append(_row(f"needle, {way}, budget 256: worst of {len(losses)}", 0.5, max(losses) if whole else None,
                         digits=2))
    for label, names in (("4K", short), ("8K", report.LONG)):
        hits = [found.run(name, "default").get("hits") for name in names]
        faults = [found.run(name, "default").get("faults") for name in names]
        rows.append(_row(f"hits of an LRU of twice the selection, {label}", 0.8,
                         report.mean([one["lru"]["2"] for one in hits]) if all(hits) else None, less=False))
        rows += [_row(f"disk faults, a quarter in DRAM, pages of 64 KiB, {label}, {way}", 0.08,
                      report.mean([one[f"{way}, 64 KiB"]["share"] for one in faults]) if all(faults) else None)
                 for way in ("demand", "prefetch")]
    full = LLAMA_3_8B.full(_CONTEXT)
    for bound, keys, spec in ((5, "int4 keys", plan.DEFAULT), (6, "low rank", _low_rank())):
        rows.append(_row(f"full KV over device memory, 122K, {keys}", bound, full / _at_122k(spec), less=False,
                         digits=2))
    return ["goal", "bound", "measured", "met"], rows


def _low_rank():
    return Spec(keys="low rank", rank=160)


def _at_122k(spec, buffer=2):
    return device_bytes(spec, _CONTEXT, LLAMA_3_8B, 2048, buffer)


def memory():
    """(head, rows): Llama-3-8B, 122K tokens, one sequence, budget 2048."""
    full = LLAMA_3_8B.full(_CONTEXT)
    published = Spec.published(LLAMA_3_8B.kv_heads * LLAMA_3_8B.channels)
    rows = [["default", buffer, _at_122k(plan.DEFAULT, buffer)] for buffer in (1, 2, 4)]
    rows += [["default, keys low rank 160", 2, _at_122k(_low_rank())],
             ["default, keys exact", 2, _at_122k(Spec(keys="exact"))],
             ["published", 1, device_bytes(published, _CONTEXT, LLAMA_3_8B, 2048, keys_kept=True)]]
    return (["Llama-3-8B, 122K tokens, budget 2048", "buffer, times the selection", "GiB", "full KV over it"],
            [[name, buffer, f"{size / 2**30:.2f}", f"{full / size:.2f}"] for name, buffer, size in rows])
