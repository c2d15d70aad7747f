# SPDX-License-Identifier: Apache-2.0
"""The work: prompts are put into the store, then measured; each result is kept when it is made. Each text, and the
needles in it, have processes of their own, which give back at their end what an allocator holds on to."""

import concurrent.futures
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import resource
import time

import numpy
import torch

from . import needle, plan, texts, traces
from .model import Language, digest
from .prompts import Prompts
from .run import Runner

_CODE = ("model.py", "needle.py", "oracle.py", "plan.py", "policies.py", "prompts.py", "run.py", "traces.py")
_CHECKED_LAYERS = (0, 14, 29)  # Their choices are compared with the oracle's own arithmetic, of the default.
_PAGES = (64 << 10, 16 << 10, 4 << 10)  # Bytes of values that DRAM takes at a time.
_IN_DRAM = 0.25  # DRAM holds this part of all values.
_BUFFER = 2  # Times the selection, before DRAM.
_WAYS = {"question as steps": False, "question in the prompt": True}  # Whether it is in the prompt.
_digest = functools.cache(digest)


def tasks():
    """The work of one process: units, ("text", name) or ("needle", name, depth). The grid, which can wait, comes last."""
    names = sorted((source.name for source in texts.SOURCES), key=lambda name: name in texts.GRID)
    return ([[("needle", name, depth) for depth in plan.DEPTHS] for name in texts.NEEDLES] +
            [[("text", name)] for name in names])


def _source(name):
    return next(source for source in texts.SOURCES if source.name == name)


def _runs(unit):
    """[(what the result is called, way or None, policy, budget)]"""
    if unit[0] == "text":
        return [(f"{name} @ {budget}", None, name, budget)
                for name, budget in plan.runs_of(_source(unit[1]), unit[1] in texts.GRID)]
    return [(f"{way}: {name} @ {budget}", way, name, budget)
            for way in _WAYS for name, budgets in plan.SEEKERS.items() for budget in budgets]


class Results:
    """The measurements of a unit, in a file that survives a kill. Other code or texts: other results.
    files: of code beside this study's own."""

    def __init__(self, cache, unit, text_digest, files=()):
        here = pathlib.Path(__file__).parent
        self._unit = unit
        key = hashlib.sha256(f"{_digest()} {text_digest} {plan.STEPS}".encode())
        for path in (*(here / name for name in _CODE), *files):
            key.update(path.read_bytes())
        folder = cache / "results"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{'-'.join(map(str, unit))}-{key.hexdigest()[:12]}.json"
        self.of = json.loads(self.path.read_text()) if self.path.exists() else {}

    def missing(self):
        """Of _runs."""
        return [run for run in _runs(self._unit) if run[0] not in self.of]

    def keep(self, name, values):
        self.of[name] = values
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.of, indent=1))
        os.replace(partial, self.path)


