# SPDX-License-Identifier: Apache-2.0
"""Property: KV that other weights computed is never served by cairn.hf: not of the same model object whose weights
were changed, whatever changed them, and not of another prompt; and nothing that changed weights compute is kept as
that of the old ones.
Method: a model whose weights are changed in each way that torch and PEFT have, and back."""

import copy

import pytest
import torch

import cairn
import cairn.hf
from cairn import _hf_model, _hf_weights
import hf_models
from hf_models import generate, load, plain, prompt_of

NAME = "gemma3"
HIDDEN = 100  # An element outside the sample: byte 400 of 8192, of which pieces of 64 bytes are read every 541.
ATTENTION = ["q_proj", "k_proj", "v_proj"]


@pytest.fixture
def model():
    return load(NAME)


@pytest.fixture
def ids(model):
    return prompt_of(model, 50)


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


def weight(model):
    return model.model.layers[1].self_attn.k_proj.weight


def step(model):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(input_ids=torch.tensor([[5, 6, 7]]), labels=torch.tensor([[5, 6, 7]])).loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def load_state(model):
    other = load(NAME, seed=4)
    model.load_state_dict(other.state_dict())


def data(model):
    weight(model).data.mul_(1.5)  # Counts no version.


def element(model):
    """One that no sample has: only its tensor's version shows it."""
    with torch.no_grad():
        weight(model).flatten()[HIDDEN] += 1


def storage(model):
    """As another library writes, in place and past torch."""
    weight(model).detach().numpy()[...] *= 1.5


def parameter(model):
    model.model.layers[1].self_attn.k_proj.weight = torch.nn.Parameter(weight(model).detach() * 1.5)


def layer(model):
    model.model.layers[1] = load(NAME, seed=4).model.layers[1]


def buffer(model):
    name, held = next((name, held) for name, held in model.named_buffers() if "inv_freq" in name)
    held.mul_(0.5)


def config(model):
    model.config.rms_norm_eps = 0.1


@pytest.mark.parametrize("change", [step, load_state, data, element, storage, parameter, layer, buffer, config])
def test_weights_that_changed_in_place_are_another_model(model, store, ids, change):
    """The field is named; a branch of their own works; the old weights find the old branch again."""
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    generate(model, ids, 5, cache)
    old = copy.deepcopy(model)
    change(model)
    with pytest.raises(cairn.ModelMismatch, match="identity.(weights_digest|revision)"):
        cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    fresh = cairn.hf.CairnCache.open(store, model, "other", tokens=ids)
    assert fresh.tokens == [] and generate(model, ids, 5, fresh) == plain(model, ids, 5)
    again = cairn.hf.CairnCache.open(store, old, "chat", tokens=ids)
    assert again.tokens == ids[:-1]


@pytest.mark.parametrize("change", [step, load_state, data, element, storage, parameter, layer, buffer])
def test_what_changed_weights_compute_is_not_kept(model, store, ids, change):
    """The cache was opened before: to go on with it mixes both."""
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    all_ids, _ = generate(model, ids, 5, cache)
    stored = cache.branch.length
    change(model)
    with pytest.warns(RuntimeWarning, match="ModelMismatch.*weights_digest"):
        generate(model, all_ids, 5, cache)
    assert cache.branch.length == stored
    with pytest.raises(cairn.ModelMismatch, match="when the cache was opened"):
        cache.save()


def test_weights_of_inference_mode_are_told_apart(store):
    """They have no version."""
    with torch.inference_mode():
        model = load(NAME)
        ids = prompt_of(model, 50)
        assert weight(model).is_inference()
        generate(model, ids, 5, cairn.hf.CairnCache.open(store, model, "chat", tokens=ids))
        assert cairn.hf.CairnCache.open(store, model, "chat", tokens=ids).tokens == ids[:-1]
        weight(model).mul_(1.5)
        with pytest.raises(cairn.ModelMismatch, match="identity.weights_digest"):
            cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)


