# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a plan (cairn.Store.plan_blend) into the rows of a CairnCache: what can be loaded is, what must be
computed the model computes, from left to right, so that at each step the cache holds all positions before it."""

import torch

from ._errors import InvalidArgument

_LEASE_SECONDS = 60.0  # Renewed at each step: one takes less.


def plan_for(cache, ids, namespace, options, defaults):
    if any(group.kind == "recurrent" for group in cache._shape.groups):
        raise InvalidArgument("model: has recurrent layers, whose states belong to all tokens before them")
    return cache.branch.store.plan_blend(cache._registered, ids, namespace=namespace, lease=_LEASE_SECONDS,
                                         options=options, defaults=defaults)


def run_plan(cache, plan, ids):
    """All of it but the last token, which generate computes."""
    for step in plan.steps:
        begin, end = max(step.begin, len(cache._tokens)), min(step.end, len(ids) - 1)
        if begin >= end:
            continue  # The branch had it.
        if plan.lease:
            plan.renew(_LEASE_SECONDS)
        if step.loads:
            _load(cache, plan, ids, begin, end)
        else:
            with torch.no_grad():
                cache.model(input_ids=torch.tensor([ids[begin:end]]), past_key_values=cache, use_cache=True)


def _load(cache, plan, ids, begin, end):
    cache._check_whole()
    for group in cache._shape.groups:
        likes = [like for _, _, like in group.likes]
        for layer in (cache.layers[number] for number in group.layers):
            if not layer.is_initialized:
                layer.lazy_initialization(*likes)
            needed = layer.oldest_needed(begin)
            layer.rows.make_room(needed, begin, end)
    plan.restore(cache._view(begin, end, states=False), begin=begin, end=end)
    for layer in cache.layers:
        layer.put_back(end)
    cache._tokens += ids[begin:end]
