#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the classes of real engines that adapters subclass or are called through: methods with their
signatures, which of them are abstract, and fields. Sources are parsed, not imported.

  record_signatures.py SITE_PACKAGES            write tests/engines/signatures.json
  record_signatures.py SITE_PACKAGES --check    print each drift from it; exit status 1 if there is any

After another version was pinned: run --check, mend the adapters, then write.
"""

import argparse
import ast
import json
import pathlib
import sys

RECORD = pathlib.Path(__file__).resolve().parents[2] / "tests" / "engines" / "signatures.json"

# {package: {file: classes}}
CLASSES = {
    "transformers": {
        "transformers/cache_utils.py": [
            "Cache", "CacheLayerMixin", "DynamicLayer", "DynamicSlidingWindowLayer", "LinearAttentionCacheLayerMixin",
            "LinearAttentionLayer"],
    },
    "vllm": {
        "vllm/distributed/kv_transfer/kv_connector/v1/base.py": [
            "KVConnectorBase_V1", "SupportsHMA", "KVConnectorMetadata", "KVConnectorHandshakeMetadata",
            "KVConnectorWorkerMetadata", "KVConnectorTransferResults"],
        "vllm/distributed/kv_transfer/kv_connector/v1/metrics.py": ["KVConnectorStats", "KVConnectorPromMetrics"],
        "vllm/v1/core/sched/output.py": ["KVConnectorBlockState"],
        "vllm/v1/kv_cache_interface.py": ["MambaSpec"],
        "vllm/v1/outputs.py": ["KVConnectorOutput"],
        "vllm/v1/request.py": ["Request"],
        "vllm/config/kv_transfer.py": ["KVTransferConfig"],
        "vllm/lora/worker_manager.py": ["WorkerLoRAManager"],
        "vllm/lora/request.py": ["LoRARequest"],
        "vllm/v1/kv_offload/tiering/base.py": ["SecondaryTierManager", "TransferJob", "JobResult"],
        "vllm/v1/kv_offload/tiering/async_lookup.py": ["AsyncLookupManager"],
        "vllm/v1/kv_offload/config.py": ["OffloadingConfig", "OffloadingParallelConfig"],
        "vllm/v1/kv_offload/file_mapper.py": ["FileMapper"],
    },
    "sglang": {
        "sglang/srt/mem_cache/hicache_storage.py": [
            "HiCacheStorage", "HiCacheStorageConfig", "PoolTransfer", "PoolTransferResult", "PoolHitPolicy", "PoolName"],
        "sglang/srt/mem_cache/storage/backend_factory.py": ["StorageBackendFactory"],
        "sglang/srt/mem_cache/pool_host/base.py": ["HostKVCache"],
    },
    "lmcache": {
        "lmcache/v1/distributed/l2_adapters/native_plugin_l2_adapter.py": ["NativePluginL2AdapterConfig"],
        "lmcache/v1/distributed/l2_adapters/native_connector_l2_adapter.py": ["NativeConnectorL2Adapter"],
    },
}


def describe(node):
    fields, methods = {}, {}
    for part in node.body:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [ast.unparse(one) for one in part.decorator_list]
            # A property and its setter have one name.
            methods[" ".join([*(f"@{one}" for one in decorators), part.name])] = (
                ("async " if isinstance(part, ast.AsyncFunctionDef) else "") + f"({ast.unparse(part.args)})" +
                (f" -> {ast.unparse(part.returns)}" if part.returns else ""))
        elif isinstance(part, ast.AnnAssign):
            fields[ast.unparse(part.target)] = ast.unparse(part.annotation)
        elif isinstance(part, ast.Assign):
            fields.update({ast.unparse(target): ast.unparse(part.value) for target in part.targets})
    return {"bases": [ast.unparse(base) for base in node.bases], "fields": fields, "methods": methods}


def record(site):
    """{package: {class: its description}} of the packages that are installed."""
    found = {}
    for package, files in CLASSES.items():
        if not (site / package).is_dir():
            continue
        found[package] = {}
        for file, names in files.items():
            tree = ast.parse((site / file).read_text(encoding="utf-8"))
            classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
            found[package] |= {name: {"file": file, **describe(classes[name])} for name in names if name in classes}
    return found


def drift(was, now, where=""):
    """A line for each difference of two nested dictionaries."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        return [] if was == now else [f"{where}: {was} is now {now}"]
    lines = []
    for key in sorted(was.keys() | now.keys()):
        place = f"{where}: {key}" if where else key
        if key not in now:
            lines.append(f"{place} is gone")
        elif key not in was:
            lines.append(f"{place} is new")
        else:
            lines += drift(was[key], now[key], place)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    now = record(arguments.site_packages)
    if not arguments.check:
        RECORD.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return 0
    lines = drift(json.loads(RECORD.read_text(encoding="utf-8")), now)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
