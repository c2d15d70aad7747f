# SPDX-License-Identifier: Apache-2.0
"""The cache of a llama_cpp.Llama, in a store."""

import dataclasses
import pathlib
import sys
import warnings

import numpy

from . import _digest, _llama_state
from ._cache_branch import CacheBranch, agreement
from ._errors import Corruption, Error, InvalidArgument, InvalidState, described
from ._llama_branch import open_branch, save_rows, sound_length
from ._llama_context import Context
from ._llama_model import Planes
from .models import bytes_of

_CALLERS = 4  # Frames between a call of the cache and Llama._create_completion, at most.
# Fields of llama_context_params that change keys, and what they are where nothing was given.
_ROPE = {"rope_scaling_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0,
         "yarn_attn_factor": (1.0, -1.0), "yarn_beta_fast": (32.0, -1.0), "yarn_beta_slow": (1.0, -1.0),
         "yarn_orig_ctx": 0}


class Cache:
    """What llama-cpp-python keeps of prompts, in a store: chats go on after a restart of the program.

        llm = llama_cpp.Llama("model.gguf", n_ctx=4096)
        llm.set_cache(cairn.llamacpp.Cache(store))

    Each completion is a branch without a name in `namespace`, which begins with what the store has of it and to which
    what is new is appended; a prompt goes on from the longest prefix that any of them has, from 64 tokens on. It is
    there after a SIGKILL (durability). llm: by default the Llama whose cache it is, when that first asks; its context
    is looked at as Context does, and emptied for it. The model is told apart by its GGUF's bytes, LoRA and rope
    settings; revision: a text for anything else.

    No completion fails for it: what cannot be stored is warned of, once, and is `save_error`; what is damaged, or
    cannot be used (logits_all), is computed again. Not thread-safe, as a Llama is not.
    """

    def __init__(self, store, llm=None, *, namespace="", revision="", durability="process"):
        self.store, self.namespace, self.durability = store, namespace, durability
        self._revision = revision
        self._context = self._llm = None
        self._stored = self._fresh = None  # The branch of the newest completion; whether nothing was appended to it.
        self.save_error = None
        if llm is not None:
            self._bind(llm)

    @property
    def model(self):
        """The Model in the store. InvalidState: no Llama has used it yet."""
        return self._bound().model

    @property
    def cache_size(self):
        """Bytes of KV of the model, before packing. Reads the index."""
        return bytes_of(self.store, self.model.id)

    def __contains__(self, key):
        return self._found(_ids(key)) > 0

    def __getitem__(self, key):
        """A state as Llama.load_state takes it, of the longest prefix that the store has. KeyError: it has no more than
        the Llama has itself."""
        context, ids = self._bound(), _ids(key)
        own = agreement(ids, self._llm.input_ids[:self._llm.n_tokens].tolist())
        if context.shape.states:
            ids = ids[:-1]  # Such a state cannot be cut, and the last token is computed for its logits.
        if self._llm._logits_all or self._found(ids) <= own:
            raise KeyError("no longer prefix")
        self._drop_fresh()
        try:
            branch = open_branch(self.store, context.model, "", self.namespace, ids, self.durability)
            self._stored, self._fresh = CacheBranch(branch, self.durability, "fork"), True
            state = self._restored(branch, len(self._stored.ids))
        except Error as error:
            raise KeyError(described(error)) from error
        if state is None:
            raise KeyError("damaged")
        length = state.length
        self._stored.kept = length
        input_ids = numpy.zeros_like(self._llm.input_ids)
        input_ids[:length] = self._stored.ids[:length]
        return _LoadedState(input_ids, length, state.memory, self._llm._seed)

    def __setitem__(self, key, state):
        try:
            self._save(_ids(key), state)
            self.save_error = None
        except Error as error:
            if self.save_error is None:
                warnings.warn(f"cairn.llamacpp.Cache does not save: {described(error)}", RuntimeWarning, stacklevel=2)
            self.save_error = error

    def _save(self, ids, saved):
        context = self._bound()
        computed = int(saved.n_tokens)
        have = numpy.asarray(saved.input_ids)[:computed].tolist()
        if ids[:computed] != have:
            ids = have
        memory = numpy.frombuffer(saved.llama_state, numpy.uint8)
        prefix = _prefix(self._weights)
        if bytes(memory[:len(prefix)]) != prefix:
            raise Corruption("state: is not of the model's architecture")
        state = _llama_state.parse(memory, len(prefix), whole=True)
        if state.shape != context.shape or state.length != computed:
            raise Corruption(f"state: of {state.length} tokens, where the Llama has {computed}, or of another shape")
        stored = self._branch_of(ids)
        stored.settle(ids, whole=True, rewind=False)
        save_rows(stored, ids, computed, Planes(context.spec, state), context.about)
        self._stored, self._fresh = stored, False

    def _branch_of(self, ids):
        """The newest branch, if it has as much of the ids as any."""
        stored = self._stored
        if stored is not None:
            same = agreement(ids, stored.ids)
            if same == len(stored.ids) or same >= self._found(ids):
                return stored
        branch = open_branch(self.store, self._context.model, "", self.namespace, ids, self.durability)
        stored = CacheBranch(branch, self.durability, "fork")
        stored.kept = branch.restorable_length()
        return stored

    def _found(self, ids):
        with self._bound().find(ids) as hit:
            return min(hit.exact, hit.restorable)

    def _restored(self, branch, length):
        """A State of whole contexts with all that can be read of the branch, or None."""
        context, prefix = self._context, _prefix(self._weights)
        form = dataclasses.replace(context.form, whole=True)

        def state_of(length):
            ranges = [(0, length)] + [(max(0, length - context.window), length)] * (len(context.shape.attention) - 1)
            state = _llama_state.build(context.shape, form, [*(ranges if context.shape.attention else []), length],
                                       prefix)
            try:
                branch.restore(Planes(context.spec, state).view(0, length), end=length, require_kv=True)
            except Corruption:
                return None
            return state

        while length > 0:
            state = state_of(length)
            if state is not None:
                return state
            length = sound_length(branch, length, lambda some: state_of(some) is not None)
        return None

    def _drop_fresh(self):
        """A completion that failed left a branch that adds nothing."""
        if self._fresh:
            self._stored.branch.drop(durability="memory")
        self._stored, self._fresh = None, False

    def _bound(self):
        if self._context is None:
            self._bind(_caller(self))
        return self._context

    def _bind(self, llm):
        if llm.n_tokens:
            llm.reset()
            llm._ctx.kv_cache_clear()
        library = sys.modules[type(llm).__module__].llama_cpp
        self._llm = llm
        self._context = Context(self.store, llm._ctx.ctx, llm.model_path, library=library, namespace=self.namespace,
                                revision=" ".join(filter(None, [self._revision, *_settings(llm)])),
                                durability=self.durability)
        self._weights = self._context.weights


