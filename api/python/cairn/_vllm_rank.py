# SPDX-License-Identifier: Apache-2.0
"""The worker's half where the scheduler is another process: it copies rows between its blocks and slots, as it is told.

It has no store. Copies are made between steps, in the order of the messages, so that a block that vLLM gives to another
request in a later step is read before.
"""

import cairn
import torch

from . import _vllm_rotary
from ._errors import described
from ._vllm_layout import NULL_BLOCK, Pool, groups_of
from ._vllm_ranks import layout_of_all, layout_of_rank, spec_of_rank
from ._vllm_slot_memory import SlotMemory, SlotShape
from ._vllm_slot_messages import Handshake, Report, Reports


class RankSide:
    def __init__(self, vllm_config, kv_cache_config, content):
        self.rank = vllm_config.parallel_config.rank
        self.layout = layout_of_rank(groups_of(vllm_config, kv_cache_config), content)
        self.shake = Handshake.of(self.rank, self.layout, _vllm_rotary.described(vllm_config, self.layout))
        self.pool = None
        self.area = self.memory = None  # Not mapped yet.
        self.load_copier = self.save_copier = None  # Between blocks of this rank and slots, which have all layers and heads.
        self.saves = set()  # Numbers of the cache groups that this rank saves.
        self.why = ""  # Why it never will be.
        self.reports = Reports()
        self.failed_parts = {}  # Request -> blocks that were not loaded, of loads that go on.
        self.bad_blocks = set()
        self.sent, self.received, self.failed = set(), set(), set()

    def register(self, tensors):
        self.pool = Pool(self.layout, tensors)
        self.gpus = [cairn.Gpu.open(self.pool.device.index)] if self.pool.device.type == "cuda" else []

    def start_loads(self, meta):
        self._map(meta)
        for copy in meta.loads:
            if not self._copy(copy, self._load):
                self.failed_parts.setdefault(copy.request_id, []).extend(copy.rows[0].blocks)
            if copy.done:
                self._received(copy.request_id, self.failed_parts.pop(copy.request_id, []))
        for over in meta.over:
            self.failed_parts.pop(over.request_id, None)
            self._received(over.request_id, over.bad, over.failed)
        self.sent.update(meta.released)

    def _received(self, request_id, bad, failed=False):
        """To vLLM: the request's load has ended, with these blocks missing. It has blocks named of one group only."""
        self.received.add(request_id)
        if self.layout.asynchronous:
            self.failed.update((request_id,) if failed or bad else ())
        else:
            self.bad_blocks.update(block for block in bad if block != NULL_BLOCK)

    def end_step(self, meta):
        for copy in meta.saves:
            self._copy(copy, self._save)

    def _load(self, copy):
        self._copy_rows(self.load_copier, self.memory.view(copy.slot, copy.first, copy.rows), self.pool.of_rows(copy.rows))

    def _save(self, copy):
        rows = [one for one in copy.rows if one.group in self.saves]
        if rows:  # A window may have left all of them behind, and another rank may save them.
            self._copy_rows(self.save_copier, self.pool.of_rows(rows), self.memory.view(copy.slot, copy.first, rows))

    def _copy_rows(self, copier, source, target):
        """Of CUDA memory: behind what the current stream was given so far."""
        event = torch.cuda.current_stream().record_event() if self.pool.device.type == "cuda" else None
        copier.copy(source, target, gpu_ready=0 if event is None else event.cuda_event)

    def _copy(self, copy, call):
        """Whether it was copied, as is reported."""
        why = self.why
        if not why:
            try:
                call(copy)
            except cairn.Error as error:
                why = described(error)
        self.reports.reports.append(Report(self.rank, copy.slot, copy.use, not why, why))
        return not why

    def _map(self, meta):
        """Once."""
        if self.area is not None or self.why:
            return
        try:
            self.area = cairn.SharedMemory.map(meta.address)
            places = meta.places[self.rank]
            whole, part = layout_of_all(self.layout, places), spec_of_rank(self.layout, places)
            self.memory = SlotMemory(whole, SlotShape(meta.slot_bytes, meta.capacity), self.area.bytes)
            self.load_copier = cairn.KvCopier(whole.spec(), part, gpus=self.gpus)
            self.save_copier = cairn.KvCopier(part, whole.spec(), gpus=self.gpus)
            self.saves = {group.index for group, place in zip(self.layout.groups, places) if place.saves}
        except cairn.Error as error:
            self.why = described(error)
            self.reports.refused[self.rank] = self.why

    def wait_for_layer(self, name):
        """Loads end before the step that needs them begins."""

    def take_results(self):
        """Requests whose blocks nobody reads any more, those that were loaded, and those of them that were not as a
        whole."""
        results = self.sent, self.received, self.failed
        self.sent, self.received, self.failed = set(), set(), set()
        return results

    def take_bad_blocks(self):
        bad, self.bad_blocks = self.bad_blocks, set()
        return bad

    def take_reports(self):
        reports, self.reports = self.reports, Reports()
        return reports if reports.reports or reports.refused else None

    def close(self):
        self.area = self.memory = None
