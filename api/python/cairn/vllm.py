# SPDX-License-Identifier: Apache-2.0
"""vLLM keeps and finds its KV cache in a store: an out-of-tree KV connector.

    LLM(..., kv_transfer_config=KVTransferConfig(
        kv_connector="CairnConnector", kv_connector_module_path="cairn.vllm", kv_role="kv_both",
        kv_load_failure_policy="recompute", kv_connector_extra_config={"path": "/var/lib/cairn"}))

docs/engines.md tells what is kept, and what a crash costs.
"""

import contextlib

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from . import _vllm_blend as _blend
from . import _vllm_exit as _exit
from . import _vllm_refusal as _refusal
from . import _vllm_rotary as _rotary
from . import _vllm_settings as _settings
from ._core import SharedMemory
from ._errors import Error
from ._vllm_content import settings_of as content_settings_of
from ._vllm_layout import groups_of, layout_of
from ._vllm_metrics import PromMetrics, Stats
from ._vllm_rank import RankSide
from ._vllm_ranks import Ranks
from ._vllm_remote import RemoteScheduler
from ._vllm_scheduler import SchedulerSide
from ._vllm_slot_memory import SlotShape
from ._vllm_slot_messages import Reports
from ._vllm_stages import BlendLLM, Stages
from ._vllm_tier import CairnTier
from ._vllm_worker import WorkerSide

__all__ = ["BlendConnector", "BlendLLM", "CairnConnector", "CairnTier", "Stages"]

_refusal.expect()


