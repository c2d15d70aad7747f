# SPDX-License-Identifier: Apache-2.0
"""The shape of a transformers model's cache, found by one token, and the model's identity."""

import dataclasses
import functools
import hashlib
import sys
import types
import weakref

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from . import _core, _states
from ._errors import InvalidArgument, ModelMismatch
from ._hf_layers import CairnDynamicLayer, CairnLinearLayer, CairnSlidingLayer, states_of
from ._hf_rotary import far_token, one_token, turns_of
from ._hf_weights import digest_of, fingerprint_of
from ._rotary import turned_group

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
          torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2"}


@dataclasses.dataclass
class Group:
    """Layers of one cache shape; `likes` are tensors of its planes after one token, of one layer."""

    kind: str  # "attention", "window" or "recurrent".
    layers: list
    likes: list  # (plane, index of the state, tensor)
    window: int = 0
    turns: dict = dataclasses.field(default_factory=dict)  # Plane -> its Turn; None: unknown.


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
    """The Shape of a model's cache. Computes a token, at two positions."""
    position, far = far_token(model)
    cache = one_token(model)  # Behind the far one: some rotary modules change for it, and back for this one.
    groups = {}
    for number, layer in enumerate(cache.layers):
        kind, likes, window = describe(number, layer)
        key = (kind, window, *((plane, index, like.dtype, *like.shape) for plane, index, like in likes))
        state_bytes = sum(like.nbytes for _, _, like in likes)
        if kind == "recurrent" and key in groups and not _states.fit(len(groups[key].layers) + 1, state_bytes):
            groups[key, number] = groups.pop(key)  # It is complete.
        groups.setdefault(key, Group(kind, [], likes, window)).layers.append(number)
    turns = turns_of(model, cache, position, far)
    for group in groups.values():
        # A plane whose layers turn in several ways is not described: a group has one set of angles.
        for number, plane in enumerate(("k", "v")):
            of_layers = {turns[layer][number] for layer in group.layers if layer in turns}
            group.turns[plane] = of_layers.pop() if len(of_layers) == 1 else None
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
    """How the model's code turns keys, where they do not show it: transformers names its function after that."""
    module = sys.modules[type(model).__module__]
    if hasattr(module, "rotate_half"):
        return "halves"
    return "adjacent" if hasattr(module, "rotate_every_two") else "unset"


def layer_group(name, group, pairing, turns):
    planes = []
    for plane, index, like in group.likes:
        if group.kind == "recurrent":
            planes.append(_core.Plane(f"{plane}{index}", role="state", row_bytes=like.nbytes, dtype="opaque"))
            continue
        dtype = DTYPES.get(like.dtype, "opaque")
        turned = plane == "k" and pairing != "unset" and dtype != "opaque"
        guess = ("applied", pairing) if turned else ("none" if plane == "v" else "unset",)
        planes.append(_core.Plane(plane, role="key" if plane == "k" else "value", heads=like.shape[1],
                                  row_bytes=like.shape[3] * like.element_size(), dtype=dtype,
                                  rotary=_core.RotarySpec(*guess)))
    retention = {"attention": lambda: _core.Retention("all"),
                 # transformers attends to the newest sliding_window - 1 rows and the token itself.
                 "window": lambda: _core.Retention("window", window=group.window - 1),
                 "recurrent": lambda: _core.Retention("checkpoint")}[group.kind]()
    described = _core.LayerGroup(name, layers=len(group.layers), planes=planes, retention=retention)
    return turned_group(described, turns)


def identity_of(model, weights_digest):
    config = hashlib.sha256(model.config.to_json_string(use_diff=True).encode()).hexdigest()
    return _core.ModelIdentity(f"{model.config.model_type} {type(model).__name__}", revision="config sha256:" + config,
                               weights_digest=weights_digest, cache_dtype=str(model.dtype).removeprefix("torch."))


