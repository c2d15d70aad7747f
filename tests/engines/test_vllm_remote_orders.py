# SPDX-License-Identifier: Apache-2.0
"""Property: whatever the order in which requests come, are computed, end, are aborted, in which ranks do what they are
told, and whatever copies and restores fail, all slots come back, all blocks are freed once nobody touches them, what is
loaded is what the model has, no append lacks a rank, and no slot is read before all of it was written.
Method: vllm_remote_driver.py and vllm_ranks_driver.py under a model of vLLM's scheduler with two steps in flight, which
gives freed blocks to others at once; random orders from seeds."""

import collections
import dataclasses
import random
from typing import Any

import pytest
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

import cairn
from vllm_driver import BLOCK, BLOCKS, SHAPE, Scheduled, config_of, request_of, seen
from vllm_ranks_driver import RanksEngine
from vllm_remote_driver import RemoteEngine, sent

TABLE = 6  # Blocks of a request.
STEPS, REQUESTS = 400, 60
AREA = 1 << 15  # Slots of 10 tokens.


@dataclasses.dataclass
class Running:
    request: Any
    tables: tuple
    loading: bool
    in_flight: int = 0


@dataclasses.dataclass
class Step:
    meta: Any
    scheduled: list
    outputs: list  # Of each rank; None: it has not done it yet.


class Scheduler:
    """As much of vLLM's as matters here."""

    def __init__(self, engine, seed):
        self.engine, self.draw = engine, random.Random(seed)
        self.free = set(range(1, BLOCKS))
        self.running, self.held, self.loading_over = {}, {}, {}
        self.deferred = []  # (request, blocks), of which a step is in flight.
        self.queue = collections.deque()
        self.count = self.loaded = 0
        self.families = [[self.draw.randrange(97) for _ in range(TABLE * BLOCK)] for _ in range(3)]

    def add(self):
        if len(self.free) < TABLE or self.count == REQUESTS:
            return
        blocks = self.draw.sample(sorted(self.free), TABLE)
        self.free -= set(blocks)
        self.count += 1
        family, length = self.draw.choice(self.families), self.draw.randrange(66, TABLE * BLOCK - 8)
        prompt = [*family[:length - 2], self.draw.randrange(97), self.draw.randrange(97)]
        request = request_of(f"r{self.count}", prompt)
        loaded = self.engine.add(request, (blocks,))
        self.running[request.request_id] = Running(request, (blocks,), loaded > 0)

    def schedule(self):
        scheduled = []
        for name, one in self.running.items():
            full = one.request.num_tokens == TABLE * BLOCK
            if one.loading or one.in_flight or full or self.draw.random() < 0.3:
                continue
            done = one.request.num_computed_tokens
            count = min(one.request.num_tokens - done, self.draw.choice((1, 20, 50, 200)))
            one.in_flight = count
            scheduled.append(Scheduled(name, done, count, one.tables, seen(one.request)[:done + count]))
        meta = sent(self.engine.scheduler.build_connector_meta(self.engine.output_of(scheduled, [])))
        self.queue.append(Step(meta, scheduled, [None] * len(self.engine.workers)))

    def work(self, number):
        """A rank does the first step that it has not done."""
        for step in self.queue:
            if step.outputs[number] is None:
                step.outputs[number] = self.engine.run_rank(number, step.meta, step.scheduled)
                return

    def process(self):
        """The first step's output comes back."""
        while None in self.queue[0].outputs:
            self.work(self.draw.randrange(len(self.engine.workers)))
        step = self.queue.popleft()
        scheduled = step.scheduled
        before = self.engine.bad, self.engine.received, self.engine.released
        self.engine.bad, self.engine.received, self.engine.released = set(), set(), set()
        self.engine.give(self.engine.together(step.outputs))
        for one in scheduled:
            running = self.running.get(one.name)
            if running is not None:
                running.in_flight = 0
                running.request.num_computed_tokens = one.computed + one.count
                if running.request.num_computed_tokens == running.request.num_tokens:
                    running.request.append_output_token_ids(self.draw.randrange(97))
        for name in self.engine.received:
            self._received(name)
        for name in self.engine.released:
            self._free(*self.held.pop(name))
        self.engine.bad, self.engine.received, self.engine.released = (
            old | new for old, new in zip(before, (self.engine.bad, self.engine.received, self.engine.released)))
        names = {one.name for step in self.queue for one in step.scheduled}
        for name, blocks in self.deferred:
            if name not in names:
                self.free |= set(blocks)
        self.deferred = [(name, blocks) for name, blocks in self.deferred if name in names]

    def _received(self, name):
        if name in self.loading_over:
            self._free(*self.loading_over.pop(name))
            return
        one = self.running[name]
        one.loading = False
        table = one.tables[0]
        bad = [table.index(block) for block in self.engine.bad if block in table]
        if bad:
            one.request.num_computed_tokens = min(bad) * BLOCK
        done = one.request.num_computed_tokens
        self.loaded += done
        if done:
            tokens = seen(one.request)[:done]
            assert torch.equal(self.engine.read(done, one.tables), self.engine.rows(tokens, 0)), name

    def end(self):
        if not self.running:
            return
        name = self.draw.choice(sorted(self.running))
        one = self.running[name]
        if one.request.num_output_tokens < 3 and self.draw.random() < 0.8:
            return
        del self.running[name]
        one.request.status = RequestStatus.FINISHED_ABORTED if one.request.num_output_tokens < 3 \
            else RequestStatus.FINISHED_STOPPED
        held, _ = self.engine.scheduler.request_finished_all_groups(one.request, one.tables)
        if one.loading:
            self.loading_over[name] = name, one.tables[0]
        elif held:
            self.held[name] = name, one.tables[0]
        else:
            self._free(name, one.tables[0])

    def _free(self, name, blocks):
        """Behind the steps in flight that compute them, and no later."""
        if any(one.name == name for step in self.queue for one in step.scheduled):
            self.deferred.append((name, blocks))
        else:
            self.free |= set(blocks)


