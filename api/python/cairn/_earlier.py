# SPDX-License-Identifier: Apache-2.0
"""What a store has of models that adapters named or described otherwise in earlier versions."""

import logging

from . import _digest
from ._errors import NotFound
from ._rotary import settled

_log = logging.getLogger(__name__)
_PAGE = 1000


def register(store, spec, earlier, durability="power", endings=()):
    """store.register_model of the settled spec; the Model that it returns has that. Where it is the first of its name
    with this form of digest, or of its cache's dtype, it says what is left behind. earlier: as earlier versions of the
    adapter described it. endings: of a cache's dtype, which earlier versions left out."""
    spec = settled(store, spec, earlier)
    named = [model for model in store.models() if model.spec.identity.name == spec.identity.name]
    model = store.register_model(spec, durability=durability)
    if spec.identity.weights_digest.startswith(_digest.FORM) and not any(
            one.spec.identity.weights_digest.startswith(_digest.FORM) for one in named):
        for one in named:
            _tell(store, one)
    else:
        for one in _without(endings, spec.identity, named):
            _tell(store, one)
    return model


def _without(endings, identity, models):
    """Those that were of this identity before its cache's dtype had such an ending; none, where it is known already."""
    if any(model.spec.identity == identity for model in models):
        return []
    before = {identity.cache_dtype.removesuffix(ending) for ending in endings if identity.cache_dtype.endswith(ending)}
    return [model for model in models if model.spec.identity.cache_dtype in before
            and model.spec.identity.weights_digest == identity.weights_digest]


def _tell(store, model):
    held = bytes_of(store, model.id)
    if held:
        _log.warning("Cairn: the store has %d bytes of KV of model %d, %r, under an identity that an earlier version "
                     "made, and they are not found any more; cairn.models.drop_branches(store, %d) drops them",
                     held, model.id, model.spec.identity.name, model.id)


def bytes_of(store, model_id):
    """Raw bytes of KV of all branches of a model, shared ones once. Reads the index."""
    groups = next(model.spec.groups for model in store.models() if model.id == model_id)
    reached = {}  # Node -> for each group the positions of it with KV: [its begin, the largest end].
    for branch, info in _branches(store, model_id):
        try:
            steps = branch.path()
        except NotFound:
            continue
        for step in steps:
            for group, length in enumerate(info.kv_lengths):
                end = min(step.end, length)
                if end > step.begin:
                    key = (step.node, group)
                    reached[key] = max(reached.get(key, 0), end - step.begin)
    return sum(count * groups[group].token_bytes for (_, group), count in reached.items())


def drop_branches(store, model_id, durability="process"):
    """Drops all branches of a model, in every namespace; how many. Blocks."""
    dropped = 0
    for branch, _ in _branches(store, model_id):
        try:
            branch.drop(durability=durability)
            dropped += 1
        except NotFound:
            pass  # Evicted meanwhile.
    return dropped


def _branches(store, model_id):
    for namespace in store.namespaces():
        cursor = ""
        while True:
            page, cursor = store.list_branches(namespace=namespace.name, limit=_PAGE, cursor=cursor)
            for info in page:
                if info.model_id == model_id:
                    try:
                        yield store.get_branch(info.id), info
                    except NotFound:
                        continue
            if not cursor:
                break
