# SPDX-License-Identifier: Apache-2.0
"""A cache for transformers that is a branch of a store.

    with cairn.Store("chats.store", create_if_missing=True) as store:
        ids = tokenizer("And it came to pass", return_tensors="pt").input_ids
        cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
        out = model.generate(ids, past_key_values=cache)
        cache.save(out)

Each forward pass appends what it computed to the branch, and save(out) the last token that was drawn. Another process
that opens the same branch, after a SIGKILL as well, goes on from there and computes only what is not stored; restored
keys, values and states have the bits that they had.

Needs torch and transformers 5. One sequence a cache: no beams, no padding.
"""

import warnings

import torch
from transformers.cache_utils import Cache

from . import _core, _earlier
from ._errors import Conflict, Corruption, Error, InvalidArgument, InvalidState, ModelMismatch, NotFound, described
from ._hf_blend import plan_for, run_plan
from ._cache_branch import CacheBranch, agreement, check_on_conflict
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


class CairnCache(Cache):
    """The cache of one sequence, kept in a branch.

    model: the transformers model that computes with it; it gets two forward hooks, once, by which caches
    learn which tokens their rows are of. branch: a cairn.Branch of that model (ModelMismatch: of another;
    CairnCache.open finds or makes one). What it has is restored at once into memory of the cache's own
    (blocks on the disk), on the model's device for each layer:

      tokens=None   all of it that can be restored
      tokens=ids    what it has of these ids, one short of all: generate needs one token to compute, and
                    of a cache that is as long as the input it would compute everything twice

    on_conflict: what is done where the branch has other tokens than `tokens`, or than those computed or saved later,
    say because an earlier message was edited:

      "raise"    Conflict, which names the first position that differs; nothing is changed
      "rewind"   the branch is rewound to that position, at once: what it had from there on is gone
      "fork"     the branch is forked there, and the cache goes on in the fork, which takes over the branch's name;
                 the branch keeps all it has and is called <name>@<its id> from then on

    sampler: the state of torch's own generator goes with each append, as it was behind the forward pass or at save(),
    and is set again if there is one exactly where `tokens` leave the branch, or end: what is drawn goes on as it would
    have. Where the branch has only an older one a warning says so.

    save_every: a forward pass that brings the unstored tokens to this number stores them; 0: only save() does. KV that
    the branch lacks, of a token that was drawn last or of tokens whose KV was evicted, is computed with the pass over
    their ids, and stored with it. Of recurrent layers each append keeps one state, and the branch can be restored after
    those numbers of tokens that it has a state of.

    durability: of what is stored, "memory", "process" (survives SIGKILL) or "power". Storing that fails, say on a full
    disk, warns once and ends until save() is called, which raises; generation goes on. capacity: tokens that there is
    room for at first; memory doubles. on_damage: "recompute": a damaged page shortens what is restored to what lies
    before it; "raise": Corruption.

    Not thread-safe, as any Cache. Host memory only, for now: restored rows are copied to a device.
    """

    def __init__(self, model, branch, *, tokens=None, on_conflict="raise", sampler=False, save_every=1,
                 durability="process", capacity=1024, on_damage="recompute", identity=None):
        if on_damage not in ("recompute", "raise"):
            raise InvalidArgument(f"on_damage: '{on_damage}' is neither 'recompute' nor 'raise'")
        if torch.device(model.device).type != "cpu":
            raise InvalidArgument(f"model: is on {model.device}; CairnCache has layers in host memory only")
        known = known_model(model, identity)
        self.model, self.save_every = model, save_every
        self.capacity, self.on_damage, self.sampler = capacity, on_damage, sampler
        self._known = known
        self._made_for, self._shape = known.spec, known.shape
        self._stored = CacheBranch(branch, durability, on_conflict)
        registered = _earlier.register(branch.store, known.spec, known.earlier(model))
        self._registered, self._spec = registered, registered.spec
        self._check_model(registered)
        super().__init__(layers=self._shape.make_layers(self, capacity))
        self._tokens = []  # Ids of the rows that the layers have.
        self.save_error = None  # The error that ended appending.
        self._computing = None  # Ids of the forward pass under way.
        self._seen = None  # The first ids, as a tensor that an input of generate was compared with.
        self._drawing = None  # The sampler behind the last one.
        self._cropped = False
        self._views = {}
        self.plan = None  # Of blend.
        self._restore(None if tokens is None else _ids(tokens))

    @classmethod
    def open(cls, store, model, name, *, namespace="", identity=None, **options):
        """The cache of the branch of that name, which is made if it is not there."""
        check_on_conflict(options.get("on_conflict", "raise"))
        try:
            branch = store.find_branch(name, namespace=namespace)
        except NotFound:
            known = known_model(model, identity)
            registered = _earlier.register(store, known.spec, known.earlier(model))
            branch = store.create_branch(registered, name, namespace=namespace)
        return cls(model, branch, identity=identity, **options)

    @classmethod
    def blend(cls, store, model, name, ids, *, documents="", namespace="", options=None, defaults="cairn", **settings):
        """A cache that holds these ids, all but the last, with KV of whatever branches have it at any position.

            cache = cairn.hf.CairnCache.blend(store, model, "chat-7", ids, documents="documents")
            out = model.generate(ids, past_key_values=cache)

        documents: the namespace that is searched, which indexes chunks. What is loaded there was computed behind other
        tokens, so it is approximate, and so is what follows; a few tokens are computed again (docs/blend.md says
        which, and how `options` and `defaults` choose them). `plan` of the cache is what was done. The branch `name` in
        `namespace` keeps all of it, marked as approximate from plan.exact on, so that no other prompt is given it as
        exact; another process opens it as any branch, and goes on bit for bit. What the branch has already of the ids
        is taken from there. settings: those of the class.

        Blocks while it computes. InvalidArgument: recurrent layers, or keys that cannot be turned. InvalidState: the
        namespace indexes no chunks. ModelMismatch: stored keys do not turn as the model says.
        """
        ids = _ids(ids)
        save_every = settings.pop("save_every", 1)
        known = known_model(model, settings.get("identity"))
        registered = _earlier.register(store, known.spec, known.earlier(model))
        # First, so that what is refused changes no branch.
        with plan_for(store, registered, known.shape, ids, documents, options or {}, defaults) as plan:
            cache = cls.open(store, model, name, namespace=namespace, tokens=ids, save_every=0, **settings)
            if plan.exact < len(ids) - 1:
                cache._stored.approximate(plan.exact)
            run_plan(cache, plan, ids)
        cache.plan, cache.save_every = plan, save_every
        if save_every:
            cache.save()
        return cache

    def fork(self, position=None, name="", **options):
        """A cache with the first `position` tokens (by default all), on a branch of its own that shares what
        is stored. Saves first. Restores, so that it works at any token, where crop() may not; of recurrent
        layers it has the newest state that was saved, and what is behind that is computed again."""
        self.save()
        branch = self.branch.fork(len(self._tokens) if position is None else position, name)
        settings = {"on_conflict": self._stored.on_conflict, "sampler": self.sampler, "save_every": self.save_every,
                    "durability": self._stored.durability, "capacity": self.capacity, "on_damage": self.on_damage}
        return CairnCache(self.model, branch, **(settings | options))

    def __deepcopy__(self, memo):
        raise TypeError("a CairnCache writes its branch, so two cannot share one: fork(position, name) makes a cache of "
                        "the first tokens on a branch of its own, and copies nothing in the store")

    def save(self, tokens=None):
        """Stores what the branch does not have; its length after it. Blocks as the durability says.

        tokens: all ids of the conversation, as generate() returns them: those of the cache, and behind them what was
        drawn and not computed yet. They are stored without KV, which comes with the next turn, and with sampler=True
        the generator's state as it is now. The branch then has these ids and no others (on_conflict: if it had).

        After a crop() the branch is rewound first. Conflict: it has other tokens than the cache, or `tokens` has, or
        somebody else changed it. ModelMismatch: the model's weights were changed since the cache was opened; open one
        for them, on another branch. NoSpace and others: nothing was appended.
        """
        self._check_whole()
        stored, computed = self._stored, len(self._tokens)
        ids = self._tokens if tokens is None else self._with_drawn(_ids(tokens))
        stored.settle(ids, whole=tokens is not None, rewind=self._cropped)
        self._cropped = False
        begin = len(stored.ids)
        if stored.kept < computed or begin < len(ids):
            self._check_weights()
        if stored.kept < min(begin, computed):
            self._fill(min(begin, computed))
        if begin < len(ids):
            sampler = self._drawing if len(ids) == computed else self._sampler()
            self._append(ids, computed, sampler)
        self.save_error = None
        return len(stored.ids)

    def _append(self, ids, computed, sampler):
        """Stores what is behind the branch's ids: exact KV alone, then what is approximate."""
        stored = self._stored
        exact = stored.exact_to
        if exact is not None and len(stored.ids) < exact < computed:
            stored.append(ids[len(stored.ids):exact], self._view(len(stored.ids), exact, states=False), exact, None)
        begin = len(stored.ids)
        stored.append(ids[begin:], self._view(begin, computed, states=True), computed, sampler)

    def _fill(self, end):
        """Stores KV of positions that the branch has the ids of."""
        kv = self._view(self._stored.kept, end, states=end == len(self._tokens))
        if kv is not None:
            self._stored.fill(kv, end)

    def _with_drawn(self, ids):
        same = agreement(ids, self._tokens)
        if same < len(self._tokens):
            raise Conflict(f"tokens: not those of the cache from position {same} on; give all ids of the conversation, "
                           "as generate() returns them")
        return ids

    @property
    def branch(self):
        """The branch that it writes: of on_conflict="fork" the fork, once there was a conflict."""
        return self._stored.branch

    @property
    def tokens(self):
        """The ids of what the cache holds."""
        return list(self._tokens)

    def crop(self, tokens_to_remove):
        """Negative: forgets that number of tokens (positive: keeps that number). The next save() rewinds the branch."""
        super().crop(tokens_to_remove)
        length = len(self._tokens) + tokens_to_remove if tokens_to_remove <= 0 else tokens_to_remove
        if max(length, 0) < len(self._tokens):
            del self._tokens[max(length, 0):]
            self._stored.crop(len(self._tokens))
            self._cropped, self._seen = True, None

    def reset(self):
        """Forgets all tokens; and the next save, or the next cache of the model, reads all of its weights again: for
        changes that nothing shows (see docs/engines.md)."""
        self.crop(-len(self._tokens))
        self._known.doubt()

    def activate_past_recording(self):
        """Rows that crop() needs exist without."""

    def check_in_forward(self):
        if self._computing is None:
            raise InvalidState("past_key_values: used by another model than the cache was made for, or by a part of it")

    def _check_model(self, registered):
        there = self.branch.info().model_id
        if there == registered.id:
            return
        other = next(model.spec for model in self.branch.store.models() if model.id == there)
        raise ModelMismatch(f"branch: is of another model: {other.first_difference(self._spec)}")

    def _check_whole(self):
        if self._computing is not None or any(
                layer.get_seq_length() != len(self._tokens) for layer in self.layers if hasattr(layer, "get_seq_length")):
            raise InvalidState("the cache is of a forward pass that failed; open it again from its branch")

    def _check_weights(self):
        now = self._known.look(self.model, config=False)
        if now != self._made_for:
            raise ModelMismatch("model: is not as it was when the cache was opened: "
                                + self._made_for.first_difference(now))

    def check_input(self, ids, new):
        """Conflict: generate() is given other ids than those that the cache has, in front of the `new` last ones."""
        known = ids.shape[1] - new
        if ids.shape[0] != 1 or new <= 0 or not 0 < known <= len(self._tokens):
            return  # begin_forward refuses what cannot be.
        begin = len(self._tokens) - known  # An input may leave out what the cache has.
        same = 0
        if begin == 0 and self._seen is not None and torch.equal(ids[:, :self._seen.shape[1]], self._seen):
            same = min(self._seen.shape[1], known)
        same += agreement(ids[0, same:known].tolist(), self._tokens[begin + same:])
        if same < known:
            raise Conflict(f"input_ids: other ones than the cache has, from position {begin + same} on; fork or crop "
                           "it there, or open a cache for them")
        if begin == 0:
            self._seen = ids[:, :known].clone()

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
        self._drawing = self._sampler()
        if self.save_every and self.save_error is None and len(self._tokens) - self._stored.kept >= self.save_every:
            try:
                self.save()
            except Error as error:
                self.save_error = error
                warnings.warn(f"CairnCache does not save any more: {described(error)}", RuntimeWarning, stacklevel=2)

    def _sampler(self):
        """The generator's state as it is now, if it is kept."""
        if not self.sampler:
            return None
        return _core.SamplerState("named", blob_name=_GENERATOR, blob_version=_GENERATOR_VERSION,
                                  blob=torch.get_rng_state().numpy().tobytes())

    def _set_generator(self, position, goes_on):
        try:
            at, state = self.branch.sampler_at(position)
        except NotFound:
            return
        if (state.blob_name, state.blob_version) != (_GENERATOR, _GENERATOR_VERSION):
            return
        if at == position:
            torch.set_rng_state(torch.frombuffer(bytearray(state.blob), dtype=torch.uint8))
        elif goes_on:
            warnings.warn(f"sampler: the branch has the generator's state after {at} tokens and not after {position}, "
                          "so the generator stays as it is; save(tokens) keeps it with the last token that was drawn",
                          RuntimeWarning, stacklevel=5)

    def _view(self, begin, end, states):
        """Rows of positions [begin, end) in the layers' memory, where they still or already are, and with `states`
        those of recurrent layers, which are of `end` tokens; None: there are none."""
        view = None
        for number, group in enumerate(self._shape.groups):
            layers = [self.layers[layer] for layer in group.layers]
            if group.kind == "recurrent":
                part = self._state(number, layers, end) if states and begin < end else None
            else:
                part = self._rows(number, layers, begin, end)
            if part is not None:
                view = part if view is None else view + part
        return view

    def _rows(self, number, layers, begin, end):
        first = max(begin, *(layer.first_row for layer in layers))
        if first >= end:
            return None
        return self._attention(number, layers).view(first, end - first, first_token=first - layers[0].first_row)

    def _state(self, number, layers, end):
        # As bytes, each a row of its own: [1, ...].
        tensors = [[state.view(torch.uint8).reshape(1, -1) for _, _, state in states_of(layer)] for layer in layers]
        return _core.KvTensors(self._spec, tensors, "TR", group=number).view(end - 1, 1)

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
        stored = self._stored
        limit = len(stored.ids)
        if tokens is not None:
            common = stored.meet(tokens)
            if self.sampler and common > 0:
                self._set_generator(common, goes_on=limit == len(stored.ids))
            limit = min(common, len(tokens) - 1)
        length = self.branch.restorable_length(limit) if limit > 0 else 0
        while length > 0 and not self._readable(length):
            length = self._sound_length(length)
        if length > 0:
            for layer in self.layers:
                layer.put_back(length)
            self._tokens = stored.ids[:length]
            stored.kept = length

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
            restored = self.branch.restore(self._view(0, length, states=True), end=length, require_kv=True)
            if restored.approximate_bytes:
                self._stored.approximate(0)  # From where on is not known.
        except Corruption:
            if self.on_damage == "raise":
                raise
            return False
        return True
