# SPDX-License-Identifier: Apache-2.0
"""The scheduler's half: finds stored prompts, and tells the worker what to do about each request."""

import contextlib
import dataclasses
import os
import time
from typing import Any

from vllm.v1.request import RequestStatus

import cairn

from ._vllm_blend import Plans
from ._vllm_content import Content, Unknown
from ._vllm_messages import End, Save, Start, StepMetadata, finish
from ._vllm_metrics import Stats
from ._vllm_request import ASKS_NOTHING, Borders, Control, Refused
from ._vllm_sequence import FOUND_FROM, Sequence, find, logger
from ._vllm_unsound import Computed

TELL_REFUSALS_SECONDS = 60  # A client may send any number of them.
BLEND = "blend"  # Stages of a prompt share blocks of vLLM's prefix cache with nobody else.


@dataclasses.dataclass
class Known:
    """A request that may use the store."""

    request: Any
    content: Content
    control: Control
    salt: str | None  # The cache_salt that the user gave.
    prompt: Any = None  # The key of Plans, of a blended request.
    place: Any = None  # None: its weights are not known yet.
    hit: Any = None
    looked_at: int = -1  # Tokens that `hit` is the answer for.
    begin: int = 0  # Where the engine's own prefix cache ended.
    ahead: Any = None  # A branch of what was found, which is read into memory until the request's turn.


