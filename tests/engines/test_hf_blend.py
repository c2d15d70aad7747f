# SPDX-License-Identifier: Apache-2.0
"""Property: CairnCache.blend loads KV of documents wherever a prompt has them, keys turned as the model turns them, and
computes the rest behind what stands before it; what it stores is marked as approximate from the first such token on,
goes on bit for bit in another cache, and is never given to another prompt as exact.
Method: real models of transformers; each step beside a DynamicCache that is put together by hand."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch
import transformers

import cairn
import cairn._hf_blend
import cairn.hf
import hf_models
from hf_models import generate, load, plain, prompt_of

DOCUMENT, QUESTION, NEW = 100, 20, 12


@pytest.fixture(scope="module")
def model(exported):
    return load(str(exported.huggingface))


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        opened.set_namespace("documents", cairn.NamespacePolicy(index="chunks"))
        yield opened


def compute(model, ids, cache):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), past_key_values=cache).logits


def put(store, model, name, ids):
    cache = cairn.hf.CairnCache.open(store, model, name, namespace="documents", save_every=0)
    compute(model, ids, cache)
    cache.save()


def rows_of(cache):
    """K and V of each layer, up to what the cache holds."""
    return [(layer.keys[0], layer.values[0]) for layer in cache.layers]


@pytest.mark.parametrize("name", ["exported", "gemma3"])
def test_shuffled_documents_are_loaded_and_the_rest_is_computed(exported, store, name):
    model = load(str(exported.huggingface) if name == "exported" else name)
    first, second, question = (prompt_of(model, n, seed) for n, seed in
                               [(DOCUMENT, 11), (DOCUMENT, 12), (QUESTION, 13)])
    put(store, model, "first", first)
    put(store, model, "second", second)
    ids = question + second + first + question
    cache = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents")
    plan = cache.plan
    assert cache.tokens == ids[:-1] and plan.positions_checked and plan.complete
    assert [s.match for s in plan.segments] == ["none", "full", "full", "none"]
    assert plan.load_tokens == 2 * (DOCUMENT - 16 - 2)
    # The first layer depends on ids and positions alone.
    whole = transformers.DynamicCache(config=model.config)
    compute(model, ids[:-1], whole)
    for got, want in zip(rows_of(cache)[0], rows_of(whole)[0]):
        assert torch.allclose(got[:, -want.shape[1]:], want, atol=2e-5)
    if name != "exported":  # The first rows of its windows are gone by now.
        assert len(generate(model, ids, NEW, cache)[0]) == len(ids) + NEW
        return
    # What was computed behind what was loaded.
    by_hand = transformers.DynamicCache(config=model.config)
    for step in plan.steps:
        end = min(step.end, len(ids) - 1)
        if not step.loads:
            compute(model, ids[step.begin:end], by_hand)
            continue
        for number, (keys, values) in enumerate(rows_of(cache)):
            by_hand.update(keys[None, :, step.begin:end].clone(), values[None, :, step.begin:end].clone(), number)
    for ours, theirs in zip(rows_of(cache), rows_of(by_hand)):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
    assert generate(model, ids, NEW, cache) == generate(model, ids, NEW, by_hand)


def test_of_a_window_the_store_may_have_the_last_rows_alone(store):
    model = load("gemma3")
    document, question = prompt_of(model, DOCUMENT, 11), prompt_of(model, QUESTION, 13)
    cache = cairn.hf.CairnCache.open(store, model, "document", namespace="documents", save_every=0, capacity=8)
    for at in range(0, DOCUMENT, 20):
        compute(model, document[at:at + 20], cache)
    cache.save()
    ids = document + question
    blended = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents")
    assert blended.plan.load_tokens == DOCUMENT and blended.plan.exact == len(ids)
    assert all(layer.rows.first > 0 for layer in blended.layers if hasattr(layer, "sliding_window")
               and layer.sliding_window), "rows that nobody wrote"
    assert generate(model, ids, NEW, blended) == plain(model, ids, NEW, passes=[20] * 5 + [QUESTION - 1])


def test_all_computed_is_a_full_prefill(store, model):
    document = prompt_of(model, DOCUMENT, 11)
    put(store, model, "document", document)
    ids = prompt_of(model, QUESTION, 13) + document
    cache = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents",
                                      options={"recompute_ratio": 1.0})
    assert cache.plan.load_tokens == 0 and cache.plan.exact == len(ids)
    assert generate(model, ids, NEW, cache) == plain(model, ids, NEW, passes=[len(ids) - 1])
    # It is exact, and so a source.
    assert store.find_prefix(cache._registered, ids).exact == len(ids)


def test_a_prefix_is_exact_and_the_branch_keeps_what_is(store, model):
    first, second = prompt_of(model, DOCUMENT, 11), prompt_of(model, DOCUMENT, 12)
    put(store, model, "first", first)
    put(store, model, "second", second)
    ids = first + second + prompt_of(model, QUESTION, 13)
    cache = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents")
    assert cache.plan.exact == DOCUMENT + 16
    generate(model, ids, NEW, cache)
    hit = store.find_prefix(cache._registered, ids)
    assert (hit.matched, hit.exact) == (DOCUMENT + 16, DOCUMENT + 16)
    assert store.find_prefix(cache._registered, ids, approximate=True).matched >= len(ids) - 1


def test_another_process_goes_on_bit_for_bit(exported, tmp_path, model):
    path = tmp_path / "store"
    document, question = prompt_of(model, DOCUMENT, 11), prompt_of(model, QUESTION, 13)
    ids = question + document + question
    with cairn.Store(path, create_if_missing=True) as store:
        store.set_namespace("documents", cairn.NamespacePolicy(index="chunks"))
        put(store, model, "document", document)
        cache = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents")
        all_ids, logits = generate(model, ids, NEW, cache)
        store.find_branch("chat").fork(len(ids) - 1, "again")
    job = f"""
