# SPDX-License-Identifier: Apache-2.0
"""vLLM's own tiering without an engine: its spec, its manager and its tier in memory, driven as its scheduler drives
them. Chunks are made up from their number."""

import itertools
import random
import time
import uuid

import numpy
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

CHUNK = 96 << 10  # Bytes of a rank's part; two pages of the store, and not two of 64 KiB.
CHUNKS = 32  # That the tier in memory has room for.
SECONDS = 30  # For a job.
_numbers = itertools.count()


def key(number, group=0):
    return make_offload_key(number.to_bytes(32, "big"), group)


def content(number, size=CHUNK):
    return random.Random(number).randbytes(size)


def config_of(tier, ranks=1, dtype="bfloat16", layout="NHD", tokens=32):
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=tokens, layer_names=("layer.0", "layer.1"), group_id=0),),
        worker_kv_bytes_per_block=CHUNK, enable_kv_cache_events=False, engine_id=uuid.uuid4().hex,
        extra_config={"cpu_bytes_to_use": CHUNKS * CHUNK * ranks, "secondary_tiers": [tier]},
        model=OffloadingModelConfig(name="models/small", dtype=dtype),
        cache=OffloadingCacheConfig(tokens_per_hash=tokens, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0, world_size=ranks, tp_size=ranks, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0,
            data_parallel_size=1, data_parallel_rank_local=None, is_parallelism_agnostic=False),
        kv_cache_layout=layout)


class Tiering:
    """A manager with CairnTier behind it. vllm_config: vLLM's, which its callers have in a variable of this name."""

    def __init__(self, path, ranks=1, vllm_config=None, engine=None, **tier):
        tier = {"type": "CairnTier", "module_path": "cairn.vllm", "path": str(path), **tier}
        if vllm_config is None:
            tier.setdefault("weights_digest", "w1")
        self.spec = TieringOffloadingSpec(config_of(tier, ranks, **(engine or {})))
        self.size = ranks * CHUNK
        self.manager = self.spec.get_manager()
        self.tier = self.manager.secondary_tiers[0]
        self.rows = numpy.asarray(self.manager.primary_tier.get_kv_memoryview()).view(numpy.uint8)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.rows = None  # Holds the memory that is given back.
        self.manager.shutdown()

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def settle(self):
        end = time.monotonic() + SECONDS
        while self.manager.has_pending_work():
            assert time.monotonic() < end, "a job does not end"
            self.step()
            time.sleep(0.001)

    def request(self):
        context = ReqContext(f"request-{next(_numbers)}")
        self.manager.on_new_request(context)
        return context

    def store(self, numbers, contents=None):
        """As the blocks of a request that were computed."""
        context, keys = self.request(), [key(i) for i in numbers]
        prepared = self.manager.prepare_store(keys, context)
        chunks = dict(zip(prepared.keys_to_store, prepared.store_spec.chunk_ids))
        for i, one in zip(numbers, contents or [content(i, self.size) for i in numbers]):
            self.rows[chunks[key(i)]] = numpy.frombuffer(one, numpy.uint8)
        self.manager.complete_store(prepared.keys_to_store, context)
        self.settle()
        self.manager.on_request_finished(context)

    def forget(self):
        """The tier in memory has nothing more; the one behind it keeps all."""
        self.manager.primary_tier.reset_cache()

    def look(self, numbers, context, between=None):
        """[whether vLLM has each chunk] for a request. between: called once the tier has been asked."""
        end = time.monotonic() + SECONDS
        while True:
            found = [self.manager.lookup(key(i), context) for i in numbers]
            if between and LookupResult.RETRY not in found:
                between()
                between = None
            if all(one in (LookupResult.HIT, LookupResult.MISS) for one in found):
                return [one is LookupResult.HIT for one in found]
            assert time.monotonic() < end, found
            self.step()
            time.sleep(0.001)

    def load(self, numbers, between=None):
        """The bytes of each chunk, or None."""
        self.forget()
        context = self.request()
        found = self.look(numbers, context, between)
        hits = [key(i) for i, there in zip(numbers, found) if there]
        loaded = {}
        if hits:
            chunks = self.manager.prepare_load(hits, context).chunk_ids
            loaded = {one: self.rows[chunk].tobytes() for one, chunk in zip(hits, chunks)}
            self.manager.complete_load(hits, context)
        self.manager.on_request_finished(context)
        return [loaded.get(key(i)) for i in numbers]

    def store_again(self, numbers):
        self.forget()
        self.store(numbers)
