# SPDX-License-Identifier: Apache-2.0
"""Replays calls that were recorded of the published classes of ShadowKV: cairn.shadow takes the same calls in the same
order, with the same shapes in and out, and attends to the same rows. tools/engines/record_shadow.py made the record.

What differs is what docs/shadow.md lists: get_svd is not there, chunks come in rising order, and H2D begins.
"""

import dataclasses
import inspect
import json
import pathlib

import pytest
import torch

import cairn
import shadow_inputs as made
from cairn.shadow import KV_Cache, ShadowKVCache, with_budget

RECORD = json.loads((pathlib.Path(__file__).parent / "shadow_published.json").read_text())


@dataclasses.dataclass
class Replay:
    """Calls a cache, and compares each call with the recorded one."""

    cache: object
    calls: list
    at: int = 0

    def call(self, name, **arguments):
        recorded = self.calls[self.at]
        self.at += 1
        assert recorded["method"] == name
        assert recorded["arguments"] == {key: made.told(one) for key, one in arguments.items()}
        result = getattr(self.cache, name)(**arguments)
        assert made.told(result) == recorded["result"], name
        return result

    def skip(self, name):
        assert self.calls[self.at]["method"] == name
        self.at += 1

    def prints(self, capsys):
        lines = self.calls[self.at]["lines"]
        self.call("print_stats")
        assert capsys.readouterr().out.count("\n") == lines


def rows_of(layer, step):
    """(keys, values), each [heads, tokens, row]: the prompt's, then the generated ones."""
    _, keys, values = made.prompt(layer)
    new = [made.new_row(layer, one) for one in range(step + 1)]
    return (torch.cat([rows, *(pair[kind] for pair in new)], dim=2)[0] for kind, rows in enumerate((keys, values)))


def test_published_calls_of_the_sparse_cache_give_the_same_rows(capsys):
    record = RECORD["ShadowKVCache"]
    spec = with_budget(cairn.ShadowSpec.published(made.HEADS * made.ROW), made.BUDGET)
    assert (spec.chunk_tokens, spec.outlier_chunks, spec.local_tokens, spec.rank) == (
        made.CHUNK, made.OUTLIERS, made.LOCAL * made.CHUNK, made.RANK)
    with ShadowKVCache(made.CONFIG, max_length=2048, device="cpu", spec=spec, store=":memory:") as cache:
        replay = Replay(cache, record["calls"])
        for layer in range(made.LAYERS):
            _, keys, values = made.prompt(layer)
            replay.skip("get_svd")
            replay.call("prefill_kv_cache", new_v_cache=values, layer_idx=layer, key_states_roped=keys,
                        query=made.queries(layer))
        replay.call("get_kv_len")
        replay.call("H2D")
        steps = iter(record["steps"])
        for step in range(made.STEPS):
            for layer in range(made.LAYERS):
                check_step(replay, next(steps), layer, step)
        replay.call("get_kv_len")
        replay.prints(capsys)
        replay.call("clear")
        replay.call("get_kv_len")
        assert replay.at == len(record["calls"])


def check_step(replay, recorded, layer, step):
    query = made.queries(recorded["queries"])
    at, keys, values = made.call_step(replay.call, layer, step, query)
    assert at[0].tolist() == recorded["positions"]
    all_keys, all_values = rows_of(layer, step)
    chosen = at[0].unsqueeze(-1).expand(-1, -1, made.ROW)
    assert torch.equal(values[0, :, -at.shape[2]:], all_values.gather(1, chosen))
    # Both round a rebuilt key to bf16 a few times.
    wrong = (keys[0, :, -at.shape[2]:].float() - all_keys.gather(1, chosen).float()).abs().max()
    assert wrong < 0.01 * all_keys.float().abs().max()
    output = made.attention(query, keys, values)
    assert (output - torch.tensor(recorded["output"], dtype=torch.float64)).abs().max() < 0.002


def test_published_calls_of_the_full_cache_give_the_same_rows(capsys):
    record = RECORD["KV_Cache"]
    with KV_Cache(made.CONFIG, max_length=2048, device="cpu", store=":memory:") as cache:
        replay = Replay(cache, record["calls"])
        for layer in range(made.LAYERS):
            _, keys, values = made.prompt(layer)
            replay.call("update_kv_cache", new_k_cache=keys, new_v_cache=values, layer_idx=layer)
        replay.call("H2D")
        for layer in range(made.LAYERS):
            keys, values = made.new_row(layer, 0)
            got = replay.call("update_kv_cache", new_k_cache=keys, new_v_cache=values, layer_idx=layer)
            for mine, wanted in zip(got, rows_of(layer, 0)):
                assert torch.equal(mine[0], wanted)
        replay.call("get_kv_len")
        replay.prints(capsys)
        replay.call("clear")
        replay.call("get_kv_len")
        assert replay.at == len(record["calls"])


@pytest.mark.parametrize("kind, recorded", [(ShadowKVCache, "ShadowKVCache"), (KV_Cache, "KV_Cache")])
def test_published_arguments_are_taken(kind, recorded):
    for call in RECORD[recorded]["calls"]:
        if call["method"] != "get_svd":
            method = inspect.signature(getattr(kind, call["method"]))
            method.bind(None, **call["arguments"])
