# SPDX-License-Identifier: Apache-2.0
"""How vLLM's layers turn their keys: seen in keys that the model's attention modules compute before they serve."""

import gc
import math

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from ._rotary import Frequencies, turned_group
from ._turns import FAR, turn_of

_SEED = 1  # Any hidden state that is not zero will do.
_CACHE_ROUNDING = 2 ** -7  # Relative: a cache of cosines may be bf16.


def described(vllm_config, layout):
    """The layout with the rotation of its keys. Computes a key at two positions with each layer's own projection, norm
    and rotary module. A group whose layers do not all show the same rotation stays as it is."""
    layers = get_layers_from_vllm_config(vllm_config, AttentionLayerBase)
    holders = _holders([layers[name] for group in layout.groups for name in group.layers
                        if group.spec.planes[0].role == "key"])
    return layout.described([_described(vllm_config.model_config, group.spec, [
        holders.get(id(layers[name])) for name in group.layers]) for group in layout.groups])


def _described(model_config, group, holders):
    if None in holders:
        return group
    plane = group.planes[0]
    turns = {_turn(*holder, plane.row_bytes // model_config.dtype.itemsize, model_config) for holder in holders}
    return turned_group(group, {plane.name: turns.pop()} if len(turns) == 1 else {})


def _holders(layers):
    """{id of a layer: (the module that holds it, its name there)}. vLLM shows a connector the layers alone."""
    wanted, holders = {id(layer) for layer in layers}, {}
    for module in gc.get_objects() if wanted else ():
        if issubclass(type(module), torch.nn.Module):  # Not isinstance: objects may pretend.
            for name, child in vars(module).get("_modules", {}).items():
                if id(child) in wanted and _rotary_of(module):
                    holders[id(child)] = module, name
    return holders


def _rotary_of(holder):
    return [module for module in holder.modules() if hasattr(module, "cos_sin_cache")]


def _turn(holder, name, elements, model_config):
    modules = _rotary_of(holder)
    candidates = [found for module in modules for found in _candidates(module)]
    far = min(FAR, *(len(module.cos_sin_cache) - 1 for module in modules))
    still, turned = (_key(holder, name, position, model_config) for position in (0, far))
    if still is None or turned is None or still.numel() % elements != 0:
        return None
    return turn_of(still.view(-1, elements), turned.view(-1, elements), far, candidates)


def _candidates(module):
    """What the module may compute with, by formulas of vLLM's; keys show which one is right. Its scale shows at
    position 0, where it is the cosine."""
    cosine = float(module.cos_sin_cache[0, 0])
    scales = [scale for scale in (getattr(module, "mscale", 1.0), 1.0)
              if math.isclose(scale, cosine, rel_tol=_CACHE_ROUNDING)]
    found = []
    for argument in ("base", "scaling_factor"):
        try:
            inv_freq = module._compute_inv_freq(getattr(module, argument)).float().cpu()
        except (AttributeError, TypeError):
            continue  # Of another kind of rotation.
        for factor in (1.0, *getattr(module, "scaling_factors", ())):
            found += [Frequencies(tuple((inv_freq / factor).tolist()), float(scale)) for scale in scales]
    return found


class _Seen(Exception):
    """Ends a forward pass of an attention module when it has a key."""


class _Look(torch.nn.Module):
    def forward(self, query, key, *more, **options):
        raise _Seen(key)


def _key(holder, name, position, model_config):
    """The key that the attention gets of some hidden state at a position. None: the module computes otherwise."""
    weight = next(holder.parameters())
    hidden = torch.randn(1, model_config.get_hidden_size(), generator=torch.Generator().manual_seed(_SEED))
    # A layer with adapters asks which of them each token has, which nobody has said yet.
    before = dict(holder._modules)
    plain = {child: module.base_layer for child, module in before.items() if hasattr(module, "base_layer")}
    holder._modules.update({**plain, name: _Look()})
    try:
        with torch.inference_mode():
            holder(positions=torch.tensor([position], device=weight.device),
                   hidden_states=hidden.to(weight.device, model_config.dtype))
    except _Seen as seen:
        return seen.args[0].cpu()
    except Exception:  # Whatever a model's code makes of it, the connector does without.
        return None
    finally:
        holder._modules.update(before)
    return None
