# SPDX-License-Identifier: Apache-2.0
"""Property: what an adapter writes down about rotation is what its engine does: it turns the engine's own keys of one
id into each other, another base does not; and it is no obstacle to KV of a store that had no such description, or one
that an earlier version had guessed.
Method: real engines; keys of the first layer, which depend on id and position alone, turned with numpy."""

import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy
import pytest
import torch
import transformers
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.v1.kv_cache_interface import FullAttentionSpec

import cairn
import cairn.hf
import vllm_driver
import vllm_rotary_process
from hf_models import SHAPE, load

IDS = [7, 21, 3, 99, 21, 50, 21, *range(10, 60), 21, 4]  # 21 is everywhere.
NEAR, FAR = 1, IDS.index(21, 8)
TOLERANCE = {"f32": 1e-4, "f16": 2e-3, "bf16": 2e-2}
WRONG = 0.2  # As far apart are keys that were turned with another base, at least.


def gemma3():
    """Windows, with frequencies of their own."""
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **SHAPE, head_dim=16, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 2))


def yarn():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}))


def glm():
    """Turns neighbours, in half of a row, with functions that are called as those that turn halves."""
    return transformers.GlmForCausalLM(transformers.GlmConfig(**SHAPE, head_dim=16, pad_token_id=0))


def deepseek():
    """Keeps latents, and turned keys apart from them."""
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **{**SHAPE, "num_key_value_heads": 4}, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2,
        moe_intermediate_size=32, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16,
        v_head_dim=16, first_k_dense_replace=1))


def dynamic():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}))


def smollm3():
    """Every fourth layer has no positions."""
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**SHAPE, pad_token_id=0))


def cohere2():
    """Layers without a window have no positions."""
    return transformers.Cohere2ForCausalLM(transformers.Cohere2Config(**SHAPE, sliding_window=16, pad_token_id=0))


def made(make):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    return make().eval()


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


def turned(rows, group, plane, inv_freq, begin, end):
    """Keys [head][element] of position `begin` at position `end`."""
    rows, rotary = numpy.array(rows, numpy.float64), plane.rotary
    inv_freq = numpy.array(inv_freq, numpy.float32)
    angles = (inv_freq * numpy.float32(end)).astype(float) - (inv_freq * numpy.float32(begin)).astype(float)
    assert (rotary.state, rotary.width) == ("applied", 2 * len(inv_freq))
    window = rows[:, rotary.first:rotary.first + rotary.width]
    half = len(inv_freq)
    x, y = ((window[:, :half], window[:, half:]) if rotary.pairing == "halves" else (window[:, 0::2], window[:, 1::2]))
    u, v = x * numpy.cos(angles) - y * numpy.sin(angles), x * numpy.sin(angles) + y * numpy.cos(angles)
    if rotary.pairing == "halves":
        window[:, :half], window[:, half:] = u, v
    else:
        window[:, 0::2], window[:, 1::2] = u, v
    return rows


def distance(rows, group, plane, begin, end, inv_freq=None):
    """How far from those of `end` the rows of `begin` are, once turned; of the longest row."""
    there = turned(rows[begin], group, plane, group.inv_freq if inv_freq is None else inv_freq, begin, end)
    return numpy.linalg.norm(there - rows[end], axis=-1).max() / numpy.linalg.norm(rows[end], axis=-1).max()


def expect_describes(rows, group, plane):
    """rows: [position][head][element]."""
    assert distance(rows, group, plane, NEAR, FAR) < TOLERANCE[plane.dtype]
    assert distance(rows, group, plane, FAR, NEAR) < TOLERANCE[plane.dtype]
    # 10,000 for 500,000 and the other way round, by their exponents.
    other = numpy.array(group.inv_freq) ** (1.4 if group.inv_freq[-1] > 1e-4 else 0.7)
    assert distance(rows, group, plane, NEAR, FAR, other) > WRONG


def in_store(store):
    (model,) = store.models()
    return model.spec


def first_rows(cache, name):
    layer = cache.layers[0]
    return (layer.keys if name == "k" else layer.values)[0].transpose(0, 1).float().numpy()


@pytest.mark.parametrize("name, dtype, pairing, window, plane", [
    ("exported", "float32", "halves", (0, 64), "k"), ("exported", "bfloat16", "halves", (0, 64), "k"),
    ("exported", "float16", "halves", (0, 64), "k"), (gemma3, "float32", "halves", (0, 16), "k"),
    (yarn, "float32", "halves", (0, 16), "k"), (glm, "float32", "adjacent", (0, 8), "k"),
    (deepseek, "float32", "halves", (0, 8), "v")])
