# SPDX-License-Identifier: Apache-2.0
"""Each prompt under each way of blending, through a store and CairnCache.blend, beside a full prefill."""

import json
import tempfile
import time

import torch
import transformers

import cairn
import cairn.hf
from shadow_quality.model import Language, digest

from .prompts import all_prompts

_BARE = {"recompute_boundary": 0, "min_match_ratio": 1.0}
# Name -> options. What is not said here is the default.
WAYS = {
    "unturned": {"recompute_first": 0, "position_correction": False, **_BARE},
    "first 0": {"recompute_first": 0, **_BARE},
    "first 1": {"recompute_first": 1, **_BARE},
    "default (first 16)": {},
    "first 32": {"recompute_first": 32},
    "ratio .05": {"recompute_first": 0, "recompute_ratio": 0.05},
    "ratio .15": {"recompute_first": 0, "recompute_ratio": 0.15},
    "ratio .30": {"recompute_first": 0, "recompute_ratio": 0.30},
    "ratio 1": {"recompute_first": 0, "recompute_ratio": 1.0},
}
# How chunks were computed, and the ways that are tried with each.
SOURCES = ("alone", "behind the header", "behind another document", "behind the true neighbour")
OF_SOURCES = ("first 0", "first 1", "default (first 16)", "ratio .15")
_IDENTITY = cairn.ModelIdentity("SmolLM2-135M-Instruct", weights_digest=digest())


def _before(prompt, number, source):
    """Ids that stand before a chunk where it is stored."""
    if source == "behind the header":
        return prompt.header
    if source == "behind another document":
        return prompt.foreign[number]
    if source == "behind the true neighbour":
        return prompt.header + (prompt.chunks[number - 1] if number else [])
    return []


def store_chunks(store, model, prompt, source):
    """The namespace that they are in."""
    name = f"{source} {prompt.digest}"
    store.set_namespace(name, cairn.NamespacePolicy(index="chunks"))
    for number, chunk in enumerate(prompt.chunks):
        ids = _before(prompt, number, source) + chunk
        cache = cairn.hf.CairnCache.open(store, model, str(number), namespace=name, save_every=0, identity=_IDENTITY,
                                         durability="memory")
        with torch.no_grad():
            model(input_ids=torch.tensor([ids]), past_key_values=cache, logits_to_keep=1)
        cache.save()
    return name


def full(model, prompt):
    """(logits of the suffix, seconds of the context)"""
    cache = transformers.DynamicCache(config=model.config)
    began = time.perf_counter()
    with torch.no_grad():
        out = model(input_ids=torch.tensor([prompt.context]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        seconds = time.perf_counter() - began
        logits = model(input_ids=torch.tensor([prompt.suffix]), past_key_values=out.past_key_values).logits[0]
    return logits, seconds


def blended(store, model, prompt, namespace, name, options):
    """(logits of the suffix, seconds of the context, the plan)"""
    began = time.perf_counter()
    cache = cairn.hf.CairnCache.blend(store, model, name, prompt.context + prompt.suffix[:1], documents=namespace,
                                      options=options, save_every=0, identity=_IDENTITY, durability="memory")
    seconds = time.perf_counter() - began
    assert cache.tokens == prompt.context
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt.suffix]), past_key_values=cache).logits[0]
    store.find_branch(name).drop()
    return logits, seconds, cache.plan


def compared(full_logits, logits):
    ours, theirs = full_logits.log_softmax(-1), logits.log_softmax(-1)
    kl = (ours.exp() * (ours - theirs)).sum(-1)
    return float(kl.mean()), float((ours.argmax(-1) == theirs.argmax(-1)).float().mean())


def _one(store, model, prompt):
    logits, full_seconds = full(model, prompt)
    rows = []
    for source in SOURCES:
        namespace = store_chunks(store, model, prompt, source)
        for way, options in WAYS.items():
            if source != "alone" and way not in OF_SOURCES:
                continue
            ours, seconds, plan = blended(store, model, prompt, namespace, "prompt", options)
            kl, same = compared(logits, ours)
            rows.append({"source": source, "way": way, "kl": kl, "same": same, "tokens": plan.tokens,
                         "compute": plan.compute_tokens / plan.tokens, "seconds": seconds / full_seconds,
                         "checked": plan.positions_checked})
    return {"name": prompt.name, "tokens": len(prompt.context), "rows": rows}


def measure_all(cache, deadline):
    """Whether all is there."""
    language = Language()
    folder = cache / "results"
    folder.mkdir(parents=True, exist_ok=True)
    prompts = all_prompts(cache, language.encode)
    for number, prompt in enumerate(prompts):
        path = folder / f"{prompt.digest}.json"
        if path.exists():
            continue
        if time.time() > deadline:
            return False
        with tempfile.TemporaryDirectory(dir=cache) as scratch, \
                cairn.Store(scratch + "/store", create_if_missing=True) as store:
            result = _one(store, language.model, prompt)
        path.write_text(json.dumps(result))
        print(f"blend-quality: {number + 1} of {len(prompts)}: {prompt.name}", flush=True)
    return True


def results_of(cache):
    return [json.loads(path.read_text()) for path in sorted((cache / "results").glob("*.json"))]
