# SPDX-License-Identifier: Apache-2.0
"""The caches of ShadowKV's published code, with their KV in a store (docs/shadow.md).

    cache = cairn.shadow.ShadowKVCache(model.config, store="chats.store", name="chat")
    for each layer of the prompt:  cache.prefill_kv_cache(values, layer, keys, queries[:, :, -1:])
    cache.H2D()
    for each token, for each layer:
        cache.update_kv_cache(keys, values, layer)
        chosen = cache.get_retrieval_position_ids(layer, queries)
        values = cache.get_value_cache(layer, chosen)
        keys = cache.get_key_cache(layer, chosen)

All rows are [batch, heads, tokens, head_dim], of bf16 or fp16, and rotated. Layers of a step come in their
order. What was kept is there for a later object of the same store and name, also of another process; that goes
on from the last step which all sequences have, as one must after an append that failed. Ids of tokens are not
kept: all are 0, in a namespace that Store.find_prefix does not look at.

Needs torch. Where it has no card a simulated device stands in: for tests, of small contexts.
"""

import torch

from . import _core
from ._errors import InvalidArgument, InvalidState
from ._shadow_sequences import Sequences, Shape
from ._shadow_steps import PINNED_BYTES, Card, Simulated, Steps

__all__ = ["KV_Cache", "ShadowKVCache", "with_budget"]


def _device(device):
    if device is not None:
        return torch.device(device)
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class _Kept:
    """The base class of both caches. Not thread-safe."""

    def __init__(self, shape, batch_size, max_length, sequences):
        self.shape, self.batch_size, self.max_length, self._sequences = shape, batch_size, max_length, sequences

    def get_kv_len(self):
        """Tokens of which all layers have rows."""
        return self._sequences.length

    def _check(self, layer_idx, keys, values):
        self.shape.check("keys", keys, self.batch_size, self.shape.heads)
        self.shape.check("values", values, self.batch_size, self.shape.heads, keys.shape[2])
        self._sequences.check_next(layer_idx, keys.shape[2])
        if self.get_kv_len() + keys.shape[2] > self.max_length:
            raise InvalidArgument(f"keys: {self.get_kv_len()} and {keys.shape[2]} tokens are more than max_length, "
                                  f"{self.max_length}")

    def close(self):
        """Closes the store, if it is the cache's own. Kept content stays there."""
        self._sequences.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class KV_Cache(_Kept):  # noqa: N801: its published name.
    """All rows of all tokens, in tensors of torch and in a store.

    config: of transformers, with num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim or
    hidden_size. max_length: tokens that there is room for. device: of the tensors; None: the first card, or
    the CPU. store: a cairn.Store, or where to open one; ":memory:" goes with the cache. name: of the branches,
    one per sequence of the batch; existing ones are restored (blocks).
    """

    def __init__(self, config, batch_size=1, max_length=32 * 1024, device=None, dtype=torch.bfloat16, *,
                 store=":memory:", name="kv"):
        shape = Shape(config, dtype)
        super().__init__(shape, batch_size, max_length, Sequences(store, name, shape, batch_size, None))
        self.device = _device(device)
        size = (batch_size, shape.heads, max_length, shape.row)
        self.k_cache, self.v_cache = ([torch.empty(size, dtype=dtype, device=self.device) for _ in range(shape.layers)]
                                      for _ in "kv")
        if self.get_kv_len() > max_length:
            raise InvalidArgument(f"max_length: {max_length}; {name!r} has {self.get_kv_len()} tokens")
        for layer, pair in enumerate(self._sequences.restore()):
            for cache, rows in zip((self.k_cache, self.v_cache), pair):
                cache[layer][:, :, :rows.shape[2]] = rows.to(self.device)

    def update_kv_cache(self, new_k_cache, new_v_cache, layer_idx):
        """New rows of a layer, of any number of tokens: (keys, values) of all tokens so far.

        With the last layer's they are appended to the branches, and survive the process; blocks for that.
        """
        self._check(layer_idx, new_k_cache, new_v_cache)
        begin, end = self.get_kv_len(), self.get_kv_len() + new_k_cache.shape[2]
        for cache, rows in ((self.k_cache, new_k_cache), (self.v_cache, new_v_cache)):
            cache[layer_idx][:, :, begin:end] = rows
        self._sequences.add(layer_idx, new_k_cache, new_v_cache, exact=True)
        return self.k_cache[layer_idx][:, :, :end], self.v_cache[layer_idx][:, :, :end]

    def H2D(self):  # noqa: N802: its published name.
        """Rows are where they are used from the beginning: nothing is left to do."""

    def clear(self):
        """Forgets all tokens, in the store as well."""
        self._sequences.clear()

    def print_stats(self):
        """Prints a line about the shadow."""
        print(f"KV_Cache: {self.batch_size} x {self.get_kv_len()} of {self.max_length} tokens, "
              f"{self.shape.layers} layers, on {self.device}")