def test_transformers_describes_what_turns_its_keys(exported, store, name, dtype, pairing, window, plane):
    model = made(name) if callable(name) else load(str(exported.huggingface) if name == "exported" else name, dtype)
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=IDS)
    with torch.no_grad():
        model(input_ids=torch.tensor([IDS]), past_key_values=cache)
    cache.save()
    spec = in_store(store)
    (described,) = [one for one in spec.groups[0].planes if one.name == plane]
    assert (described.rotary.pairing, described.rotary.first, described.rotary.width) == (pairing, *window)
    expect_describes(first_rows(cache, plane), spec.groups[0], described)
    (other,) = [one for one in spec.groups[0].planes if one.name != plane]
    assert other.rotary.state == "none"
    assert spec.groups[0].mscale == pytest.approx(1 + 0.1 * math.log(4) if name is yarn else 1)


def test_each_kind_of_layer_has_frequencies_of_its_own(store):
    cairn.hf.CairnCache.open(store, made(gemma3), "chat")
    window, attention = in_store(store).groups
    assert window.inv_freq == pytest.approx(cairn.rotary_frequencies(16, 10_000.0))
    assert attention.inv_freq == pytest.approx(cairn.rotary_frequencies(16, 1_000_000.0))
    assert (window.name, attention.name) == ("window", "attention")


def test_what_has_no_one_set_of_frequencies_says_none():
    """Frequencies that follow the length; layers without positions among others, and in a group of their own."""
    (group,) = cairn.hf.model_spec(made(dynamic)).groups
    assert (group.planes[0].rotary.pairing, group.planes[0].rotary.width, group.inv_freq) == ("halves", 16, [])
    (group,) = cairn.hf.model_spec(made(smollm3)).groups
    assert (group.planes[0].rotary.width, group.inv_freq) == (0, [])
    window, attention = cairn.hf.model_spec(made(cohere2)).groups
    assert (window.planes[0].rotary.pairing, len(window.inv_freq)) == ("adjacent", 8)
    assert (attention.planes[0].rotary.state, attention.inv_freq) == ("none", [])
    (group,) = cairn.hf.model_spec(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=128, n_embd=64, n_layer=2, n_head=4))).groups
    assert (group.planes[0].rotary.state, group.inv_freq) == ("unset", [])


def with_rotation(spec, rotary=None, inv_freq=()):
    """The same model, whose keys and frequencies are described so."""
    groups = []
    for group in spec.groups:
        planes = [cairn.Plane(plane.name, role=plane.role, heads=plane.heads, row_bytes=plane.row_bytes,
                              dtype=plane.dtype, rotary=rotary or plane.rotary) if plane.role == "key" else plane
                  for plane in group.planes]
        groups.append(cairn.LayerGroup(group.name, layers=group.layers, planes=planes, retention=group.retention,
                                       inv_freq=inv_freq, mscale=group.mscale, packing=group.packing))
    return cairn.ModelSpec(spec.identity, groups)


def kept_before(store, spec):
    """The model and KV of IDS, as a program stored them with this description."""
    kv = cairn.KvBuffer(spec, len(IDS))
    kv.bytes[:] = numpy.random.default_rng(1).integers(0, 32, kv.bytes.shape)
    model = store.register_model(spec)
    store.create_branch(model, "chat").append(IDS, kv)
    return model.id, kv


def expect_kept(store, model, kv):
    """The KV is there bit for bit, and goes into the model's own cache."""
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=IDS)
    assert cache.tokens == IDS[:-1]
    for layer, held in enumerate(cache.layers):
        for plane, tensor in (("k", held.keys), ("v", held.values)):
            assert torch.equal(tensor[0], torch.from_dlpack(kv.tensor(layer, plane))[:, :-1])
    back = cairn.KvBuffer(in_store(store), len(IDS))
    cache.branch.restore(back)
    assert (back.bytes == kv.bytes).all()


