# SPDX-License-Identifier: Apache-2.0
"""SGLang's hierarchical cache keeps its pages in stores: a dynamic back end of its HiCache.

    --enable-hierarchical-cache --hicache-mem-layout page_first --hicache-storage-backend dynamic
    --hicache-storage-backend-extra-config '{"backend_name": "cairn", "module_path": "cairn.sglang",
        "class_name": "CairnHiCache", "interface_v1": 1, "path": "/var/lib/cairn"}'

docs/engines.md has what is kept, and what a crash costs.
"""

import logging
import os

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolName

from . import _sglang_hits as hits
from ._digest import Digests, NoFiles
from ._errors import InvalidArgument
from ._sglang_pool import Pool
from ._sglang_store import Followed, Own

_log = logging.getLogger(__name__)

# SGLang's own, in the same dictionary.
OF_SGLANG = ("backend_name", "module_path", "class_name", "interface_v1")


class CairnHiCache(HiCacheStorage):
    """The back end that SGLang makes, one in each rank's process.

    extra_config, beside what SGLang reads itself:
      path            the folder of the stores, made if it is not there: one store for each rank, which one process has
                      open.
      weights_digest  what tells weights apart, a text that changes whenever they do; by default a digest of
                      all files of the model. Required where SGLang's name of the model is no path.
      durability      reached before a page is reported as stored: "memory", "process" (the default) or "power".
      timeout         seconds that a batch may take (default 30).
      any other       keyword of cairn.Store, such as max_bytes.

    With "interface_v1" pages are read and written where they lie in SGLang's host pool, if its layout has a page in a few
    pieces (page_first, page_first_direct, page_head); else by one copy.

    KV that all ranks have alike (MLA) is written by one rank, whose store the others follow.

    Raises InvalidArgument naming what is missing or not supported; cairn.ModelMismatch naming the folder and the field
    where a folder holds pages of another model, dtype, layout, page size or parallel size; cairn.Locked naming the process
    that has a store open. Errors of the store later on stop nothing: a page that cannot be stored or loaded is reported so.
    A damaged page, or one of another size, is dropped, so that it is stored again.
    """

    def __init__(self, storage_config, kwargs=None):
        extra = dict(storage_config.extra_config or {})
        self._config = storage_config
        options = {name: value for name, value in extra.items() if name not in OF_SGLANG}
        path = options.pop("path", None)
        if not path:
            raise InvalidArgument("extra_config: 'path', the folder of the stores, is missing")
        if storage_config.dcp_size != 1:
            raise InvalidArgument(f"dcp_size is {storage_config.dcp_size}; only 1 is supported")
        if storage_config.should_split_heads:
            raise InvalidArgument(f"tp_lcm_size is {storage_config.tp_lcm_size}, so that heads of a page are divided; "
                                  "leave it out")
        os.makedirs(path, mode=0o700, exist_ok=True)
        digest = options.pop("weights_digest", None) or _digest_of(storage_config.model_name, path)
        settings = {"durability": options.pop("durability", "process"), "timeout": options.pop("timeout", 30.0)}
        self._own_folder = os.path.join(path, self._folder(storage_config.tp_rank))
        self._writer_folder = None if storage_config.is_storage_writer else os.path.join(path, self._folder(0))
        self._fields = {"model": storage_config.model_name, "weights": digest, **{
            name: getattr(storage_config, name) for name in ("tp_size", "pp_size", "attn_cp_size", "is_mla_model")}}
        self._options, self._settings = options, settings
        self._own = self._followed = None
        self._pools = {}
        if self._writer_folder is None:
            self._store_of(PoolName.KV)  # Options are refused before SGLang has made its pools.

    def _folder(self, tp_rank):
        config = self._config
        return f"tp{tp_rank}-pp{config.pp_rank}-cp{config.attn_cp_rank}-dp{config.dp_rank}"

    def _store_of(self, name):
        """All ranks have the same KV if one of them writes it; what other pools hold (states, windows) is each rank's."""
        if self._writer_folder is not None and name != PoolName.MAMBA:
            if self._followed is None:
                self._followed = Followed(self._writer_folder, self._settings["timeout"], _log)
            return self._followed
        if self._own is None:
            self._own = Own(self._own_folder, self._options, self._settings, self._config.is_mla_model, _log)
        return self._own

    # --- Pools

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        self._add(PoolName.KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._add(host_pool_name, host_pool)

    def _add(self, name, host_pool):
        self._pools[str(name)] = Pool(str(name), host_pool, self._store_of(name), self._fields)

    def _pool(self, name=PoolName.KV):
        pool = self._pools.get(str(name))
        if pool is None:
            raise InvalidArgument(f"pool {name}: is not registered")
        return pool

    # --- Pages of the KV pool

    def batch_exists(self, keys, extra_info=None):
        found = self._pool().exist(keys)
        return found.index(False) if False in found else len(found)

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._pool().load(keys, host_indices)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        return self._pool().store(keys, host_indices)

    # --- Of any pool

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        return hits.result_of(keys, pool_transfers or (), lambda name, wanted: self._pool(name).exist(wanted))

    def batch_get_v2(self, transfers, extra_info=None):
        return {one.name: self._pool(one.name).load(one.keys or [], one.host_indices) for one in transfers}

    def batch_set_v2(self, transfers, extra_info=None):
        return {one.name: self._pool(one.name).store(one.keys or [], one.host_indices) for one in transfers}

    # --- Pages that SGLang copies

    def exists(self, key):
        return self._pool().exist([key]) == [True]

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], [target_location])[0]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        return self.batch_set([key], [value])

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """target_locations: a flat tensor for each page; without them ones that are made here."""
        pool = self._pool()
        targets = list(target_locations or [None] * len(keys))
        targets = [pool.host.get_dummy_flat_data_page() if one is None else one for one in targets]
        return [target if there else None for target, there in zip(targets, pool.load_flat(keys, targets))]

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        return all(self._pool().store_flat(keys, list(values or [])))

    # ---

    def clear(self):
        """Drops all pages, of the pools that this rank writes. Whether that went well."""
        return all([pool.clear() for pool in self._pools.values()])

    def close(self):
        """Closes this rank's stores. Idempotent."""
        for store in (self._own, self._followed):
            if store is not None:
                store.close()
        self._own = self._followed = None
        self._pools = {}


def _digest_of(model, path):
    try:
        if not model or not os.path.exists(model):
            raise NoFiles(f"model_name {model!r}: is no path")
        digests = Digests(path)
        found = digests.of(model)
        digests.save()
        return found
    except (OSError, NoFiles) as error:
        raise InvalidArgument(f"extra_config: {error}; give 'weights_digest', a text that changes whenever the weights "
                              "do") from error
