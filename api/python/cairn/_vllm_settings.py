# SPDX-License-Identifier: Apache-2.0
"""The user's settings, those that are refused, and the stores that are open in this process."""

import concurrent.futures
import dataclasses
import os
import threading
import weakref
from typing import Any

import torch
from vllm.platforms import current_platform

import cairn

from . import _earlier
from ._digest import Digests
from ._held import Held
from ._vllm_adapters import Adapters
from ._vllm_identity import PAGES_OF_HEADS, Weights, blended, generation_of, namespace_of, new_generation, of_degrees
from ._vllm_sequence import Place, logger
from ._vllm_unsound import Unsound

# Prompts queue for a while between lookup and load; a lease that is over in between costs a lookup.
LEASE_SECONDS = 30.0
# Decoded tokens go into the store by so many: an append costs some hundred microseconds.
APPEND_TOKENS = 16
# The area that the scheduler's process lends to the model's, and how long blocks are held for copies to it.
SHARED_BYTES = 256 << 20
HOLD_SECONDS = 30.0
BLEND_DEFAULTS = ("cairn", "lmcache", "ucm")
# Options of a plan that the connector sets, or that no two prompts share.
OF_ONE_PROMPT = ("align_tokens", "recompute", "sources")


@dataclasses.dataclass(frozen=True)
class Settings:
    """kv_connector_extra_config, field by field; see cairn.vllm.CairnConnector."""

    path: str
    namespace: str = ""
    durability: str = "process"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    keep: dict[str, Any] = dataclasses.field(default_factory=dict)
    policy: dict[str, Any] = dataclasses.field(default_factory=dict)
    lease: float = LEASE_SECONDS
    append_tokens: int = APPEND_TOKENS
    model: str = ""
    weights_digest: str = ""
    allow_namespaces: list[str] = dataclasses.field(default_factory=list)
    allow_pinned: bool = False
    shared_memory_bytes: int = SHARED_BYTES
    hold_seconds: float = HOLD_SECONDS
    same_degree: bool = False
    enable_blending: bool = False
    keep_blended: bool = False
    blend_defaults: str = "cairn"
    blend_special_str: str = ""
    blend: dict[str, Any] = dataclasses.field(default_factory=dict)  # Options of plans, by any of their names.
    degrees: tuple[int, int] = (1, 1)  # Of tensor and pipeline parallel.

    @classmethod
    def of(cls, extra, blends=False, degrees=(1, 1)):
        """blends: whether blending is on where `extra` does not say."""
        known = {field.name for field in dataclasses.fields(cls)} - {"blend", "degrees"}
        options = {name: value for name, value in extra.items() if name not in known}
        extra = {name: value for name, value in extra.items() if name in known}
        extra.setdefault("enable_blending", blends)
        for name, value in options.items():
            _check_blend_option(name, value, known)
        if not extra.get("path"):
            raise ValueError("kv_connector_extra_config: 'path', the directory of the store, is missing")
        patterns = extra.get("allow_namespaces", [])
        if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
            raise ValueError(f"kv_connector_extra_config: 'allow_namespaces' is {patterns!r}, not a list of names")
        for name in ("allow_pinned", "same_degree", "enable_blending", "keep_blended"):
            if not isinstance(extra.get(name, False), bool):
                raise ValueError(f"kv_connector_extra_config: {name!r} is neither true nor false")
        shared, hold = extra.get("shared_memory_bytes", 1), extra.get("hold_seconds", 1)
        if isinstance(shared, bool) or not isinstance(shared, int) or shared <= 0:
            raise ValueError(f"kv_connector_extra_config: 'shared_memory_bytes' is {shared!r}, not a number of bytes")
        if isinstance(hold, bool) or not isinstance(hold, (int, float)) or not 0 <= hold < float("inf"):
            raise ValueError(f"kv_connector_extra_config: 'hold_seconds' is {hold!r}, not a number of seconds")
        if extra.get("blend_defaults", "cairn") not in BLEND_DEFAULTS:
            raise ValueError(f"kv_connector_extra_config: 'blend_defaults' is none of {', '.join(BLEND_DEFAULTS)}")
        if not isinstance(extra.get("blend_special_str", ""), str):
            raise ValueError("kv_connector_extra_config: 'blend_special_str' is no text")
        return cls(**extra, blend=options, degrees=degrees)

    def kept_in(self, name):
        """The namespace where KV of the namespace `name` is kept and found."""
        return of_degrees(name, self.degrees) if self.same_degree else name


