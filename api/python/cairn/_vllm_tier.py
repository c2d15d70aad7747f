# SPDX-License-Identifier: Apache-2.0
"""A secondary tier for vLLM's own CPU offloading: its chunks are objects of a store (docs/engines.md)."""

import dataclasses
import hashlib
import json
import logging
import select
import sys
import threading
import time

import torch
import vllm
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from . import _vllm_exit as exit_
from . import _vllm_identity as identity
from ._core import Objects
from ._digest import Digests
from ._errors import Corruption, Error, InvalidArgument
from ._object_calls import ObjectCalls, packing_of, page_of

_log = logging.getLogger("cairn.vllm")

NAMESPACE = "vllm-tier/"  # Begins the name of each namespace of chunks; a digest of what they belong to ends it.
TIMEOUT = 30.0  # Seconds.
DROPPED_TOGETHER = 1000


@dataclasses.dataclass
class _Settings:
    """As _vllm_identity takes them."""

    model: str
    weights_digest: str


@dataclasses.dataclass
class _Call:
    """A job of vLLM's, or the drop of those of its chunks that are of no use."""

    kind: str  # "store", "load" or "drop".
    job: object
    result: JobResult | None = None  # What becomes of the job that a drop is for.

    def __str__(self):
        return f"{self.kind} of {len(self.job.keys)} chunks"


class _Lookups(AsyncLookupManager):
    """vLLM's own thread for lookups asks the store about all keys of a request at once."""

    def __init__(self, tier, tier_type):
        self._tier = tier
        super().__init__(tier_type)

    def batch_lookup(self, keys, req_context):
        return self._tier.which_exist(keys)


