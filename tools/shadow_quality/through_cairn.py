# SPDX-License-Identifier: Apache-2.0
"""The default once more, through cairn.shadow: one process puts a prompt into a store, another goes on from there.

The model attends to nothing but what ShadowKVCache gives it, token by token. The oracle is asked afterwards, for the
queries that the cache was asked with.
"""

import dataclasses
import pathlib
import shutil
import time

import torch
import transformers

import cairn
import cairn.shadow

from . import measure, oracle, plan, texts
from .policies import Shadow
from .run import Result, Runner

RUN, ROUNDED = "through cairn.shadow", "oracle, queries in bf16"
IN_PINNED = 0.25  # Pinned memory holds this part of all values, as the simulated DRAM does.
WARM = 16  # Steps before faults are counted, as in traces.disk_faults.
_FILES = (pathlib.Path(__file__), *(pathlib.Path(cairn.__file__).parent / name for name in (
    "shadow.py", "_shadow_sequences.py", "_shadow_steps.py")))


@dataclasses.dataclass(frozen=True)
class RoundedQueries(Shadow):
    """Chooses with queries as cairn.shadow takes them, in the type of the rows."""

    def choose(self, prepared, query, scale, budget):
        return super().choose(prepared, query.bfloat16().float(), scale, budget)


def open_cache(config, store, name, tokens, steps, budget):
    """A cache with room for the prompt's tokens and the steps, and pinned memory for a part of the values."""
    channels = config.hidden_size // config.num_attention_heads
    values = config.num_hidden_layers * config.num_key_value_heads * tokens * channels * 2  # Bytes.
    return cairn.shadow.ShadowKVCache(
        config, max_length=tokens + steps, spec=cairn.ShadowSpec(budget_tokens=budget), store=store, name=name,
        pinned_bytes=max(1 << 20, int(IN_PINNED * values)), append_tokens=steps)


def fill(cache, prompt):
    """prompt: [(keys, values)] by layer, [kv heads, tokens, channels] of bf16. The shadow is made, and kept."""
    for layer, (keys, values) in enumerate(prompt):
        cache.prefill_kv_cache(values[None], layer, keys[None])
    cache.H2D()


class _Watch:
    """A device of cairn.shadow that notes in which slots the values lay that were looked at last."""

    def __init__(self, device):
        self._device = device
        self.slots = None

    def __getattr__(self, name):
        return getattr(self._device, name)

    def parts(self, view, names):
        found = self._device.parts(view, names)
        if "value_slots" in names:
            self.slots = found[names.index("value_slots")].long()
        return found


