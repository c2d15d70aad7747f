# SPDX-License-Identifier: Apache-2.0
"""The worker's half: from the store into blocks layer by layer, and from blocks into the store."""

import concurrent.futures
import dataclasses
import time
from typing import Any

import cairn
import torch

from ._vllm_layout import Pool
from ._vllm_messages import Start, finish
from ._vllm_sequence import logger

LOADS_AT_ONCE = 4  # Each is a thread that waits for the store, whose own threads do the work.
POLL_SECONDS = 50e-6  # A layer is some hundred microseconds of work.


@dataclasses.dataclass
class Load:
    start: Start
    progress: Any
    future: Any


class WorkerSide:
    def __init__(self, engine, layout, asynchronous):
        self.engine, self.sequences, self.layout, self.asynchronous = engine, engine.sequences, layout, asynchronous
        self.pool = None
        self.threads = concurrent.futures.ThreadPoolExecutor(LOADS_AT_ONCE, "cairn-load")
        self.running = []
        self.bad_blocks = set()
        self.sent, self.received, self.failed = set(), set(), set()

    def register(self, tensors):
        self.pool = Pool(self.layout, tensors)
        self.engine.worker = self

    def start_loads(self, meta):
        for start in meta.starts:
            if start.end <= start.begin:
                self._begin(start, start.base)
                continue
            progress = cairn.LayerProgress(len(self.pool.index))
            future = self.threads.submit(self._restore, start, start.begin, start.end, progress, self._event())
            self.running.append(Load(start, progress, future))

    def _restore(self, start, begin, end, progress=None, event=None):
        into = self.pool.view(begin, end, start.tables)
        start.hit.restore(into, begin=begin, end=end, require_kv=True, progress=progress, gpu_ready=_handle(event))

    def wait_for_layer(self, name):
        for load in self.running:
            while not load.future.done() and load.progress[self.pool.index[name]] not in ("complete", "failed"):
                time.sleep(POLL_SECONDS)

    def end_step(self, meta):
        damaged = self._end_loads()
        for save in meta.saves:
            # Behind a load that failed the model has computed nonsense: vLLM does that step again.
            if save.request_id not in damaged:
                self._save(save)
        for end in meta.ends:
            self.end_request(end)
        return damaged

    def end_requests(self, ends):
        """Those that no step tells of; the last one may have broken off within its loads."""
        damaged = self._end_loads()
        for end in ends:
            self.end_request(dataclasses.replace(end, save=None) if end.request_id in damaged else end)

    def end_request(self, end):
        if end.save is not None:
            self._save(end.save)
            self.sent.add(end.request_id)
        finish(self.sequences, end)

    def _end_loads(self):
        """The requests whose load failed."""
        running, self.running = self.running, []
        return {load.start.request_id for load in running if self._end(load) < load.start.end}

    def _end(self, load):
        """Up to where the load is right."""
        start, good = load.start, load.start.end
        try:
            load.future.result()
        except cairn.Error as error:
            good = self._salvage(start)
            logger.warning("Cairn: request %s: loaded %d of %d tokens: %s", start.request_id, good - start.begin,
                           start.end - start.begin, error)
            self._tell(start, good)
            self.sequences[start.request_id].damaged = True
        if self.asynchronous:
            self.received.add(start.request_id)
        self._begin(start, min(start.base, good))
        return good

    def _salvage(self, start):
        """Loads block by block up to the first that cannot be; windows are not restored in pieces."""
        good, block = start.begin, self.layout.groups[0].block
        if len(self.layout.groups) > 1 or self.layout.groups[0].window:
            return good
        while good < start.end:
            end = min(good + block, start.end)
            try:
                self._restore(start, good, end)
            except cairn.Error:
                break
            good = end
        return good

    def _tell(self, start, good):
        if self.asynchronous:
            self.failed.add(start.request_id)
            return
        block = self.layout.groups[0].block
        self.bad_blocks.update(start.tables[0][good // block:-(-start.end // block)])

    def _begin(self, start, base):
        """Its branch begins with the first `base` tokens of the hit, which needs no lease any more."""
        sequence = self.sequences.get(start.request_id)
        if sequence is not None:
            if base < start.base:
                sequence.restart()
            sequence.begin(start.hit, base)
        try:
            start.hit.release()
        except cairn.Error as error:
            logger.warning("Cairn: request %s: %s", start.request_id, error)

    def _save(self, save):
        sequence = self.sequences.get(save.request_id)
        if sequence is None or save.kv_end <= sequence.length or sequence.broken:
            return
        if sequence.length < save.first:
            return  # It began again since: the next step saves it all.
        view = self.pool.view(sequence.length, save.kv_end, save.tables)
        known = save.tokens[sequence.length - save.first:]
        event = self._event()
        sequence.append(known, view, save.drawn, gpu_ready=_handle(event))

    def _event(self):
        """Of CUDA memory: behind what the current stream was given so far."""
        return torch.cuda.current_stream().record_event() if self.pool.device.type == "cuda" else None

    def take_results(self):
        sent, received, failed = self.sent, self.received, self.failed
        self.sent, self.received, self.failed = set(), set(), set()
        return sent, received, failed

    def take_bad_blocks(self):
        bad, self.bad_blocks = self.bad_blocks, set()
        return bad

    def close(self):
        self.engine.worker = None
        self.threads.shutdown()


def _handle(event):
    return 0 if event is None else event.cuda_event
