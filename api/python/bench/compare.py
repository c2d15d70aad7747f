# SPDX-License-Identifier: Apache-2.0
"""The cost of a call in Python beside C++: the same calls in alternating blocks, a store in memory.

    cmake --build build/release --target cairn_python cairn_python_calls
    PYTHONPATH=build/release/python build/python/bin/python -P api/python/bench/compare.py build/release/bin/cairn_python_calls

Prints, for each size of an append, the median times and the ratio of C++ to Python (1: as fast). The goals:
from 1 MiB up 0.9, and for one token at most 15 microseconds more.
"""

import statistics
import subprocess
import sys
import time

import numpy as np

import cairn

BLOCKS = 7


def block(tokens, appends):
    """(nanoseconds an append, a restore), as calls.cc measures them."""
    spec = cairn.ModelSpec.of("bench", layers=16, kv_heads=4, head_dim=64, dtype="bf16")
    with cairn.Store(":memory:", create_if_missing=True) as store:
        branch = store.create_branch(store.register_model(spec))
        held = cairn.KvTensors(spec, [np.full((tokens, 4, 64), 7, np.uint16) for _ in range(32)])
        ids = np.full(tokens, 5, np.uint32)
        begin = time.perf_counter_ns()
        for i in range(appends):
            branch.append(ids, held.view(i * tokens, tokens), durability="memory")
        append = (time.perf_counter_ns() - begin) / appends
        begin = time.perf_counter_ns()
        for i in range(appends):
            branch.restore(held.view(i * tokens, tokens), begin=i * tokens, end=(i + 1) * tokens)
        return append, (time.perf_counter_ns() - begin) / appends


def main():
    program = sys.argv[1]
    print(f"{'KV':>8}  {'call':8} {'C++ us':>10} {'Python us':>10} {'C++ / Python':>13} {'more us':>8}")
    for tokens, appends in ((1, 2000), (64, 100), (256, 30), (1024, 8)):
        times = {"C++": [], "Python": []}
        block(tokens, appends)  # As calls.cc begins.
        for _ in range(BLOCKS):
            times["C++"].append([float(x) for x in subprocess.check_output([program, str(tokens), str(appends)]).split()])
            times["Python"].append(block(tokens, appends))
        for column, call in enumerate(("append", "restore")):
            plain, python = (statistics.median(one[column] for one in times[key]) / 1e3 for key in ("C++", "Python"))
            size = f"{tokens * 16} KiB" if tokens < 64 else f"{tokens // 64} MiB"
            print(f"{size:>8}  {call:8} {plain:10.1f} {python:10.1f} {plain / python:13.2f} {python - plain:8.1f}")


if __name__ == "__main__":
    main()
