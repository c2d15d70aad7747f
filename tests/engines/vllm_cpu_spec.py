# SPDX-License-Identifier: Apache-2.0
"""vLLM's TieringOffloadingSpec for a processor, given to vLLM as `spec_module_path`.

vLLM copies between the KV cache of a card and the memory that its tiers share, and refuses that on a processor. Here
this one copy is done without a card; scheduler, managers and tiers are vLLM's own.
"""

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CopyingWorker(OffloadingWorker):
    """Copies blocks, of which each chunk is one."""

    def __init__(self, kv_caches, region):
        self.blocks = [one.tensor.view(torch.int8).view(-1, one.page_size_bytes) for one in kv_caches.tensors]
        self.chunks = [region.create_next_worker_view(one.page_size_bytes) for one in kv_caches.tensors]
        self.region = region  # Keeps the memory.
        self.finished = []

    def copy(self, job, to, to_ids, source, source_ids):
        count = 0
        for target, origin in zip(to, source):
            for a, b in zip(to_ids, source_ids, strict=True):
                target[int(a)].copy_(origin[int(b)])
                count += origin.shape[1]
        self.finished.append(TransferResult(job, True, count, 0.0))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, self.chunks, dst_spec.chunk_ids, self.blocks, src_spec.block_ids)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, self.blocks, dst_spec.block_ids, self.chunks, src_spec.chunk_ids)

    def get_finished(self):
        finished, self.finished = self.finished, []
        return finished

    def wait(self, job_ids):
        """A copy is over when submit returns."""


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            assert self.blocks_per_chunk == 1
            self._worker = CopyingWorker(kv_caches, SharedOffloadRegion(
                engine_id=self.config.engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker))
        return self._worker
