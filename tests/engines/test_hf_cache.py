# SPDX-License-Identifier: Apache-2.0
"""Property: with cairn.hf.CairnCache a model says what it says without it, to the bits of its logits: from the
first token on, in another process, after a SIGKILL, from any earlier token on, beside a full disk and with damaged
pages; and what it cannot do is refused by name.
Method: each run beside one with transformers' own DynamicCache whose forward passes are of the same sizes."""

import copy
import json
import pathlib
import signal
import subprocess
import sys

import pytest
import torch

import cairn
import cairn.hf
import hf_models
from hf_models import generate, load, plain, prompt_of

PROMPT, NEW = 50, 40


@pytest.fixture(scope="module")
def model(exported):
    return load(str(exported.huggingface))


@pytest.fixture
def ids(model):
    return prompt_of(model, PROMPT)


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def child():
    """Runs a job of hf_models.py in a process of its own: (its exit status, what it wrote)."""
    with subprocess.Popen([sys.executable, pathlib.Path(hf_models.__file__)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as forks:
        def run(**job):
            print(json.dumps(job), file=forks.stdin, flush=True)
            ended = json.loads(forks.stdout.readline())
            return ended["returncode"], ended["said"]

        yield run


@pytest.mark.parametrize("name, dtype", [
    ("exported", "float32"), ("exported", "bfloat16"), ("gemma3", "float32"), ("lfm2", "float32"),
    ("qwen3_next", "float32")])
def test_another_process_goes_on_after_a_sigkill(exported, tmp_path, child, name, dtype):
    path = str(exported.huggingface) if name == "exported" else name
    model = load(path, dtype)
    ids = prompt_of(model, PROMPT)
    all_ids, logits = plain(model, ids, NEW)
    job = {"model": path, "dtype": dtype, "store": str(tmp_path / "store"), "until": PROMPT + NEW}
    killed_at = PROMPT + 17
    status, text = child(**job, ids=ids, kill_at=killed_at)
    assert status == -signal.SIGKILL, text
    status, text = child(**job)
    assert status == 0, text
    said = json.loads(text.splitlines()[-1])
    # The last token that was drawn has no KV yet, and the one before is computed again.
    known = killed_at - 1
    assert (said["restored"], said["ids"]) == (known - 1, all_ids)
    assert said["logits"] == logits[known - PROMPT:]
    assert said["stored"] == PROMPT + NEW - 1


def test_a_miss_and_a_whole_hit(model, store, ids):
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    assert cache.tokens == []
    assert generate(model, ids, NEW, cache) == plain(model, ids, NEW)
    assert cache.branch.tokens().tolist() == cache.tokens
    again = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    assert again.tokens == ids[:-1]
    assert generate(model, ids, NEW, again) == plain(model, ids, NEW, passes=[PROMPT], crop=PROMPT - 1)
    assert again.branch.length == PROMPT + NEW - 1


def test_a_partial_hit_and_its_tail(model, store, ids):
    cairn.hf.CairnCache.open(store, model, "chat")
    generate(model, ids, 1, cairn.hf.CairnCache.open(store, model, "chat"))
    longer = ids + prompt_of(model, 33, seed=2)
    cache = cairn.hf.CairnCache.open(store, model, "chat", tokens=longer)
    assert cache.tokens == ids
    assert generate(model, longer, NEW, cache) == plain(model, longer, NEW, passes=[PROMPT])


@pytest.mark.parametrize("name", ["exported", *hf_models.MADE])
def test_forks_at_any_token(exported, store, name):
    model = load(str(exported.huggingface) if name == "exported" else name)
    ids = prompt_of(model, PROMPT)
    cache = cairn.hf.CairnCache.open(store, model, "chat", capacity=8)
    all_ids, logits = generate(model, ids, NEW, cache)
    assert (all_ids, logits) == plain(model, ids, NEW)
    for position in (PROMPT, PROMPT + 1, PROMPT + 23, PROMPT + NEW - 2):
        fork = cache.fork(position)
        assert fork.tokens == all_ids[:position]
        again, bits = generate(model, all_ids[:position + 1], PROMPT + NEW - position - 1, fork)
        assert (again, bits) == (all_ids, logits[position + 1 - PROMPT:])
        other, fork = all_ids[:position] + [7], cache.fork(position)
        assert generate(model, other, 5, fork) == plain(model, other, 5, [PROMPT] + [1] * (position - PROMPT))
        assert fork.branch.tokens().tolist()[:position + 1] == other
    assert cache.branch.tokens().tolist() == all_ids[:-1]


def test_a_copy_is_refused_and_names_fork(model, store):
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    with pytest.raises(TypeError, match=r"fork\(position, name\)"):
        copy.deepcopy(cache)


def test_a_fork_into_the_prompt_computes_what_has_no_state(store):
    """A recurrent layer has no state within the prompt, which was one forward pass."""
    model = load("qwen3_next")
    ids = prompt_of(model, PROMPT)
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    generate(model, ids, 5, cache)
    fork = cache.fork(20)
    assert (fork.tokens, fork.branch.length) == ([], 20)
    assert generate(model, ids[:21], NEW, fork) == plain(model, ids[:21], NEW)
    assert fork.branch.length == 20 + NEW


def test_states_of_many_layers_are_several_groups(store, monkeypatch):
    """A state larger than a record of the log would be refused; here a group may have one layer."""
    monkeypatch.setattr(cairn._states, "GROUP_BYTES", 1)
    model = load("qwen3_next")
    ids = prompt_of(model, PROMPT)
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    generate(model, ids, NEW, cache)
    groups = store.models()[0].spec.groups
    assert [group.layers for group in groups if group.name.startswith("recurrent")] == [1] * 3
    assert len({group.name for group in groups}) == len(groups) == 4
    fork = cache.fork(PROMPT + 4)
    assert len(fork.tokens) == PROMPT + 4
    all_ids, logits = plain(model, ids, NEW)
    assert generate(model, all_ids[:PROMPT + 5], NEW - 5, fork) == (all_ids, logits[5:])


def test_crops_at_any_token_and_rewinds_the_branch(model, store, ids):
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    all_ids, logits = generate(model, ids, NEW, cache)
    for length in (PROMPT + 30, PROMPT + 3, PROMPT):
        cache.crop(length - len(cache.tokens))
        assert cache.tokens == all_ids[:length]
        again, bits = generate(model, all_ids[:length + 1], PROMPT + NEW - length - 1, cache)
        assert (again, bits) == (all_ids, logits[length + 1 - PROMPT:])
    cache.crop(-10)
    assert cache.save() == len(all_ids) - 11
    assert cache.branch.length == len(all_ids) - 11


def test_a_window_crops_to_rows_that_are_in_memory(store):
    model = load("gemma3")
    ids = prompt_of(model, PROMPT)
    cache = cairn.hf.CairnCache.open(store, model, "chat", capacity=8)
    all_ids, logits = generate(model, ids, 70, cache)
    cache.crop(-3)
    known = len(all_ids) - 4
    again, bits = generate(model, all_ids[:known + 1], 3, cache)
    assert (again, bits) == (all_ids, logits[-3:])
    with pytest.raises(cairn.InvalidState, match="fork the cache there"):
        cache.crop(-60)


def test_another_model_is_refused_by_name(exported, model, store, ids):
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    generate(model, ids, 2, cache)
    changed = load(str(exported.huggingface))
    with torch.no_grad():
        changed.model.layers[2].mlp.up_proj.weight[5, 5] += 1e-3
    with pytest.raises(cairn.ModelMismatch, match="identity.weights_digest"):
        cairn.hf.CairnCache.open(store, changed, "chat")
    with pytest.raises(cairn.ModelMismatch, match="identity.cache_dtype|weights_digest|revision"):
        cairn.hf.CairnCache.open(store, load(str(exported.huggingface), "bfloat16"), "chat")
    named = cairn.ModelIdentity("given")
    store.register_model(cairn.ModelSpec(named, [cairn.LayerGroup.full_attention(
        name="attention", layers=4, kv_heads=2, head_dim=64, dtype="f32", pairing="adjacent")]))
    with pytest.raises(cairn.ModelMismatch, match="rotary.pairing"):
        cairn.hf.CairnCache.open(store, load(str(exported.huggingface)), "other", identity=named)
    with pytest.raises(cairn.InvalidState, match="another model"):
        generate(load(str(exported.huggingface)), ids, 2, cairn.hf.CairnCache.open(store, model, "chat"))


def test_a_full_disk_stops_saving_and_nothing_else(model, tmp_path, ids):
    expected = plain(model, ids, 400)
    with cairn.Store(tmp_path / "s", create_if_missing=True, segment_bytes=1 << 18, max_bytes=3 << 20) as store:
        cache = cairn.hf.CairnCache.open(store, model, "chat")
        with pytest.warns(RuntimeWarning, match="NoSpace"):
            assert generate(model, ids, 400, cache) == expected
        assert isinstance(cache.save_error, cairn.NoSpace)
        with pytest.raises(cairn.NoSpace):
            cache.save()
        stored = cache.branch.length
        assert PROMPT <= stored < PROMPT + 400
    with cairn.Store(tmp_path / "s", read_only=True, create_if_missing=False) as store:
        again = cairn.hf.CairnCache(model, store.find_branch("chat"), tokens=expected[0][:stored], save_every=0)
        assert again.tokens == expected[0][:stored - 1]
        assert generate(model, expected[0][:stored], 20, again) == (
            expected[0][:stored + 20], expected[1][stored - PROMPT:][:20])


def damage(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def test_damaged_pages_are_computed_again(model, tmp_path, ids):
    expected = plain(model, ids, 400)
    with cairn.Store(tmp_path / "s", create_if_missing=True) as store:
        generate(model, ids, 400, cairn.hf.CairnCache.open(store, model, "chat"))
        store.compact()
    tables = sorted((path for path in (tmp_path / "s").rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    table = next(path for path in tables if "table" in str(path) or path.suffix == ".sst")
    lengths = set()
    for part in (0.9, 0.5, 0.1):
        content = table.read_bytes()
        damage(table, int(len(content) * part))
        with cairn.Store(tmp_path / "s", create_if_missing=False) as store:
            branch = store.find_branch("chat")
            with pytest.raises(cairn.Corruption):
                cairn.hf.CairnCache(model, branch, on_damage="raise")
            cache = cairn.hf.CairnCache(model, branch, save_every=0)
            lengths.add(len(cache.tokens))
            assert cache.tokens == expected[0][:len(cache.tokens)]
            begin = max(len(cache.tokens) + 1, PROMPT)
            again = generate(model, expected[0][:begin], 20, cache)
            assert again[0] == expected[0][:begin + 20]
            if len(cache.tokens) >= PROMPT:
                assert again[1] == expected[1][begin - PROMPT:][:20]
        table.write_bytes(content)
    assert len(lengths) > 0 and max(lengths) < PROMPT + 400


def test_what_it_cannot_do_is_refused_by_name(model, store, ids):
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    all_ids, _ = generate(model, ids, 10, cache)
    held = cache.tokens
    for length in (10, len(held)):  # Shorter, and as long: transformers would compute it behind the cache.
        with pytest.raises(cairn.InvalidArgument, match=f"input_ids: the cache holds {len(held)} tokens"):
            generate(model, held[:length], 3, cache)
    with pytest.raises(cairn.Conflict, match="tokens: the branch has others from position 3"):
        cairn.hf.CairnCache.open(store, model, "chat", tokens=ids[:3] + [5, 6])
    with pytest.raises(cairn.InvalidArgument, match="input_ids: 2 sequences"):
        model(input_ids=torch.tensor([ids, ids]), past_key_values=cairn.hf.CairnCache.open(store, model, "a"))
    with pytest.raises(cairn.InvalidArgument, match="attention_mask: has padding"):
        model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([[0] + [1] * (PROMPT - 1)]),
              past_key_values=cairn.hf.CairnCache.open(store, model, "b"))
    with pytest.raises(cairn.InvalidArgument, match="input_ids: missing"):
        model(inputs_embeds=torch.zeros(1, 3, 256), past_key_values=cairn.hf.CairnCache.open(store, model, "c"))
    with pytest.raises(cairn.InvalidArgument, match="sequences"):
        generate(model, ids, 3, cairn.hf.CairnCache.open(store, model, "d"), num_beams=2)
    assert cache.tokens == held and cache.branch.tokens().tolist() == held
    assert generate(model, all_ids, 3, cache) == plain_tail(model, ids, 10, 3)


def plain_tail(model, ids, before, count):
    ids, logits = plain(model, ids, before + count)
    return ids, logits[before:]


def test_other_tokens_than_the_branch_are_a_conflict(model, store, ids):
    cache = cairn.hf.CairnCache.open(store, model, "chat")
    all_ids, _ = generate(model, ids, 10, cache)
    other = cairn.hf.CairnCache.open(store, model, "chat", tokens=ids)
    with pytest.warns(RuntimeWarning, match="Conflict"):
        with torch.no_grad():
            model(input_ids=torch.tensor([[ids[-1]]]), past_key_values=other)
            model(input_ids=torch.tensor([[3 if all_ids[PROMPT] != 3 else 4]]), past_key_values=other)
    assert cache.branch.tokens().tolist() == all_ids[:-1]
    with pytest.raises(cairn.Conflict):
        other.save()


def test_what_is_drawn_goes_on_after_a_sigkill(model, tmp_path, exported, child, ids):
    """With the state of the generator in each append; without it something else is drawn."""
    job = {"model": str(exported.huggingface), "dtype": "float32", "until": PROMPT + NEW, "draw": True}
    whole = json.loads(child(**job, store=str(tmp_path / "whole"), ids=ids)[1].splitlines()[-1])
    assert child(**job, store=str(tmp_path / "s"), ids=ids, kill_at=PROMPT + 17)[0] == -signal.SIGKILL
    rest = json.loads(child(**job, store=str(tmp_path / "s"))[1].splitlines()[-1])
    assert rest["ids"] == whole["ids"]
    assert rest["logits"] == whole["logits"][16:]
    with cairn.Store(tmp_path / "s", create_if_missing=False) as store:
        branch = store.find_branch("chat").fork(PROMPT + 16)
        torch.manual_seed(12)
        other = cairn.hf.CairnCache(model, branch, tokens=whole["ids"][:PROMPT + 16])
        assert generate(model, whole["ids"][:PROMPT + 16], NEW - 16, other, do_sample=True)[0] != whole["ids"]
