# SPDX-License-Identifier: Apache-2.0
"""SGLang's classes for storage, without its engine, which needs a card and imports its kernels: packages without their
own __init__, so that the modules that matter load, and a host pool that lies as SGLang's do.

The one thing that stands in for SGLang's own is `human_readable_int`, which HiCacheFile calls for sizes in words only.
"""

import importlib.util
import pathlib
import sys
import types

ROOT = pathlib.Path(importlib.util.find_spec("sglang").origin).parent
PACKAGES = ("", ".srt", ".srt.mem_cache", ".srt.mem_cache.storage", ".srt.utils", ".srt.mem_cache.storage.file")


def _load():
    for name in PACKAGES:
        module = types.ModuleType("sglang" + name)
        module.__path__ = [str(ROOT / name.lstrip(".").replace(".", "/"))]
        sys.modules["sglang" + name] = module
    common = types.ModuleType("sglang.srt.utils.common")
    common.human_readable_int = int
    sys.modules["sglang.srt.utils.common"] = common


_load()

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

PAGES, PAGE, LAYERS, HEADS, DIM = 16, 32, 4, 2, 32
PAGE_BYTES = 2 * LAYERS * PAGE * HEADS * DIM * 2
LAYOUTS = ("page_first", "page_first_direct", "page_head", "layer_first")


class HostPool:
    """K and V of tokens, as MHATokenToKVPoolHost has them in each of its layouts. latent: as MLATokenToKVPoolHost."""

    def __init__(self, layout="page_first", dtype=torch.bfloat16, page_size=PAGE, pages=PAGES, latent=False,
                 layers=LAYERS):
        self.layout, self.dtype, self.page_size, self.pages = layout, dtype, page_size, pages
        self.layers, self.kinds, self.size = layers, 1 if latent else 2, pages * page_size
        shape = {"page_first": (self.size, layers, HEADS, DIM),
                 "page_first_direct": (pages, layers, page_size, HEADS, DIM),
                 "page_head": (pages, HEADS, page_size, layers, DIM),
                 "layer_first": (layers, self.size, HEADS, DIM)}.get(layout, (1,))
        self.kv_buffer = torch.zeros(self.kinds, *shape, dtype=dtype)

    def _of(self, index):
        if self.layout == "layer_first":
            return self.kv_buffer[:, :, index:index + self.page_size]
        if self.layout == "page_first":
            return self.kv_buffer[:, index:index + self.page_size]
        if self.layout in LAYOUTS:
            return self.kv_buffer[:, index // self.page_size:index // self.page_size + 1]
        raise ValueError(f"Unsupported layout: {self.layout}")

    def get_data_page(self, index, flat=True):
        return self._of(index).flatten() if flat else self._of(index)

    def get_dummy_flat_data_page(self):
        return torch.zeros(self._of(0).numel(), dtype=self.dtype)

    def set_from_flat_data_page(self, index, data_page):
        self._of(index).copy_(data_page.view(self._of(index).shape))

    def get_page_buffer_meta(self, indices):
        """(addresses, bytes) of the pieces of pages, those of one behind the other."""
        assert len(indices) % self.page_size == 0
        if self.layout not in LAYOUTS:
            raise ValueError(f"Unsupported layout: {self.layout}")
        row = HEADS * DIM * self.dtype.itemsize
        begin, kind = self.kv_buffer.data_ptr(), self.kv_buffer.stride(0) * self.dtype.itemsize
        addresses = []
        for index in indices.tolist()[::self.page_size]:
            if self.layout == "layer_first":
                addresses += [begin + which * kind + (layer * self.size + index) * row
                              for layer in range(self.layers) for which in range(self.kinds)]
            else:
                addresses += [begin + which * kind + index * self.layers * row for which in range(self.kinds)]
        size = self.page_size * row * (1 if self.layout == "layer_first" else self.layers)
        return addresses, [size] * len(addresses)

    def fill(self, number, at):
        """Page `at` gets what the number says."""
        generator = torch.Generator().manual_seed(number)
        page = torch.randn(self._of(0).numel(), generator=generator).to(self.dtype)
        self.set_from_flat_data_page(at * self.page_size, page)
        return page

    def page(self, at):
        return self.get_data_page(at * self.page_size)

    def indices(self, *places):
        """host_indices of pages."""
        return torch.cat([torch.arange(at * self.page_size, (at + 1) * self.page_size) for at in places])


def config_of(path, rank=0, size=1, mla=False, model="small", **more):
    """SGLang's own, as its controller makes it. more: of it, or of extra_config."""
    names = HiCacheStorageConfig.__dataclass_fields__
    fields = {"tp_rank": rank, "tp_size": size, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
              "is_mla_model": mla, "enable_storage_metrics": False, "is_page_first_layout": True, "model_name": model}
    fields |= {name: value for name, value in more.items() if name in names}
    extra = {"backend_name": "cairn", "module_path": "cairn.sglang", "class_name": "CairnHiCache", "interface_v1": 1,
             "path": str(path), "weights_digest": "w1"}
    extra |= {name: value for name, value in more.items() if name not in names}
    return HiCacheStorageConfig(**fields, extra_config={name: one for name, one in extra.items() if one is not None})


def backend_of(path, pool, *sidecars, **more):
    """Made by SGLang's factory, with its pools registered as its controller does."""
    backend = StorageBackendFactory.create_backend("dynamic", config_of(path, **more), pool)
    try:
        backend.register_mem_pool_host(pool)
        for name, sidecar in sidecars:
            backend.register_mem_host_pool_v2(sidecar, name)
        backend.on_host_pools_registered()
    except BaseException:
        backend.close()
        raise
    return backend


def files_of(path, pool):
    """SGLang's own back end of files."""
    backend = HiCacheFile(config_of(path, file_storage_path=str(path)))
    backend.register_mem_pool_host(pool)
    return backend
