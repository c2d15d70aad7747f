# SPDX-License-Identifier: Apache-2.0
"""The user's settings, those that are refused, and the stores that are open in this process."""

import dataclasses
import os
import threading
import weakref
from typing import Any

import torch
from vllm.platforms import current_platform

import cairn

from . import _shared
from ._vllm_messages import finish

# Prompts queue for a while between lookup and load; a lease that is over in between costs a lookup.
LEASE_SECONDS = 30.0
# Decoded tokens go into the store by so many: an append costs some hundred microseconds.
APPEND_TOKENS = 16


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

    @classmethod
    def of(cls, extra):
        known = {field.name for field in dataclasses.fields(cls)}
        for name in extra:
            if name not in known:
                raise ValueError(f"kv_connector_extra_config: {name!r} is none of {', '.join(sorted(known))}")
        if not extra.get("path"):
            raise ValueError("kv_connector_extra_config: 'path', the directory of the store, is missing")
        return cls(**extra)


def refuse_other_worlds(parallel):
    """One process has scheduler and worker, and the worker all of the model."""
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size",
                 "prefill_context_parallel_size", "data_parallel_size"):
        size = getattr(parallel, name, 1)
        if size != 1:
            raise ValueError(f"CairnConnector: {name} is {size}; only 1 is supported")
    backend = parallel.distributed_executor_backend
    if backend != "uni":
        raise ValueError(
            f"CairnConnector: distributed_executor_backend is {backend!r}; scheduler and worker must be in one "
            "process, 'uni' (on a CPU set VLLM_ENABLE_V1_MULTIPROCESSING=0, too)")


class Engine:
    """The two sides of an engine, each while it is there, and what they know together."""

    def __init__(self, shared):
        self.shared = shared
        self.sequences = {}  # Request id -> Sequence, of requests that began.
        self.scheduler = self.worker = None

    def end_requests(self):
        """No step follows that would tell the worker which requests are over: it is told now, if it is there."""
        ends = self.scheduler.take_ends() if self.scheduler is not None else []
        if self.worker is not None:
            self.worker.end_requests(ends)
            return
        for end in ends:
            finish(self.sequences, end)


class Shared:
    """An open store. Several engines of a process may have it."""

    def __init__(self, settings):
        self.settings = settings
        options = {"create_if_missing": True, **settings.options}
        if current_platform.is_cuda():
            options["gpus"] = [cairn.Gpu.open(torch.cuda.current_device())]
        self.keep = cairn.Keep(**settings.keep)
        self.store = _shared.acquire(settings.path, options)
        try:
            if settings.policy:
                self.store.set_namespace(settings.namespace, cairn.NamespacePolicy(**settings.policy))
        except BaseException:
            _shared.release(self.store)
            raise
        self._engines = weakref.WeakValueDictionary()  # By id; each as long as a side of it.
        self.users = 0
        self._models = {}  # ModelSpec's variant -> Model.
        self.layout = None

    def describe(self, layout):
        """The worker and the scheduler see one model, or there is a mistake."""
        if self.layout is not None and self.layout.spec() != layout.spec():
            raise ValueError("CairnConnector: scheduler and worker disagree: "
                             + self.layout.spec().first_difference(layout.spec()))
        if self.layout is None:
            self.layout = layout
            self.model_of(None)  # A model that the store cannot hold is refused here, by name.
        return self.layout

    def engine(self, engine_id):
        return self._engines.setdefault(engine_id, Engine(self))

    def model_of(self, lora):
        """The model of a request, with its adapter if it has one."""
        key = None if lora is None else (lora.lora_name, lora.lora_path)
        if key not in self._models:
            self._models[key] = self.store.register_model(self.layout.spec(lora),
                                                          durability=self.settings.durability)
        return self._models[key]


_in_use = {}  # Real path -> Shared, of connectors; other adapters may have its store open as well.
_lock = threading.Lock()


def acquire(settings):
    path = os.path.realpath(settings.path)
    with _lock:
        shared = _in_use.get(path)
        if shared is None:
            shared = _in_use[path] = Shared(settings)
        elif shared.settings != settings:
            raise ValueError(f"CairnConnector: {path} is open in this process with another configuration")
        shared.users += 1
        return shared


def release(shared):
    """The last one gives the store back."""
    with _lock:
        shared.users -= 1
        if shared.users == 0:
            del _in_use[os.path.realpath(shared.settings.path)]
            _shared.release(shared.store)