def _check_blend_option(name, value, known):
    if name in OF_ONE_PROMPT:
        raise ValueError(f"kv_connector_extra_config: {name!r} is of one prompt, and of no connector")
    try:
        cairn._core._check_blend_options({name: value})
    except cairn.InvalidArgument as error:
        if name.lower().startswith(("blend", "lmcache_")) or "takes" in str(error):
            raise ValueError(f"kv_connector_extra_config: {error}") from error
        raise ValueError(f"kv_connector_extra_config: {name!r} is none of {', '.join(sorted(known))}, nor an option of "
                         "blending (docs/blend.md)") from error


def degrees_of(parallel):
    return parallel.tensor_parallel_size, parallel.pipeline_parallel_size


def is_remote(parallel):
    """Whether the model runs in another process than the scheduler. ValueError names what is not supported."""
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size", "data_parallel_size", "nnodes"):
        size = getattr(parallel, name, 1)
        if size != 1:
            raise ValueError(f"CairnConnector: {name} is {size}; only 1 is supported"
                             f"{', and no ranks on other hosts' if name == 'nnodes' else ''}")
    backend = parallel.distributed_executor_backend
    if backend not in ("uni", "mp"):
        raise ValueError(f"CairnConnector: distributed_executor_backend is {backend!r}; only 'uni' and 'mp' are supported")
    return backend == "mp"


class Engine:
    """The two sides of an engine, each while it is there, and what they know together."""

    def __init__(self, shared):
        self.shared, self.remote = shared, shared.remote
        self.sequences = {}  # Request id -> Sequence, of requests that began.
        self.unsound = Unsound()
        self.scheduler = self.worker = None
        self._adapters = Adapters(shared.digests)
        self._generation = ""  # As loaded from files.
        self._written = set()  # Generations that something was stored of.

    def weights_of(self, lora):
        """The Weights of a request. None: not known yet."""
        base = (self._generation,) if self._generation else ()
        if lora is None:
            return Weights(generations=base)
        if self.remote:
            return None  # Another process loads adapters, and nobody says what their files held then.
        content = self._adapters.content_of(lora)
        if content is None:
            return None
        return Weights(lora.lora_name, content.first, base + ((content.generation,) if content.generation else ()))

    def place_of(self, weights, salt, control):
        """Where state of these weights is kept, for a request with this Control."""
        name = self.shared.settings.namespace if control.namespace is None else control.namespace
        documents = namespace_of(self.shared.settings.kept_in(name), weights.generation, salt)
        namespace = blended(documents) if control.blend else documents
        passing = bool(weights.generation)
        keep = control.keep(self.shared.passing_keep if passing else self.shared.keep, passing)
        return Place(self.shared.model_of(weights), namespace, keep, weights, control.branch, documents)

    def writes(self, place):
        """A branch is about to be made there."""
        if self.shared.settings.enable_blending and place.namespace == place.documents:
            self.shared.index_chunks(place.namespace)
        if place.weights.generation:
            self._written.add(place.weights.generation)

    def reset(self):
        """Weights may be others from now on: nothing that was stored is found, and nothing that runs is kept."""
        self._generation = new_generation()
        if self.scheduler is not None:
            self.scheduler.plans.clear()
        ended, self._written = self._written, set()
        if ended:
            self.shared.drop_generations(ended)