class Watch:
    """Which ranks have copied rows of which use into its slot, and which uses have their rows from the store."""

    def __init__(self, engine, monkeypatch):
        self.engine, self.copied, self.appends, self.loads = engine, collections.defaultdict(set), 0, 0
        transfers = engine.transfers
        self.append, self.restored = transfers._append, transfers._restored
        self.written = set()
        monkeypatch.setattr(transfers, "_append", self.check_append)
        monkeypatch.setattr(transfers, "_restored", self.note_restored)

    def check_append(self, saving):
        for part in saving.parts if saving.copied else ():
            self.appends += 1
            assert self.copied[part.use.slot, part.use.number] == set(range(len(self.engine.workers))), "an append lacks a rank"
        self.append(saving)

    def note_restored(self, part):
        copies = self.restored(part)
        self.written.update((copy.slot, copy.use) for copy in copies)
        return copies

    def of_rank(self, number, side, monkeypatch):
        save, load = side._save, side._load

        def note_save(copy):
            save(copy)
            self.copied[copy.slot, copy.use].add(number)

        def check_load(copy):
            self.loads += 1
            assert (copy.slot, copy.use) in self.written, "a slot is read that nobody has written"
            load(copy)

        monkeypatch.setattr(side, "_save", note_save)
        monkeypatch.setattr(side, "_load", check_load)


@pytest.mark.parametrize("degrees, seed", [((1, 1), 0), ((1, 1), 1), ((1, 1), 2), ((2, 1), 3), ((2, 1), 4), ((1, 2), 5)])
def test_orders(exported, monkeypatch, tmp_path, degrees, seed):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    engine = RemoteEngine(config, cache, shared_memory_bytes=AREA) if degrees == (1, 1) else \
        RanksEngine(config, cache, *degrees, shared_memory_bytes=AREA)
    vllm, faults, watch = Scheduler(engine, seed), random.Random(seed), Watch(engine, monkeypatch)

    def sometimes(call, share):
        def run(*arguments):
            if faults.random() < share:
                raise cairn.IoError("not now")
            return call(*arguments)
        return run

    monkeypatch.setattr(engine.transfers, "_bring_rows", sometimes(engine.transfers._bring_rows, 0.02))
    for number, worker in enumerate(engine.workers):
        monkeypatch.setattr(worker._side, "_copy_rows", sometimes(worker._side._copy_rows, 0.05 / len(engine.workers)))
        watch.of_rank(number, worker._side, monkeypatch)
    for _ in range(STEPS):
        vllm.draw.choice((vllm.add, vllm.end, vllm.schedule, vllm.schedule))()
        for _ in range(vllm.draw.randrange(3)):
            vllm.work(vllm.draw.randrange(len(engine.workers)))
        while len(vllm.queue) > vllm.draw.choice((0, 1, 1)):
            vllm.process()
    for _ in range(STEPS):
        vllm.end()
        vllm.schedule()
        while vllm.queue:
            vllm.process()
    assert not vllm.running and not engine.scheduler.has_pending_push_work(), "it never comes to an end"
    assert not vllm.held and not vllm.loading_over and vllm.free == set(range(1, BLOCKS))
    counts = engine.transfers.slots.counts()
    assert counts["free"] == counts["slots"] and counts["strange"] == 0 and counts["failed"] > 0
    assert engine.store.metrics()["leases"] == 0 and not engine.scheduler._side.sequences
    assert vllm.count > 20 and vllm.loaded > 200 and watch.appends > 20 and watch.loads > 20
    engine.close()