def test_a_description_without_frequencies_is_completed(exported, tmp_path):
    """A registration with them was refused as another shape."""
    model = load(str(exported.huggingface))
    whole = cairn.hf.model_spec(model)
    path = tmp_path / "store"
    with cairn.Store(path, create_if_missing=True) as store:
        known, kv = kept_before(store, with_rotation(whole, cairn.RotarySpec("applied", "halves")))
        expect_kept(store, model, kv)
    with cairn.Store(path) as store:
        assert in_store(store) == whole and len(whole.groups[0].inv_freq) == 32
        assert store.models()[0].id == known == store.register_model(with_rotation(whole)).id
        expect_kept(store, model, kv)


def test_what_an_earlier_version_guessed_stays(store):
    """KV would be lost if the truth were registered; no frequencies are said, so nothing is turned by a guess."""
    model = made(glm)
    guess = with_rotation(cairn.hf.model_spec(model), cairn.RotarySpec("applied", "halves"))
    _, kv = kept_before(store, guess)
    expect_kept(store, model, kv)
    assert in_store(store) == guess and guess.groups[0].inv_freq == []


def test_another_last_bit_is_the_same_model_and_another_base_is_not(exported, store):
    identity = cairn.ModelIdentity("given", weights_digest="1")
    model = load(str(exported.huggingface))
    whole = cairn.hf.model_spec(model, identity)
    bits = numpy.nextafter(numpy.array(whole.groups[0].inv_freq, numpy.float32), numpy.float32(0)).tolist()
    computed_elsewhere = with_rotation(whole, inv_freq=bits)
    _, kv = kept_before(store, computed_elsewhere)
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=IDS, identity=identity)
    assert cache.tokens == IDS[:-1] and in_store(store) == computed_elsewhere
    with torch.no_grad():
        model(input_ids=torch.tensor([IDS[-1:]]), past_key_values=cache)
    assert cache.save() == len(IDS)
    other = cairn.ModelIdentity("given", weights_digest="2")
    base = cairn.rotary_frequencies(64, 7e5)
    store.register_model(with_rotation(cairn.ModelSpec(other, whole.groups), inv_freq=base))
    with pytest.raises(cairn.ModelMismatch, match=r"groups\[0\].inv_freq differs"):
        cairn.hf.CairnCache.open(store, load(str(exported.huggingface)), "new", identity=other)


def test_vllm_describes_what_turns_its_keys(exported, tmp_path):
    done = subprocess.run([sys.executable, pathlib.Path(vllm_rotary_process.__file__), json.dumps(
        {"model": str(exported.huggingface), "store": str(tmp_path / "store"), "ids": IDS})],
        capture_output=True, text=True, check=False)
    print(done.stderr[-4000:])
    said = json.loads(done.stdout.splitlines()[-1])
    keys, words = numpy.array(said["keys"]), said["group"]
    rotary = cairn.RotarySpec(words["state"], words["pairing"], first=words["first"], width=words["width"])
    plane = cairn.Plane("k", role="key", heads=keys.shape[1], row_bytes=4 * keys.shape[2], dtype="f32", rotary=rotary)
    group = cairn.LayerGroup("k", layers=1, planes=[plane], inv_freq=words["inv_freq"], mscale=words["mscale"])
    expect_describes(keys, group, plane)
    config = json.loads((exported.huggingface / "config.json").read_text())
    theta = (config.get("rope_parameters") or config)["rope_theta"]
    assert group.inv_freq == pytest.approx(cairn.rotary_frequencies(2 * len(group.inv_freq), theta))
    with cairn.Store(tmp_path / "store") as store:  # In f32 blocks of a processor have rows, too.
        (rows,) = in_store(store).groups
        assert (rows.planes[0].rotary, rows.inv_freq) == (rotary, group.inv_freq)


class HeldLayer(torch.nn.Module, vllm_driver.Layer):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self.backend = "FLASH_ATTN"


class Attention(torch.nn.Module):
    """As vLLM's models have it: a projection, vLLM's own rotation, and the layer."""

    def __init__(self, layer, hidden, rotary):
        super().__init__()
        self.qk = torch.nn.Linear(hidden, vllm_driver.HEADS * vllm_driver.DIM, dtype=torch.bfloat16)
        self.attn, self.rotary_emb = layer, rotary

    def forward(self, positions, hidden_states):
        key = self.qk(hidden_states)
        query, key = self.rotary_emb(positions, key.clone(), key)
        return self.attn(query, key, key)


