# SPDX-License-Identifier: Apache-2.0
"""The connector's part in blending: plans of prompts, and what each request of a prompt loads.

vLLM asks a connector once for each request how many tokens it has behind those of vLLM's own prefix cache. So a request
has no gaps, and a prompt whose KV has some comes as several requests, its stages: each ends where a compute step of the
plan does, loads what lies before that step, and leaves its blocks in vLLM's prefix cache for the next one
(cairn/_vllm_stages.py makes them). A stage that finds less there than was left computes it, which is always right.
"""

import array
import collections
import dataclasses
import math
import os
import time
from typing import Any

import cairn

from ._vllm_identity import Weights

# Prompts under way, and their ids. One that makes room for a newer one is as if nothing had been found.
PROMPTS_MAX, TOKENS_MAX = 1024, 16 << 20
PROMPT_SECONDS = 600.0  # Since the last stage that loaded: its client is gone.


def refuse(layout, vllm_config):
    """ValueError, naming why this engine's KV cannot be blended."""
    if not vllm_config.cache_config.enable_prefix_caching:
        raise ValueError("CairnConnector: blending needs vLLM's prefix caching, which carries blocks from stage to stage; "
                         "set enable_prefix_caching to True")
    speculative = vllm_config.speculative_config
    if speculative is not None and speculative.use_eagle():
        raise ValueError("CairnConnector: with this speculative decoding vLLM computes the last block of each prefix "
                         "again, where stages go on; leave speculative_config out, or take 'ngram'")
    for group in layout.groups:
        if group.recurrent:
            raise ValueError(f"CairnConnector: cache group {group.index} is recurrent, and states belong to all tokens "
                             "before them: they cannot be blended")
        if group.packed:
            raise ValueError(f"CairnConnector: {group.backend} packs the blocks of cache group {group.index}, "
                             f"{group.spec.packing!r}, so their keys cannot be turned; on a processor set dtype to "
                             "'float32' or 'float16'")
        for plane in group.spec.planes:
            if plane.role != "value" and (plane.rotary.state == "unset"
                                          or plane.rotary.state == "applied" and not group.spec.inv_freq):
                raise ValueError(f"CairnConnector: how plane {plane.name!r} of cache group {group.index} is rotated is "
                                 "not known (docs/engines.md), so it cannot be blended")


def options_of(settings, vllm_config, shared):
    """Options of plans: as the settings say, with separators as the model's tokenizer has them. ValueError: one is out
    of its range."""
    options = settings.blend
    if settings.blend_special_str:
        from vllm.tokenizers import cached_tokenizer_from_config

        from .blend import separators
        options = {**options, "separators": separators(cached_tokenizer_from_config(vllm_config.model_config),
                                                       settings.blend_special_str)}
    try:
        shared.store.plan_blend(shared.model_of(Weights()), [0], namespace=settings.kept_in(settings.namespace),
                                options=options, defaults=settings.blend_defaults)
    except cairn.InvalidArgument as error:
        raise ValueError(f"kv_connector_extra_config: {error}") from error
    except cairn.Error:
        pass  # There is no store yet, or no chunks.
    return options


@dataclasses.dataclass
class Prompt:
    """A prompt whose stages are under way."""

    tokens: array.array
    nonce: str  # Belongs to the salt of its stages, so that nobody can have given another prompt's blocks that salt.
    used_at: float
    place: Any = None
    plan: Any = None  # None: not planned yet, or nothing is to be blended.


@dataclasses.dataclass(frozen=True)
class Source:
    """What a plan loads of a stage; the plan has the lease."""

    plan: Any

    def restore(self, into, *, begin, end, require_kv, progress=None, gpu_ready=0):
        self.plan.restore(into, begin=begin, end=end, progress=progress, gpu_ready=gpu_ready)

    def release(self):
        pass


