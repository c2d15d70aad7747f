# SPDX-License-Identifier: Apache-2.0
"""Drives the connector's two halves as vLLM's scheduler and worker drive them, over tensors that are made here as GPU
backends lay them out: no such backend runs on a processor."""

import dataclasses
import types

import torch
from vllm import SamplingParams
from vllm.config import KVTransferConfig, MultiModalConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request, RequestStatus

BLOCK, BLOCKS, HEADS, DIM, LAYERS = 16, 40, 2, 8, 3
SHAPE = dict(block_size=BLOCK, num_kv_heads=HEADS, head_size=DIM, dtype=torch.bfloat16)


class Layer(AttentionLayerBase):
    """As much of an attention layer as a connector asks for."""

    def __init__(self, backend):
        self.backend = backend

    def get_attn_backend(self):
        return types.SimpleNamespace(get_name=lambda: self.backend)

    def get_kv_cache_spec(self, vllm_config):
        return None


def config_of(exported, monkeypatch, path, *groups, backend="FLASH_ATTN", pictures=False, **parallel):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    transfer = KVTransferConfig(kv_connector="CairnConnector", kv_connector_module_path="cairn.vllm", kv_role="kv_both",
                                kv_connector_extra_config={"path": str(path), "lease": 5.0})
    config = EngineArgs(model=str(exported.huggingface), dtype="bfloat16", max_model_len=512, block_size=32,
                        enforce_eager=True, kv_transfer_config=transfer).create_engine_config()
    if pictures:
        config.model_config.multimodal_config = MultiModalConfig()
    for name, size in parallel.items():
        setattr(config.parallel_config, name, size)
    names = [[f"layer.{group}.{layer}" for layer in range(LAYERS)] for group in range(len(groups))]
    config.compilation_config.static_forward_context = {name: Layer(backend) for some in names for name in some}
    cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[],
                          kv_cache_groups=[KVCacheGroupSpec(some, group) for some, group in zip(names, groups)])
    return config, cache


@dataclasses.dataclass
class Scheduled:
    """What a step does for a request: computes `count` of its tokens, behind those that are computed."""

    name: str
    computed: int
    count: int
    tables: tuple[list[int], ...]
    tokens: list[int]  # Up to where it computes them.


