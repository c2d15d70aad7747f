# SPDX-License-Identifier: Apache-2.0
"""ModelSpecs of transformers configs, as their config.json holds them."""

import pytest

import cairn

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_size": 2048, "head_dim": 64, "torch_dtype": "bfloat16", "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192},
}  # fmt: skip


def test_llama():
    spec = cairn.models.spec_of(LLAMA, name="llama-3.2-1b", revision="5a1b")
    (group,) = spec.groups
    assert spec.identity == cairn.ModelIdentity("llama-3.2-1b", revision="5a1b", cache_dtype="bfloat16")
    assert (group.name, group.layers, group.retention.kind) == ("full_attention", 16, "all")
    key, value = group.planes
    assert (key.heads, key.row_bytes, key.dtype) == (8, 128, "bf16") == (value.heads, value.row_bytes, value.dtype)
    assert (key.rotary.state, key.rotary.pairing, key.rotary.width) == ("applied", "halves", 64)
    assert value.rotary.state == "none" and spec.token_bytes == 16 * 2 * 8 * 128
    assert len(group.inv_freq) == 32 and group.inv_freq[0] == 1.0
    assert group.inv_freq[-1] == pytest.approx(500000.0 ** (-62 / 64) / 32, rel=1e-6)


def test_heads_and_rows_that_are_not_said_follow_from_others():
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64,
              "torch_dtype": "float32", "_name_or_path": "tiny"}  # fmt: skip
    (group,) = cairn.models.spec_of(config).groups
    assert (group.planes[0].heads, group.planes[0].row_bytes, group.planes[0].dtype) == (4, 64, "f32")
    assert len(group.inv_freq) == 8 and group.inv_freq == cairn.rotary_frequencies(16, 10_000.0)
    (group,) = cairn.models.spec_of(config, dtype="torch.float16", inv_freq=[1.0] * 8).groups
    assert group.planes[0].dtype == "f16" and group.inv_freq == [1.0] * 8


def test_mistral_needs_one_token_less_than_its_window():
    config = {**LLAMA, "model_type": "mistral", "rope_scaling": None, "sliding_window": 4096}
    (group,) = cairn.models.spec_of(config, name="m").groups
    assert (group.name, group.retention.kind, group.retention.window) == ("sliding_attention", "window", 4095)
    (group,) = cairn.models.spec_of({**config, "sliding_window": None}, name="m").groups
    assert group.retention.kind == "all"


def test_qwen_has_a_window_only_where_it_is_on():
    config = {**LLAMA, "model_type": "qwen2", "rope_scaling": None, "sliding_window": 1024, "max_window_layers": 10}
    assert list(cairn.models.layers_of(config)) == ["full_attention"]
    layers = cairn.models.layers_of({**config, "use_sliding_window": True})
    assert layers == {"full_attention": list(range(10)), "sliding_attention": list(range(10, 16))}


def test_gpt_oss_alternates():
    config = {
        "model_type": "gpt_oss", "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 64, "sliding_window": 128, "dtype": "bfloat16",
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000, "factor": 32.0, "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096},
    }  # fmt: skip
    spec = cairn.models.spec_of(config, name="gpt-oss")
    window, full = spec.groups
    assert (window.name, window.layers, window.retention.window) == ("sliding_attention", 2, 127)
    assert (full.name, full.layers, full.retention.kind) == ("full_attention", 2, "all")
    # Its frequencies are not rounded to whole pairs, so they are the engine's to give.
    assert full.inv_freq == [] and full.planes[0].rotary.width == 64
    assert full.mscale == pytest.approx(1.3465735, rel=1e-6)
    del config["layer_types"]
    assert cairn.models.layers_of(config) == {"sliding_attention": [0, 2], "full_attention": [1, 3]}


def test_yarn():
    config = {**LLAMA, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}
    (group,) = cairn.models.spec_of(config, name="y").groups
    assert group.inv_freq == cairn.yarn_frequencies(64, 500000.0, factor=4.0, original_positions=32768)
    assert group.mscale == pytest.approx(cairn.yarn_mscale(4.0))


def test_a_hybrid_with_linear_attention():
    config = {
        "model_type": "qwen3_next", "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "hidden_size": 2048, "partial_rotary_factor": 0.25, "dtype": "bfloat16",
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    }  # fmt: skip
    linear, full = cairn.models.spec_of(config, name="next").groups
    assert (linear.name, linear.layers, linear.retention.kind) == ("linear_attention", 6, "checkpoint")
    assert (full.name, full.layers, full.planes[0].rotary.width) == ("full_attention", 2, 64)
    conv, recurrent = linear.planes
    assert conv.row_bytes == (2 * 16 * 128 + 32 * 128) * 4 * 2 and conv.dtype == "bf16"
    assert recurrent.row_bytes == 32 * 128 * 128 * 4 and (recurrent.dtype, recurrent.state_parts) == ("f32", 32)


def test_what_a_spec_is_made_of_can_be_stored(store):
    model = store.register_model(cairn.models.spec_of(LLAMA, name="llama"))
    assert store.register_model(cairn.models.spec_of(LLAMA, name="llama")) == model
    with pytest.raises(cairn.ModelMismatch, match="inv_freq"):
        store.register_model(cairn.models.spec_of({**LLAMA, "rope_scaling": None}, name="llama"))


@pytest.mark.parametrize("change, said", [
    ({"model_type": "deepseek_v3"}, "model_type: 'deepseek_v3' is none of gpt_oss"),
    ({"model_type": None}, "model_type"),
    ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type: 'longrope'"),
    ({"rope_scaling": {"rope_type": "linear"}}, "factor: the config has no such field"),
    ({"layer_types": ["full_attention"] * 15 + ["chunked_attention"]}, r"layer_types\[15\]: 'chunked_attention'"),
    ({"layer_types": ["full_attention"]}, "layer_types: 1 of 16 layers"),
    ({"num_hidden_layers": None}, "num_hidden_layers"),
    ({"torch_dtype": "int4"}, "dtype"),
    ({"text_config": {}}, "text_config"),
])
def test_what_is_unknown_is_refused_by_name(change, said):
    with pytest.raises(cairn.InvalidArgument, match=said):
        cairn.models.spec_of({**LLAMA, **change}, name="x")


def test_a_config_needs_a_name_and_is_a_dict():
    with pytest.raises(cairn.InvalidArgument, match="name: is not given"):
        cairn.models.spec_of(LLAMA)
    with pytest.raises(cairn.InvalidArgument, match="config: a str"):
        cairn.models.spec_of("llama", name="x")


def test_what_a_store_has_of_a_model_counts_shared_kv_once_and_goes(store, spec):
    model = store.register_model(spec)
    other = store.register_model(cairn.ModelSpec.of("other", layers=1, kv_heads=1, head_dim=4, dtype="bf16"))
    chat = store.create_branch(model, "chat")
    chat.append(list(range(100)), cairn.KvBuffer(spec, 100))
    for name, position in (("whole", 100), ("half", 50)):
        kv = cairn.KvBuffer(spec, position + 3).view(position)
        chat.fork(position, name).append([1, 2, 3], kv)
    store.create_branch(model, "salted", namespace="tenant").append([7])  # Without KV.
    kept = store.create_branch(other, "kept")
    assert cairn.models.bytes_of(store, model.id) == (100 + 3 + 3) * spec.token_bytes
    assert cairn.models.drop_branches(store, model.id) == 4
    assert cairn.models.bytes_of(store, model.id) == 0
    assert [info.name for info in store.list_branches()[0]] == ["kept"] and kept.length == 0
