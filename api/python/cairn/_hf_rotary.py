# SPDX-License-Identifier: Apache-2.0
"""The frequencies that a transformers model has, and the keys of one of its tokens, near and far."""

import inspect

import torch
from transformers.cache_utils import DynamicCache

from ._rotary import Frequencies
from ._turns import FAR, turn_of

_SUFFIX = "inv_freq"
_ORIGINAL = "original_" + _SUFFIX  # What inv_freq goes back to; not computed with.
_CHANGING = ("dynamic", "longrope")  # Parts of rope types whose frequencies depend on the length.


def one_token(model, position=None):
    """The cache of one token. `forward`, not the call: hooks of caches that are in use have no part in it."""
    cache = DynamicCache(config=model.config)
    # One from the middle: the embedding of a token for padding may be zero.
    token = model.get_input_embeddings().weight.shape[0] // 2
    where = {} if position is None else {"position_ids": torch.tensor([[position]], device=model.device)}
    with torch.no_grad():
        model.forward(input_ids=torch.tensor([[token]], device=model.device), past_key_values=cache, use_cache=True,
                      **where)
    return cache


def candidates_of(model):
    """The Frequencies of all rotary modules, by kind of layer where they have several."""
    found = []
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if not name.endswith(_SUFFIX) or name.endswith(_ORIGINAL):
                continue
            kind = name.removesuffix(_SUFFIX)
            rope = getattr(module, "rope_type", "default")
            rope = rope.get(kind.rstrip("_"), "default") if isinstance(rope, dict) else rope
            scale = getattr(module, kind + "attention_scaling", 1.0)
            found.append(Frequencies(tuple(buffer.float().tolist()), float(scale),
                                     not any(word in rope for word in _CHANGING)))
    return list(dict.fromkeys(found))


def far_token(model):
    """(position, the cache of one token there); (0, None): the model cannot be asked for one."""
    far = min(FAR, (getattr(model.config.get_text_config(), "max_position_embeddings", None) or FAR + 1) - 1)
    if far < 1 or "position_ids" not in inspect.signature(model.forward).parameters:
        return 0, None
    return far, one_token(model, far)


def turns_of(model, near, position, far):
    """{layer: (Turn of its keys, Turn of its values)}, None for what is unknown, from two caches of one token.

    Where a latent is cached (MLA), it lies in the keys, and what is turned in the values.
    """
    layers = [number for number, layer in enumerate(near.layers) if getattr(layer, "keys", None) is not None]
    if far is None:
        return dict.fromkeys(layers, (None, None))
    candidates = candidates_of(model)
    return {number: tuple(turn_of(still[0, :, 0], turned[0, :, 0], position, candidates)
                          for still, turned in zip(_planes(near.layers[number]), _planes(far.layers[number])))
            for number in layers}


def _planes(layer):
    return layer.keys, layer.values
