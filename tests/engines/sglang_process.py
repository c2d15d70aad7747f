# SPDX-License-Identifier: Apache-2.0
"""Processes with SGLang's classes, for test_sglang.py.

  sglang_process.py store PATH EXTRA    stores batch after batch of pages, prints the number of each that was reported as
                                        stored, and once one was refused what became of the others. EXTRA: JSON
  sglang_process.py rank PATH RANK PORT a rank of two, which reduce by gloo as SGLang's controller does: of KV that each
                                        has its part of, and of KV that both have alike. Prints a line of JSON
"""

import json
import os
import sys

import torch
import torch.distributed

from sglang_classes import HostPool, backend_of

BATCH = 4  # Pages.


def keys_of(numbers):
    return [f"{number:064x}" for number in numbers]


def put(backend, pool, numbers):
    for at, number in enumerate(numbers):
        pool.fill(number, at)
    return backend.batch_set_v1(keys_of(numbers), pool.indices(*range(len(numbers))))


def got(backend, pool, numbers):
    """Of each page whether it is there as it was put; None: it is not there."""
    pool.kv_buffer.zero_()
    loaded = backend.batch_get_v1(keys_of(numbers), pool.indices(*range(len(numbers))))
    other = HostPool(pool.layout, page_size=pool.page_size, latent=pool.kinds == 1)
    return [torch.equal(pool.page(at), other.fill(number, 0)) if there else None
            for at, (number, there) in enumerate(zip(numbers, loaded))]


def store(path, extra):
    pool = HostPool()
    backend = backend_of(path, pool, **json.loads(extra))
    batch = 0
    while all(put(backend, pool, range(batch * BATCH, (batch + 1) * BATCH))):
        print(batch, flush=True)
        batch += 1
    each = [got(backend, pool, [number]) for number in range(batch * BATCH)]
    print("refused;", each.count([None]), "missing,", each.count([False]), "wrong")


def least(value):
    tensor = torch.tensor(value, dtype=torch.int)
    torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN)
    return tensor.item()


def rank(path, number, port):
    number = int(number)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
    said, numbers = {}, range(8)
    for kind in ("own", "alike"):
        alike = kind == "alike"
        pool = HostPool(latent=alike)
        backend = backend_of(os.path.join(path, kind), pool, rank=number, size=2, mla=alike)
        torch.distributed.barrier()
        before = least(backend.batch_exists(keys_of(numbers)))
        if not alike:
            put(backend, pool, [100 * number + one for one in numbers])  # Under keys of this rank: others' are not there.
        stored = put(backend, pool, numbers) if number == 0 or not alike else None
        torch.distributed.barrier()
        if not alike and number == 1:
            backend._pools["kv"]._drop(keys_of([5]))
        here = backend.batch_exists(keys_of(numbers))
        hits = least(here)
        loaded = got(backend, pool, numbers[:hits])
        said[kind] = {"before": before, "stored": stored, "here": here, "hits": hits, "loaded": loaded,
                      "completed": least(len(loaded))}
        torch.distributed.barrier()
        backend.close()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    {"store": store, "rank": rank}[sys.argv[1]](*sys.argv[2:])
