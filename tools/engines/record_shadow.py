#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what the published classes of ShadowKV answer, for tests/engines/test_shadow_published.py.

  record_shadow.py CHECKOUT    write tests/engines/shadow_published.json

CHECKOUT is one of https://github.com/bytedance/ShadowKV. Its models/kv_cache.py runs here as it is, on the CPU:
KV_Cache and ShadowKVCache call nothing of CUDA but streams, which are stood in for. Needs torch and numpy.
"""

import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "engines"))

import torch  # noqa: E402

import shadow_inputs as made  # noqa: E402

RECORD = ROOT / "tests" / "engines" / "shadow_published.json"
CLEAR = 0.2  # Logits of the last chunk chosen and the first one not differ by so much: above the rounding of bf16.


def load(checkout):
    """models/kv_cache.py, without the packages that it imports for classes which are not recorded."""
    sys.modules["kernels"] = types.SimpleNamespace(shadowkv=None)
    sys.modules["models"] = types.ModuleType("models")
    sys.modules["models.tensor_op"] = types.SimpleNamespace(batch_gather_gemm_rotary_pos_emb_cuda=None)
    torch.cuda.Stream = torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
    module = types.ModuleType("published")
    path = checkout / "models" / "kv_cache.py"
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


class Recorder:
    """Calls a cache, and notes each call with the shapes of what goes in and comes out."""

    def __init__(self, cache):
        self.cache, self.calls = cache, []

    def call(self, name, **arguments):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = getattr(self.cache, name)(**arguments)
        self.calls.append({"method": name, "arguments": {key: made.told(one) for key, one in arguments.items()},
                           "result": made.told(result)})
        if printed.getvalue():
            self.calls[-1]["lines"] = printed.getvalue().count("\n")
        return result


def clear_queries(cache, layer, number):
    """The next queries, from `number` on, of which each head's choice is clear."""
    marks = cache.k_landmark[layer][0].double()
    while True:
        heads = made.queries(number)[0, :, 0].double().view(made.HEADS, made.GROUP, made.ROW)
        scores = heads @ marks.transpose(1, 2) / made.ROW**0.5
        best = scores.log_softmax(-1).max(1).values.sort(descending=True).values
        edge = made.BUDGET // made.CHUNK
        if (best[:, edge - 1] - best[:, edge]).min() > CLEAR:
            return number
        number += 1


def record_shadow(module):
    recorder = Recorder(module.ShadowKVCache(made.CONFIG, max_length=2048, device="cpu", sparse_budget=made.BUDGET,
                                             chunk_size=made.CHUNK, rank=made.RANK))
    for layer in range(made.LAYERS):
        before, keys, values = made.prompt(layer)
        recorder.call("get_svd", new_k_cache=before, layer_idx=layer)
        recorder.call("prefill_kv_cache", new_v_cache=values, layer_idx=layer, key_states_roped=keys,
                      query=made.queries(layer))
    recorder.call("get_kv_len")
    recorder.call("H2D")
    steps, number = [], 0
    for step in range(made.STEPS):
        for layer in range(made.LAYERS):
            number = clear_queries(recorder.cache, layer, number) + 1
            query = made.queries(number - 1)
            at, keys, values = made.call_step(recorder.call, layer, step, query)
            output = made.attention(query, keys, values)
            steps.append({"queries": number - 1, "positions": [sorted(head.tolist()) for head in at[0]],
                          "output": [[round(x, 4) for x in head] for head in output.tolist()]})
    recorder.call("get_kv_len")
    recorder.call("print_stats")
    recorder.call("clear")
    recorder.call("get_kv_len")
    return {"calls": recorder.calls, "steps": steps}


def record_full(module):
    recorder = Recorder(module.KV_Cache(made.CONFIG, max_length=2048, device="cpu"))
    for layer in range(made.LAYERS):
        _, keys, values = made.prompt(layer)
        recorder.call("update_kv_cache", new_k_cache=keys, new_v_cache=values, layer_idx=layer)
    recorder.call("H2D")
    for layer in range(made.LAYERS):
        keys, values = made.new_row(layer, 0)
        recorder.call("update_kv_cache", new_k_cache=keys, new_v_cache=values, layer_idx=layer)
    recorder.call("get_kv_len")
    recorder.call("print_stats")
    recorder.call("clear")
    recorder.call("get_kv_len")
    return {"calls": recorder.calls}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    checkout = parser.parse_args().checkout
    module = load(checkout)
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    record = {"commit": commit, "torch": torch.__version__, "ShadowKVCache": record_shadow(module),
              "KV_Cache": record_full(module)}
    RECORD.write_text(json.dumps(record, separators=(",", ":")) + "\n")
    print(f"{RECORD}: {RECORD.stat().st_size} bytes")


if __name__ == "__main__":
    main()