class CairnTier(SecondaryTierManager):
    """A secondary tier of vLLM's `TieringOffloadingSpec`, made by vLLM in its scheduler's process.

    path: the directory of the store, made if there is none; one process has it open.
    durability: reached before a store job is reported as done: "memory", "process" (the default) or "power".
    dtype: "bf16" and "f16" are packed on the disk, "opaque" is kept; by default as vLLM's cache.
    page_bytes: what is read, checked and packed as one; by default 65536, or a little less, so that a chunk is whole
    pages.
    threads: of this tier, at least 2; one takes no stores, so that loads do not wait for them.
    timeout: seconds that a job may take.
    model, weights_digest: as of cairn.vllm.CairnConnector.
    locality: of the events of vLLM's, "LOCAL" or "REMOTE".
    options: any other keyword of cairn.Store, such as max_bytes.

    A chunk is found by engines of the same model, weights, dtype, layout and parallel sizes. Errors of the store stop
    no request: a job that fails is reported as failed, and vLLM computes what was to be loaded. A damaged chunk, or one
    of another size, is dropped, so that it is stored again.

    Raises ValueError naming what there is nothing to tell by, or what cannot be told apart; cairn.Locked naming the
    process that has the store open.
    """

    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, *, path,
                 durability="process", dtype=None, page_bytes=None, threads=4, timeout=TIMEOUT, model="",
                 weights_digest="", locality=None, **options):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        chunk = self.block_size_bytes
        dtype = dtype or packing_of(offloading_spec.config.model.dtype)
        page_bytes = page_bytes or page_of(chunk)
        digests = Digests(path)
        name, belongs = _identity_of(offloading_spec, chunk, _Settings(model, weights_digest), digests)
        self._base = NAMESPACE + hashlib.sha256(belongs.encode()).hexdigest()[:32]
        self._namespace, self._generations = self._base, []
        self._dropping = None  # The thread that drops chunks of earlier processes' generations.
        self._results = []  # Of jobs that are over, until vLLM asks for them.
        self._under_way = 0  # Jobs.
        self._flat = primary_kv_view.cast("B")
        self._closed = False
        try:
            self._calls = ObjectCalls(
                path, {"create_if_missing": True, "evict": "branches", **options}, _log,
                f"vllm {name} {dtype} {page_bytes} {self._base.removeprefix(NAMESPACE)}",
                {"page_bytes": page_bytes, "dtype": dtype, "durability": durability, "threads": threads,
                 "timeout": timeout}, self._opened)
        except BaseException:
            self._flat.release()
            raise
        digests.save()
        self._lookups = _Lookups(self, tier_type)
        self._poll = select.poll()
        self._poll.register(self._calls.fileno(), select.POLLIN)
        exit_.add(self)

    # --- Called by vLLM's scheduler

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        found = self._lookups.lookup(key, req_context)
        return LookupResult.RETRY if found is None else LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata):
        self._submit("store", "submit_put", job_metadata)

    def submit_load(self, job_metadata):
        self._submit("load", "submit_get", job_metadata)

    def get_finished_jobs(self):
        self._take()
        results, self._results = self._results, []
        return results

    def touch(self, keys, req_context):
        try:
            Objects(self._calls.held.store).touch(list(keys), namespace=self._namespace)
        except Error:
            pass  # Chunks are evicted in the order in which they were stored then.

    def on_schedule_end(self, context):
        self._lookups.flush()

    def on_request_finished(self, req_context):
        self._lookups.cleanup(req_context.req_id)

    def drain_jobs(self):
        """vLLM calls this when its cache is reset, as behind an update of weights: what was stored is not found any
        more by this process (a generation, docs/engines.md)."""
        while self._under_way > 0:
            self._poll.poll()
            self._take()
        self._namespace = identity.namespace_of(self._base, identity.new_generation(), "")

    def shutdown(self):
        """Does what was submitted, and closes the store. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._lookups.shutdown()
        self._calls.close()
        if self._dropping is not None:
            self._dropping.join()
        self._take()
        self._flat.release()

    # ---

    def which_exist(self, keys):
        """Of each key whether its chunk is there. Raises why that is not known."""
        return list(Objects(self._calls.held.store).exists(keys, namespace=self._namespace))

    def _submit(self, kind, method, job):
        size = self.block_size_bytes
        places = [self._flat[at:at + size] for at in (int(chunk) * size for chunk in job.chunk_ids)]
        self._under_way += 1
        self._calls.submit(_Call(kind, job), method, list(job.keys), places, [self._namespace] * len(places))

    def _take(self):
        for call, outcomes in self._calls.drain():
            result = call.result if call.kind == "drop" else self._result_of(call, outcomes)
            if result is not None:
                self._results.append(result)
                self._under_way -= 1

    def _result_of(self, call, outcomes):
        """None: the job is over once its useless chunks are dropped. vLLM stores them again then."""
        job = call.job
        keys = list(job.keys)
        if isinstance(outcomes, Error):  # Which is counted and logged already.
            outcomes = [False] * len(keys)
        useless = []
        for key, outcome in zip(keys, outcomes):
            if isinstance(outcome, Error):
                self._calls.held.failed(f"fails in {call.kind} of the chunk {key.hex()}", outcome)
                if call.kind == "load" and isinstance(outcome, (Corruption, InvalidArgument)):
                    useless.append(key)
        good = [key for key, outcome in zip(keys, outcomes) if outcome is True]
        if call.kind == "store" and len(good) == len(keys):
            self._calls.held.worked()
        if call.kind == "load":
            self._lookups.mark_miss(set(keys) - set(good))
        result = JobResult(job.job_id, len(good) == len(keys), good if call.kind == "load" else None,
                           transfer_time=time.monotonic() - job.submit_time,
                           transfer_bytes=len(good) * self.block_size_bytes)
        if not useless or self._closed:
            return result
        self._calls.submit(_Call("drop", job, result), "submit_delete", useless, [self._namespace] * len(useless))
        return None

    def _opened(self, store):
        """Behind each opening; of the first one the generations of earlier processes are dropped."""
        if self._dropping is not None:
            return
        objects = Objects(store)
        names = [info.name for info in objects.usage()
                 if info.name.startswith(NAMESPACE) and identity.generation_of(info.name)]
        self._dropping = threading.Thread(target=self._drop, args=(objects, names), name="cairn-drop", daemon=True)
        self._dropping.start()

    def _drop(self, objects, namespaces):
        try:
            for namespace in namespaces:
                while not self._closed and (page := objects.list(namespace=namespace, limit=DROPPED_TOGETHER)[0]):
                    objects.delete([info.key for info in page], namespace=namespace, durability="memory")
        except Error as error:
            self._calls.held.failed("leaves chunks of weights that are gone until the next start", error)


def _identity_of(spec, chunk, settings, digests):
    """(the model's name, a text of all that must be equal for a chunk to be of use)"""
    given = settings.weights_digest
    config = _config_of_the_callers()
    if not given and (config is None or config.lora_config is not None):
        what = "LoRA adapters of one name" if config is not None else "weights of an engine that shows no VllmConfig"
        raise ValueError(f"CairnTier: {what} cannot be told apart; give the tier 'weights_digest', a text that changes "
                         "whenever the weights do")
    fields = FileMapper.from_offloading_spec("", spec, spec.blocks_per_chunk, parallel_agnostic=True).get_run_config()
    if config is not None:
        model = identity.identity_of(config, settings, digests)
        fields |= {"model_name": model.name, "model": [model.revision, model.weights_digest, model.quantization,
                                                       model.cache_dtype],
                   "attention": config.attention_config.compute_hash()}
    else:
        fields |= {"model_name": settings.model or spec.config.model.name, "model": given}
    fields |= {"chunk_bytes": chunk, "kv_cache_layout": str(spec.config.kv_cache_layout), "vllm": vllm.__version__,
               "device": f"{current_platform.device_type} {current_platform.get_device_capability()}"}
    if current_platform.is_cpu():
        amx = " amx" if torch.cpu._is_amx_tile_supported() else ""  # Attention packs blocks for it.
        fields["device"] += f" {torch.backends.cpu.get_cpu_capability()}{amx}"
    return fields["model_name"], json.dumps(fields, sort_keys=True)


def _config_of_the_callers():
    """The engine's VllmConfig, which vLLM does not give a tier. All that call its constructor have it."""
    frame = sys._getframe()
    while frame is not None:
        config = frame.f_locals.get("vllm_config")
        if isinstance(config, VllmConfig):
            return config
        frame = frame.f_back
    return None
