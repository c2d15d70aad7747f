# SPDX-License-Identifier: Apache-2.0
"""The worker's half: from the store into blocks layer by layer, and from blocks into the store."""

import concurrent.futures
import dataclasses
import time
from typing import Any

import cairn
import torch

from ._vllm_layout import NULL_BLOCK, Pool
from ._vllm_messages import Start, finish

LOADS_AT_ONCE = 4  # Each is a thread that waits for the store, whose own threads do the work.
POLL_SECONDS = 50e-6  # A layer is some hundred microseconds of work.


@dataclasses.dataclass
class Load:
    start: Start
    progress: Any
    future: Any


class WorkerSide:
    def __init__(self, engine, layout):
        self.engine, self.sequences, self.layout = engine, engine.sequences, layout
        self.pool = None
        self.threads = concurrent.futures.ThreadPoolExecutor(LOADS_AT_ONCE, "cairn-load")
        self.running = []
        self.bad_blocks = set()
        self.received, self.failed = set(), set()

    def register(self, tensors):
        self.pool = Pool(self.layout, tensors)
        self.engine.worker = self

    def start_loads(self, meta):
        for start in meta.starts:
            progress = cairn.LayerProgress(len(self.pool.index))
            self.running.append(Load(start, progress, self._load(start, progress)))

    def _load(self, start, progress):
        """Its future. Weights are looked at here, behind the loading of adapters of this step."""
        try:
            self.sequences[start.request_id].check_weights()
        except cairn.Conflict as error:
            future = concurrent.futures.Future()
            future.set_exception(error)
            return future
        return self.threads.submit(self._restore, start, start.begin, start.end, progress, self._event())

    def _restore(self, start, begin, end, progress=None, event=None):
        into = self.pool.view(begin, end, start.tables)
        start.hit.restore(into, begin=begin, end=end, require_kv=True, progress=progress, gpu_ready=_handle(event))

    def wait_for_layer(self, name):
        for load in self.running:
            while not load.future.done() and load.progress[self.pool.index[name]] not in ("complete", "failed"):
                time.sleep(POLL_SECONDS)

    def end_step(self, meta):
        self._end_loads()
        self.engine.unsound.step(meta.computed, self.layout.groups[0].block)
        for save in meta.saves:
            self._save(save)

    def end_request(self, end):
        """Saves what is left of a request from its blocks, which are its own until this returns. All steps that computed
        them are over: their tokens are known. The last one may have broken off within its loads."""
        self._end_loads()
        if end.save is not None:
            self._save(end.save)
        finish(self.sequences, end)

    def _end_loads(self):
        running, self.running = self.running, []
        for load in running:
            self._end(load)

    def _end(self, load):
        start, good = load.start, load.start.end
        try:
            load.future.result()
        except cairn.Error as error:
            # Of other weights or tokens nothing is right.
            good = start.begin if isinstance(error, cairn.Conflict) else self._salvage(start)
            self.engine.shared.held.failed(f"loaded {good - start.begin} of {start.end - start.begin} tokens of "
                                           f"request {start.request_id}", error)
            self.sequences[start.request_id].restart(good)
        self._report(start, good)
        self._release(start)

    def _salvage(self, start):
        """Loads block by block up to the first that cannot be; windows and states are not restored in pieces. The last
        block is never loaded: what the model has computed behind it is nonsense, so vLLM has to do that step again."""
        good, block = start.begin, self.layout.groups[0].block
        if self.layout.asynchronous or self.layout.groups[0].window:
            return good
        while good + block < start.end:
            try:
                self._restore(start, good, good + block)
            except cairn.Error:
                break
            good += block
        return good

    def _report(self, start, good):
        """To vLLM, which has what lies behind `good` computed again, and for the saves until then."""
        if self.layout.asynchronous:
            self.received.add(start.request_id)
            if good < start.end:
                self.failed.add(start.request_id)
            return
        block = self.layout.groups[0].block
        first, end = start.begin // block, -(-start.end // block)
        sound_end = end if good == start.end else good // block
        bad = [one for one in start.tables[0][sound_end:end] if one != NULL_BLOCK]
        self.engine.unsound.loaded(start.tables[0][first:sound_end], bad)
        self.bad_blocks.update(bad)

    def _release(self, start):
        try:
            start.hit.release()
        except cairn.Error as error:
            self.engine.shared.held.failed(f"leaves a lease of request {start.request_id} to its time", error)

    def _save(self, save):
        sequence = self.sequences.get(save.request_id)
        if sequence is None or save.kv_end <= sequence.length or self.engine.unsound.touches(save.tables[0]):
            return
        event = self._event()
        sequence.save(save, lambda begin, end: self.pool.view(begin, end, save.tables, states=end == save.kv_end),
                      gpu_ready=_handle(event))

    def _event(self):
        """Of CUDA memory: behind what the current stream was given so far."""
        return torch.cuda.current_stream().record_event() if self.pool.device.type == "cuda" else None

    def take_results(self):
        """Requests whose blocks were held, which none are; that were loaded; and those of these that were not loaded as
        a whole."""
        received, failed = self.received, self.failed
        self.received, self.failed = set(), set()
        return set(), received, failed

    def take_reports(self):
        """Nothing: the scheduler shares this process."""
        return None

    def take_bad_blocks(self):
        bad, self.bad_blocks = self.bad_blocks, set()
        return bad

    def close(self):
        self._end_loads()
        self.engine.worker = None
        self.threads.shutdown()


def _handle(event):
    return 0 if event is None else event.cuda_event
