# SPDX-License-Identifier: Apache-2.0
"""The connector's part in blending: plans of prompts, and what each request of a prompt loads.

vLLM asks a connector once for each request how many tokens it has behind those of vLLM's own prefix cache. So a request
has no gaps, and a prompt whose KV has some comes as several requests, its stages: each ends where a compute step of the
plan does, loads what lies before that step, and leaves its blocks in vLLM's prefix cache for the next one
(cairn/_vllm_stages.py makes them). A stage that finds less there than was left computes it, which is always right.
"""

import collections
import dataclasses
from typing import Any

import cairn

from ._vllm_identity import Weights

PLANS_MAX = 1024  # Prompts under way. A plan that makes room for a newer one is as if nothing had been found.


def refuse(layout, vllm_config):
    """ValueError, naming why this engine's KV cannot be blended."""
    if not vllm_config.cache_config.enable_prefix_caching:
        raise ValueError("CairnConnector: blending needs vLLM's prefix caching, which carries blocks from stage to stage; "
                         "set enable_prefix_caching to True")
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
        shared.store.plan_blend(shared.model_of(Weights()), [0], namespace=settings.namespace,
                                options=options, defaults=settings.blend_defaults)
    except cairn.InvalidArgument as error:
        raise ValueError(f"kv_connector_extra_config: {error}") from error
    except cairn.Error:
        pass  # There is no store yet, or no chunks.
    return options


@dataclasses.dataclass
class Planned:
    place: Any
    tokens: tuple[int, ...]
    plan: Any


@dataclasses.dataclass(frozen=True)
class Source:
    """What a plan loads of a stage; the plan has the lease."""

    plan: Any

    def restore(self, into, *, begin, end, require_kv, progress=None, gpu_ready=0):
        self.plan.restore(into, begin=begin, end=end, progress=progress, gpu_ready=gpu_ready)

    def release(self):
        pass


class Plans:
    """The scheduler's: plans of prompts that are under way, by namespace and by the id that their requests give."""

    def __init__(self, shared, layout, options):
        self._shared, self._options = shared, {**options, "align_tokens": max(group.block for group in layout.groups)}
        self._planned = collections.OrderedDict()

    def make(self, known):
        """Plans the prompt of a request that asks for it. The answer to it: where the stages end, which are none where
        vLLM and the connector do as well without."""
        blend, place, settings = known.control.blend, known.place, self._shared.settings
        try:
            plan = self._shared.store.plan_blend(
                place.model, list(blend.tokens), namespace=place.documents,
                also=[place.namespace] if settings.keep_blended else [], approximate=settings.keep_blended,
                lease=settings.lease, options=self._options, defaults=settings.blend_defaults)
        except cairn.Error as error:
            self._shared.held.failed(f"plans nothing for request {known.request.request_id}", error)
            return {"ends": []}
        loads = [step for step in plan.steps if step.loads]
        if not loads or loads[-1].end <= plan.exact:
            plan.release()
            return {"ends": []}
        self._planned[place.namespace, blend.id] = Planned(place, blend.tokens, plan)
        while len(self._planned) > PLANS_MAX:
            self._release(self._planned.popitem(last=False)[1])
        return {"ends": [step.end for step in plan.steps if not step.loads], "exact": plan.exact,
                "load_tokens": plan.load_tokens, "compute_tokens": plan.compute_tokens}

    def find(self, known):
        """The plan that this request is a stage of. None: it is over, or of other tokens or weights."""
        planned = self._planned.get((known.place.namespace, known.control.blend.id))
        if planned is None or planned.place.weights != known.place.weights:
            return None
        ids = known.request.prompt_token_ids
        return planned if tuple(ids) == planned.tokens[:len(ids)] else None

    def load(self, known, computed):
        """(tokens behind `computed`, the Source that has them); (0, None): the step there computes."""
        planned = self.find(known)
        for step in planned.plan.steps if planned is not None else ():
            if step.loads and step.begin <= computed < step.end < known.request.num_tokens:
                self._renew(planned.plan)
                return step.end - computed, Source(planned.plan)
        return 0, None

    def is_last(self, known):
        """Whether the request is its prompt's last stage: the user's own."""
        planned = self.find(known)
        return planned is not None and known.request.num_prompt_tokens == len(planned.tokens)

    def exact(self, known):
        """Tokens of the request before which nothing is approximate."""
        planned = self.find(known)
        return 0 if planned is None else planned.plan.exact

    def ended(self, known):
        """A request is over. With the last stage its plan is."""
        if self.is_last(known):
            self._release(self._planned.pop((known.place.namespace, known.control.blend.id)))

    def _renew(self, plan):
        if plan.lease:
            try:
                plan.renew(self._shared.settings.lease)
            except cairn.Error:
                pass  # It is over: from now on a restore compares ids.

    def _release(self, planned):
        try:
            planned.plan.release()
        except cairn.Error as error:
            self._shared.held.failed("leaves the lease of a plan to its time", error)
