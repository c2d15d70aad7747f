# SPDX-License-Identifier: Apache-2.0
"""Prompts are computed once; their KV is kept in a Cairn store, from which other processes restore it."""

import torch
import transformers

import cairn
import cairn.models
import cairn.views

from .model import digest

_PASS = 1024  # Tokens of a forward pass.
_DTYPE = "bf16"  # The stored KV's, as engines have it.


class RoundingCache(transformers.DynamicCache):
    """Rows are rounded to bf16 as soon as they are computed, so that what is stored is what was computed with."""

    def update(self, key_states, value_states, layer_idx, *arguments, **named):
        return super().update(key_states.bfloat16().float(), value_states.bfloat16().float(), layer_idx, *arguments,
                              **named)


class Prompts:
    """read_only: of another process's store; it restores and does not keep."""

    def __init__(self, folder, language, read_only=False):
        self._language = language
        self._shape = language.config
        spec = cairn.models.spec_of(
            language.config, name="SmolLM2-135M-Instruct, float32", weights_digest=digest(), dtype=_DTYPE,
            inv_freq=[float(f) for f in language.frequencies])
        self._store = cairn.Store(folder, create_if_missing=not read_only, read_only=read_only)
        if read_only:
            self._model = next(model for model in self._store.models() if model.spec == spec)
        else:
            self._model = self._store.register_model(spec)

    def close(self):
        self._store.close()

    def keep(self, ids):
        """Computes of a prompt what no branch has yet. How many tokens that was."""
        with self._store.find_prefix(self._model, ids, lease=600) as hit:
            have = min(hit.restorable, len(ids)) if hit else 0
            if have == len(ids):
                return 0
            kept = self._tensors(have)
            if have:
                hit.restore(self._view(kept, have), end=have)
            branch = hit.fork(have) if have else self._store.create_branch(self._model)
        cache = RoundingCache(config=self._shape)
        for layer, (keys, values) in enumerate(kept):
            cache.update(keys, values, layer)
        for begin in range(have, len(ids), _PASS):
            # The logits of the last token alone: those of all would need more than the rest.
            self._language.model(torch.tensor([ids[begin:begin + _PASS]]), past_key_values=cache, logits_to_keep=1)
        rows = [(layer.keys[:, :, have:].bfloat16().contiguous(), layer.values[:, :, have:].bfloat16().contiguous())
                for layer in cache.layers]
        branch.append(ids[have:], self._view(rows, len(ids) - have, have), expected_length=have)
        return len(ids) - have

    def restore(self, ids):
        """[(keys, values)] by layer, each [kv heads, tokens, channels] of bf16."""
        kept = self._tensors(len(ids))
        with self._store.find_prefix(self._model, ids, lease=600) as hit:
            if not hit or hit.restorable < len(ids):
                raise LookupError("the prompt is not in the store")
            hit.restore(self._view(kept, len(ids)), end=len(ids))
        return [(keys[0], values[0]) for keys, values in kept]

    def _tensors(self, tokens):
        shape = (1, self._shape.num_key_value_heads, tokens, self._language.head_dim)
        return [(torch.empty(shape, dtype=torch.bfloat16), torch.empty(shape, dtype=torch.bfloat16))
                for _ in range(self._shape.num_hidden_layers)]

    def _view(self, kept, tokens, position=0):
        return cairn.views.hf(self._model, kept).view(position, tokens)