class CairnConnector(KVConnectorBase_V1, SupportsHMA):
    """The connector that vLLM makes, one for its scheduler and one for its worker, in one process or in two.

    kv_connector_extra_config:
      path            the directory of the store; made if it is not there. The scheduler's process has it open.
      namespace       of the branches (default ""); a request with a cache_salt gets one of its own below it.
      durability      of appends: "memory", "process" (the default: survives kill -9) or "power".
      options         keywords of cairn.Store, such as max_bytes and evict.
      keep            keywords of cairn.Keep for each branch: ttl in seconds, priority, pinned.
      policy          keywords of cairn.NamespacePolicy, set for the namespace when the store is opened.
      lease           seconds that a hit is held from lookup to load (default 30).
      append_tokens   decoded tokens that are appended together where rows are kept (default 16).
      allow_namespaces  patterns of names (fnmatch) of the namespaces that a request may choose; none: no other one
                      than its own. All who may send requests may then read KV of each of them.
      allow_pinned    whether a request may pin its KV, which no eviction takes (default false).
      shared_memory_bytes  where the worker is another process: of the memory through which KV goes (default 256 MiB).
      same_degree     whether KV is found that was computed at these sizes of tensor and pipeline parallel only (default
                      false: of all; its values differ by rounding).
      hold_seconds    how long blocks of a request that is over are held there until they were copied (default 30).
      model           the model's name instead of the last part of its path.
      weights_digest  what tells its weights apart, instead of a digest of config and files. Required where
                      there are no files.
      enable_blending whether prompts may come in stages that load KV from any position (default false; of
                      BlendConnector true). The namespace then indexes chunks. docs/blend.md has the options of plans,
                      which are given here by any of their names: min_tokens, blend_recompute_ratio, ...
      blend_defaults  "cairn" (the default), "lmcache" or "ucm": where those options begin.
      blend_special_str  a text between documents, as LMCache has it.
      keep_blended    whether KV of a blended request is kept, marked as approximate, so that its conversation goes on
                      from there (default false: its ids alone).

    Raises ValueError naming what is not supported: context and data parallel, ranks on other hosts, an executor but 'uni'
    and 'mp', a kind of cache group, recurrent groups with more than one rank or without vLLM's prefix caching, ranks that
    disagree on a field, an unknown field, blending without prefix caching or of keys that cannot be turned; and
    cairn.ModelMismatch naming the field, where the store knows a model of the same identity with other shapes.

    A request may say how its KV is kept, and where, with kv_transfer_params (cairn/_vllm_request.py). What is refused
    is named in the kv_transfer_params of the answer, {"cairn": {"refused": why}}, and the request does without Cairn.

    Errors of the store never stop a request: a lookup that fails finds nothing, an append that fails (a full
    disk) ends what is kept of that request, and blocks that cannot be loaded are reported to vLLM, which
    computes them if kv_load_failure_policy is "recompute".
    """

    _cache_hit_source = CacheHitSource.DISK
    _blends = False  # Unless the configuration says otherwise.

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._side = self._shared = None
        with self._refusing():
            self._begin(vllm_config, role, kv_cache_config)
        _exit.add(self)

    @contextlib.contextmanager
    def _refusing(self):
        """What is raised within ends the start of the engine."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, (Error, ValueError, TypeError)):
                _refusal.tell(error)
            self.shutdown()
            raise

    def _begin(self, vllm_config, role, kv_cache_config):
        remote = _settings.is_remote(vllm_config.parallel_config)
        settings = _settings.Settings.of(self._kv_transfer_config.kv_connector_extra_config, self._blends,
                                         _settings.degrees_of(vllm_config.parallel_config))
        if remote and role == KVConnectorRole.WORKER:
            self._side = RankSide(vllm_config, kv_cache_config, content_settings_of(vllm_config))
            return
        self._shared = _settings.acquire(settings, remote)
        if remote:
            return  # The ranks say how their KV lies (set_xfer_handshake_metadata).
        layout, engine = self._described(groups_of(vllm_config, kv_cache_config),
                                         lambda plain: _rotary.described(vllm_config, plain))
        if role == KVConnectorRole.SCHEDULER:
            self._side = SchedulerSide(engine, layout, *self._of_scheduler())
        else:
            self._side = WorkerSide(engine, layout)

    def _described(self, groups, described):
        """(the Layout of these groups, as the store knows it; the Engine)."""
        settings, config = self._shared.settings, self._vllm_config
        layout = self._shared.describe(layout_of(config, groups, settings, self._shared.digests), described)
        if settings.enable_blending:
            _blend.refuse(layout, config)
        return layout, self._shared.engine(self._kv_transfer_config.engine_id)

    def _of_scheduler(self):
        settings, config = self._shared.settings, self._vllm_config
        options = _blend.options_of(settings, config, self._shared) if settings.enable_blending else {}
        return self._kv_transfer_config, options, config.model_config.max_model_len

    @property
    def requires_kv_delivery(self):
        return False

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config):
        return True  # Layers wait for their load.

    def shutdown(self):
        side, self._side = self._side, None
        shared, self._shared = self._shared, None
        with contextlib.ExitStack() as behind:
            if shared is not None:
                behind.callback(_settings.release, shared)
            if side is not None:
                behind.callback(side.close)

    def reset_cache(self):
        """Of either side: weights were replaced. Nothing that was stored is found from now on."""
        if self._side is not None and not isinstance(self._side, RankSide):
            self._side.engine.reset()
        return True

    # Where the model runs in other processes, these two come behind register_kv_caches, and before any step.

    def get_handshake_metadata(self):
        return self._side.shake if isinstance(self._side, RankSide) else None

    def set_xfer_handshake_metadata_pp_aware(self, metadata):
        if self._side is not None:
            return  # In one process nobody has anything to say.
        with self._refusing():
            ranks = Ranks.of(metadata, self._shared.settings.degrees)
            layout, engine = self._described(ranks.groups, lambda plain: plain.described(ranks.described))
            settings = self._shared.settings
            shape = SlotShape.of(layout, settings.shared_memory_bytes)
            area = SharedMemory.create(settings.path, settings.shared_memory_bytes)
            self._side = RemoteScheduler(engine, layout, *self._of_scheduler(), area, shape, ranks.places)

    # The scheduler's.

    def on_new_request(self, request):
        self._side.on_new_request(request)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        tokens = self._side.matched(request, num_computed_tokens)
        return tokens, tokens > 0 and (self._side.layout.asynchronous or isinstance(self._side, RemoteScheduler))

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self._side.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return self._side.step(scheduler_output)

    def request_finished(self, request, block_ids):
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request, block_ids):
        held = self._side.finished(request, block_ids)
        return held, self._side.answer(request)

    def update_connector_output(self, connector_output):
        if isinstance(self._side, RemoteScheduler):
            self._side.took(connector_output.kv_connector_worker_meta or Reports(), connector_output.finished_recving or ())

    def has_pending_push_work(self):
        return isinstance(self._side, RemoteScheduler) and self._side.busy

    def get_kv_connector_stats(self):
        return self._side.take_stats() if isinstance(self._side, SchedulerSide) else None

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return Stats(data) if data else None

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # The worker's.

    def register_kv_caches(self, kv_caches):
        self._side.register(kv_caches)

    def start_load_kv(self, forward_context, **kwargs):
        self._side.start_loads(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name):
        self._side.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        """An append is one atomic step of all layers, from where they lie: wait_for_save makes it."""

    def wait_for_save(self):
        self._side.end_step(self._get_connector_metadata())

    def get_transfer_results(self, finished_req_ids):
        return KVConnectorTransferResults(*self._side.take_results())

    def get_block_ids_with_load_errors(self):
        return self._side.take_bad_blocks()

    def build_connector_worker_meta(self):
        return self._side.take_reports()


class BlendConnector(CairnConnector):
    """The same, with enable_blending on."""

    _blends = True