class Bench:
    """A process's model, texts and store."""

    def __init__(self, cache, read_only, threads):
        torch.set_grad_enabled(False)
        torch.set_num_threads(threads)
        self.cache = cache
        self.language = Language()
        self.prompts = Prompts(cache / "kv.store", self.language, read_only)

    def text(self, name):
        return texts.cut(_source(name), self.cache, self.language.encode, plan.STEPS)

    def hidden(self, name, depth):
        text = self.text(name)
        return needle.hide(text.prompt, depth, self.language.encode, text.source.tokens), text

    def keep(self, unit):
        """The unit's prompts are in the store behind this. How many tokens were computed."""
        if unit[0] == "text":
            return self.prompts.keep(self.text(unit[1]).prompt)
        one, _ = self.hidden(*unit[1:])
        return sum(self.prompts.keep(one.asked(in_prompt)[0]) for in_prompt in (False, True))

    def measure(self, unit, deadline):
        """Results of a unit, as far as the time goes."""
        if unit[0] == "text":
            return self._text(unit, deadline)
        return self._needle(unit, deadline)

    def _text(self, unit, deadline):
        text = self.text(unit[1])
        results = Results(self.cache, unit, text.digest)
        missing = results.missing()
        if not missing or time.time() > deadline:
            return
        results.keep("text", {"version": text.version, "digest": text.digest})
        runner = Runner(self.language, self.prompts.restore(text.prompt))
        forced = text.forced[:plan.STEPS]
        full = runner.full(forced)
        likely = full.log_probabilities(text.forced[1:plan.STEPS + 1])
        results.keep("full", {"nll": float(-likely.mean())})
        for called, _, name, budget in missing:
            if time.time() > deadline:
                return
            began = time.process_time()
            checked = _CHECKED_LAYERS if name == "default" and unit[1] in texts.GRID else ()
            run = runner.run(plan.policy(name), forced, budget, checked)
            kl, agreement = run.compared(full)
            values = {"kl": kl, "agreement": agreement, "mass": run.mass, "error": run.error, "tokens": run.tokens,
                      "rank": run.rank, "exact_choices": run.exact_choices}
            if name == "default":
                values |= self._caches(run, text, budget, results.path.with_suffix(f".{budget}.npz"))
            results.keep(called, values | {"cpu_seconds": time.process_time() - began})

    def _caches(self, run, text, budget, kept):
        """Hits and faults of what the default chose; the ids are kept beside the results."""
        chunk = plan.DEFAULT.chunk_tokens
        numpy.savez_compressed(kept, *(ids.numpy().astype(numpy.uint16) for ids in run.chosen))
        trace = traces.trace_of(run.chosen, text.source.tokens // chunk)
        selected = budget // chunk
        buffers = {size: traces.lru_residents(trace, size * selected) for size in (1, 2, 3, 4)}
        hits = {"lru": {size: traces.hit_rate(trace, held) for size, held in buffers.items()},
                "best": {size: traces.hit_rate(trace, traces.best_residents(trace, size * selected))
                         for size in buffers}}
        chunk_bytes = chunk * self.language.head_dim * 2
        faults = {}
        for size, way in itertools.product(_PAGES, ("demand", "prefetch")):
            share, pages = traces.disk_faults(trace, buffers[_BUFFER], size // chunk_bytes, _IN_DRAM, way == "prefetch")
            faults[f"{way}, {size >> 10} KiB"] = {"share": float(share), "bytes": pages * size}
        return {"hits": hits, "faults": faults, "touched": float(trace.any(0).mean())}

    def _needle(self, unit, deadline):
        one, text = self.hidden(*unit[1:])
        results = Results(self.cache, unit, text.digest)
        for way, in_prompt in _WAYS.items():
            prompt, steps, digits, answer = one.asked(in_prompt)
            missing = [run for run in results.missing() if run[1] == way]
            if not missing or time.time() > deadline:
                continue
            runner = Runner(self.language, self.prompts.restore(prompt))
            of_digits = lambda run: run.log_probabilities([0] * (len(steps) - digits) + answer)[-digits:]
            full = of_digits(runner.full(steps))
            for called, _, name, budget in missing:
                if time.time() > deadline:
                    return
                found = of_digits(runner.run(plan.policy(name), steps, budget))
                results.keep(called, {"full": float(full.mean()), "loss": float((full - found).mean())})


def _keep(cache, units, deadline):
    bench = Bench(cache, read_only=False, threads=_cores())
    for unit in units:
        began = time.time()
        if time.time() < deadline and (tokens := bench.keep(unit)):
            print("kept", *unit, f"{tokens} tokens computed in {time.time() - began:.0f} s", flush=True)
    bench.prompts.close()


def _measure(cache, units, deadline):
    bench = Bench(cache, read_only=True, threads=1)
    for unit in units:
        bench.measure(unit, deadline)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _cores():
    return len(os.sched_getaffinity(0))


def processes(most):
    """A pool, of which each task has a process of its own."""
    return concurrent.futures.ProcessPoolExecutor(most, multiprocessing.get_context("spawn"), max_tasks_per_child=1)


def digests(cache, encode):
    """{text: of its ids}"""
    return {source.name: texts.cut(source, cache, encode, plan.STEPS).digest for source in texts.SOURCES}


def measure_all(cache, deadline, text_digests):
    """True: everything is stored. A process resumes another one's work from the store, of which one alone at a time may
    be open for writing."""
    unfinished = lambda: [units for units in tasks()
                          if any(Results(cache, unit, text_digests[unit[1]]).missing() for unit in units)]
    with processes(1) as pool:
        for units in unfinished():
            pool.submit(_keep, cache, units, deadline).result()
    with processes(_cores()) as pool:
        running = {pool.submit(_measure, cache, units, deadline): units for units in unfinished()}
        for done in concurrent.futures.as_completed(running):
            print("measured", *running[done][0][:2], f"with {done.result() / 2**30:.1f} GiB at most", flush=True)
    return not unfinished()


def results_of(cache, text_digests):
    """{unit: what was measured of it}"""
    return {unit: Results(cache, unit, text_digests[unit[1]]).of for unit in itertools.chain(*tasks())}
