# SPDX-License-Identifier: Apache-2.0
"""A ModelSpec of a transformers config: an object, or the dict that its config.json holds.

    spec = cairn.models.spec_of(json.load(open("model/config.json")), name="llama-3.2-1b", revision="5a1b")

What a family of models means by its fields is written down here; a family, a kind of layer or of rotary
scaling that is not is refused by name, never guessed. The state is laid out as transformers holds it.
Rotary frequencies are computed in double precision and rounded once; an engine whose frequencies have
another last bit gives its own (`inv_freq`).

What a store has of a model: bytes_of, drop_branches.
"""

from . import _core
from ._earlier import bytes_of, drop_branches
from ._errors import InvalidArgument

# Families whose layers are attention with K and V, and which layers are of which kind.
_ATTENTION = {
    "llama", "mistral", "mixtral", "ministral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gpt_oss", "smollm3",
}  # fmt: skip
_HYBRID = {"qwen3_next"}


def spec_of(config, *, name=None, dtype=None, inv_freq=None, **identity):
    """The ModelSpec of a transformers config, one layer group a kind of layer.

    config: a dict, or what has to_dict(). name: by default the config's _name_or_path; it, and `identity`
    (revision, weights_digest, tokenizer_digest, quantization, cache_dtype), become the ModelIdentity. dtype: of
    the cache, by default the config's. inv_freq: the engine's own rotary frequencies, for all layers.
    Groups are called as their layers are ("full_attention", "sliding_attention", "linear_attention"), in the
    order in which they first appear; layers_of says which layers are in which.
    """
    config = _as_dict(config)
    name = name or config.get("_name_or_path")
    if not name:
        raise InvalidArgument("name: is not given, and the config has no _name_or_path")
    dtype = str(dtype or _need(config, "dtype", "torch_dtype"))
    groups = []
    for kind, layers in layers_of(config).items():
        make = _linear if kind == "linear_attention" else _attention
        groups.append(make(config, kind, len(layers), dtype, inv_freq))
    identity.setdefault("cache_dtype", dtype.removeprefix("torch."))
    return _core.ModelSpec(_core.ModelIdentity(name, **identity), groups)


def layers_of(config):
    """{kind of layer: [numbers of the model's layers]}, in the order in which kinds first appear."""
    config = _as_dict(config)
    family = config.get("model_type")
    if family not in _ATTENTION | _HYBRID:
        known = ", ".join(sorted(_ATTENTION | _HYBRID))
        raise InvalidArgument(f"model_type: {family!r} is none of {known}")
    count = _need(config, "num_hidden_layers")
    kinds = config.get("layer_types") or _layer_types(config, family, count)
    if len(kinds) != count:
        raise InvalidArgument(f"layer_types: {len(kinds)} of {count} layers")
    groups = {}
    for layer, kind in enumerate(kinds):
        if kind not in ("full_attention", "sliding_attention", "linear_attention"):
            raise InvalidArgument(f"layer_types[{layer}]: {kind!r} is none of full_attention, sliding_attention, "
                                  "linear_attention")
        groups.setdefault(kind, []).append(layer)
    return groups


def _as_dict(config):
    if isinstance(config, dict):
        fields = config
    elif hasattr(config, "to_dict"):
        fields = config.to_dict()
    else:
        raise InvalidArgument(f"config: a {type(config).__name__} is neither a dict nor has to_dict()")
    if "text_config" in fields:
        raise InvalidArgument("config: is of several models; give its text_config")
    return fields


