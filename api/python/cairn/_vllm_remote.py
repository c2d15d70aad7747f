# SPDX-License-Identifier: Apache-2.0
"""The scheduler's half where the model runs in other processes: it has the store, and lends slots of shared memory."""

import contextlib
import dataclasses
import time

import cairn

from ._vllm_messages import End, finish
from ._vllm_metrics import Stats
from ._vllm_scheduler import SchedulerSide
from ._vllm_sequence import FOUND_FROM, logger
from ._vllm_slot_messages import SlotStep
from ._vllm_transfers import NotCopied, Transfers

IDLE_SECONDS = 0.005  # A step that computes nothing waits for a restore, instead of turning in vain.


@dataclasses.dataclass
class Ending:
    """A request that is over, whose blocks vLLM keeps until what is left of it is copied."""

    end: End
    until: float


class RemoteScheduler(SchedulerSide):
    """`area` is a cairn.SharedMemory, cut as `shape` says; `places`: of each rank, as in SlotStep."""

    def __init__(self, engine, layout, transfer, options, length_max, area, shape, places):
        super().__init__(engine, layout, transfer, options, length_max)
        self.area, self.shape, self.places = area, shape, places
        self.transfers = Transfers(layout, shape, area.bytes, len(places), self._load_ended, self.shared.held.failed)
        self.ending = {}  # By request.
        self.loading = set()  # Requests that vLLM was not told of yet that their load is over.
        self.off = False  # A rank does without the area.
        self.given_up = 0  # Holds, since take_stats().
        self._released = []

    @property
    def busy(self):
        """Whether steps are needed although no request is left."""
        return bool(self.ending or self._released or self.transfers.busy)

    def matched(self, request, computed):
        return 0 if self.off else super().matched(request, computed)

    def allocated(self, request, blocks, tokens):
        super().allocated(request, blocks, tokens)
        starts, self.starts = self.starts, []
        for start in starts:
            self.loading.add(start.request_id)
            self.transfers.load(start, self.sequences[start.request_id].check_weights)

    def step(self, output):
        meta = SlotStep(self.area.address, self.shape.slot_bytes, self.shape.capacity, self.places)
        idle = output.total_num_scheduled_tokens == 0 and not self.ending
        meta.loads, meta.over = self.transfers.tell(IDLE_SECONDS if idle else 0)
        if self.saves and not self.off:
            for save in self._due(output):
                meta.saves += self._copies(save)
        for request_id, ending in list(self.ending.items()):
            meta.saves += self._settle(request_id, ending)
        meta.released, self._released = self._released, []
        return meta

    def _is_saving(self, request_id):
        return request_id in self.transfers.saves

    def _copies(self, save):
        """What ranks are to copy for it in this step; nothing, where it has to wait or the store has all of it."""
        sequence, key = self.sequences[save.request_id], None
        if sequence.follows:
            place = sequence.place
            key = (place.namespace, place.model.id, tuple(save.tokens[:FOUND_FROM]))
            if key in self.transfers.begun:
                return []  # Requests that begin alike save that once: the others look for it behind this.
        begin = self._missing_from(save)
        return self.transfers.save(sequence, save, begin, key) if begin < save.kv_end else []

    def _missing_from(self, save):
        """From where on ranks have to copy; save.kv_end: nothing, since the store has all of it, and the request follows."""
        sequence = self.sequences[save.request_id]
        begin = sequence.wanted_from(save.tokens)
        if begin >= save.kv_end:
            with contextlib.suppress(NotCopied):  # The store has changed in between.
                sequence.save(save, _no_rows)
        return min(begin, save.kv_end)

    def finished(self, request, tables):
        loading = request.request_id in self.loading  # vLLM keeps the blocks until it is told that the load is over.
        if loading:
            self.loading.discard(request.request_id)
            self.transfers.stop(request.request_id)
            self.transfers.give_up(request.request_id)  # Of before it was preempted.
        end = self._end_of(request, tables, saves_tail=not (loading or self.off))
        if end is None:
            return False
        if not self._is_saving(request.request_id) and not (end.save and self._missing_from(end.save) < end.save.kv_end):
            finish(self.sequences, end)
            return False
        self.ending[request.request_id] = Ending(end, time.monotonic() + self.shared.settings.hold_seconds)
        return True

    def _settle(self, request_id, ending):
        """Ends what is left of a request when all of it is copied, or it has waited for too long."""
        copies, over = [], time.monotonic() >= ending.until
        if over:
            self.given_up += 1
            self.shared.held.failed(f"gave up what was left of request {request_id}",
                                    cairn.DeadlineExceeded("blocks were held for hold_seconds"))
            self.transfers.give_up(request_id)
        elif self._is_saving(request_id):
            return []
        elif self._lacks(request_id, ending.end.save):
            copies = self._copies(ending.end.save)
            if copies or self._lacks(request_id, ending.end.save):
                return copies
        finish(self.sequences, ending.end)
        del self.ending[request_id]
        self._released.append(request_id)
        return []

    def _lacks(self, request_id, save):
        sequence = self.sequences[request_id]
        return not (self.off or save is None or sequence.broken or sequence.length >= save.kv_end)

    def took(self, reports, loaded):
        """What ranks say with the output of a step, and the requests whose loads vLLM is told to be over."""
        self.loading.difference_update(loaded)
        for rank, why in reports.refused.items():
            self._refused_by(rank, why)
        for report in reports.reports:
            self.transfers.report(report)

    def _refused_by(self, rank, why):
        if not self.off:
            self.off = True
            logger.error("Cairn: rank %d cannot use the shared memory: %s. Requests go on without Cairn", rank, why)
        self.transfers.rank_gone(rank)

    def _load_ended(self, start, good):
        sequence = self.sequences.get(start.request_id)
        if good < start.end and sequence is not None:
            sequence.restart(good)
        try:
            start.hit.release()
        except cairn.Error as error:
            self.shared.held.failed(f"leaves a lease of request {start.request_id} to its time", error)

    def take_stats(self):
        waits, given_up, self.given_up = self.transfers.take_waits(), self.given_up, 0
        stats = super().take_stats()
        if stats is None and (waits or given_up):
            stats = Stats.of({}, 0, self.shared.held.usable)
        return stats and stats.of_slots(waits, given_up)

    def close(self):
        for ending in self.ending.values():
            finish(self.sequences, ending.end)
        self.ending.clear()
        self.transfers.close()
        super().close()


def _no_rows(begin, end):
    raise NotCopied
