# SPDX-License-Identifier: Apache-2.0
"""A cache for transformers that is a branch of a store.

    with cairn.Store("chats.store", create_if_missing=True) as store:
        ids = tokenizer("And it came to pass", return_tensors="pt").input_ids
        cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
        out = model.generate(ids, past_key_values=cache)

Each forward pass appends what it computed to the branch. Another process that opens the same branch,
after a SIGKILL as well, goes on from there and computes only what is not stored; restored keys,
values and states have the bits that they had.

Needs torch and transformers 5. One sequence a cache: no beams, no padding.
"""

import warnings

import torch
from transformers.cache_utils import Cache

from . import _core
from ._errors import Conflict, Corruption, Error, InvalidArgument, InvalidState, ModelMismatch, NotFound
from ._hf_layers import states_of
from ._hf_model import known_model, model_spec
__all__ = ["CairnCache", "model_spec"]
# The generator that torch draws from on a processor, and this form of its state.
_GENERATOR, _GENERATOR_VERSION = "torch.cpu", 1


def _ids(tokens):
    """A list of whole numbers, from a list, an array, or a tensor [tokens] or [1, tokens]."""
    tokens = torch.as_tensor(tokens)
    if tokens.dim() == 2 and tokens.shape[0] == 1:
        tokens = tokens[0]
    if tokens.dim() != 1:
        raise InvalidArgument(f"tokens: of shape {tuple(tokens.shape)}; a branch is one sequence")
    return tokens.tolist()


def _agreement(a, b, begin=0):
    """Up to where two lists are equal, if they are up to `begin`."""
    end = min(len(a), len(b))
    return next((at for at in range(begin, end) if a[at] != b[at]), end)