class ShadowKVCache(_Kept):
    """Sparse attention by shadows: of a long prompt a step gets the few rows that its queries need.

    The first arguments are as of KV_Cache. spec: a cairn.ShadowSpec; by default ShadowSpec(). published=True:
    ShadowSpec.published for these heads. Low-rank keys (also published ones) need a config that says how keys are
    rotated (rope_theta or rope_parameters): InvalidArgument. gpu: of a given store,
    one that it was opened with. device_bytes, pinned_bytes: at most so much of the device, and the host memory
    for pages (cairn.Store.sparse_arena). append_tokens: room for tokens between two looks at the branch: when it
    is used up the shadow is extended, which blocks.
    """

    def __init__(self, config, batch_size=1, max_length=32 * 1024, device=None, dtype=torch.bfloat16, *, spec=None,
                 published=False, store=":memory:", name="shadow", gpu=None, device_bytes=None,
                 pinned_bytes=PINNED_BYTES, append_tokens=256):
        if published and spec is not None:
            raise InvalidArgument("spec: is given, and published=True is another")
        shape = Shape(config, dtype)
        self.device, self.append_tokens = _device(device), append_tokens
        self._device = Card(self.device, gpu) if self.device.type == "cuda" else Simulated(gpu)
        super().__init__(shape, batch_size, max_length, Sequences(store, name, shape, batch_size, self._device.gpu))
        self.spec = _core.ShadowSpec.published(shape.heads * shape.row) if published else spec or _core.ShadowSpec()
        _check_spec(self._sequences.branches[0], self.spec)
        self._arena = self._sequences.store.sparse_arena(
            self._device.gpu, pinned_bytes=pinned_bytes, device_bytes=device_bytes or self._device.bytes)
        self._begin()

    def _begin(self):
        self._steps = []  # One per sequence, while sessions are open.
        self._room = 0  # Tokens that they can still be given.
        self._chosen = {}  # The last result of get_retrieval_position_ids, by layer.
        self._last_queries = {}

    def prefill_kv_cache(self, new_v_cache, layer_idx, key_states_roped, query=None):
        """The prompt's rows of a layer. They are copied, and appended to the branches with the last layer's.

        query: the last one's, [batch, query heads, 1, head_dim]: what it needs is brought by H2D. Blocks.
        InvalidState: there are tokens already; clear() forgets them.
        """
        if self.get_kv_len() != 0:
            raise InvalidState(f"there are {self.get_kv_len()} tokens already; clear() forgets them")
        self._check(layer_idx, key_states_roped, new_v_cache)
        if query is not None:
            self.shape.check("query", query, self.batch_size, self.shape.query_heads, 1)
            self._last_queries[layer_idx] = query.detach().clone()
        self._sequences.add(layer_idx, key_states_roped, new_v_cache, exact=True)

    def H2D(self):  # noqa: N802: its published name.
        """Finds or makes the shadows, and puts them onto the device; the first step does it otherwise. Blocks.

        Errors: those of ShadowSession.open. InvalidState: there are no tokens.
        """
        if self.get_kv_len() == 0:
            raise InvalidState("there are no tokens: prefill_kv_cache has not had all layers")
        self._steps = []  # Gives back their memory first.
        self._steps = [Steps(self._device, self._arena, branch, self.shape.query_heads, self.spec,
                             self.append_tokens, self.max_length)
                       for branch in self._sequences.branches]
        self._room, self._chosen = self.append_tokens, {}
        for layer, query in self._last_queries.items():
            for steps, queries in zip(self._steps, query):
                steps.select(layer, queries[:, 0])
        self._last_queries = {}

    def update_kv_cache(self, new_k_cache, new_v_cache, layer_idx):
        """A step's rows of a layer, of one token or a few: attended to in this layer from now on.

        With the last layer's they are appended to the branches, as an approximation. Blocks for that.
        """
        self._check(layer_idx, new_k_cache, new_v_cache)
        tokens = new_k_cache.shape[2]
        if tokens > self.append_tokens:
            raise InvalidArgument(f"keys: {tokens} tokens are more than append_tokens, {self.append_tokens}")
        if not self._steps:
            self.H2D()
        if layer_idx == 0 and tokens > self._room:
            for steps in self._steps:
                steps.extend()
            self._room = self.append_tokens
        for steps, keys, values in zip(self._steps, new_k_cache, new_v_cache):
            steps.append(layer_idx, keys, values)
        if self._sequences.add(layer_idx, new_k_cache, new_v_cache, exact=False):
            self._room -= tokens

    def get_retrieval_position_ids(self, layer_idx, query_states):
        """Chooses what the queries [batch, query heads, 1, head_dim] need, and brings its values.

        int64 [batch, heads, tokens]: positions, by whole chunks in rising order; besides them a step attends to
        what is always attended to. Blocks for the device, and for the disk where a page is missing.
        """
        self.shape.check("query_states", query_states, self.batch_size, self.shape.query_heads, 1)
        if not self._steps:
            self.H2D()
        self._chosen = {layer_idx: torch.stack([steps.select(layer_idx, queries[:, 0])
                                                for steps, queries in zip(self._steps, query_states)])}
        return self._chosen[layer_idx]

    def get_value_cache(self, layer_idx, position_ids):
        """Values of all that the step attends to, [batch, heads, tokens, head_dim].

        First what is always attended to: sinks, outliers, then the newest; behind it `position_ids`, which must be
        what get_retrieval_position_ids gave last (InvalidArgument). Copies.
        """
        self._check_chosen(layer_idx, position_ids)
        return torch.stack([steps.values(layer_idx) for steps in self._steps])

    def get_key_cache(self, layer_idx, position_ids, rope_func=None, cos_sin_cache=None):
        """Keys of the same tokens in the same order. They are rotated: rope_func and cos_sin_cache are not called."""
        self._check_chosen(layer_idx, position_ids)
        return torch.stack([steps.keys(layer_idx) for steps in self._steps])

    def _check_chosen(self, layer_idx, position_ids):
        if position_ids is None or self._chosen.get(layer_idx) is not position_ids:
            raise InvalidArgument("position_ids: are not what get_retrieval_position_ids gave last, for layer "
                                  f"{layer_idx}")

    def save(self):
        """Which chunks are on the device is kept with the branches: a later object begins with them. Blocks."""
        for steps in self._steps:
            steps.save()

    def clear(self):
        """Forgets all tokens, in the store as well."""
        self._begin()
        self._sequences.clear()

    def close(self):
        self._begin()
        self._arena = None
        super().close()

    def stats(self):
        """A dict of counts of chunks, summed over the sequences, as of ShadowSession.stats; {} before the first step."""
        every = [steps.stats() for steps in self._steps]
        return {name: sum(one[name] for one in every) for name in (every[0] if every else ())}

    def print_stats(self):
        """Prints a line about the session, and what fetches found."""
        line = f"ShadowKVCache: {self.batch_size} x {self.get_kv_len()} tokens, keys {self.spec.keys}"
        for steps in self._steps[:1]:
            info, stats = steps.info, steps.stats()
            line += (f", {info.covered} covered by chunks of {self.spec.chunk_tokens}, {info.budget_chunks} selected "
                     f"and {info.always_chunks} always attended to, {steps.device_bytes >> 10} KiB on the device, "
                     f"{stats['wanted']} chunks fetched, {stats['faults']} from the disk")
        print(line)


def with_budget(spec, tokens):
    """The same ShadowSpec with another budget_tokens; 0: its default. One table serves both."""
    fields = ("chunk_tokens", "keys", "landmark_bits", "local_tokens", "sink_tokens", "outlier_share", "outlier_chunks",
              "rank", "rank_energy")
    return _core.ShadowSpec(**{field: getattr(spec, field) for field in fields}, budget_tokens=tokens)


def _check_spec(branch, spec):
    """InvalidArgument where such a shadow cannot be, before there is anything to make it of."""
    branch.find_shadow(with_budget(spec, 0), end=0)
