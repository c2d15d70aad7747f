# SPDX-License-Identifier: Apache-2.0
"""The sequences of a batch as branches of a store: rows of all layers go in together, and come back."""

import torch

from . import _core, models, views
from ._errors import InvalidArgument, NotFound

APPEND_TOKENS = 1024  # Tokens per append: the disk writes one while the next is copied.
# More tokens than this are a prompt, whose rows leave the card at once: those of all layers are too much for it. Those
# of a step stay until the last layer has come: each copy waits for the stream.
STEP_TOKENS = 16
# For branches without known token ids: equal beginnings there need not be equal content.
NAMESPACE = "shadow"
_WORDS = {torch.bfloat16: "bf16", torch.float16: "f16"}


class Shape:
    """The attention settings of a transformers config, and the dtype of rows."""

    def __init__(self, config, dtype):
        self.layers, self.query_heads = config.num_hidden_layers, config.num_attention_heads
        self.heads = getattr(config, "num_key_value_heads", None) or self.query_heads
        self.row = getattr(config, "head_dim", None) or config.hidden_size // self.query_heads
        if dtype not in _WORDS:
            raise InvalidArgument(f"dtype: {dtype} is neither torch.bfloat16 nor torch.float16")
        self.dtype = dtype
        self._rotary = self._rotary_of(config)

    def _rotary_of(self, config):
        """How keys are rotated, which low-rank ones need; {}: the config does not say, or turns a part of a row."""
        fields = config.to_dict() if hasattr(config, "to_dict") else vars(config)
        if all(fields.get(name) is None for name in ("rope_theta", "rope_parameters", "rope_scaling")):
            return {}
        inv_freq, mscale, width = models.rotary_of(fields, "full_attention", self.row)
        return {"pairing": "halves", "inv_freq": inv_freq, "mscale": mscale} if width == self.row else {}

    def spec(self):
        name = f"shadow-{self.layers}x{self.heads}x{self.row}-{_WORDS[self.dtype]}"
        group = _core.LayerGroup.full_attention(layers=self.layers, kv_heads=self.heads, head_dim=self.row,
                                                dtype=self.dtype, **self._rotary)
        return _core.ModelSpec(name, groups=[group])

    def check(self, what, tensor, batch, heads, tokens=None):
        """[batch, heads, tokens, row] of the dtype."""
        wanted = (batch, heads, tensor.shape[2] if tokens is None and tensor.dim() == 4 else tokens, self.row)
        if tuple(tensor.shape) != wanted or tensor.dtype != self.dtype:
            raise InvalidArgument(f"{what}: {tensor.dtype} {list(tensor.shape)}, and not {self.dtype} "
                                  f"[{batch}, {heads}, {'tokens' if tokens is None else tokens}, {self.row}]")


class Sequences:
    """One branch for each sequence, named `name`/0, `name`/1, and so on; existing ones go on.

    A step is in all of them or, after a crash between two appends, taken back from those that have it.
    """

    def __init__(self, store, name, shape, batch, gpu):
        self.is_own = not isinstance(store, _core.Store)
        gpus = [gpu] if gpu else []
        self.store = (
            _core.Store(store, create_if_missing=True, recovery="set_aside", gpus=gpus) if self.is_own else store
        )
        self.shape, self._name, self._batch = shape, name, batch
        if NAMESPACE not in {one.name for one in self.store.namespaces()}:
            self.store.set_namespace(NAMESPACE, _core.NamespacePolicy(index="none"))
        self._model = self.store.register_model(shape.spec())
        self._waiting = {}  # (keys, values), by layer, until there is one of each.
        self._open()

    def _open(self):
        self.branches = [self._branch(f"{self._name}/{row}") for row in range(self._batch)]
        self.length = min(branch.length for branch in self.branches)
        for branch in self.branches:
            if branch.length > self.length:
                branch.rewind(self.length)

    def _branch(self, name):
        try:
            return self.store.find_branch(name, namespace=NAMESPACE)
        except NotFound:
            return self.store.create_branch(self._model, name, namespace=NAMESPACE)

    def check_next(self, layer, tokens):
        """Layers of a step come in their order, and have as many tokens as the first."""
        if layer != len(self._waiting):
            raise InvalidArgument(f"layer_idx: {layer}; layers come in their order, and the next is {len(self._waiting)}")
        if self._waiting and self._waiting[0][0].shape[2] != tokens:
            raise InvalidArgument(f"keys: {tokens} tokens; layer 0 had {self._waiting[0][0].shape[2]}")

    def add(self, layer, keys, values, *, exact):
        """Rows of a layer, [batch, heads, tokens, row]. With the last layer's all are appended; whether they were."""
        place = "cpu" if keys.shape[2] > STEP_TOKENS else keys.device
        self._waiting[layer] = tuple(rows.detach().to(place, copy=True) for rows in (keys, values))
        if len(self._waiting) < self.shape.layers:
            return False
        pairs = [tuple(rows.cpu() for rows in self._waiting[one]) for one in range(self.shape.layers)]
        self._waiting = {}
        count = keys.shape[2]
        for row, branch in enumerate(self.branches):
            rows = views.hf(self._model, pairs, row=row)
            for at in range(0, count, APPEND_TOKENS):
                part = min(APPEND_TOKENS, count - at)
                view = rows.view(self.length + at, part, first_token=at)
                branch.append([0] * part, view, exact=exact, expected_length=self.length + at)
        self.length += count
        return True

    def restore(self):
        """(keys, values) of each layer, in host memory: [batch, heads, length, row]."""
        size = (self._batch, self.shape.heads, self.length, self.shape.row)
        pairs = [tuple(torch.empty(size, dtype=self.shape.dtype) for _ in "kv") for _ in range(self.shape.layers)]
        for row, branch in enumerate(self.branches if self.length else ()):
            branch.restore(views.hf(self._model, pairs, row=row).view(0, self.length))
        return pairs

    def clear(self):
        """Drops the branches; there are new ones of the same names."""
        for branch in self.branches:
            branch.drop()
        self._waiting = {}
        self._open()

    def close(self):
        if self.is_own:
            self.store.close()