class CairnCache(Cache):
    """The cache of one sequence, kept in a branch.

    model: the transformers model that computes with it; it gets two forward hooks, once, by which caches
    learn which tokens their rows are of. branch: a cairn.Branch of that model (ModelMismatch: of another;
    CairnCache.open finds or makes one). What it has is restored at once into memory of the cache's own
    (blocks on the disk), on the model's device for each layer:

      tokens=None   all of it that can be restored
      tokens=ids    what it has of these ids, one short of all: generate needs one token to compute, and
                    of a cache that is as long as the input it would compute everything twice. Conflict:
                    the branch has other tokens; fork it at the position that the message names

    sampler: the state of torch's own generator goes with each append, as it was behind the forward pass,
    and is set again if there is one after exactly `tokens`: what is drawn goes on as it would have.

    save_every: a forward pass that makes it so many tokens that are not appended appends them; 0: only
    save() does. Of recurrent layers each append keeps one state, and the branch can be restored after
    those numbers of tokens that it has a state of. durability: of appends, "memory", "process" (survives
    SIGKILL) or "power". An append that fails, say of a full disk, warns once and ends appending until
    save() is called, which raises; generation goes on. capacity: tokens that there is room for at first;
    memory doubles. on_damage: "recompute": a damaged page shortens what is restored to what lies before
    it; "raise": Corruption.

    Not thread-safe, as any Cache. Host memory only, for now: restored rows are copied to a device.
    """

    def __init__(self, model, branch, *, tokens=None, sampler=False, save_every=1, durability="process", capacity=1024,
                 on_damage="recompute", identity=None):
        if on_damage not in ("recompute", "raise"):
            raise InvalidArgument(f"on_damage: '{on_damage}' is neither 'recompute' nor 'raise'")
        if torch.device(model.device).type != "cpu":
            raise InvalidArgument(f"model: is on {model.device}; CairnCache has layers in host memory only")
        known = known_model(model, identity)
        self.model, self.branch, self.save_every, self.durability = model, branch, save_every, durability
        self.capacity, self.on_damage, self.sampler = capacity, on_damage, sampler
        self._spec, self._shape, self._registered = known.spec, known.shape, branch.store.register_model(known.spec)
        self._check_model()
        super().__init__(layers=self._shape.make_layers(self, capacity))
        self._tokens = []  # Ids of the rows that the layers have.
        self.save_error = None  # The error that ended appending.
        self._computing = None  # Ids of the forward pass under way.
        self._drawing = None  # The sampler behind the last one.
        self._cropped = False
        self._stored = branch.tokens().tolist()  # The branch's ids; equal to self._tokens up to _agreed.
        self._agreed = 0
        self._views = {}
        ids = None if tokens is None else _ids(tokens)
        self._restore(ids)
        if sampler and ids:
            self._set_generator(len(ids))

    @classmethod
    def open(cls, store, model, name, *, namespace="", identity=None, **options):
        """The cache of the branch of that name, which is made if it is not there."""
        try:
            branch = store.find_branch(name, namespace=namespace)
        except NotFound:
            branch = store.create_branch(store.register_model(model_spec(model, identity)), name, namespace=namespace)
        return cls(model, branch, identity=identity, **options)

    def fork(self, position=None, name="", **options):
        """A cache with the first `position` tokens (by default all), on a branch of its own that shares what
        is stored. Saves first. Restores, so that it works at any token, where crop() may not; of recurrent
        layers it has the newest state that was saved, and what is behind that is computed again."""
        self.save()
        branch = self.branch.fork(len(self._tokens) if position is None else position, name)
        settings = {"sampler": self.sampler, "save_every": self.save_every, "durability": self.durability, "capacity": self.capacity,
                    "on_damage": self.on_damage}
        return CairnCache(self.model, branch, **(settings | options))

    def save(self):
        """Appends what the branch does not have; its length after it. Blocks as the durability says.

        After a crop() the branch is rewound first. Conflict: it has other tokens than the cache, or
        somebody else appended to it. NoSpace and others: nothing was appended.
        """
        self._check_whole()
        self._agreed = _agreement(self._tokens, self._stored, self._agreed)
        if self._agreed < len(self._stored):
            if self._cropped:
                self.branch.rewind(self._agreed, durability=self.durability)
                del self._stored[self._agreed:]
            elif self._agreed < len(self._tokens):
                raise Conflict(f"tokens: the branch has others from position {self._agreed} on; fork the cache there, "
                               "or rewind the branch")
        self._cropped = False
        new = self._tokens[self._agreed:]
        if new:
            begin = len(self._stored)
            self.branch.append(new, self._view(begin, len(self._tokens)), expected_length=begin,
                               durability=self.durability, sampler=self._drawing)
            self._stored += new
            self._agreed = len(self._stored)
        self.save_error = None
        return len(self._stored)

    @property
    def tokens(self):
        """The ids of what the cache holds."""
        return list(self._tokens)

    def crop(self, tokens_to_remove):
        """Negative: forgets so many tokens (positive: keeps so many). The next save() rewinds the branch."""
        super().crop(tokens_to_remove)
        length = len(self._tokens) + tokens_to_remove if tokens_to_remove <= 0 else tokens_to_remove
        if max(length, 0) < len(self._tokens):
            del self._tokens[max(length, 0):]
            self._agreed, self._cropped = min(self._agreed, len(self._tokens)), True

    def reset(self):
        self.crop(-len(self._tokens))

    def activate_past_recording(self):
        """Rows that crop() needs are there without."""

    def check_in_forward(self):
        if self._computing is None:
            raise InvalidState("past_key_values: used by another model than the cache was made for, or by a part of it")

    def _check_model(self):
        there = self.branch.info().model_id
        if there == self._registered.id:
            return
        other = next(model.spec for model in self.branch.store.models() if model.id == there)
        raise ModelMismatch(f"branch: is of another model: {other.first_difference(self._spec)}")

    def _check_whole(self):
        if self._computing is not None or any(
                layer.get_seq_length() != len(self._tokens) for layer in self.layers if hasattr(layer, "get_seq_length")):
            raise InvalidState("the cache is of a forward pass that failed; open it again from its branch")

    def begin_forward(self, model, ids, inputs):
        self._check_whole()
        if model is not self.model:
            raise InvalidArgument("past_key_values: a CairnCache of another model object")
        if ids is None:
            raise InvalidArgument("input_ids: missing; a branch holds ids, and embeddings have none")
        if ids.shape[0] != 1:
            raise InvalidArgument(f"input_ids: {ids.shape[0]} sequences; a branch is one")
        new, there = ids.shape[1], len(self._tokens)
        # generate() counts positions by its input: of an input that is not longer than the cache they
        # do not begin where the cache ends.
        positions, mask = inputs.get("position_ids"), inputs.get("attention_mask")
        begin = int(positions[0, 0]) if positions is not None and positions.dim() == 2 else there
        if begin != there or (mask is not None and mask.dim() == 2 and mask.shape[1] != there + new):
            raise InvalidArgument(f"input_ids: the cache holds {there} tokens, and must hold fewer than the input of "
                                  "generate, or what it holds is computed twice: give CairnCache `tokens`, or crop it")
        if mask is not None and not bool(mask.all()):
            raise InvalidArgument("attention_mask: has padding; a branch has none")
        self._computing = ids[0].tolist()

    def end_forward(self, succeeded):
        if self._computing is None or not succeeded:
            return  # An unfinished pass stays marked: _check_whole.
        self._tokens += self._computing
        self._computing = None
        if self.sampler:
            self._drawing = _core.SamplerState("named", blob_name=_GENERATOR, blob_version=_GENERATOR_VERSION,
                                               blob=torch.get_rng_state().numpy().tobytes())
        if self.save_every and self.save_error is None and len(self._tokens) - self._agreed >= self.save_every:
            try:
                self.save()
            except Error as error:
                self.save_error = error
                warnings.warn(f"CairnCache does not save any more: {error}", RuntimeWarning, stacklevel=2)

    def _set_generator(self, position):
        try:
            at, state = self.branch.sampler_at(position)
        except NotFound:
            return
        if at == position and (state.blob_name, state.blob_version) == (_GENERATOR, _GENERATOR_VERSION):
            torch.set_rng_state(torch.frombuffer(bytearray(state.blob), dtype=torch.uint8))

    def _view(self, begin, end):
        """Rows of positions [begin, end) in the layers' memory, where they still or already are."""
        view = None
        for number, group in enumerate(self._shape.groups):
            layers = [self.layers[layer] for layer in group.layers]
            if group.kind == "recurrent":
                # As bytes, each a row of its own: [1, ...].
                tensors = [[state.view(torch.uint8).reshape(1, -1) for _, _, state in states_of(layer)]
                           for layer in layers]
                part = _core.KvTensors(self._spec, tensors, "TR", group=number).view(end - 1, 1)
            else:
                first = max(begin, *(layer.first_row for layer in layers))
                part = self._attention(number, layers).view(first, end - first, first_token=first - layers[0].first_row)
            view = part if view is None else view + part
        return view

    def _attention(self, number, layers):
        """KvTensors of a group, made again only when its memory has moved."""
        memory = [layer.rows.keys.data_ptr() for layer in layers]
        if number not in self._views or self._views[number][0] != memory:
            tensors = [[layer.rows.keys[0], layer.rows.values[0]] for layer in layers]
            self._views[number] = memory, _core.KvTensors(self._spec, tensors, "head_major", group=number)
        return self._views[number][1]

    def _make_memory(self, length):
        for group in self._shape.groups:
            likes = [like for _, _, like in group.likes]
            for layer in (self.layers[number] for number in group.layers):
                if group.kind == "recurrent":
                    layer.make_memory(group.likes)
                    continue
                layer.lazy_initialization(*likes)
                needed = layer.oldest_needed(length)
                layer.rows.first = needed
                layer.rows.make_room(needed, needed, length)

    def _restore(self, tokens):
        limit = len(self._stored)
        if tokens is not None:
            agreed = _agreement(tokens, self._stored)
            if agreed < min(len(tokens), limit):
                raise Conflict(f"tokens: the branch has others from position {agreed} on; fork it there")
            limit = min(agreed, len(tokens) - 1)
        length = self.branch.restorable_length(limit) if limit > 0 else 0
        while length > 0 and not self._readable(length):
            length = self._sound_length(length)
        if length > 0:
            for layer in self.layers:
                layer.put_back(length)
            self._tokens = self._stored[:length]
            self._agreed = length

    def _sound_length(self, damaged):
        """The largest length below `damaged` that can be restored; found by halving, and by reading."""
        sound, low, high = 0, 0, damaged
        while high - low > 1:
            middle = (low + high) // 2
            length = self.branch.restorable_length(middle)
            if length <= sound or self._readable(length):
                sound, low = max(sound, length), middle
            else:
                high = length
        return sound

    def _readable(self, length):
        self._make_memory(length)
        try:
            self.branch.restore(self._view(0, length), end=length, require_kv=True)
        except Corruption:
            if self.on_damage == "raise":
                raise
            return False
        return True