class Shared:
    """An open store. Several engines of a process may have it. remote: the model runs in other processes, so that this one
    touches no GPU."""

    def __init__(self, settings, remote=False):
        self.settings, self.remote = settings, remote
        self._namespace = settings.kept_in(settings.namespace)
        options = {"create_if_missing": True, **settings.options}
        if current_platform.is_cuda() and not remote:
            options["gpus"] = [cairn.Gpu.open(torch.cuda.current_device())]
        self.keep = cairn.Keep(**settings.keep)
        # Branches of a generation, which nobody finds after this process: evicted first, and never pinned.
        self.passing_keep = cairn.Keep(**{"ttl": settings.keep["ttl"]} if "ttl" in settings.keep else {})
        policy = {**({"index": "chunks"} if settings.enable_blending else {}), **settings.policy}
        self._policy = cairn.NamespacePolicy(**policy) if settings.policy else None
        self._engines = weakref.WeakValueDictionary()  # By id; each as long as a side of it.
        self.users = 0
        self._models = {}  # (adapter, its digest) -> Model.
        self._described = None  # The spec of the layout that was given, without rotation.
        self.layout = None
        self._swept = self._closing = False
        self._with_chunks = set()  # Namespaces whose chunks are indexed.
        self._dropping = concurrent.futures.ThreadPoolExecutor(1, "cairn-drop")
        self.digests = Digests(settings.path)
        self.held = Held(settings.path, options, logger, self._opened)

    def _opened(self, store):
        """Behind each opening: handles of an earlier one are of no use."""
        self._models, self._with_chunks = {}, set()
        if self._policy is not None:
            store.set_namespace(self._namespace, self._policy)
        elif self.settings.enable_blending:
            self._index_chunks(store, self._namespace)
        if not self._swept:
            self._swept = True
            self._drop_generations(store, None)  # Those of earlier processes are over.

    @property
    def store(self):
        """Raises why it is not open, as NoSpace."""
        return self.held.store

    def describe(self, layout, described):
        """The layout as the store knows it. described: makes the same with what is known of rotation. The worker and the
        scheduler see one model, or there is a mistake."""
        if self._described is not None and self._described != layout.spec():
            raise ValueError("CairnConnector: scheduler and worker disagree: "
                             + self._described.first_difference(layout.spec()))
        if self.layout is None:
            self._described, self.layout = layout.spec(), described(layout)
            try:
                # A model that the store cannot hold is refused here, by name.
                self.layout = self.layout.described(self.model_of(Weights()).spec.groups)
                self.digests.save()
            except cairn.NoSpace as error:
                self.held.failed("keeps and finds nothing", error)
        return self.layout

    def engine(self, engine_id):
        return self._engines.setdefault(engine_id, Engine(self))

    def model_of(self, weights):
        """The model, with its adapter if it has one. Generations are no models: they come and go."""
        key = (weights.adapter, weights.digest)
        if key not in self._models:
            self._models[key] = _earlier.register(self.store, self.layout.spec(weights.variant), self._described,
                                                  self.settings.durability, (PAGES_OF_HEADS,))
        return self._models[key]

    def index_chunks(self, namespace):
        """Has chunks indexed of a namespace that is about to get its first branch. Not earlier: one with a policy stays
        for ever."""
        if namespace not in self._with_chunks and namespace != self._namespace:
            self._index_chunks(self.store, namespace)
            self._with_chunks.add(namespace)

    def _index_chunks(self, store, namespace):
        """Unless somebody has said that nothing is to be indexed."""
        known = {info.name: info.policy for info in store.namespaces()}
        policy = known.get(namespace, cairn.NamespacePolicy())
        if policy.index == "prefix":
            store.set_namespace(namespace, cairn.NamespacePolicy(
                max_bytes=policy.max_bytes, evict=policy.evict, persist=policy.persist, ttl=policy.ttl, index="chunks"))

    def drop_generations(self, ended):
        """Drops what is there of these generations in the background."""
        try:
            self._drop_generations(self.store, ended)
        except cairn.Error as error:
            self.held.failed("leaves state of weights that are gone until the next start", error)

    def _drop_generations(self, store, ended):
        names = [info.name for info in store.namespaces()
                 if (generation := generation_of(info.name)) and (ended is None or generation in ended)]
        if names:
            self._dropping.submit(self._drop, store, names)

    def _drop(self, store, namespaces):
        try:
            for namespace in namespaces:
                cursor = ""
                while not self._closing:
                    page, cursor = store.list_branches(namespace=namespace, cursor=cursor)
                    for info in page:
                        self._drop_branch(store, info.id)
                    if not cursor:
                        break
                if self.settings.enable_blending:
                    store.set_namespace(namespace, cairn.NamespacePolicy())  # Without branches it is none then.
                    self._with_chunks.discard(namespace)
        except cairn.Error as error:
            self.held.failed("leaves state of weights that are gone until the next start", error)

    def _drop_branch(self, store, branch):
        try:
            store.get_branch(branch).drop(durability="memory")
        except cairn.NotFound:
            pass  # Evicted, or its request dropped it.

    def close(self):
        self._closing = True
        self.held.close()  # First: an opening that is under way has generations dropped.
        self._dropping.shutdown()


_in_use = {}  # Real path -> Shared, of connectors; other adapters may have its store open as well.
_lock = threading.Lock()


def acquire(settings, remote=False):
    path = os.path.realpath(settings.path)
    with _lock:
        shared = _in_use.get(path)
        if shared is None:
            shared = _in_use[path] = Shared(settings, remote)
        elif (shared.settings, shared.remote) != (settings, remote):
            raise ValueError(f"CairnConnector: {path} is open in this process with another configuration")
        shared.users += 1
        return shared


def release(shared):
    """The last one gives the store back."""
    with _lock:
        shared.users -= 1
        if shared.users == 0:
            del _in_use[os.path.realpath(shared.settings.path)]
            shared.close()
