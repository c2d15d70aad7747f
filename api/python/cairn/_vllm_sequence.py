# SPDX-License-Identifier: Apache-2.0
"""A request in the store: a branch that begins with what others have stored, and grows with what is computed."""

import dataclasses
import json
import logging
import struct
from typing import Any

import cairn

logger = logging.getLogger("vllm.cairn")  # vLLM's own handlers show it.

# Shorter prefixes are never found (cairn/find.h), so nothing is kept of shorter requests. Where fewer tokens lack
# their KV, it is stored with the tokens again.
FOUND_FROM = 64
DEGREES = "application/x-cairn-vllm-degrees+json"  # Metadata behind KV of several ranks.


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the state of a request is kept and looked for."""

    model: Any
    namespace: str
    keep: Any
    weights: Any  # _vllm_identity.Weights
    name: str = ""  # The request's branch, once the request is over.
    documents: str = ""  # The namespace that plans search: `namespace`, but for requests that are blended.


def find(shared, place, tokens, content, request, approximate=False):
    """What the store has of the tokens, on lease. A search that fails finds nothing: None."""
    try:
        return shared.store.find_prefix(place.model, tokens, namespace=place.namespace,
                                        also=[place.documents] if approximate else [], approximate=approximate,
                                        spans=content.within(0, len(tokens)), lease=shared.settings.lease)
    except cairn.Error as error:
        shared.held.failed(f"finds nothing for request {request}", error)
        return None


class Sequence:
    """The worker saves; the scheduler reads how far that is and, once a request is over, ends it.

    exact: KV behind these tokens is approximate; None: it never is. keeps_kv: else the branch gets ids alone, at last.
    """

    def __init__(self, engine, name, place, request, content, kept, exact=None, keeps_kv=True):
        self.engine, self.settings, self.content = engine, engine.shared.settings, content
        self.name, self.place, self.sampling, self.lora = name, place, request.sampling_params, request.lora_request
        self.branch = None
        self.base = 0  # Tokens that the branch began with.
        self.length = 0  # Tokens in the store, all of them with KV.
        self.exact, self.keeps_kv = exact, keeps_kv
        self.broken = not kept  # An append failed, or none is wanted: the branch stays as it is.
        self.sound = None  # Tokens before a load that failed: what is found behind them may be that again.

    @property
    def follows(self):
        """Nothing is stored of it that others do not have."""
        return self.length == self.base

    def check_weights(self):
        """Conflict: they are others than those that this request was looked up for."""
        if self.engine.weights_of(self.lora) != self.place.weights:
            raise cairn.Conflict("its weights were replaced")

    def restart(self, sound):
        """A load failed behind `sound` tokens: drops the branch, which may begin with that, and begins another one."""
        if self.branch is not None:
            self._quietly(self.branch.drop)
        self.branch, self.base, self.length, self.sound = None, 0, 0, sound

    def save(self, save, view, gpu_ready=0):
        """Stores what the store lacks of it. view(begin, end): these positions in the engine's blocks."""
        if self.broken or self.length < save.first:  # It began again since: the next step saves it all.
            return
        try:
            self.check_weights()
            if self.follows:
                self._follow(save.tokens, view, gpu_ready)
            for end in self._borders(save.kv_end):
                tokens = save.tokens[self.length - save.first:end - save.first]
                self._append(tokens, view(self.length, end), save.drawn if end == save.kv_end else None, gpu_ready)
            self.engine.shared.held.worked()
        except cairn.Error as error:
            self._break(error)

    def _borders(self, end):
        """Where appends up to `end` end: one is exact as a whole, or not at all."""
        exact = end if self.exact is None else min(self.exact, end)
        return [border for border in dict.fromkeys((exact, end)) if self.length < border]

    def _follow(self, tokens, view, gpu_ready):
        """Goes on from what the store has of the tokens by now, so that requests of one prompt store it once.

        Ids whose KV was evicted get it back, for all branches that share them."""
        hit = self._look(tokens)
        if not hit:
            return
        with hit:
            restorable, matched = self.content.whole(hit.restorable), self.content.whole(hit.matched)
            if matched - restorable < FOUND_FROM or self.exact is not None:
                matched = restorable  # What is approximate fills no branch of others.
            if matched <= self.base:
                return
            self._fork(hit, matched)
            if restorable < matched:
                matched = self._fill(restorable, matched, view, gpu_ready)
        self.base = self.length = matched

    def _look(self, tokens):
        """What the store has of the tokens, as find(); None: nothing that may be taken."""
        if self.sound is not None:
            tokens = tokens[:self.content.outside(min(self.sound, len(tokens)))]
        if len(tokens) < FOUND_FROM:
            return None
        return find(self.engine.shared, self.place, tokens, self.content, self.name, self.exact is not None)

    def wanted_from(self, tokens):
        """The first position whose rows a save of these tokens will want, as far as the store does not change."""
        hit = self._look(tokens) if self.follows else None
        if not hit:
            return self.length
        with hit:
            return max(self.length, self.content.whole(hit.restorable))

    def _fork(self, hit, position):
        before = self.branch
        self.engine.writes(self.place)
        self.branch = hit.fork(position, "" if before else self.name, namespace=self.place.namespace,
                               keep=self.place.keep, durability=self.settings.durability)
        if before:
            self._quietly(before.drop)  # Only now: it may be the last that has what was found.
            self.branch.rename(self.name, durability=self.settings.durability)

    def _fill(self, begin, end, view, gpu_ready):
        """Up to where KV was evicted: there it is again. Forks would not get what never was there; that is cut off."""
        evicted = self.content.whole(min(self.branch.kv_lengths))
        if evicted < end:
            self.branch.rewind(evicted, durability=self.settings.durability)
        kv = view(begin, evicted) if begin < evicted else None
        if kv is not None:  # A window may have left all of it behind.
            self.branch.fill(kv, durability=self.settings.durability, gpu_ready=gpu_ready)
        return evicted

    def _append(self, tokens, kv, drawn, gpu_ready=0):
        """Tokens behind those that are there, and their KV; `drawn` of all are the sampler's. None: it is behind others."""
        durability = self.settings.durability
        if self.branch is None:
            self.engine.writes(self.place)
            self.branch = self.engine.shared.store.create_branch(
                self.place.model, self.name, namespace=self.place.namespace, keep=self.place.keep,
                durability=durability)
        spans = self.content.within(self.length, self.length + len(tokens))
        self.length = self.branch.append(tokens, kv, sampler=self._sampler(drawn), spans=spans, durability=durability,
                                         metadata=self._degrees(kv),
                                         exact=self.exact is None or self.length < self.exact,
                                         expected_length=self.length, gpu_ready=gpu_ready)

    def end(self, tokens, drawn):
        """The request is over: appends the remaining ids, without KV. Drops a branch without content of its own."""
        if self.branch is None and self.keeps_kv:
            return
        if tokens and not self.broken:
            try:
                self.check_weights()
                self._append(tokens, None, drawn)
            except cairn.Error as error:
                self._break(error)
        if tokens and self.place.name and not self.broken:
            self._quietly(self._take_name)
        elif self.follows and self.branch is not None:
            self._quietly(self.branch.drop)

    def _take_name(self):
        """The branch gets the name that the request gave, in place of one that had it. That one goes, if this one has
        all that it has KV of; else it stays, without a name."""
        store, batch = self.engine.shared.store, self.engine.shared.store.batch()
        try:
            before = store.find_branch(self.place.name, namespace=self.place.namespace)
            if before.info().model_id != self.place.model.id:  # It came meanwhile.
                raise cairn.Conflict(f"branch: {self.place.name!r} has state of another model")
            if self._has_all_of(before):
                batch.drop(before)
            else:
                batch.rename(before, "")
        except cairn.NotFound:
            pass
        batch.rename(self.branch, self.place.name)
        batch.write(durability=self.settings.durability)

    def _has_all_of(self, branch):
        """Whether this branch has all ids and content that the other one has KV of."""
        end = min(branch.kv_lengths)
        return end <= self.length and self.branch.tokens(0, end).tolist() == branch.tokens(0, end).tolist() \
            and self.branch.spans(0, end) == branch.spans(0, end)

    def _degrees(self, kv):
        """Says of KV of several ranks how many, and from where on it is theirs. None: of one rank, or there is no KV."""
        tensor, pipeline = self.settings.degrees
        if kv is None or (tensor, pipeline) == (1, 1):
            return None
        said = {"begin": self.length, "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
        return cairn.Metadata(json.dumps(said, separators=(",", ":")).encode(), DEGREES)

    def _sampler(self, drawn):
        """vLLM draws from a generator of the request's seed, which so many draws have advanced."""
        sampling = self.sampling
        if sampling is None or sampling.seed is None or drawn is None:
            return None
        return cairn.SamplerState(
            "named", blob_name="vllm.seed", blob_version=1, blob=struct.pack("<qQ", sampling.seed, drawn),
            temperature=sampling.temperature, top_p=sampling.top_p, min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty, top_k=max(sampling.top_k, 0))

    def _break(self, error):
        self.broken = True
        self.engine.shared.held.failed(f"keeps nothing more of request {self.name}", error)

    def _quietly(self, call):
        try:
            call()
        except cairn.NotFound:
            pass  # Evicted, or of weights that are gone.
        except cairn.Error as error:
            self.engine.shared.held.failed(f"leaves a branch of request {self.name}", error)
