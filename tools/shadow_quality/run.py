# SPDX-License-Identifier: Apache-2.0
"""Teacher-forced steps over a prompt, all at once, under a policy; what they differ by from full attention.

All steps go through a layer together: with the tokens given, a step depends on earlier ones through the keys and
values of their tokens alone, which are there before the layer attends. Each has its own choice of chunks.
"""

import dataclasses

import torch
import transformers

from .policies import Dense, agreement, attended


@dataclasses.dataclass
class Result:
    logits: torch.Tensor  # [steps, vocabulary]
    mass: float  # Share of full attention's weight on attended tokens: mean over layers, heads, steps.
    error: float  # |sparse - full| / |full| of an attention's output, of the same query: mean likewise.
    tokens: float  # How much of the prompt a step attends to.
    chosen: list  # By layer: ids [kv heads, steps, chunks], or None.
    rank: float  # Vectors in a basis, mean over layers.
    exact_choices: float | None  # Share of choices that are the oracle's.

    def compared(self, full):
        """(mean KL from full attention in nats, share of steps with the same likeliest token)"""
        ours, theirs = self.logits.log_softmax(-1), full.logits.log_softmax(-1)
        kl = (theirs.exp() * (theirs - ours)).sum(-1)
        return float(kl.mean()), float((ours.argmax(-1) == theirs.argmax(-1)).float().mean())

    def log_probabilities(self, targets):
        """Of targets[i] behind step i."""
        return self.logits.log_softmax(-1).gather(1, torch.tensor(targets)[:, None])[:, 0]


class _Steps:
    """One pass of steps through the model."""

    def __init__(self, prompt, layers, policy, budget, check):
        self._prompt, self._layers, self._policy, self._budget, self._check = prompt, layers, policy, budget, check
        self.mass, self.error, self.tokens, self.chosen, self.exact = [], [], [], [], []

    def attend(self, layer, query, key, value, scale):
        """query [heads, steps, channels], key and value [kv heads, steps, channels] of the steps themselves."""
        prepared, (keys, values) = self._layers[layer], self._prompt[layer]
        heads, steps, channels = key.shape
        grouped = query.unflatten(0, (heads, -1))
        key, value = key.bfloat16().float(), value.bfloat16().float()
        ids = self._policy.choose(prepared, grouped, scale, self._budget)
        values = torch.cat([values.float(), value], 1)
        own = torch.ones(steps, steps, dtype=torch.bool).tril().expand(heads, -1, -1)
        mask = torch.cat([attended(prepared, ids, steps), own], 2)
        everything = torch.cat([torch.ones_like(mask[:, :, :keys.shape[1]]), own], 2)
        full_weights, full = self._attention(grouped, torch.cat([keys.float(), key], 1), values, everything, scale)
        self.chosen.append(ids)
        if ids is None:
            return full
        _, sparse = self._attention(grouped, torch.cat([prepared.keys, key], 1), values, mask, scale)
        self.mass.append((full_weights * mask[:, None]).sum(-1).mean())
        self.error.append(((sparse - full).norm(dim=-1) / full.norm(dim=-1)).mean())
        self.tokens.append(mask[:, :, :keys.shape[1]].sum(-1).float().mean())
        if layer in self._check:
            self.exact.append(agreement(prepared, grouped, scale, self._budget, ids))
        return sparse

    @staticmethod
    def _attention(query, keys, values, mask, scale):
        """(weights [kv heads, group, steps, tokens], outputs [kv heads, group, steps, channels])"""
        group = query.shape[1:3]
        # The group's heads share keys and values: one product for all of them.
        scores = torch.bmm(query.flatten(1, 2) * scale, keys.transpose(1, 2)).unflatten(1, group)
        weights = scores.masked_fill_(~mask[:, None], -torch.inf).softmax(-1)
        return weights, torch.bmm(weights.flatten(1, 2), values).unflatten(1, group)


def _attention(module, query, key, value, attention_mask, scaling, steps=None, **_):
    out = steps.attend(module.layer_idx, query[0], key[0], value[0], scaling)
    return out.flatten(0, 1).transpose(0, 1)[None], None


_NAME = "cairn_shadow_quality"
transformers.AttentionInterface.register(_NAME, _attention)


class Runner:
    """Steps of one prompt. prompt: [(keys, values)] by layer, [kv heads, tokens, channels] of bf16."""

    def __init__(self, language, prompt):
        self._language, self._prompt = language, prompt
        self._prepared = (None, None)  # The last policy's layers: budgets come one after the other.

    @property
    def length(self):
        return self._prompt[0][0].shape[1]

    def run(self, policy, ids, budget=0, check=()):
        """check: layers whose choices are compared with the oracle's own."""
        if self._prepared[0] != policy:
            frequencies = self._language.frequencies
            self._prepared = (policy, [policy.prepare(keys.float(), frequencies) for keys, _ in self._prompt])
        layers = self._prepared[1]
        steps = _Steps(self._prompt, layers, policy, budget, check)
        model = self._language.model
        before = model.config._attn_implementation
        model.set_attn_implementation(_NAME)
        try:
            positions = torch.arange(self.length, self.length + len(ids))[None]
            logits = model(torch.tensor([ids]), position_ids=positions, use_cache=False, steps=steps).logits[0]
        finally:
            model.set_attn_implementation(before)
        mean = lambda values: float(sum(values) / len(values)) if values else None
        return Result(logits, mean(steps.mass), mean(steps.error), mean(steps.tokens), steps.chosen,
                      sum(one.rank for one in layers) / len(layers), mean(steps.exact))

    def full(self, ids):
        return self.run(Dense(), ids)