class _LoadedState:
    """As llama_cpp.LlamaState. Its logits are not known, and the Llama computes the last token again."""

    def __init__(self, input_ids, n_tokens, memory, seed):
        self.input_ids, self.n_tokens, self.seed = input_ids, n_tokens, seed
        self.scores = numpy.zeros((1, 1), numpy.single)
        self.llama_state, self.llama_state_size = memory, memory.size


def _ids(key):
    return [int(token) for token in key]


def _prefix(weights):
    name = weights.architecture.encode()
    return len(name).to_bytes(4, "little") + name


def _caller(cache):
    """The Llama that asks."""
    frame = sys._getframe(2)
    for _ in range(_CALLERS):
        if frame is None:
            break
        llm = frame.f_locals.get("self")
        if llm is not cache and getattr(llm, "cache", None) is cache and hasattr(llm, "model_path"):
            return llm
        frame = frame.f_back
    raise InvalidState("llm: no Llama has used the cache yet; give it as the second argument")


def _settings(llm):
    """What changes KV and is in no GGUF file."""
    parameters = llm.context_params
    for name, usual in _ROPE.items():
        value = getattr(parameters, name, None)
        if value is not None and value not in (usual if isinstance(usual, tuple) else (usual,)):
            yield f"{name}={value:g}"
    if getattr(llm, "lora_path", None):
        try:
            digests = _digest.Digests(_digest.cache_directory())
            digest = digests.of_files([pathlib.Path(llm.lora_path)], named=False)
        except OSError as error:
            raise InvalidArgument(f"lora_path: {error}") from None
        digests.save()
        yield f"lora={digest}*{llm.lora_scale:g}"
