# SPDX-License-Identifier: Apache-2.0
"""The shape of a transformers model's cache, found by one token, and the model's identity."""

import dataclasses
import hashlib
import sys
import weakref

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from . import _core
from ._errors import InvalidArgument
from ._hf_layers import CairnDynamicLayer, CairnLinearLayer, CairnSlidingLayer, states_of

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
          torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2"}


@dataclasses.dataclass
class Group:
    """Layers of one cache shape; `likes` are tensors of its planes after one token, of one layer."""

    kind: str  # "attention", "window" or "recurrent".
    layers: list
    likes: list  # (plane, index of the state, tensor)
    window: int = 0


@dataclasses.dataclass
class Shape:
    groups: list
    layers: int

    def make_layers(self, cache, capacity):
        made = [None] * self.layers
        for group in self.groups:
            for layer in group.layers:
                if group.kind == "attention":
                    made[layer] = CairnDynamicLayer(cache, capacity)
                elif group.kind == "window":
                    made[layer] = CairnSlidingLayer(cache, capacity, group.window)
                else:
                    made[layer] = CairnLinearLayer(cache, 1 + max(index for _, index, _ in group.likes))
        return made


def probe(model):
    """The Shape of a model's cache. Computes one token."""
    cache = DynamicCache(config=model.config)
    # forward, not the call: hooks of caches that are in use have no part in it.
    with torch.no_grad():
        model.forward(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), past_key_values=cache,
                      use_cache=True)
    groups = {}
    for number, layer in enumerate(cache.layers):
        kind, likes, window = describe(number, layer)
        key = (kind, window, *((plane, index, like.dtype, *like.shape) for plane, index, like in likes))
        groups.setdefault(key, Group(kind, [], likes, window)).layers.append(number)
    return Shape(list(groups.values()), len(cache.layers))


def describe(number, layer):
    # By the exact class: a subclass may keep more than these do.
    if type(layer) is LinearAttentionLayer and states_of(layer):
        return "recurrent", states_of(layer), 0
    if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer):
        raise InvalidArgument(f"model: layer {number} keeps a {type(layer).__name__}; CairnCache has DynamicLayer, "
                              "DynamicSlidingWindowLayer and LinearAttentionLayer")
    if getattr(layer, "keys", None) is None:
        raise InvalidArgument(f"model: layer {number} keeps nothing of a token")
    likes = [("k", 0, layer.keys), ("v", 0, layer.values)]
    if type(layer) is DynamicLayer:
        return "attention", likes, 0
    if layer.sliding_window < 2:
        raise InvalidArgument(f"model: layer {number} has a sliding window of {layer.sliding_window}")
    return "window", likes, layer.sliding_window


def pairing_of(model):
    """How the model's code turns keys: transformers names its function after that."""
    module = sys.modules[type(model).__module__]
    if hasattr(module, "rotate_half"):
        return "halves"
    return "adjacent" if hasattr(module, "rotate_every_two") else "unset"


def layer_group(name, group, pairing):
    planes = []
    for plane, index, like in group.likes:
        if group.kind == "recurrent":
            planes.append(_core.Plane(f"{plane}{index}", role="state", row_bytes=like.nbytes, dtype="opaque"))
            continue
        dtype = DTYPES.get(like.dtype, "opaque")
        turned = plane == "k" and pairing != "unset" and dtype != "opaque"
        rotary = _core.RotarySpec("applied", pairing) if turned else _core.RotarySpec("none" if plane == "v" else "unset")
        planes.append(_core.Plane(plane, role="key" if plane == "k" else "value", heads=like.shape[1],
                                  row_bytes=like.shape[3] * like.element_size(), dtype=dtype, rotary=rotary))
    retention = {"attention": lambda: _core.Retention("all"),
                 # transformers attends to the newest sliding_window - 1 rows and the token itself.
                 "window": lambda: _core.Retention("window", window=group.window - 1),
                 "recurrent": lambda: _core.Retention("checkpoint")}[group.kind]()
    return _core.LayerGroup(name, layers=len(group.layers), planes=planes, retention=retention)


def weights_digest(model):
    """SHA-256 over names, shapes and bytes of all weights. Takes a second for one or two gigabytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        raw = tensor.detach().to("cpu").contiguous().flatten()
        if raw.numel() != 0:
            digest.update(memoryview(raw.view(torch.uint8).numpy()))
    return "sha256:" + digest.hexdigest()


def identity_of(model):
    config = hashlib.sha256(model.config.to_json_string(use_diff=True).encode()).hexdigest()
    return _core.ModelIdentity(f"{model.config.model_type} {type(model).__name__}", revision="config sha256:" + config,
                               weights_digest=weights_digest(model), cache_dtype=str(model.dtype).removeprefix("torch."))


def spec_of(shape, identity, pairing):
    counts, groups = {}, []
    for group in shape.groups:
        counts[group.kind] = number = counts.get(group.kind, 0) + 1
        groups.append(layer_group(group.kind + (f" {number}" if number > 1 else ""), group, pairing))
    return _core.ModelSpec(identity, groups)


_models = weakref.WeakKeyDictionary()  # Model -> KnownModel.


class KnownModel:
    """Facts that are found once for a model, and the hooks that tell caches about forward passes."""

    def __init__(self, model, identity):
        self.shape = probe(model)
        self.spec = spec_of(self.shape, identity or identity_of(model), pairing_of(model))
        model.register_forward_pre_hook(_before_forward, with_kwargs=True)
        model.register_forward_hook(_after_forward, with_kwargs=True, always_call=True)


def _before_forward(model, args, kwargs):
    cache = kwargs.get("past_key_values")
    if hasattr(cache, "begin_forward"):
        ids = kwargs.get("input_ids")
        cache.begin_forward(model, args[0] if ids is None and args else ids, kwargs)


def _after_forward(model, args, kwargs, output):
    cache = kwargs.get("past_key_values")
    if hasattr(cache, "end_forward"):
        cache.end_forward(output is not None)


def known_model(model, identity):
    known = _models.get(model)
    if known is None:
        known = _models[model] = KnownModel(model, identity)
    elif identity is not None and known.spec.identity != identity:
        raise InvalidArgument("identity: the model is known by another one")
    return known


def model_spec(model, identity=None):
    """The cairn.ModelSpec of a transformers model's cache. Computes one token and reads all weights, once.

    identity: a cairn.ModelIdentity; by default made of the config and a digest of the weights. Fine-tuned
    weights under one given identity would serve each other's state: then name the revision.
    """
    return known_model(model, identity).spec
