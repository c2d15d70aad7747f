# SPDX-License-Identifier: Apache-2.0
"""Property: attention over what cairn.shadow returns is attention over what plain torch chooses by docs/shadow.md."""

import math
import pathlib
import signal
import subprocess
import sys
import types

import pytest
import torch

import cairn
from cairn.shadow import KV_Cache, ShadowKVCache

LAYERS, HEADS, GROUP, ROW, TOKENS = 2, 2, 3, 16, 700
CONFIG = types.SimpleNamespace(num_hidden_layers=LAYERS, num_attention_heads=HEADS * GROUP, num_key_value_heads=HEADS,
                               head_dim=ROW)


def rows(seed, heads, tokens, batch=1, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, tokens, ROW, generator=generator).to(dtype)


def prompt(batch=1, tokens=TOKENS, dtype=torch.bfloat16):
    """(keys, values) of each layer."""
    return [(rows(10 + layer, HEADS, tokens, batch, dtype), rows(20 + layer, HEADS, tokens, batch, dtype))
            for layer in range(LAYERS)]


def prefill(cache, kv):
    for layer, (keys, values) in enumerate(kv):
        cache.prefill_kv_cache(values, layer, keys)


def step(cache, kv, seed, batch=1, dtype=torch.bfloat16):
    """One token; of each layer (queries, positions, keys, values). `kv` then has the token, too."""
    seen = []
    for layer in range(LAYERS):
        new = rows(seed + layer, HEADS, 1, batch, dtype), rows(seed + 50 + layer, HEADS, 1, batch, dtype)
        kv[layer] = tuple(torch.cat(pair, dim=2) for pair in zip(kv[layer], new))
        cache.update_kv_cache(*new, layer)
        queries = rows(seed + 100 + layer, HEADS * GROUP, 1, batch, dtype)
        chosen = cache.get_retrieval_position_ids(layer, queries)
        values = cache.get_value_cache(layer, chosen)
        seen.append((queries, chosen, cache.get_key_cache(layer, chosen), values))
    return seen


def attention(queries, keys, values):
    """[query heads, row] of queries [query heads, row] over the rows of each kv head."""
    queries = queries.double().view(HEADS, GROUP, ROW)
    scores = queries @ keys.double().transpose(1, 2) / math.sqrt(ROW)
    return (scores.softmax(-1) @ values.double()).view(HEADS * GROUP, ROW)


# ---------------------------------------------------------------- the oracle

def coded(block, bits):
    """What codes of `bits` bits make of [64, row] floats of bf16."""
    low, high = block.min(0).values, block.max(0).values
    scale = ((high - low) * torch.tensor(1 / (2**bits - 1), dtype=torch.float32)).clamp(min=2.0**-126)
    up = scale.to(torch.bfloat16)
    up = torch.where(up.float() < scale, (up.view(torch.int16) + 1).view(torch.bfloat16), up).float()
    up = torch.where(high == low, torch.zeros_like(up), up)
    inverse = torch.where(up == 0, torch.zeros_like(up), 1 / up)
    codes = ((block - low) * inverse + 0.5).floor().clamp(max=2**bits - 1)
    return (low + codes * up).to(torch.bfloat16).float()


def by_blocks(floats, bits):
    """Each whole block of 64 rows coded; those behind the last are as they are."""
    whole = len(floats) // 64 * 64
    return torch.cat([coded(floats[at : at + 64], bits) for at in range(0, whole, 64)] + [floats[whole:]])