import json, torch, cairn, cairn.hf
from hf_models import generate, load
model = load({str(exported.huggingface)!r})
with cairn.Store({str(path)!r}) as store:
    ids = json.loads({json.dumps(ids)!r})
    cache = cairn.hf.CairnCache.open(store, model, "again", tokens=ids)
    restored = len(cache.tokens)
    said = generate(model, ids, {NEW}, cache)
    cache.save()
    hit = store.find_prefix(cache._registered, said[0], approximate=True)
    print(json.dumps([restored, said, hit.matched, hit.exact]))
"""
    done = subprocess.run([sys.executable, "-c", job], capture_output=True, text=True, check=False,
                          cwd=pathlib.Path(hf_models.__file__).parent)
    assert done.returncode == 0, done.stderr
    restored, said, matched, exact = json.loads(done.stdout.splitlines()[-1])
    assert restored == len(ids) - 1 and said == [all_ids, logits]
    # What another process appended behind approximate KV is approximate, too.
    assert matched >= len(all_ids) - 1 and exact == cache.plan.exact
    with cairn.Store(path) as store:
        answer = all_ids[len(ids) - 10:] + prompt_of(model, 60, 17)
        registered = store.models()[0]
        plan = store.plan_blend(registered, prompt_of(model, 5, 18) + answer, namespace="documents",
                                options={"min_tokens": 32})
        assert [s.match for s in plan.segments] == ["none"]


def test_an_exact_request_behind_a_blended_one(store, model):
    document, question = prompt_of(model, DOCUMENT, 11), prompt_of(model, QUESTION, 13)
    put(store, model, "document", document)
    ids = question + document + question
    cairn.hf.CairnCache.blend(store, model, "blended", ids, documents="documents")
    cache = cairn.hf.CairnCache.open(store, model, "exact", tokens=ids)
    assert cache.tokens == []
    assert generate(model, ids, NEW, cache) == plain(model, ids, NEW)


def test_what_the_branch_has_is_not_computed_again(store, model):
    document, question = prompt_of(model, DOCUMENT, 11), prompt_of(model, QUESTION, 13)
    put(store, model, "document", document)
    ids = question + document
    first = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents")
    out, _ = generate(model, ids, NEW, first)
    more = out + prompt_of(model, 10, 14) + document + question
    passes = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True)
    second = cairn.hf.CairnCache.blend(store, model, "chat", more, documents="documents")
    hook.remove()
    assert second.tokens == more[:-1]
    assert sum(passes) < 10 + 1 + 16 + 2 + QUESTION + 8, passes
    assert second.branch.tokens().tolist()[:len(out)] == out


def test_a_source_that_goes_is_computed(store, monkeypatch):
    """Also where a window's rows had been made room for."""
    model = load("gemma3")
    first, second = prompt_of(model, DOCUMENT, 11), prompt_of(model, DOCUMENT, 12)
    put(store, model, "first", first)
    put(store, model, "second", second)
    ids = first + second + prompt_of(model, QUESTION, 13)
    load_of = cairn._hf_blend._load

    def losing(cache, plan, ids, begin, end):
        if begin > 0:
            plan.release()
            store.find_branch("second", namespace="documents").drop()
        load_of(cache, plan, ids, begin, end)

    monkeypatch.setattr(cairn._hf_blend, "_load", losing)
    cache = cairn.hf.CairnCache.blend(store, model, "chat", ids, documents="documents")
    assert cache.plan.load_tokens > DOCUMENT and cache.tokens == ids[:-1]
    passes = [DOCUMENT, *(step.end - step.begin for step in cache.plan.steps[1:-1]),
              len(ids) - 1 - cache.plan.steps[-1].begin]
    assert generate(model, ids, NEW, cache) == plain(model, ids, NEW, passes=passes)


def test_what_cannot_be_is_refused(store, model, exported):
    ids = prompt_of(model, DOCUMENT)
    with pytest.raises(cairn.InvalidState, match="chunks"):
        cairn.hf.CairnCache.blend(store, model, "a", ids)
    with pytest.raises(cairn.InvalidArgument, match="min_tokens"):
        cairn.hf.CairnCache.blend(store, model, "b", ids, documents="documents", options={"min_tokens": 1})
    assert store.list_branches()[0] == []  # What is refused makes no branch.
    hybrid = load("lfm2")
    with pytest.raises(cairn.InvalidArgument, match="recurrent"):
        cairn.hf.CairnCache.blend(store, hybrid, "c", prompt_of(hybrid, DOCUMENT), documents="documents")
