# SPDX-License-Identifier: Apache-2.0
"""vllm_remote_driver.py with a worker for each rank of tensor and pipeline parallel, whose tensors hold its layers and
heads. Results of ranks come together as vLLM brings them together."""

import copy
import dataclasses
import types

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec, MLAAttentionSpec, SlidingWindowSpec

from vllm_driver import BLOCK, BLOCKS, DIM, HEADS, LAYERS
from vllm_remote_driver import RemoteEngine, sent


@dataclasses.dataclass
class Rank:
    worker: object
    tensors: dict  # Layer -> as vLLM has it, of the rank's heads.
    first_head: int


class RanksEngine(RemoteEngine):
    def __init__(self, config, cache, tensor=2, pipeline=1, order="HND", **extra):
        self.tensor, self.pipeline = tensor, pipeline
        config.parallel_config.tensor_parallel_size = tensor
        config.parallel_config.pipeline_parallel_size = pipeline
        config.model_config.model_arch_config.total_num_kv_heads = HEADS
        self.latent = isinstance(cache.kv_cache_groups[0].kv_cache_spec, MLAAttentionSpec)
        self.aggregator = KVOutputAggregator(tensor * pipeline)
        super().__init__(config, cache, order, **extra)

    def begin(self, config, cache, order):
        self.groups = cache.kv_cache_groups
        self.tensors = {name: None for group in self.groups for name in group.layer_names}
        self.ranks = [self.rank_of(config, cache, number, order) for number in range(self.tensor * self.pipeline)]
        self.workers = [rank.worker for rank in self.ranks]
        self.scheduler = KVConnectorFactory.create_connector(config, KVConnectorRole.SCHEDULER, cache)
        self.scheduler.set_xfer_handshake_metadata_pp_aware(
            {divmod(number, self.tensor): sent(rank.worker.get_handshake_metadata())
             for number, rank in enumerate(self.ranks)})

    def rank_of(self, config, cache, number, order):
        config, cache = copy.copy(config), copy.copy(cache)
        config.parallel_config = copy.copy(config.parallel_config)
        config.parallel_config.rank = number
        stage, shard = divmod(number, self.tensor)
        cache.kv_cache_groups = [self.part_of(group, stage) for group in cache.kv_cache_groups]
        worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
        heads = cache.kv_cache_groups[0].kv_cache_spec.num_heads
        shape = {"NHD": (BLOCKS, BLOCK, heads, 2 * DIM), "HND": (BLOCKS, heads, BLOCK, 2 * DIM)}[order]
        tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for group in cache.kv_cache_groups
                   for name in group.layer_names}
        tensors = {name: one.transpose(1, 2) if order == "NHD" else one for name, one in tensors.items()}
        worker.register_kv_caches(tensors)
        return Rank(worker, tensors, 0 if self.latent else shard * HEADS // self.tensor)

    def part_of(self, group, stage):
        spec = group.kv_cache_spec
        if isinstance(spec, (FullAttentionSpec, SlidingWindowSpec)) and not self.latent:
            spec = dataclasses.replace(spec, num_kv_heads=max(1, HEADS // self.tensor))
        ends = [-(-LAYERS * part // self.pipeline) for part in (stage, stage + 1)]
        return KVCacheGroupSpec(group.layer_names[ends[0]:ends[1]], spec)

    def run_rank(self, number, meta, scheduled):
        self.worker, whole = self.ranks[number].worker, self.tensors
        self.current = self.ranks[number]
        output = super().run_rank(number, sent(meta), scheduled)
        assert self.tensors is whole
        return output

    def compute(self, index, name, tokens, begin, tables):
        tensor = self.current.tensors.get(name)
        if tensor is None:
            return  # Of another stage.
        first, heads = self.current.first_head, tensor.shape[1]
        table = tables[index // LAYERS]
        for offset, row in enumerate(self.rows(tokens, begin)[:, index, first:first + heads]):
            tensor[table[(begin + offset) // BLOCK], :, (begin + offset) % BLOCK] = row

    def rows(self, tokens, begin):
        return super().rows(tokens, begin)[:, :, :1] if self.latent else super().rows(tokens, begin)

    def read(self, count, tables):
        """As the ranks have it; those that hold the same must agree."""
        found = torch.zeros(count, len(self.tensors), 1 if self.latent else HEADS, 2 * DIM, dtype=torch.bfloat16)
        seen = set()
        for index, name in enumerate(self.tensors):
            for rank in self.ranks:
                if name not in rank.tensors:
                    continue
                tensor = rank.tensors[name]
                rows = torch.stack([tensor[tables[index // LAYERS][at // BLOCK], :, at % BLOCK] for at in range(count)]) \
                    if count else torch.zeros(0, tensor.shape[1], 2 * DIM, dtype=torch.bfloat16)
                held = slice(rank.first_head, rank.first_head + tensor.shape[1])
                assert (index, rank.first_head) not in seen or torch.equal(found[:, index, held], rows), name
                seen.add((index, rank.first_head))
                found[:, index, held] = rows
        return found

    def together(self, outputs):
        outputs = [types.SimpleNamespace(kv_connector_output=sent(one)) for one in outputs]
        one = self.aggregator.aggregate(outputs, (self.pipeline - 1) * self.tensor).kv_connector_output
        one.finished_sending, one.finished_recving = one.finished_sending or set(), one.finished_recving or set()
        return one

    def close(self, first="worker"):
        for rank in self.ranks:
            rank.worker.shutdown()
        self.scheduler.shutdown()
