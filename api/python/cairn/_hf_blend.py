# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a plan (cairn.Store.plan_blend) into the rows of a CairnCache: what can be loaded is, what must be
computed the model computes, from left to right, so that at each step the cache holds all positions before it."""

import inspect

import torch

from ._errors import Conflict, Evicted, InvalidArgument, NotFound

_LEASE_SECONDS = 60.0  # Renewed at each step.
_COMPUTED_AT_ONCE = 2048  # Tokens of a forward pass: its memory is bounded.


def plan_for(store, registered, shape, ids, namespace, options, defaults):
    if any(group.kind == "recurrent" for group in shape.groups):
        raise InvalidArgument("model: has recurrent layers, whose states belong to all tokens before them")
    return store.plan_blend(registered, ids, namespace=namespace, lease=_LEASE_SECONDS, options=options,
                            defaults=defaults)


def run_plan(cache, plan, ids):
    """All of it but the last token, which generate computes."""
    for step in plan.steps:
        begin, end = max(step.begin, len(cache._tokens)), min(step.end, len(ids) - 1)
        if begin >= end:
            continue  # The branch had it.
        _renew(plan)
        if not step.loads or not _loaded(cache, plan, ids, begin, end):
            _compute(cache, plan, ids, begin, end)


def _renew(plan):
    if plan.lease:
        try:
            plan.renew(_LEASE_SECONDS)
        except NotFound:
            pass  # A pass took longer: from now on a restore compares ids.


def _loaded(cache, plan, ids, begin, end):
    """Else its source is gone by now, and it is computed, which is always right."""
    try:
        _load(cache, plan, ids, begin, end)
    except (Conflict, Evicted, NotFound):
        return False
    return True


def _compute(cache, plan, ids, begin, end):
    # Logits of all tokens of a long step would not fit.
    takes = inspect.signature(cache.model.forward).parameters
    more = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
    for at in range(begin, end, _COMPUTED_AT_ONCE):
        with torch.no_grad():
            cache.model(input_ids=torch.tensor([ids[at:min(at + _COMPUTED_AT_ONCE, end)]]), past_key_values=cache,
                        use_cache=True, **more)
        _renew(plan)


def _load(cache, plan, ids, begin, end):
    cache._check_whole()
    for group in cache._shape.groups:
        likes = [like for _, _, like in group.likes]
        for layer in (cache.layers[number] for number in group.layers):
            if not layer.is_initialized:
                layer.lazy_initialization(*likes)
            layer.rows.make_room(layer.oldest_needed(begin), begin, end)
    plan.restore(cache._view(begin, end, states=False), begin=begin, end=end)
    for layer in cache.layers:
        # The store may have the last rows of a window alone: those before are no rows of this cache.
        needed = layer.oldest_needed(end)
        if needed > begin:
            layer.rows.drop_before(needed, end)
        layer.put_back(end)
    cache._tokens += ids[begin:end]
