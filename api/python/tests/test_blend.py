# SPDX-License-Identifier: Apache-2.0
"""KV of a prompt at any position."""

import numpy as np
import pytest

import cairn
import cairn.blend

HEADS, HEAD_DIM = 2, 8


@pytest.fixture
def model(store):
    group = cairn.LayerGroup.full_attention(layers=2, kv_heads=HEADS, head_dim=HEAD_DIM, dtype="f32",
                                            inv_freq=cairn.rotary_frequencies(HEAD_DIM, 10_000.0))
    spec = cairn.ModelSpec(identity=cairn.ModelIdentity("blended"), groups=[group])
    store.set_namespace("docs", cairn.NamespacePolicy(index="chunks"))
    return store.register_model(spec)


def ids_of(count, seed):
    return np.random.default_rng(seed).integers(0, 30_000, count, np.uint32)


def put(store, model, name, ids):
    kv = cairn.KvBuffer(model.spec, len(ids))
    kv.bytes.view(np.float32)[:] = np.random.default_rng(len(ids)).standard_normal(len(kv.bytes) // 4)
    store.create_branch(model, name, namespace="docs").append(ids, kv)
    return kv


def test_a_document_elsewhere_is_loaded_with_its_keys_turned(store, model):
    doc = ids_of(300, 1)
    kv = put(store, model, "doc", doc)
    prompt = np.concatenate([ids_of(40, 2), doc, ids_of(20, 3)])
    with store.plan_blend(model, prompt, namespace="docs", lease=5) as plan:
        assert plan.lease and plan.complete and not plan.positions_checked
        assert [(s.begin, s.end, s.match) for s in plan.segments] == [
            (0, 40, "none"), (40, 340, "full"), (340, 360, "none")]
        assert [(s.loads, s.begin, s.end) for s in plan.steps] == [
            (False, 0, 56), (True, 56, 338), (False, 338, 360)]
        assert (plan.tokens, plan.exact, plan.load_tokens, plan.compute_tokens) == (360, 56, 282, 78)
        assert plan.segments[1].shift == 40 and "full" in repr(plan.segments[1])
        back = cairn.KvBuffer(model.spec, 360)
        result = plan.restore(back)
        assert result.approximate_bytes == result.bytes == plan.load_bytes
        plan.renew(1)
    values, keys = back.numpy(1, 1), back.numpy(1, 0)
    assert np.array_equal(values[:, 56:338], kv.numpy(1, 1)[:, 16:298])
    stored = np.ascontiguousarray(kv.numpy(1, 0)[:, 16:298])
    half = HEAD_DIM // 2
    angle = 40 * np.asarray(model.spec.groups[0].inv_freq, np.float64)
    x, y = stored[..., :half], stored[..., half:]
    want = np.concatenate([x * np.cos(angle) - y * np.sin(angle), y * np.cos(angle) + x * np.sin(angle)], -1)
    assert np.allclose(keys[:, 56:338], want, atol=1e-5)
    assert not keys[:, :56].any() and not keys[:, 338:].any()


def test_what_ucm_keeps_of_a_prompt(store, model):
    doc = ids_of(192, 1)
    put(store, model, "doc", doc)
    prompt = np.concatenate([ids_of(64, 2), doc])
    plan = store.plan_blend(model, prompt, namespace="docs")
    mapping, mask = plan.position_mapping, plan.recompute_mask
    assert mapping.dtype == np.int64 and mask.dtype == bool and len(mapping) == len(mask) == 256
    assert (mapping[:64] == -1).all() and np.array_equal(mapping[64:], np.arange(192))
    assert mask[:80].all() and not mask[80:255].any() and mask[255]
    assert [(c.begin, c.end, c.match, c.loaded) for c in plan.chunks(64)] == [
        (0, 64, "none", 0), (64, 128, "full", 48), (128, 192, "full", 64), (192, 256, "full", 63)]
    with pytest.raises(cairn.InvalidArgument):
        plan.chunks(0)


def test_options_by_all_their_names(store, model):
    doc = ids_of(300, 1)
    put(store, model, "doc", doc)
    branch = store.find_branch("doc", namespace="docs")
    prompt = np.concatenate([ids_of(40, 2), doc])

    def loaded(**more):
        return store.plan_blend(model, prompt, namespace="docs", **more).load_tokens

    assert loaded() == 283
    assert loaded(options={"LMCACHE_BLEND_MIN_TOKENS": 301}) == 0
    assert loaded(options={"blend_recompute_ratio": 0.5, "recompute_boundary": 0}) == 149
    assert loaded(options={"recompute": [(100, 120)], "separators": [list(doc[150:153])]}) == 114
    assert loaded(options={"sources": [(branch, 100, 300, 140)], "position_correction": False}) == 183
    assert loaded(defaults="lmcache") == 254
    with pytest.raises(cairn.ModelMismatch, match="head_dim is 128"):
        loaded(defaults="ucm")
    with pytest.raises(cairn.InvalidArgument, match="defaults"):
        loaded(defaults="vllm")
    with pytest.raises(cairn.InvalidArgument, match="no option is called"):
        loaded(options={"min": 3})
    with pytest.raises(cairn.InvalidArgument, match="min_tokens: 31"):
        loaded(options={"min_tokens": 31})
    with pytest.raises(cairn.InvalidState, match="chunks"):
        store.plan_blend(model, prompt)


def test_documents_make_a_prompt(store, model):
    a, b = ids_of(100, 1), ids_of(150, 2)
    put(store, model, "law/a", a)
    put(store, model, "law/b", b)
    composed = store.compose(model, [("law/b", 10), "law/*"], namespace="docs", separator=[7, 8],
                             question=[1, 2, 3], lease=1)
    assert np.array_equal(composed.tokens,
                          np.concatenate([b[10:], [7, 8], a, [7, 8], b, [7, 8], [1, 2, 3]]))
    assert [(d.name, d.begin, d.end) for d in composed.documents] == [
        ("law/b", 0, 140), ("law/a", 142, 242), ("law/b", 244, 394)]
    assert composed.plan.tokens == 399 and composed.spans == []
    composed.plan.restore(cairn.KvBuffer(model.spec, 399))
    composed.plan.release()
    with pytest.raises(cairn.NotFound, match="law/c"):
        store.compose(model, ["law/c"], namespace="docs")


def test_a_source_that_changed_is_refused(store, model):
    doc = ids_of(300, 1)
    put(store, model, "doc", doc)
    plan = store.plan_blend(model, np.concatenate([ids_of(40, 2), doc]), namespace="docs")
    store.find_branch("doc", namespace="docs").drop()
    with pytest.raises(cairn.NotFound):
        plan.restore(cairn.KvBuffer(model.spec, 340))


def test_attention_of_scattered_tokens_is_causal():
    random = np.random.default_rng(5)
    tokens, mask = 40, np.zeros(40, bool)
    mask[[3, 4, 17, 39]] = True
    q = random.standard_normal((tokens, 4, 8))
    k, v = random.standard_normal((2, tokens, 2, 8))
    full = cairn.blend.recompute_attention(q, k, v, np.ones(tokens, bool))
    some = cairn.blend.recompute_attention(q, k, v, mask)
    assert np.allclose(some, full[mask])
    assert np.array_equal(cairn.blend.recompute_attention(q[mask], k, v, mask), some)
    merged = cairn.blend.recompute_attention(q, k, v, mask, original_output=np.zeros_like(full))
    assert np.allclose(merged[mask], full[mask]) and not merged[~mask].any()
    # The mask that kernels align at the bottom right shows tokens what is behind them.
    leaking = np.einsum("hd,nhd->hn", q[3], np.repeat(k[:tokens - 3], 2, 1)) / np.sqrt(8)
    weights = np.exp(leaking) / np.exp(leaking).sum(1, keepdims=True)
    assert not np.allclose(np.einsum("hn,nhd->hd", weights, np.repeat(v[:tokens - 3], 2, 1)), some[0])
    for bad in (dict(k=k[:-1]), dict(q=q[:7]), dict(q=q[:, :3])):
        with pytest.raises(ValueError):
            cairn.blend.recompute_attention(**{"q": q, "k": k, "v": v, "mask": mask, **bad})