class SchedulerSide:
    def __init__(self, engine, layout, transfer, options, length_max):
        """options: of plans. length_max: tokens of a request."""
        self.engine, self.shared, self.sequences, self.layout = engine, engine.shared, engine.sequences, layout
        self.loads, self.saves = transfer.is_kv_consumer, transfer.is_kv_producer
        self.run = os.urandom(4).hex()  # Engines count requests from 0 on, each time.
        self.known = {}
        self.starts = []
        self._loading = False  # The last step had starts.
        self.borders = Borders()
        self.plans = Plans(self.shared, layout, options)
        self.length_max = length_max
        self.planned = {}  # Request id -> where the stages of its prompt end, of requests that are over.
        self.refusals = {}  # Request id -> why, of requests that are not over.
        self.refused = 0  # Since take_stats().
        self._told_usable, self._tell_refusal_at = True, 0.0
        engine.scheduler = self

    def on_new_request(self, request):
        salt, control, prompt = request.cache_salt, ASKS_NOTHING, None
        if request.kv_transfer_params:
            try:
                control = Control.of(request.kv_transfer_params, self.shared.settings, self.length_max)
            except Refused as error:
                self.borders.put(request, os.urandom(16).hex())  # Whatever it wanted to be apart from.
                self._refuse(request, error)
                return
            named = control.namespace not in (None, self.shared.settings.namespace)
            if control.blend:
                prompt = (control.namespace, salt, control.blend.id)
                ids = control.blend.tokens
                nonce = self.plans.nonce(prompt) if ids is None else self.plans.begin(prompt, ids)
                self.borders.put(request, BLEND, nonce)
            elif named:
                self.borders.put(request, control.namespace)
        # Content that ids do not tell, and prompts that change, are left alone.
        try:
            if (request.sampling_params is None or request.prompt_token_ids is None
                    or request.prompt_embeds is not None or request.resumable):
                raise Unknown("its tokens")
            content = Content(self.layout, request.mm_features)
            if control.blend and request.mm_features:
                raise Unknown("its plan")
        except Unknown:
            if control is not ASKS_NOTHING:
                self._refuse(request, "kv_transfer_params: requests with embeddings, streamed input or content without "
                             "a hash are left alone, and blended ones with any content")
            return
        known = self.known[request.request_id] = Known(request, content, control, salt, prompt)
        if control.prefetch and not control.blend:
            self._prefetch(known)

    def _refuse(self, request, why):
        """It goes on without the store, and its answer says why."""
        self.refusals[request.request_id] = str(why)
        self.refused += 1
        if time.monotonic() >= self._tell_refusal_at:
            self._tell_refusal_at = time.monotonic() + TELL_REFUSALS_SECONDS
            logger.warning("Cairn does without request %s, which asks for what is refused: %s. Refusals of the next %d "
                           "seconds are counted, and stand in the answers only", request.request_id, why,
                           TELL_REFUSALS_SECONDS)

    def answer(self, request):
        """kv_transfer_params of the answer to a request that is over, or None."""
        planned = self.planned.pop(request.request_id, None)
        if planned is not None:
            return {"cairn": {"blend": planned}}
        why = self.refusals.pop(request.request_id, None)
        return why and {"cairn": {"refused": why}}

    def take_stats(self):
        """Stats since the last time, or None."""
        held = self.shared.held
        errors, refused, usable = held.take_errors(), self.refused, held.usable
        if not errors and not refused and usable == self._told_usable:
            return None
        self.refused, self._told_usable = 0, usable
        return Stats.of(errors, refused, usable)

    def _prefetch(self, known):
        """What is found is read into memory while the request waits for its turn."""
        if not self._find_place(known) or not self.loads:
            return
        self._look(known)
        if not known.hit:
            return
        try:
            known.ahead = known.hit.fork(namespace=known.place.namespace, durability="memory")
            known.ahead.prefetch()
        except cairn.Busy:
            pass  # Many are read already.
        except cairn.Error as error:
            self.shared.held.failed(f"reads nothing ahead for request {known.request.request_id}", error)

    def _end_prefetch(self, known):
        branch, known.ahead = known.ahead, None
        if branch is not None:
            with contextlib.suppress(cairn.Error):  # Without a name, and first to go.
                branch.drop(durability="memory")

    def matched(self, request, computed):
        """Tokens beyond `computed` that can be loaded; at least one is left to compute."""
        known = self.known.get(request.request_id)
        sequence = self.sequences.get(request.request_id)
        if known is None or not self._find_place(known) or not self.loads:
            return 0
        if sequence is not None and sequence.sound is not None:
            return 0
        known.begin = computed
        if known.control.blend:
            tokens, known.hit = self.plans.load(known, computed)
            return tokens
        self._look(known)
        self._end_prefetch(known)
        if not known.hit:
            return 0
        if self.layout.recurrent:
            self._stop_behind_what_is_shared(request, known.content.whole(known.hit.matched))
        return max(0, known.content.whole(known.hit.restorable) - computed)

    def _stop_behind_what_is_shared(self, request, end):
        """vLLM ends a step there and keeps the states, as where its own cache has seen what requests share. So the
        next request that shares it need not go back to a state before."""
        if request.shared_prefix_boundary < end <= request.num_prompt_tokens:
            request.shared_prefix_boundary = end

    def _find_place(self, known):
        """Whether it has one; of weights that are gone is none, once something is kept there."""
        request = known.request
        try:
            weights = self.engine.weights_of(request.lora_request)
            if known.place is not None and known.place.weights == weights:
                return True
            self._forget(known)
            if weights is None or request.request_id in self.sequences:
                return False
            known.place = self.engine.place_of(weights, known.salt, known.control)
            if self._is_anothers(known.place):
                self._end_prefetch(self.known.pop(request.request_id))
                self._refuse(request, f"branch: {known.place.name!r} has state of another model")
                return False
        except cairn.Error as error:
            self.shared.held.failed(f"does without request {request.request_id}", error)
            return False
        return True

    def _is_anothers(self, place):
        """Whether another model has a branch of the name that is asked for."""
        if not place.name:
            return False
        try:
            branch = self.shared.store.find_branch(place.name, namespace=place.namespace)
            return branch.info().model_id != place.model.id
        except cairn.NotFound:
            return False

    def _look(self, known):
        """The answer for these tokens, kept while its lease lasts."""
        tokens = known.content.outside(known.request.num_tokens - 1)
        if known.looked_at == tokens and known.hit:
            try:
                known.hit.renew(self.shared.settings.lease)
                return
            except cairn.Error:
                pass  # It is over, or there was none: what it held may be gone.
        self._forget(known)
        known.looked_at = tokens
        known.hit = find(self.shared, known.place, list(known.request.all_token_ids[:tokens]), known.content,
                         known.request.request_id)

    def _forget(self, known):
        hit, known.hit, known.looked_at = known.hit, None, -1
        if hit:
            try:
                hit.release()
            except cairn.Error as error:
                self.shared.held.failed(f"leaves a lease of request {known.request.request_id} to its time", error)

    def allocated(self, request, blocks, tokens):
        """The request has blocks; `tokens` of them are to be loaded. Then the worker has the hit now."""
        known = self.known.get(request.request_id)
        if known is None or known.place is None:
            return
        if request.request_id not in self.sequences:
            self.sequences[request.request_id] = self._sequence(known)
        if known.hit and tokens > 0:
            tables, end = blocks.get_block_ids(), known.begin + tokens
            tables = self.layout.with_states(tables, self.layout.states_at(tables, end))
            self.starts.append(Start(request.request_id, known.hit, known.begin, end, tables))
            known.hit, known.looked_at = None, -1
        self._forget(known)

    def _sequence(self, known):
        request, kept, more = known.request, self.saves and known.control.save, {}
        if known.control.blend:
            kept = kept and self.plans.is_last(known)
            more = {"exact": self.plans.exact(known), "keeps_kv": self.shared.settings.keep_blended}
        return Sequence(self.engine, f"{request.request_id}@{self.run}", known.place, request, known.content, kept,
                        **more)

    def step(self, output):
        meta = StepMetadata(self.starts)
        # A load of this step or of the one before may fail, which the worker sees behind this.
        traced = bool(self.engine.unsound) or self._loading or bool(self.starts)
        self._loading, self.starts = bool(self.starts), []
        if not self.saves:
            return meta
        if traced:
            for request_id, done in _computed(output).items():
                known, end = self.known.get(request_id), done + output.num_scheduled_tokens[request_id]
                caught_up = known is not None and end >= known.request.num_tokens
                blocks = output.kv_connector_block_state.get_block_ids(request_id)[0]
                meta.computed.append(Computed(done, end, caught_up, blocks))
        meta.saves.extend(self._due(output))
        return meta

    def _due(self, output):
        """A Save of each request that has something to save behind this step."""
        for request_id, done in _computed(output).items():
            known = self.known.get(request_id)
            if known is None or request_id not in self.sequences or self._is_saving(request_id):
                continue
            # Tokens beyond are drafts, which may be refused.
            tokens = min(done + output.num_scheduled_tokens[request_id], known.request.num_tokens)
            kv_end, states = self._stored_end(known, tokens, output.kv_connector_block_state)
            save = self._save(known.request, kv_end, lambda: self.layout.with_states(
                output.kv_connector_block_state.get_block_ids(request_id), states))
            if save is not None:
                yield save

    def _is_saving(self, request_id):
        """Whether a save of it is under way."""
        return False

    def _stored_end(self, known, tokens, blocks):
        """How far what a step computes up to `tokens` can be stored, and {recurrent group: its block with the state
        there}: where vLLM keeps states of all these groups, which is at the ends of steps. 0: nowhere."""
        if not self.layout.recurrent:
            return known.content.whole(tokens), {}
        states = {}
        for group, block, position in blocks.boundary_state_offloads.get(known.request.request_id, ()):
            states.setdefault(position, {})[group] = block
        end = max((position for position, of_groups in states.items() if position <= tokens
                   and of_groups.keys() >= self.layout.recurrent and known.content.whole(position) == position),
                  default=0)
        return end, states.get(end, {})

    def _save(self, request, kv_end, tables, final=False):
        sequence = self.sequences[request.request_id]
        length = sequence.length
        prompt = request.num_prompt_tokens
        due = final or self.layout.step > 1 or kv_end - length >= self.shared.settings.append_tokens \
            or length < prompt <= kv_end
        if kv_end < FOUND_FROM or kv_end <= length or not due or sequence.broken or not sequence.keeps_kv:
            return None
        first = 0 if sequence.follows else length  # All of it, to look for what others have stored since.
        return Save(request.request_id, first, list(request.all_token_ids[first:kv_end]), kv_end, tables(),
                    max(0, kv_end - prompt))

    def finished(self, request, tables):
        """Saves the tail, so that nothing holds the blocks: vLLM resets its prefix cache only while none is in use, and
        behind the last request comes no step that would free one. Whether vLLM is to keep the blocks."""
        end = self._end_of(request, tables, self.layout.step == 1)
        if end is None:
            return False
        if self.engine.worker is None:
            finish(self.sequences, end)
        else:
            self.engine.worker.end_request(end)
        return False

    def _end_of(self, request, tables, saves_tail):
        """The End of a request that is over. None: nothing was begun for it."""
        known = self.known.pop(request.request_id, None)
        if known is None:
            return None
        self._end_prefetch(known)
        self._forget(known)
        if known.control.blend:
            asked = known.control.blend.tokens is not None and known.place is not None
            if asked and self.loads and request.status != RequestStatus.FINISHED_ABORTED:
                self.planned[request.request_id] = self.plans.make(known)
            self.plans.ended(known)
        self.starts = [start for start in self.starts if not self._cancelled(start, request.request_id)]
        sequence = self.sequences.get(request.request_id)
        if sequence is None:
            return None
        save, tokens, first = None, [], sequence.length
        if self.saves and request.status != RequestStatus.FINISHED_ERROR:
            computed = known.content.whole(
                min(request.num_computed_tokens - request.num_in_flight_tokens, request.num_tokens))
            if saves_tail and not self.layout.recurrent:
                save = self._save(request, computed, lambda: tuple(list(table) for table in tables), final=True)
            if request.num_output_tokens > 0:  # Else it was cancelled: its prompt is nothing to keep.
                tokens = list(request.all_token_ids[first:])
        return End(request.request_id, save, first, tokens, request.num_output_tokens)

    def _cancelled(self, start, request_id):
        """A load that the worker was not told of yet: nobody needs its lease."""
        if start.request_id != request_id:
            return False
        try:
            start.hit.release()
        except cairn.Error as error:
            self.shared.held.failed(f"leaves a lease of request {request_id} to its time", error)
        return True

    def close(self):
        self.engine.scheduler = None


def _computed(output):
    """{request: how many of its tokens have KV before the step}. New requests may share blocks that others compute in
    this step: those come first, so that they are saved first, and once."""
    cached = output.scheduled_cached_reqs
    computed = dict(zip(cached.req_ids, cached.num_computed_tokens))
    computed.update({new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs})
    return computed