def _need(config, *names):
    """The first of these fields that the config has."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise InvalidArgument(f"{names[0]}: the config has no such field")


def _layer_types(config, family, count):
    """The layers of a config that does not list them one by one."""
    window = config.get("sliding_window")
    if family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"):
        # Off unless it is said, and then from one layer on.
        if not config.get("use_sliding_window", False) or window is None:
            return ["full_attention"] * count
        first = _need(config, "max_window_layers")
        return ["sliding_attention" if layer >= first else "full_attention" for layer in range(count)]
    if family == "gpt_oss":
        return ["full_attention" if layer % 2 else "sliding_attention" for layer in range(count)]
    if family == "qwen3_next":
        every = config.get("full_attention_interval", 4)
        return ["linear_attention" if (layer + 1) % every else "full_attention" for layer in range(count)]
    if family in ("mistral", "mixtral", "ministral") and window is not None:
        return ["sliding_attention"] * count
    return ["full_attention"] * count


def _attention(config, kind, layers, dtype, inv_freq):
    heads = _need(config, "num_attention_heads")
    head_dim = config.get("head_dim") or _need(config, "hidden_size") // heads
    frequencies, mscale, width = rotary_of(config, kind, head_dim)
    arguments = {"kv_heads": config.get("num_key_value_heads") or heads, "head_dim": head_dim, "dtype": dtype}
    if kind == "sliding_attention":
        # A token sees itself and window - 1 tokens before it: it needs that number to go on.
        window = _need(config, "sliding_window") - 1
        if window < 1:
            raise InvalidArgument("sliding_window: must be 2 at least")
        group = _core.LayerGroup.sliding_window(layers=layers, window=window, name=kind, **arguments)
    else:
        group = _core.LayerGroup.full_attention(layers=layers, name=kind, **arguments)
    key, value = group.planes
    rotary = _core.RotarySpec("applied", "halves", width=width)
    key = _core.Plane(key.name, role=key.role, heads=key.heads, row_bytes=key.row_bytes, dtype=key.dtype, rotary=rotary)
    return _core.LayerGroup(kind, layers=layers, planes=[key, value], retention=group.retention,
                            inv_freq=list(inv_freq) if inv_freq is not None else frequencies, mscale=mscale)


def rotary_of(config, kind, head_dim):
    """(inverse frequencies, scale of cosine and sine, how many elements turn) of a kind of layer.

    config: a dict. No frequencies: only the engine's own numbers say what they are.
    """
    rope = config.get("rope_parameters") or {}
    if kind in rope:
        rope = rope[kind]
    rope = {**(config.get("rope_scaling") or {}), **rope}
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    width = int(head_dim * rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)))
    scaling = rope.get("rope_type", rope.get("type", "default"))
    plain = _core.rotary_frequencies(width, theta)
    if scaling == "default":
        return plain, 1.0, width
    if scaling == "linear":
        return _core.linear_frequencies(plain, _need(rope, "factor")), 1.0, width
    if scaling == "llama3":
        return _core.llama3_frequencies(
            plain, factor=_need(rope, "factor"), low_freq_factor=_need(rope, "low_freq_factor"),
            high_freq_factor=_need(rope, "high_freq_factor"),
            original_positions=_need(rope, "original_max_position_embeddings")), 1.0, width
    if scaling == "yarn" and rope.get("truncate", True):
        factor = _need(rope, "factor")
        frequencies = _core.yarn_frequencies(
            width, theta, factor=factor, original_positions=_need(rope, "original_max_position_embeddings"),
            beta_fast=rope.get("beta_fast") or 32.0, beta_slow=rope.get("beta_slow") or 1.0)
        return frequencies, _yarn_mscale(rope, factor), width
    if scaling == "yarn":
        # Without rounding to whole pairs, as gpt-oss has it: only the engine's own numbers say what they are.
        return [], _yarn_mscale(rope, _need(rope, "factor")), width
    raise InvalidArgument(f"rope_type: {scaling!r} is none of default, linear, llama3, yarn")


def _yarn_mscale(rope, factor):
    if rope.get("attention_factor") is not None:
        return rope["attention_factor"]
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return _core.yarn_mscale(factor, rope["mscale"]) / _core.yarn_mscale(factor, rope["mscale_all_dim"])
    return _core.yarn_mscale(factor)


def _linear(config, kind, layers, dtype, inv_freq):
    """Gated delta rule: of each layer the last inputs of the convolution, and one matrix a value head, in fp32."""
    key_heads, key_dim = _need(config, "linear_num_key_heads"), _need(config, "linear_key_head_dim")
    value_heads, value_dim = _need(config, "linear_num_value_heads"), _need(config, "linear_value_head_dim")
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    width = 4 if dtype.endswith(("f32", "float32")) else 2
    conv = channels * _need(config, "linear_conv_kernel_dim") * width
    matrices = value_heads * key_dim * value_dim * 4
    return _core.LayerGroup(
        kind, layers=layers, retention=_core.Retention("checkpoint"),
        planes=[_core.Plane("conv", role="state", row_bytes=conv, dtype=dtype),
                _core.Plane("recurrent", role="state", row_bytes=matrices, dtype="f32", state_parts=value_heads)])
