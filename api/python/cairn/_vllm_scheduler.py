# SPDX-License-Identifier: Apache-2.0
"""The scheduler's half: finds stored prompts, and tells the worker what to do about each request."""

import dataclasses
import hashlib
import os
from typing import Any

from vllm.v1.request import RequestStatus

import cairn

from ._vllm_messages import End, Save, Start, StepMetadata
from ._vllm_sequence import FOUND_FROM, Sequence, logger


@dataclasses.dataclass
class Known:
    """A request that may use the store."""

    request: Any
    model: Any
    namespace: str
    hit: Any = None
    looked_at: int = -1  # Tokens that `hit` is the answer for.
    begin: int = 0  # Where the engine's own prefix cache ended.


class SchedulerSide:
    def __init__(self, engine, layout, transfer):
        self.engine, self.shared, self.sequences, self.layout = engine, engine.shared, engine.sequences, layout
        self.loads, self.saves = transfer.is_kv_consumer, transfer.is_kv_producer
        # Damage of several groups can only be told of requests that wait for their load.
        self.asynchronous = len(layout.groups) > 1
        self.run = os.urandom(4).hex()  # Engines count requests from 0 on, each time.
        self.known = {}
        self.starts, self.ends = [], []
        engine.scheduler = self

    def on_new_request(self, request):
        # Content that ids do not tell, and prompts that change, are left alone.
        if (request.sampling_params is None or request.prompt_token_ids is None or request.mm_features
                or request.prompt_embeds is not None or request.resumable):
            return
        namespace = self.shared.settings.namespace
        if request.cache_salt:
            namespace += "#" + hashlib.sha256(request.cache_salt.encode()).hexdigest()[:32]
        try:
            model = self.shared.model_of(request.lora_request)
        except cairn.Error as error:
            logger.warning("Cairn does without request %s: %s", request.request_id, error)
            return
        self.known[request.request_id] = Known(request, model, namespace)

    def matched(self, request, computed):
        """Tokens beyond `computed` that can be loaded; at least one is left to compute."""
        known = self.known.get(request.request_id)
        sequence = self.sequences.get(request.request_id)
        if known is None or not self.loads or (sequence is not None and sequence.damaged):
            return 0
        self._look(known)
        known.begin = computed
        return max(0, self._base(known) - computed)

    def _base(self, known):
        return self.layout.whole(known.hit.restorable) if known.hit else 0

    def _look(self, known):
        """The answer for these tokens, kept while its lease lasts."""
        tokens = known.request.num_tokens - 1
        if known.looked_at == tokens and known.hit:
            try:
                known.hit.renew(self.shared.settings.lease)
                return
            except cairn.Error:
                pass  # It is over, or there was none: what it held may be gone.
        self._forget(known)
        known.looked_at = tokens
        try:
            known.hit = self.shared.store.find_prefix(
                known.model, list(known.request.all_token_ids[:tokens]), namespace=known.namespace,
                lease=self.shared.settings.lease)
        except cairn.Error as error:
            logger.warning("Cairn finds nothing for request %s: %s", known.request.request_id, error)

    def _forget(self, known):
        hit, known.hit, known.looked_at = known.hit, None, -1
        if hit:
            try:
                hit.release()
            except cairn.Error as error:
                logger.warning("Cairn: request %s: %s", known.request.request_id, error)

    def allocated(self, request, blocks, tokens):
        """The request has blocks; `tokens` of them are to be loaded. The worker has the hit now."""
        known = self.known.get(request.request_id)
        if known is None:
            return
        if request.request_id not in self.sequences:
            self.sequences[request.request_id] = Sequence(
                self.shared, f"{request.request_id}@{self.run}", known.model, known.namespace, request.sampling_params,
                self.saves)
        if known.hit:
            tables = tuple(list(table) for table in blocks.get_block_ids())
            self.starts.append(Start(request.request_id, known.hit, self._base(known), known.begin,
                                     known.begin + tokens, tables))
            known.hit, known.looked_at = None, -1

    def step(self, output):
        meta = StepMetadata(self.starts, [], self.take_ends())
        self.starts = []
        if not self.saves:
            return meta
        cached = output.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens))
        for request_id, done in computed.items():
            known = self.known.get(request_id)
            if known is None:
                continue
            # Tokens beyond those that are known are drafts, which may be refused.
            tokens = min(done + output.num_scheduled_tokens[request_id], known.request.num_tokens)
            save = self._save(known.request, self.layout.whole(tokens),
                              lambda: output.kv_connector_block_state.get_block_ids(request_id))
            if save is not None:
                meta.saves.append(save)
        return meta

    def _save(self, request, kv_end, tables, final=False):
        sequence = self.sequences[request.request_id]
        first = sequence.length
        prompt = request.num_prompt_tokens
        due = final or self.layout.step > 1 or kv_end - first >= self.shared.settings.append_tokens \
            or first < prompt <= kv_end
        if kv_end < FOUND_FROM or kv_end <= first or not due or sequence.broken:
            return None
        return Save(request.request_id, first, list(request.all_token_ids[first:kv_end]), kv_end, tables(),
                    max(0, kv_end - prompt))

    def finished(self, request, tables):
        """Whether blocks are to be held until the tail was saved."""
        known = self.known.pop(request.request_id, None)
        if known is None:
            return False
        self._forget(known)
        self.starts = [start for start in self.starts if not self._cancelled(start, request.request_id)]
        sequence = self.sequences.get(request.request_id)
        if sequence is None:
            return False
        save, tokens, first = None, [], sequence.length
        if self.saves and request.status != RequestStatus.FINISHED_ERROR:
            computed = min(request.num_computed_tokens - request.num_in_flight_tokens, request.num_tokens)
            if self.layout.step == 1:
                save = self._save(request, computed, lambda: tuple(list(table) for table in tables), final=True)
            if request.num_output_tokens > 0:  # Else it was cancelled: its prompt is nothing to keep.
                tokens = list(request.all_token_ids[first:])
        self.ends.append(End(request.request_id, save, first, tokens, request.num_output_tokens))
        return save is not None

    def _cancelled(self, start, request_id):
        """A load that the worker was not told of yet: nobody needs its lease."""
        if start.request_id != request_id:
            return False
        try:
            start.hit.release()
        except cairn.Error as error:
            logger.warning("Cairn: request %s: %s", request_id, error)
        return True

    def take_ends(self):
        ends, self.ends = self.ends, []
        return ends

    def close(self):
        self.engine.scheduler = None