def oracle(spec, tokens, keys, values, queries):
    """(positions selected, keys, values) of one head; the shadow is of the first `tokens` rows."""
    covered = (tokens - spec.local_tokens) // 64 * 64
    chunk = spec.chunk_tokens
    count = covered // chunk
    chunks = keys[:covered].float().view(count, chunk, ROW)
    marks = (chunks.sum(1) / chunk).to(torch.bfloat16).float()
    cosines = torch.cosine_similarity(chunks.double(), marks.double()[:, None], dim=2).min(1).values
    sinks = -(-spec.sink_tokens // chunk)
    outliers = spec.outlier_chunks or math.ceil(spec.outlier_share * count)
    odd = sinks + cosines[sinks:].argsort(stable=True)[:outliers]
    always = torch.cat([torch.arange(sinks), odd.sort().values])
    seen_as = marks if spec.landmark_bits == 16 else by_blocks(marks, spec.landmark_bits)
    scores = queries.double() @ seen_as.double().T / math.sqrt(ROW)
    scores[:, always] = -math.inf
    best = scores.log_softmax(-1).max(0).values
    budget = (spec.budget_tokens or min(2048, tokens // 8)) // chunk
    selected = best.argsort(descending=True, stable=True)[: min(budget, count - len(always))].sort().values
    kept = keys[:covered].float()
    if spec.keys != "exact":
        kept = by_blocks(kept, int(spec.keys[3:]))
    at = (selected[:, None] * chunk + torch.arange(chunk)).flatten()
    near = (always[:, None] * chunk + torch.arange(chunk)).flatten()
    return at, (torch.cat([keys[near].float(), keys[covered:].float(), kept[at]]),
                torch.cat([values[near], values[covered:], values[at]]).float())


def check(spec, tokens, kv, seen, row=0):
    for layer, (queries, chosen, keys, values) in enumerate(seen):
        wanted = []
        for head in range(HEADS):
            mine = queries[row, head * GROUP : (head + 1) * GROUP, 0]
            at, pair = oracle(spec, tokens, kv[layer][0][row, head], kv[layer][1][row, head], mine)
            assert chosen[row, head].tolist() == at.tolist()
            wanted.append(pair)
        keys_wanted, values_wanted = (torch.stack(parts) for parts in zip(*wanted))
        # The same rows in the same order, but for outliers, which lie in an order of their own.
        assert keys.shape[2] == keys_wanted.shape[1]
        want = attention(queries[row, :, 0], keys_wanted, values_wanted)
        got = attention(queries[row, :, 0], keys[row], values[row])
        assert torch.allclose(got, want, rtol=0, atol=1e-9), (got - want).abs().max()


# ---------------------------------------------------------------- tests

@pytest.mark.parametrize("settings", [
    {}, dict(keys="int8", landmark_bits=8, chunk_tokens=8, outlier_chunks=2),
    # With one token per chunk no landmark differs.
    dict(keys="exact", landmark_bits=16, chunk_tokens=1, budget_tokens=50, outlier_share=0.0)])
def test_shadow_steps_attend_to_what_torch_chooses(settings):
    kv, spec = prompt(), cairn.ShadowSpec(**settings)
    with ShadowKVCache(CONFIG, spec=spec) as cache:
        prefill(cache, kv)
        cache.H2D()
        for seed in range(3):
            check(spec, TOKENS, kv, step(cache, kv, 1000 * (seed + 1)))
        assert cache.get_kv_len() == TOKENS + 3


def test_shadow_budget_of_all_chunks_is_dense_attention():
    kv = prompt()
    spec = cairn.ShadowSpec(keys="exact", budget_tokens=TOKENS - TOKENS % 4)
    with ShadowKVCache(CONFIG, spec=spec) as cache:
        prefill(cache, kv)
        for layer, (queries, _, keys, values) in enumerate(step(cache, kv, 1)):
            assert keys.shape == (1, HEADS, TOKENS + 1, ROW)
            dense = attention(queries[0, :, 0], kv[layer][0][0], kv[layer][1][0]).to(torch.bfloat16)
            got = attention(queries[0, :, 0], keys[0], values[0]).to(torch.bfloat16)
            assert torch.allclose(got.float(), dense.float(), rtol=2**-8, atol=0)


def test_shadow_of_a_short_prompt_is_dense_attention():
    kv = prompt(tokens=60)
    with ShadowKVCache(CONFIG) as cache:
        prefill(cache, kv)
        for seed in (1, 2):
            for layer, (queries, chosen, keys, values) in enumerate(step(cache, kv, 1000 * seed)):
                assert chosen.shape == (1, HEADS, 0)
                assert torch.equal(keys, kv[layer][0]) and torch.equal(values, kv[layer][1])


def test_shadow_of_fp16_and_a_batch():
    kv = prompt(batch=2, dtype=torch.float16)
    spec = cairn.ShadowSpec(keys="exact", landmark_bits=16, budget_tokens=TOKENS - TOKENS % 4)
    with ShadowKVCache(CONFIG, batch_size=2, dtype=torch.float16, spec=spec) as cache:
        prefill(cache, kv)
        for layer, (queries, chosen, keys, values) in enumerate(step(cache, kv, 1, batch=2, dtype=torch.float16)):
            assert keys.dtype == torch.float16 and chosen.shape[0] == 2
            for row in range(2):
                dense = attention(queries[row, :, 0], kv[layer][0][row], kv[layer][1][row])
                assert torch.allclose(attention(queries[row, :, 0], keys[row], values[row]), dense, rtol=0, atol=1e-9)


def test_shadow_goes_on_in_another_object(tmp_path):
    kv, spec = prompt(), cairn.ShadowSpec()
    with ShadowKVCache(CONFIG, spec=spec, store=tmp_path / "chats", name="chat") as cache:
        prefill(cache, kv)
        step(cache, kv, 1000)
        cache.save()
    with ShadowKVCache(CONFIG, spec=spec, store=tmp_path / "chats", name="chat") as cache:
        assert cache.get_kv_len() == TOKENS + 1
        # The shadow is that of all tokens that there are now.
        check(spec, TOKENS + 1, kv, step(cache, kv, 2000))
        assert cache.get_kv_len() == TOKENS + 2
    with ShadowKVCache(CONFIG, spec=spec, store=tmp_path / "chats", name="other") as cache:
        assert cache.get_kv_len() == 0


def test_shadow_goes_on_after_sigkill(tmp_path):
    code = ("import os, signal, sys; sys.path.insert(0, sys.argv[1]); import test_shadow as t\n"
            "cache, kv = t.ShadowKVCache(t.CONFIG, store=sys.argv[2], name='chat'), t.prompt()\n"
            "t.prefill(cache, kv); t.step(cache, kv, 1000); t.step(cache, kv, 2000)\n"
            "new = t.rows(1, t.HEADS, 1); cache.update_kv_cache(new, new, 0)\n"  # Half a step.
            "os.kill(os.getpid(), signal.SIGKILL)")
    here = str(pathlib.Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, here, str(tmp_path / "chats")], capture_output=True, text=True,
                          check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kv = prompt()
    with ShadowKVCache(CONFIG) as twin:
        prefill(twin, kv)
        step(twin, kv, 1000)
        step(twin, kv, 2000)
    with ShadowKVCache(CONFIG, store=tmp_path / "chats", name="chat") as cache:
        assert cache.get_kv_len() == TOKENS + 2
        check(cairn.ShadowSpec(), TOKENS + 2, kv, step(cache, kv, 3000))


def test_shadow_is_extended_when_there_is_no_room():
    kv, spec = prompt(), cairn.ShadowSpec()
    with ShadowKVCache(CONFIG, spec=spec, append_tokens=3) as cache:
        prefill(cache, kv)
        for seed in range(3):
            check(spec, TOKENS, kv, step(cache, kv, 1000 * (seed + 1)))
        check(spec, TOKENS + 3, kv, step(cache, kv, 5000))


def test_shadow_of_a_step_that_not_all_sequences_have(tmp_path):
    """As after a crash between two appends: the step is taken back."""
    kv = prompt(batch=2)
    with ShadowKVCache(CONFIG, 2, store=tmp_path / "chats") as cache:
        prefill(cache, kv)
    with cairn.Store(tmp_path / "chats") as store:
        first = store.find_branch("shadow/0", namespace="shadow")
        kv_of_one = cairn.KvBuffer(store.models()[0].spec, 1)
        tensors = [(kv_of_one.tensor(layer, "k"), kv_of_one.tensor(layer, "v")) for layer in range(LAYERS)]
        first.append([0], cairn.KvTensors(store.models()[0], tensors, "head_major").view(TOKENS, 1))
        assert first.length == TOKENS + 1
    with ShadowKVCache(CONFIG, 2, store=tmp_path / "chats") as cache:
        assert cache.get_kv_len() == TOKENS
        assert [branch.length for branch in cache._sequences.branches] == [TOKENS, TOKENS]


def test_shadow_clears_and_tells(capsys):
    with ShadowKVCache(CONFIG) as cache:
        kv = prompt()
        for layer, (keys, values) in enumerate(kv):
            cache.prefill_kv_cache(values, layer, keys, rows(5, HEADS * GROUP, 1))
        cache.H2D()  # Brings what the prompt's last queries need.
        cache.print_stats()
        said = capsys.readouterr().out
        assert f"1 x {TOKENS} tokens, keys int4, 640 covered by chunks of 4" in said and "84 chunks fetched" in said
        cache.clear()
        assert cache.get_kv_len() == 0
        with pytest.raises(cairn.InvalidState, match="no tokens"):
            cache.H2D()
        prefill(cache, kv)
        check(cache.spec, TOKENS, kv, step(cache, kv, 1000))


def test_low_rank_keys_are_near_to_all_and_grow():
    """With as many vectors as there are directions; the published spec has fewer."""
    rotated = types.SimpleNamespace(**vars(CONFIG), rope_theta=10_000.0)
    spec = cairn.ShadowSpec(keys="low_rank", rank=HEADS * ROW, chunk_tokens=4)
    with ShadowKVCache(rotated, spec=spec, append_tokens=2) as cache:
        kv = prompt()
        prefill(cache, kv)
        cache.H2D()
        first = cache._steps[0]._session
        for token in range(70):  # Extended every two.
            for layer, (_, chosen, keys, values) in enumerate(step(cache, kv, 1000 + token)):
                count = chosen.shape[-1]
                at = chosen[0].unsqueeze(-1).expand(-1, -1, ROW)
                assert count > 0
                assert torch.equal(values[0, :, -count:], kv[layer][1][0].gather(1, at))
                wanted = kv[layer][0][0].gather(1, at).float()
                assert (keys[0, :, -count:].float() - wanted).abs().max() < 0.1
        assert cache.stats()["wanted"] > 0
        assert cache._steps[0]._session is first and first.info.covered == TOKENS + 68 - 64
    with ShadowKVCache(rotated, published=True) as cache:
        assert cache.spec.rank == 5 and cache.stats() == {}


def test_low_rank_keys_that_need_more_vectors_get_another_session():
    rotated = types.SimpleNamespace(**vars(CONFIG), rope_theta=10_000.0)
    spec = cairn.ShadowSpec(keys="low_rank", rank_energy=0.9, chunk_tokens=4)
    with ShadowKVCache(rotated, spec=spec, append_tokens=40) as cache:
        kv = [(torch.zeros_like(keys), values) for keys, values in prompt()]  # One vector is enough.
        prefill(cache, kv)
        cache.H2D()
        first = cache._steps[0]._session
        for layer in range(LAYERS):
            new = rows(30 + layer, HEADS, 40), rows(40 + layer, HEADS, 40)
            kv[layer] = tuple(torch.cat(pair, dim=2) for pair in zip(kv[layer], new))
            cache.update_kv_cache(*new, layer)
        assert cache._steps[0]._session is first
        for layer, (_, chosen, _, values) in enumerate(step(cache, kv, 1000)):
            count = chosen.shape[-1]
            at = chosen[0].unsqueeze(-1).expand(-1, -1, ROW)
            assert torch.equal(values[0, :, -count:], kv[layer][1][0].gather(1, at))
        assert cache._steps[0]._session is not first and cache._steps[0].info.covered == TOKENS + 4


def test_shadow_says_what_is_wrong():
    with pytest.raises(cairn.InvalidArgument, match="low_rank"):
        ShadowKVCache(CONFIG, published=True)
    with pytest.raises(cairn.InvalidArgument, match="chunk_tokens is 3"):
        ShadowKVCache(CONFIG, spec=cairn.ShadowSpec(chunk_tokens=3))
    with pytest.raises(cairn.InvalidArgument, match="published"):
        ShadowKVCache(CONFIG, published=True, spec=cairn.ShadowSpec())
    with pytest.raises(cairn.InvalidArgument, match="dtype"):
        ShadowKVCache(CONFIG, dtype=torch.float32)
    with ShadowKVCache(CONFIG, append_tokens=2, max_length=TOKENS + 3) as cache:
        kv = prompt()
        with pytest.raises(cairn.InvalidArgument, match="layer_idx: 1; layers come in their order"):
            cache.prefill_kv_cache(kv[1][1], 1, kv[1][0])
        with pytest.raises(cairn.InvalidArgument, match=r"keys: torch.bfloat16 \[1, 2, 700\]"):
            cache.prefill_kv_cache(kv[0][1], 0, kv[0][0][..., 0])
        prefill(cache, kv)
        with pytest.raises(cairn.InvalidState, match="700 tokens already"):
            prefill(cache, kv)
        with pytest.raises(cairn.InvalidArgument, match=r"query_states.*\[1, 6, 1, 16\]"):
            cache.get_retrieval_position_ids(0, rows(1, HEADS * GROUP, 2))
        chosen = cache.get_retrieval_position_ids(0, rows(1, HEADS * GROUP, 1))
        with pytest.raises(cairn.InvalidArgument, match="position_ids"):
            cache.get_value_cache(1, chosen)
        with pytest.raises(cairn.InvalidArgument, match="position_ids"):
            cache.get_key_cache(0, chosen.clone())
        with pytest.raises(cairn.InvalidArgument, match="append_tokens"):
            cache.update_kv_cache(rows(1, HEADS, 3), rows(2, HEADS, 3), 0)
        with pytest.raises(cairn.InvalidArgument, match="max_length"):
            cache.update_kv_cache(rows(1, HEADS, 4), rows(2, HEADS, 4), 0)


def test_kv_cache_has_all_rows(tmp_path, capsys):
    kv = prompt(batch=2, tokens=70)
    with KV_Cache(CONFIG, 2, 100, store=tmp_path / "kv") as cache:
        for layer, (keys, values) in enumerate(kv):
            got = cache.update_kv_cache(keys, values, layer)
            assert torch.equal(got[0], keys) and torch.equal(got[1], values)
        assert cache.get_kv_len() == 70
        new = rows(1, HEADS, 1, 2), rows(2, HEADS, 1, 2)
        for layer in range(LAYERS):
            got = cache.update_kv_cache(*new, layer)
            assert torch.equal(got[0], torch.cat([kv[layer][0], new[0]], 2)) and got[1].shape[2] == 71
        cache.H2D()
        with pytest.raises(cairn.InvalidArgument, match="max_length"):
            cache.update_kv_cache(rows(1, HEADS, 30, 2), rows(2, HEADS, 30, 2), 0)
    with KV_Cache(CONFIG, 2, 100, store=tmp_path / "kv") as cache:
        cache.print_stats()
        assert "2 x 71 of 100 tokens" in capsys.readouterr().out
        got = cache.update_kv_cache(*new, 0)
        assert torch.equal(got[1], torch.cat([kv[0][1], new[1], new[1]], 2))
        cache.clear()
        assert cache.get_kv_len() == 0
    with pytest.raises(cairn.InvalidArgument, match="max_length: 10"):
        with KV_Cache(CONFIG, 1, 100, store=tmp_path / "kv", name="long") as cache:
            for layer in range(LAYERS):
                cache.update_kv_cache(rows(1, HEADS, 20), rows(2, HEADS, 20), layer)
        KV_Cache(CONFIG, 1, 10, store=tmp_path / "kv", name="long")
