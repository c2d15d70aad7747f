# SPDX-License-Identifier: Apache-2.0
"""LMCache's own adapter over ours, driven as its storage manager drives it. Chunks are made up from their number.

As a program it stores batch after batch, prints the number of each reported as stored, and once one was
refused what became of the others:

  lmcache_driver.py PATH PARAMETERS    PARAMETERS: JSON, adapter_params beside the path
"""

import json
import os
import random
import select
import sys

import torch
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import NativePluginL2AdapterConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

CHUNK_BYTES = 200_000  # No whole number of pages.
BATCH = 4  # Chunks of one store.
TIMEOUT_MS = 60_000


def config(path, **parameters):
    return {"type": "native_plugin", "module_path": "cairn.lmcache", "class_name": "CairnConnector",
            "adapter_params": {"path": str(path), **parameters}}


def key(number, salt="", model="meta-llama/Llama-3.1-8B"):
    return ObjectKey(chunk_hash=number.to_bytes(32, "big"), model_name=model, kv_rank=0, cache_salt=salt)


def content(number, size=CHUNK_BYTES):
    return random.Random(number).randbytes(size)


def memory(data):
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    metadata = MemoryObjMetadata(shape=tensor.shape, dtype=tensor.dtype, address=0, phy_size=len(data),
                                 fmt=MemoryFormat.KV_2LTD, ref_count=1)
    return TensorMemoryObj(raw_data=tensor, metadata=metadata, parent_allocator=None)


class Driver:
    """An adapter made by LMCache; calls wait for their end."""

    def __init__(self, path, **parameters):
        self.adapter = create_l2_adapter(NativePluginL2AdapterConfig.from_dict(config(path, **parameters)))
        self.connector = self.adapter._client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.adapter.close()

    @staticmethod
    def _wait(fd):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(TIMEOUT_MS), "nothing ended"
        os.eventfd_read(fd)

    def store(self, keys, contents):
        chunks = [memory(one) for one in contents]  # Views of them keep no memory.
        task = self.adapter.submit_store_task(keys, chunks)
        self._wait(self.adapter.get_store_event_fd())
        return self.adapter.pop_completed_store_tasks()[task].is_successful()

    def lookup(self, keys):
        task = self.adapter.submit_lookup_and_lock_task(keys, {})
        self._wait(self.adapter.get_lookup_and_lock_event_fd())
        found = self.adapter.query_lookup_and_lock_result(task)
        return [found.test(i) for i in range(len(keys))]

    def load(self, keys, size=CHUNK_BYTES):
        """The bytes of each; None: it was not loaded."""
        chunks = [memory(bytes(size)) for _ in keys]
        task = self.adapter.submit_load_task(keys, chunks)
        self._wait(self.adapter.get_load_event_fd())
        loaded = self.adapter.query_load_result(task)
        return [chunk.raw_data.numpy().tobytes() if loaded.test(i) else None for i, chunk in enumerate(chunks)]

    def store_numbers(self, numbers, salt=""):
        return self.store([key(i, salt) for i in numbers], [content(i) for i in numbers])


def main():
    path, parameters = sys.argv[1:]
    with Driver(path, **json.loads(parameters)) as driver:
        batch = 0
        while driver.store_numbers(range(batch * BATCH, (batch + 1) * BATCH)):
            print(batch, flush=True)
            batch += 1
        numbers = range(batch * BATCH)
        print("refused;", driver.lookup([key(i) for i in numbers]).count(False), "missing,",
              [driver.load([key(i)]) == [content(i)] for i in numbers].count(False), "wrong")


if __name__ == "__main__":
    main()