def test_adapters_of_peft_are_told_apart(model, store, ids):
    """Switched, merged, unmerged, turned off, of another scale: each is a model of its own."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    for name in "ab":
        model.add_adapter(peft.LoraConfig(r=4, target_modules=ATTENTION, init_lora_weights=False), name)
    lora = [module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer)]

    def each(do):
        for module in lora:
            do(module)

    ways = {
        "a": lambda: model.set_adapter("a"),
        "b": lambda: model.set_adapter("b"),
        "both": lambda: model.set_adapter(["a", "b"]),
        "off": lambda: model.disable_adapters(),
        "scaled": lambda: (model.enable_adapters(), model.set_adapter("a"), each(lambda one: one.scale_layer(3.0))),
        "merged": lambda: (each(lambda one: one.unscale_layer()), each(lambda one: one.merge())),
        "unmerged": lambda: each(lambda one: one.unmerge()),
    }
    models = {}
    for name, way in ways.items():
        way()
        cache = cairn.hf.CairnCache.open(store, model, name, tokens=ids)
        assert generate(model, ids, 3, cache) == plain(model, ids, 3)
        models[name] = cache.branch.info().model_id
    # Unmerged weights may have the bits that they had before.
    del models["unmerged"]
    assert len(set(models.values())) == len(models)
    with pytest.raises(cairn.ModelMismatch, match="identity.weights_digest"):
        cairn.hf.CairnCache.open(store, model, "b")


def test_the_same_weights_elsewhere_are_the_same_model(model, store, ids):
    """They are read again, and found equal: also under an identity that was given."""
    for given in (None, cairn.ModelIdentity("given")):
        here = load(NAME)
        name = "chat" if given is None else "given"
        generate(here, ids, 5, cairn.hf.CairnCache.open(store, here, name, tokens=ids, identity=given))
        here.load_state_dict({key: value.clone() for key, value in here.state_dict().items()}, assign=True)
        assert cairn.hf.CairnCache.open(store, here, name, tokens=ids).tokens == ids[:-1]
        data(here)
        if given is None:
            continue
        with pytest.raises(cairn.ModelMismatch, match="identity: the weights of the model were replaced"):
            cairn.hf.CairnCache.open(store, here, name, tokens=ids)
        assert cairn.hf.CairnCache.open(store, here, "next", identity=cairn.ModelIdentity("other")).tokens == []


def test_reset_reads_all_weights_again(model, store, ids):
    """A byte outside the sample, written through `.data`, is what cannot be seen."""
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    generate(model, ids, 5, cache)
    weight(model).data.flatten()[HIDDEN] += 1
    assert cairn.hf.CairnCache.open(store, model, "chat", tokens=ids).tokens == ids[:-1]
    cache.reset()
    with pytest.raises(cairn.ModelMismatch, match="identity.weights_digest"):
        cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)


def test_without_versions_that_element_would_be_served(model, store, ids, monkeypatch):
    """So the version decides."""
    monkeypatch.setattr(_hf_model, "fingerprint_of", lambda model: (_hf_weights.fingerprint_of(model)[0],))
    generate(model, ids, 5, cairn.hf.CairnCache.open(store, model, "chat", tokens=ids))
    element(model)
    assert cairn.hf.CairnCache.open(store, model, "chat", tokens=ids).tokens == ids[:-1]


def test_weights_that_cannot_be_read_need_a_name(store, ids):
    with torch.device("meta"):
        model = hf_models.gemma3()
    with pytest.raises(cairn.InvalidArgument, match="weights_digest: .* is not in memory"):
        _hf_weights.digest_of(model)
    model.is_quantized = True
    with pytest.raises(cairn.InvalidArgument, match="weights_digest: the model is quantised"):
        _hf_weights.digest_of(model)


def test_a_used_cache_with_another_prompt_is_refused(model, store, ids):
    """It would answer with the first one's KV, and its branch would hold a mix of both."""
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    all_ids, logits = generate(model, ids, 5, cache)
    held = cache.branch.tokens().tolist()
    other = prompt_of(model, 70, seed=2)
    with pytest.raises(cairn.Conflict, match="input_ids: other ones than the cache has, from position 0 on"):
        generate(model, other, 5, cache)
    changed = all_ids[:30] + [all_ids[30] ^ 1] + all_ids[31:] + [9, 9]
    with pytest.raises(cairn.Conflict, match="from position 30 on"):
        generate(model, changed, 5, cache)
    last = all_ids[:-2] + [all_ids[-2] ^ 1] + all_ids[-1:]
    with pytest.raises(cairn.Conflict, match=f"from position {len(all_ids) - 2} on"):
        generate(model, last, 5, cache)
    assert cache.tokens == held and cache.branch.tokens().tolist() == held
    whole_ids, whole_logits = plain(model, ids, 10)
    assert generate(model, all_ids, 5, cache) == (whole_ids, whole_logits[5:])
    # Another cache of the copy of a model looks at its own input.
    twin = copy.deepcopy(model)
    with pytest.raises(cairn.Conflict, match="from position 0 on"):
        cache = cairn.hf.CairnCache.open(store, twin, "twin")
        generate(twin, ids, 3, cache)
        generate(twin, other, 3, cache)