class WithAdapters(torch.nn.Module):
    """As vLLM's layers with LoRA, before anything has said which adapter each token has."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer

    def forward(self, hidden_states):
        raise IndexError("an index that nobody has written yet")


def vllm_with(exported, monkeypatch, path, rotations, adapters=False):
    """An engine of the driver's, whose layers turn keys by rope_parameters; and what holds the layers."""
    config, cache = vllm_driver.config_of(exported, monkeypatch, path, FullAttentionSpec(**vllm_driver.SHAPE))
    layers, held = config.compilation_config.static_forward_context, []
    with set_current_vllm_config(config):
        for name, rotation in zip(list(layers), rotations):
            layers[name] = HeldLayer()
            rope = get_rope(vllm_driver.DIM, max_position=512, is_neox_style=False, rope_parameters=rotation,
                            dtype=torch.bfloat16)
            held.append(Attention(layers[name], config.model_config.get_hidden_size(), rope))
            if adapters:
                held[-1].qk = WithAdapters(held[-1].qk)
    return vllm_driver.Engine(config, cache, "NHD"), held


PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
PROMPT = [3 * i % 97 for i in range(101)]


@pytest.mark.parametrize("rotations, frequencies, mscale", [
    ([PLAIN] * 3, cairn.rotary_frequencies(8, 10000.0), 1.0),
    ([{"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}] * 3,
     cairn.linear_frequencies(cairn.rotary_frequencies(8, 10000.0), 4.0), 1.0),
    ([YARN] * 3, cairn.yarn_frequencies(8, 10000.0, factor=4.0, original_positions=128), cairn.yarn_mscale(4.0)),
    ([PLAIN, PLAIN, YARN], [], 1.0)])
def test_vllm_describes_rows(exported, monkeypatch, tmp_path, rotations, frequencies, mscale):
    engine, _ = vllm_with(exported, monkeypatch, tmp_path / "store", rotations)
    (group,) = in_store(engine.worker._shared.store).groups
    rotary = group.planes[0].rotary
    engine.close()
    assert group.inv_freq == pytest.approx(frequencies) and group.mscale == pytest.approx(mscale)
    said = ("applied", "adjacent", 8) if frequencies else ("unset", "unset", 0)
    assert (rotary.state, rotary.pairing, rotary.width) == said
    assert group.planes[1].rotary.state == "unset"


def test_vllm_describes_rows_of_layers_that_take_adapters(exported, monkeypatch, tmp_path):
    """The same store opens with LoRA and without."""
    described = []
    for adapters in (False, True):
        engine, held = vllm_with(exported, monkeypatch, tmp_path / "store", [PLAIN] * 3, adapters)
        described += [group.inv_freq for group in engine.worker._shared.layout.spec().groups]
        engine.close()
    assert isinstance(held[0].qk, WithAdapters) and described[0] == described[1] != []


@pytest.mark.parametrize("before", ["no frequencies", "nothing"])
def test_vllm_finds_what_was_stored_with_less_said(exported, monkeypatch, tmp_path, before):
    """As an earlier version of the connector described it, with nothing; and as a program did, without frequencies."""
    path = tmp_path / "store"
    config, cache = vllm_driver.config_of(exported, monkeypatch, path, FullAttentionSpec(**vllm_driver.SHAPE))
    engine = vllm_driver.Engine(config, cache, "NHD")
    nothing = engine.worker._shared.layout.spec()
    engine.close()
    assert nothing.groups[0].planes[0].rotary == cairn.RotarySpec()
    if before == "nothing":
        engine = vllm_driver.Engine(config, cache, "NHD")  # Its layers show nothing.
        engine.run(vllm_driver.request_of("first", PROMPT), vllm_driver.table(1), [])
        engine.close()
    else:
        shutil.rmtree(path)
        with cairn.Store(path, create_if_missing=True) as store:
            store.register_model(with_rotation(nothing, cairn.RotarySpec("applied", "adjacent")))
    with cairn.Store(path) as store:
        (known,) = store.models()
    assert known.spec.groups[0].inv_freq == []
    engine, _ = vllm_with(exported, monkeypatch, path, [PLAIN] * 3)
    loaded, rows = engine.run(vllm_driver.request_of("second", PROMPT), vllm_driver.table(11), [])
    (model,) = engine.worker._shared.store.models()
    engine.close()
    assert model.id == known.id and (model.spec == known.spec) == (before == "nothing")
    assert len(model.spec.groups[0].inv_freq) == (0 if before == "nothing" else 4)
    assert loaded == (len(PROMPT) - 1 if before == "nothing" else 0)
    assert torch.equal(rows[:loaded], engine.rows(PROMPT, 0)[:loaded])