class Steps:
    """Steps of a model whose layers attend through a cache, and what they asked it for. The cache has had no H2D."""

    def __init__(self, cache, layers):
        self._cache = cache
        self._watch = cache._device = _Watch(cache._device)  # No call reports slots.
        cache.H2D()
        self._slots = [[] for _ in range(layers)]
        self.queries = [[] for _ in range(layers)]  # [query heads, channels] of bf16, by step.
        self.chosen = [[] for _ in range(layers)]  # Chunks, [kv heads, count], by step.
        self.logits = []

    def attend(self, layer, query, key, value, scale):
        """[1, heads, 1, channels] each: [query heads, 1, channels]."""
        asked = query.bfloat16()
        self._cache.update_kv_cache(key.bfloat16(), value.bfloat16(), layer)
        positions = self._cache.get_retrieval_position_ids(layer, asked)
        values = self._cache.get_value_cache(layer, positions)[0].float()
        self._slots[layer].append(self._watch.slots)
        keys = self._cache.get_key_cache(layer, positions)[0].float()
        chunk = self._cache.spec.chunk_tokens
        self.queries[layer].append(asked[0, :, 0])
        self.chosen[layer].append(positions[0, :, ::chunk] // chunk)
        grouped = query[0, :, 0].unflatten(0, (len(keys), -1))
        weights = torch.bmm(grouped * scale, keys.transpose(1, 2)).softmax(-1)
        return torch.bmm(weights, values).flatten(0, 1)[:, None]

    def run(self, model, ids, position):
        """One token after the other, the first at `position`. What follows may be run by another call."""
        before = model.config._attn_implementation
        model.set_attn_implementation(_NAME)
        try:
            for at, one in enumerate(ids, position):
                step = model(torch.tensor([[one]]), position_ids=torch.tensor([[at]]), use_cache=False, through=self)
                self.logits.append(step.logits[0, 0])
        finally:
            model.set_attn_implementation(before)

    def stats(self):
        return self._cache.stats()

    def hits(self):
        """Of what all steps but the first chose, the share that lay in a slot already."""
        return float(torch.stack([_hits(chosen, slots) for chosen, slots in zip(self.chosen, self._slots)]).mean())

    def result(self):
        """As Runner.run gives it; what is not known here is None."""
        chosen = [torch.stack(layer, dim=1) for layer in self.chosen]
        return Result(torch.stack(self.logits), None, None, None, chosen, 0, None)


def _attention(module, query, key, value, attention_mask, scaling, through=None, **_):
    return through.attend(module.layer_idx, query, key, value, scaling).transpose(0, 1)[None], None


_NAME = "cairn_through_shadow"
transformers.AttentionInterface.register(_NAME, _attention)


def _hits(chosen, slots):
    """Of one layer, by step [kv heads, count] each."""
    holds = torch.full((len(chosen[0]), int(torch.stack(slots).max()) + 1), -1)
    found = []
    for chunks, places in zip(chosen, slots):
        found.append((holds.gather(1, places) == chunks).float().mean())
        holds.scatter_(1, places, chunks)
    return torch.stack(found[1:]).mean()


def same_sets(ours, theirs):
    """Share of steps x layers x heads that chose the same chunks; of ids [kv heads, steps, count] by layer."""
    return float(torch.stack([(a == b).all(-1).float().mean() for a, b in zip(ours, theirs)]).mean())


def oracle_choices(queries, prompt, policy, frequencies, budget):
    """The oracle's own choice from the prompt for Steps.queries; by layer as Result.chosen."""
    choices = []
    for (keys, _), asked in zip(prompt, queries):
        prepared = policy.prepare(keys.float(), frequencies)
        query = torch.stack(asked).float().unflatten(1, (len(keys), -1)).transpose(0, 1)
        scale = query.shape[-1] ** -0.5
        chosen = oracle.select(query.numpy(), prepared.marks.numpy()[:, None], ~prepared.always.numpy()[:, None],
                               budget // prepared.chunk, scale)
        choices.append(torch.from_numpy(chosen))
    return choices


def _fill(folder, name, store):
    """Seconds."""
    bench = measure.Bench(folder, read_only=True, threads=1)
    text = bench.text(name)
    prompt = bench.prompts.restore(text.prompt)
    began = time.time()
    with _opened(bench, text, store) as cache:
        fill(cache, prompt)
    return time.time() - began


def _opened(bench, text, store):
    tokens = text.source.tokens
    return open_cache(bench.language.config, store, text.source.name, tokens, plan.STEPS, plan.budget_of(tokens))


def _go_on(folder, name, store, seconds):
    """Takes the steps, and keeps what they differ by from full attention and from the oracle."""
    bench = measure.Bench(folder, read_only=True, threads=1)
    text = bench.text(name)
    queries, result, values = _steps(bench, text, store)
    budget, forced = plan.budget_of(text.source.tokens), text.forced[:plan.STEPS]
    prompt = bench.prompts.restore(text.prompt)
    exact = oracle_choices(queries, prompt, Shadow(plan.DEFAULT), bench.language.frequencies, budget)
    runner = Runner(bench.language, prompt)
    full, rounded = runner.full(forced), runner.run(RoundedQueries(plan.DEFAULT), forced, budget)
    values |= {"fill": seconds, "same": same_sets(result.chosen, exact),
               "same_run": same_sets(result.chosen, rounded.chosen)}
    results = _results(folder, name, text.digest)
    for called, run, more in ((ROUNDED, rounded, {}), (RUN, result, values)):
        kl, agreement = run.compared(full)
        results.keep(called, {"kl": kl, "agreement": agreement} | more)


def _steps(bench, text, store):
    """(queries by layer, Result, what it cost); the cache and its device are gone behind this."""
    tokens, forced, model = text.source.tokens, text.forced[:plan.STEPS], bench.language.model
    counted = len(forced) - WARM
    began = time.time()
    with _opened(bench, text, store) as cache:
        if cache.get_kv_len() != tokens:
            raise LookupError(f"{text.source.name}: {cache.get_kv_len()} tokens came back, {tokens} were kept")
        steps = Steps(cache, bench.language.config.num_hidden_layers)
        resume = time.time() - began
        steps.run(model, forced[:WARM], tokens)
        warm, began = steps.stats(), time.time()
        steps.run(model, forced[WARM:], tokens + WARM)
        seconds = time.time() - began
        stats = {field: count - warm[field] for field, count in steps.stats().items()}
    return steps.queries, steps.result(), {
        "resume": resume, "step": seconds / counted, "hits": steps.hits(),
        "faults": stats["faults"] / stats["wanted"], "read": stats["page_bytes_read"] / counted}


def _results(cache, name, text_digest):
    return measure.Results(cache, ("through", name), text_digest, _FILES)


def measure_all(cache, deadline, digests):
    """True: all texts are stored."""
    missing = [name for name in texts.GRID if RUN not in _results(cache, name, digests[name]).of]
    for name in missing:
        if time.time() > deadline:
            return False
        store = cache / "through.store"
        shutil.rmtree(store, ignore_errors=True)  # A call that was killed may have left one.
        with measure.processes(1) as pool:
            seconds = pool.submit(_fill, cache, name, store).result()
            pool.submit(_go_on, cache, name, store, seconds).result()
        shutil.rmtree(store)
        print("measured", name, RUN, flush=True)
    return True


def results_of(cache, digests):
    """{text: what was measured of it}"""
    return {name: _results(cache, name, digests[name]).of for name in texts.GRID}