def spec_of(shape, identity, pairing, seen=True):
    """seen: with what the keys show of their rotation; earlier versions had the pairing alone."""
    counts, groups = {}, []
    for group in shape.groups:
        counts[group.kind] = number = counts.get(group.kind, 0) + 1
        groups.append(layer_group(group.kind + (f" {number}" if number > 1 else ""), group, pairing,
                                  group.turns if seen else {}))
    return _core.ModelSpec(identity, groups)


_models = weakref.WeakKeyDictionary()  # Model -> KnownModel.
_HOOKED = "_cairn_hooked"  # An attribute of a model that has the hooks.


class KnownModel:
    """Facts that are found once for a model, its identity as long as its weights stay as they are, and hooks: those
    that notify caches of forward passes, and one that shows them the whole input of generate()."""

    def __init__(self, model, given):
        self.shape, self._given = probe(model), given
        self._fingerprint = self._digest = None
        self.spec = None
        self.look(model)
        if getattr(model, _HOOKED, False):
            return  # The copy of a model, with all that it had.
        setattr(model, _HOOKED, True)
        model.register_forward_pre_hook(_before_forward, with_kwargs=True)
        model.register_forward_hook(_after_forward, with_kwargs=True, always_call=True)
        prepare = getattr(type(model), "prepare_inputs_for_generation", None)
        if prepare is not None:
            # A method, so that a copy of the model gets its own.
            model.prepare_inputs_for_generation = types.MethodType(_checked(prepare), model)

    def look(self, model, config=True):
        """The spec, made again where the weights are others. ModelMismatch: under an identity that was given.

        config: looks at the config as well, which takes longer.
        """
        fingerprint = fingerprint_of(model)
        if fingerprint == self._fingerprint:
            if config and self._given is None and self.spec.identity != identity_of(model, self._digest):
                self.spec = spec_of(self.shape, identity_of(model, self._digest), pairing_of(model))
            return self.spec
        digest = self._digest_of(model)
        if self._given is not None and self.spec is not None and (digest is None or digest != self._digest):
            raise ModelMismatch("identity: the weights of the model were replaced since it was given; give another one")
        if self._digest is not None and digest != self._digest:
            self.shape = probe(model)  # Frequencies are among the buffers.
        self._digest = digest
        if self.spec is None or self._given is None:
            self.spec = spec_of(self.shape, self._given or identity_of(model, digest), pairing_of(model))
        self._fingerprint = fingerprint
        return self.spec

    def earlier(self, model):
        """The spec as earlier versions described the model."""
        return spec_of(self.shape, self.spec.identity, pairing_of(model), seen=False)

    def name(self, model, given):
        """Another identity for other weights."""
        if self._given is None or fingerprint_of(model) == self._fingerprint:
            raise InvalidArgument("identity: the model is known by another one")
        self._given, self._fingerprint, self.spec = given, None, None
        return self.look(model)

    def doubt(self):
        """The weights may be others although nothing shows it: the next look reads all of them."""
        self._fingerprint = None

    def _digest_of(self, model):
        try:
            return digest_of(model)
        except InvalidArgument:
            if self._given is None:
                raise
            return None  # Then any change counts.


def _checked(prepare):
    @functools.wraps(prepare)
    def prepare_inputs_for_generation(model, input_ids, *arguments, **options):
        cache, new = options.get("past_key_values"), options.get("next_sequence_length")
        if hasattr(cache, "check_input") and new is not None and input_ids is not None:
            cache.check_input(input_ids, new)
        return prepare(model, input_ids, *arguments, **options)
    return prepare_inputs_for_generation


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
    """What is known of the model, its weights looked at."""
    known = _models.get(model)
    if known is None:
        known = _models[model] = KnownModel(model, identity)
    elif identity is not None and known.spec.identity != identity:
        known.name(model, identity)
    else:
        known.look(model)
    return known


def model_spec(model, identity=None):
    """The cairn.ModelSpec of a transformers model's cache. Computes a token at two positions, and reads all weights,
    once and whenever they were changed. It has the frequencies and the pairing that turn the model's own keys.

    identity: a cairn.ModelIdentity; by default made of the config and a digest of the weights. Fine-tuned
    weights under one given identity would serve each other's state: then name the revision.
    """
    return known_model(model, identity).spec