class Plans:
    """The scheduler's: prompts that are under way, by what their requests say: namespace, cache_salt and id."""

    def __init__(self, shared, layout, options):
        self._shared = shared
        self._options = {**options, "align_tokens": math.lcm(*(group.block for group in layout.groups))}
        self._prompts = collections.OrderedDict()  # The one that was used last comes last.
        self._tokens = 0  # The ids of all prompts.

    def begin(self, key, tokens):
        """A prompt that asks to be planned, in place of one of the same key. What its stages have in their salt."""
        self._remove(key)
        self._prompts[key] = Prompt(array.array("I", tokens), os.urandom(16).hex(), time.monotonic())
        self._tokens += len(tokens)
        while len(self._prompts) > PROMPTS_MAX or self._tokens > TOKENS_MAX \
                or time.monotonic() - next(iter(self._prompts.values())).used_at > PROMPT_SECONDS:
            self._remove(next(iter(self._prompts)))
        return self.nonce(key)

    def nonce(self, key):
        """Of a prompt that is not under way: one that no other request has."""
        prompt = self._prompts.get(key)
        return os.urandom(16).hex() if prompt is None else prompt.nonce

    def make(self, known):
        """Plans the prompt of a request that asked for it. The answer to it: where the stages end, which are none where
        vLLM and the connector do as well without."""
        prompt, place, settings = self._prompts.get(known.prompt), known.place, self._shared.settings
        if prompt is None:
            return {"ends": []}
        try:
            plan = self._shared.store.plan_blend(
                place.model, prompt.tokens, namespace=place.documents,
                also=[place.namespace] if settings.keep_blended else [], approximate=settings.keep_blended,
                lease=settings.lease, options=self._options, defaults=settings.blend_defaults)
        except cairn.Error as error:
            if not isinstance(error, cairn.InvalidState):  # The namespace has no chunks: nothing was kept in it yet.
                self._shared.held.failed(f"plans nothing for request {known.request.request_id}", error)
            return {"ends": []}
        prompt.place, prompt.plan = place, plan
        loads = [step for step in plan.steps if step.loads]
        if not loads or loads[-1].end <= plan.exact:
            self._remove(known.prompt)
            return {"ends": []}
        return {"ends": [step.end for step in plan.steps if not step.loads], "exact": plan.exact,
                "load_tokens": plan.load_tokens, "compute_tokens": plan.compute_tokens}

    def find(self, known):
        """The prompt that this request is a stage of. None: it is over, or of other tokens or weights."""
        prompt = self._prompts.get(known.prompt)
        if prompt is None or prompt.plan is None or prompt.place.weights != known.place.weights:
            return None
        ids = array.array("I", known.request.prompt_token_ids)
        return prompt if ids == prompt.tokens[:len(ids)] else None

    def load(self, known, computed):
        """(tokens behind `computed`, the Source that has them); (0, None): the step there computes."""
        prompt = self.find(known)
        for step in prompt.plan.steps if prompt is not None else ():
            if step.loads and step.begin <= computed < step.end < known.request.num_tokens:
                self._use(known.prompt)
                return step.end - computed, Source(prompt.plan)
        return 0, None

    def is_last(self, known):
        """Whether the request is its prompt's last stage: the user's own."""
        prompt = self.find(known)
        return prompt is not None and known.request.num_prompt_tokens == len(prompt.tokens)

    def exact(self, known):
        """Tokens of the request before which nothing is approximate."""
        prompt = self.find(known)
        return 0 if prompt is None else prompt.plan.exact

    def ended(self, known):
        """A request is over. With the last stage its prompt is, and with a request that asked for a plan in vain."""
        prompt = self._prompts.get(known.prompt)
        if prompt is None:
            return
        asked = known.control.blend.tokens is not None
        if prompt.plan is None if asked else known.request.num_prompt_tokens >= len(prompt.tokens):
            self._remove(known.prompt)

    def clear(self):
        """Weights were replaced: no plan is of those that come."""
        for key in list(self._prompts):
            self._remove(key)

    def _use(self, key):
        prompt = self._prompts[key]
        prompt.used_at = time.monotonic()
        self._prompts.move_to_end(key)
        self._renew(prompt.plan)

    def _renew(self, plan):
        if plan.lease:
            try:
                plan.renew(self._shared.settings.lease)
            except cairn.Error:
                pass  # It is over: from now on a restore compares ids.

    def _remove(self, key):
        prompt = self._prompts.pop(key, None)
        if prompt is None:
            return
        self._tokens -= len(prompt.tokens)
        if prompt.plan is not None:
            try:
                prompt.plan.release()
            except cairn.Error as error:
                self._shared.held.failed("leaves the lease of a plan to its time", error)