class Engine:
    """A scheduler, and a worker that fills blocks with what tokens and positions tell."""

    def __init__(self, config, cache, order):
        self.worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
        self.scheduler = KVConnectorFactory.create_connector(config, KVConnectorRole.SCHEDULER, cache)
        self.groups = cache.kv_cache_groups
        self.worker.register_kv_caches(self.make(order))

    def make(self, order):
        shape = {"NHD": (BLOCKS, BLOCK, HEADS, 2 * DIM), "HND": (BLOCKS, HEADS, BLOCK, 2 * DIM)}[order]
        self.tensors = {}
        for group in self.groups:
            for name in group.layer_names:
                tensor = torch.zeros(shape, dtype=torch.bfloat16)
                self.tensors[name] = tensor.transpose(1, 2) if order == "NHD" else tensor
        return self.tensors

    def rows(self, tokens, begin):
        """What a model has of these tokens from `begin` on: [token][group, layer][head][element]."""
        rows, state = [], 1
        for position, token in enumerate(tokens):
            state = (state * 31 + token + position) % 251
            if position >= begin:
                rows.append([[[(state + 7 * layer + head + element) % 128 for element in range(2 * DIM)]
                              for head in range(HEADS)] for layer in range(len(self.tensors))])
        return torch.tensor(rows, dtype=torch.bfloat16)

    def run(self, request, tables, drawn, steps_on=True):
        """All of a request. What was loaded, as (tokens, rows of the first group)."""
        self.scheduler.on_new_request(request)
        loaded, asynchronous = self.scheduler.get_num_new_matched_tokens(request, 0)
        blocks = types.SimpleNamespace(get_block_ids=lambda: tables)
        self.scheduler.update_state_after_alloc(request, blocks, loaded)
        if asynchronous:
            self.step({}, tables, [])
            assert self.worker.get_transfer_results(set()).finished_recving == {request.request_id}
        request.num_computed_tokens = loaded
        rows = self.read(request.num_tokens, tables) if asynchronous else None
        for token in [None, *drawn]:
            if token is not None:
                request.append_output_token_ids(token)
            computed = request.num_computed_tokens
            self.step({request.request_id: (computed, request.num_tokens - computed)}, tables, seen(request))
            if rows is None:
                rows = self.read(request.num_tokens, tables)
            request.num_computed_tokens = request.num_tokens
        request.append_output_token_ids(0)
        request.status = RequestStatus.FINISHED_STOPPED
        held, _ = self.scheduler.request_finished_all_groups(request, tables)
        assert not held, "vLLM could not reset its prefix cache"
        if steps_on:
            self.step({}, tables, [])
        return loaded, rows

    def step(self, scheduled, tables, tokens):
        self.step_of([Scheduled(one, computed, count, tables, tokens[:computed + count])
                      for one, (computed, count) in scheduled.items()])

    def step_of(self, new, running=()):
        """A step of several requests, which computes those that run already first, as vLLM does."""
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(self.output_of(new, running)))
        self.forward([*running, *new])
        self.worker.clear_connector_metadata()

    def output_of(self, new, running):
        """As much of a SchedulerOutput as a connector asks for."""
        both = [*running, *new]
        tables = {one.name: one.tables for one in both}
        return types.SimpleNamespace(
            scheduled_new_reqs=[types.SimpleNamespace(req_id=one.name, num_computed_tokens=one.computed)
                                for one in new],
            scheduled_cached_reqs=types.SimpleNamespace(req_ids=[one.name for one in running],
                                                        num_computed_tokens=[one.computed for one in running]),
            num_scheduled_tokens={one.name: one.count for one in both},
            total_num_scheduled_tokens=sum(one.count for one in both),
            kv_connector_block_state=types.SimpleNamespace(get_block_ids=lambda name: tables[name],
                                                           boundary_state_offloads=self.offered(both)))

    def forward(self, scheduled):
        """The worker's part of a step."""
        self.worker.start_load_kv(None)
        for index, name in enumerate(self.tensors):
            self.worker.wait_for_layer_load(name)
            for one in scheduled:
                self.compute(index, name, one.tokens, one.computed, one.tables)
        self.worker.wait_for_save()

    def offered(self, scheduled):
        """Of requests of a step: (group, block, tokens) of states that vLLM keeps behind it. There are none."""
        return {}

    def add(self, request, tables, computed=0):
        """A new request, of which the engine's own cache has `computed` tokens; how many are loaded."""
        self.scheduler.on_new_request(request)
        loaded, _ = self.scheduler.get_num_new_matched_tokens(request, computed)
        self.scheduler.update_state_after_alloc(request, types.SimpleNamespace(get_block_ids=lambda: tables), loaded)
        return loaded

    def end(self, request, tables):
        request.num_computed_tokens = request.num_tokens
        request.append_output_token_ids(0)
        request.status = RequestStatus.FINISHED_STOPPED
        self.scheduler.request_finished_all_groups(request, tables)

    def compute(self, index, name, tokens, begin, tables):
        table = tables[index // LAYERS]
        for offset, row in enumerate(self.rows(tokens, begin)[:, index]):
            position = begin + offset
            self.tensors[name][table[position // BLOCK], :, position % BLOCK] = row

    def read(self, count, tables):
        """[token][group, layer][head][element], as it lies in the blocks."""
        return torch.stack([torch.stack([tensor[tables[index // LAYERS][position // BLOCK], :, position % BLOCK]
                                         for index, tensor in enumerate(self.tensors.values())])
                            for position in range(count)])

    def close(self, first="worker"):
        for side in (self.worker, self.scheduler) if first == "worker" else (self.scheduler, self.worker):
            side.shutdown()


def request_of(name, tokens, **sampling):
    return Request(name, list(tokens), SamplingParams(max_tokens=100, **sampling), None)


def seen(request):
    """What the model sees: where there is content, that, and not the ids."""
    tokens = list(request.all_token_ids)
    for feature in request.mm_features:
        place = feature.mm_position
        tokens[place.offset:place.offset + place.length] = [sum(feature.identifier.encode())] * place.length
    return tokens


def with_pictures(name, tokens, *pictures, modality="image", data=None):
    """pictures: (offset, length, vLLM's hash)."""
    features = [MultiModalFeatureSpec(data=data, modality=modality, identifier=identifier,
                                      mm_position=PlaceholderRange(offset=offset, length=length))
                for offset, length, identifier in pictures]
    return Request(name, list(tokens), SamplingParams(max_tokens=100), None, mm_features=features)


def table(first, groups=1):
    return tuple([first + (3 * i + group) % 10 for i in range(10)] for group in range(groups))


def roots(store):
    """Of all branches: the nodes that hold their first tokens."""
    return {store.get_branch(info.id).path()[0].node for space in store.namespaces()
            for info in store.list_branches(namespace=space.name)[0]}


def wave():
    """Four requests that begin alike and come together; what vLLM schedules of each: the prompt's blocks once."""
    prompt = [3 * i % 97 for i in range(112)]
    requests = [request_of(f"wave-{i}", [*prompt, *range(10 * i, 10 * i + 10)]) for i in range(4)]
    tables = [shared_and_own(range(1, 8), 8 + 3 * i) for i in range(4)]
    return requests, [Scheduled(one.request_id, 112 if i else 0, 10 if i else 122, of_one, list(one.all_token_ids))
                      for i, (one, of_one) in enumerate(zip(requests, tables))]


def shared_and_own(prefix_blocks, first, own=3):
    """A table whose first blocks are another request's."""
    return ([*prefix_blocks, *range(first, first + own)],)
