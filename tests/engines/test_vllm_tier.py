# SPDX-License-Identifier: Apache-2.0
"""Property: behind vLLM's own CPU offloading cairn.vllm.CairnTier keeps chunks over restarts and a SIGKILL, and gives
back the bytes that were stored or nothing: tokens are those of a run without it, of dense and of recurrent models. What
is damaged, of another size, evicted or of other weights is missing, and stored again. No failure of the store ends a
request.
Method: real engines (vllm_tier_process.py), which need a copy without a card (vllm_cpu_spec.py); and vLLM's tiering
without an engine (vllm_tiering.py)."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
from vllm.config import LoRAConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.kv_offload.tiering.base import TieringOffloadingMetrics

import cairn
import vllm_process
import vllm_recurrent_process
import vllm_tier_process
from cairn import _shared
from test_lmcache import damage
from test_vllm import BRANCH, KILL_AT, KILLED, LONG, same, whole
from vllm_tiering import CHUNK, Tiering, content, key

SEGMENT = 256 << 10
IDS = [7 * i % 128 for i in range(300)]
RECURRENT = {"prompt": IDS, "tokens": 20}


class Runs:
    """Engines without Cairn and with it, the latter killed; and others on what it left behind."""

    def __init__(self, model, folder):
        self.store, self.folder = folder / "store", folder

        def tier(path):
            return {"type": "CairnTier", "module_path": "cairn.vllm", "path": str(path), "segment_bytes": SEGMENT}

        recurrent = {"model": str(folder / "recurrent"), "tier": tier(folder / "states"), "jobs": [RECURRENT]}
        vllm_recurrent_process.make_model(folder / "recurrent")
        dense = {"model": str(model), "tier": tier(self.store)}
        goes_on = {**KILLED, "tokens": KILL_AT + 20}
        stages = [
            {"plain": {"model": str(model), "tier": None, "jobs": [LONG, BRANCH, goes_on]},
             "first": {**dense, "jobs": [LONG, BRANCH, {**KILLED, "kill_at": KILL_AT}]},
             "recurrent": recurrent},
            {"second": {**dense, "jobs": [LONG, BRANCH, goes_on, {"reset": True}, BRANCH]},
             "recurrent again": recurrent}]
        done = subprocess.run([sys.executable, pathlib.Path(vllm_tier_process.__file__),
                               json.dumps({"folder": str(folder), "stages": stages})], check=False)
        assert done.returncode == 0

    def answers(self, name):
        print((self.folder / f"{name}.log").read_text()[-4000:])
        return [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(exported, tmp_path_factory):
    return Runs(exported.huggingface, tmp_path_factory.mktemp("tier"))


def test_another_engine_takes_the_prompt_from_the_tier(runs):
    plain, first, second = map(runs.answers, ("plain", "first", "second"))
    for ours, theirs in zip([*first[:2], *second[:3]], [*plain[:2], *plain]):
        same(ours, theirs)
    assert [one["cached"] for one in plain] == [0, 0, 0]
    shared = next(i for i, (a, b) in enumerate(zip(first[0]["prompt"], first[1]["prompt"])) if a != b)
    assert [one["cached"] for one in first[:2]] == [0, whole(shared)]
    assert [one["cached"] for one in second[:2]] == [whole(len(one["prompt"]) - 1) for one in plain[:2]]


def test_chunks_of_a_killed_engine_are_found(runs):
    """Those that were reported as stored."""
    killed, again = runs.answers("first")[2], runs.answers("second")[2]
    assert killed["ids"] == again["ids"][:KILL_AT]
    assert again["cached"] == whole(len(killed["prompt"]))


def test_nothing_is_found_behind_a_reset(runs):
    """The weights may be others then."""
    second = runs.answers("second")
    assert second[3] == {"reset": True} and second[4]["cached"] == 0
    same(second[4], runs.answers("plain")[1])


def test_recurrent_layers(runs):
    """A chunk of a recurrent group is a state, among bytes that nobody has written."""
    (first,), (second,) = map(runs.answers, ("recurrent", "recurrent again"))
    same(second, first)
    block = vllm_recurrent_process.BLOCK
    assert (first["cached"], second["cached"]) == (0, (len(IDS) - 1) // block * block)


@pytest.mark.parametrize("ranks", [1, 2])
def test_chunks_of_all_ranks_come_back_as_they_were(tmp_path, ranks):
    with Tiering(tmp_path / "store", ranks) as tiering:
        assert tiering.load([1, 2]) == [None, None]
        tiering.store([1, 2, 3])
        assert tiering.load([3, 9, 1]) == [content(3, tiering.size), None, content(1, tiering.size)]
        counted = str(tiering.manager.get_stats().data)
    with Tiering(tmp_path / "store", ranks) as tiering:
        assert tiering.load(range(1, 4)) == [content(i, tiering.size) for i in range(1, 4)]
    for name, chunks in ((TieringOffloadingMetrics.WRITE_BYTES, 3), (TieringOffloadingMetrics.READ_BYTES, 2)):
        assert re.search(rf"'{name}': {{\('1:CairnTier',\): {chunks * ranks * CHUNK}}}", counted), counted


def test_damaged_chunk_is_missing_and_stored_again(tmp_path, caplog):
    with Tiering(tmp_path / "store", dtype="opaque") as tiering:
        tiering.store(range(4))
        tiering.tier._calls.held.store.compact()
    damage(tmp_path / "store", content(2))
    with Tiering(tmp_path / "store", dtype="opaque") as tiering:
        expected = [content(i) for i in range(4)]
        assert tiering.load(range(4)) == [*expected[:2], None, expected[3]]
        assert "fails in load of the chunk " + key(2).hex() in caplog.text and "Corruption" in caplog.text
        tiering.store_again([2])
        assert tiering.load(range(4)) == expected


def test_chunk_of_another_size_is_missing_and_stored_again(tmp_path, caplog):
    with Tiering(tmp_path / "store") as tiering:
        objects = cairn.Objects(tiering.tier._calls.held.store)
        other = objects.register_class("other", page_bytes=4096)
        objects.put([(key(1), bytes(CHUNK + 1)), (key(2), bytes(CHUNK - 1))], object_class=other,
                    namespace=tiering.tier._namespace)
        assert tiering.load([1, 2]) == [None, None]
        assert caplog.text.count("InvalidArgument") == 2
        tiering.store([1, 2])
        assert tiering.load([1, 2]) == [content(1), content(2)]


def test_chunk_that_goes_between_lookup_and_load(tmp_path):
    """As by eviction: vLLM computes it, and does not ask again and again."""
    with Tiering(tmp_path / "store") as tiering:
        tiering.store([1, 2])
        objects = cairn.Objects(tiering.tier._calls.held.store)
        gone = tiering.load([1, 2], between=lambda: objects.delete([key(1)], namespace=tiering.tier._namespace))
        assert gone == [None, content(2)]
        tiering.store_again([1])
        assert tiering.load([1]) == [content(1)]


def test_a_store_that_is_full_keeps_what_it_has(tmp_path, caplog):
    limit = 64 * SEGMENT
    options = {"max_bytes": limit, "segment_bytes": SEGMENT, "evict": "never"}
    last = 2 * limit // CHUNK
    with Tiering(tmp_path / "store", **options) as tiering:
        for first in range(0, last, 8):
            tiering.store(range(first, first + 8))
            tiering.forget()
        loaded = [one for first in range(0, last, 8) for one in tiering.load(range(first, first + 8))]
    kept = [i for i, one in enumerate(loaded) if one is not None]
    assert limit // 4 < len(kept) * CHUNK <= limit and all(loaded[i] == content(i) for i in kept)
    assert kept[0] == 0
    assert caplog.text.count("NoSpace") == 1 and "counted, not told" in caplog.text


def test_the_least_recently_used_chunks_go(tmp_path):
    limit = 64 * SEGMENT
    last = 2 * limit // CHUNK // 8 * 8
    with Tiering(tmp_path / "store", max_bytes=limit, segment_bytes=SEGMENT) as tiering:
        for first in range(0, last, 8):
            tiering.store(range(first, first + 8))
            tiering.manager.touch([key(0)], tiering.request())
        assert tiering.load([0, 1, last - 1]) == [content(0), None, content(last - 1)]


def test_without_a_store_every_job_fails_and_nothing_else(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise cairn.NoSpace("no room")

    with monkeypatch.context() as patch:
        patch.setattr(_shared, "acquire", full)
        with Tiering(tmp_path / "store") as tiering:
            tiering.store([1])
            assert tiering.load([1]) == [None]
            tiering.manager.touch([key(1)], tiering.request())
    assert caplog.text.count("Cairn keeps and finds nothing: NoSpace: no room") == 1


def test_a_reset_begins_a_generation_that_is_dropped_later(tmp_path):
    with Tiering(tmp_path / "store") as tiering:
        tiering.store([1])
        tiering.manager.reset_cache()
        assert tiering.load([1]) == [None]
        tiering.store([1, 2], [content(8), content(9)])
        assert tiering.load([1, 2]) == [content(8), content(9)]
        assert sorted(info.branches for info in cairn.Objects(tiering.tier._calls.held.store).usage()) == [1, 2]
    with Tiering(tmp_path / "store") as tiering:
        tiering.tier._dropping.join()
        assert tiering.load([1, 2]) == [content(1), None]
        assert [info.branches for info in cairn.Objects(tiering.tier._calls.held.store).usage() if info.branches] == [1]


def test_chunks_are_found_by_the_same_engine_alone(tmp_path):
    with Tiering(tmp_path / "store") as tiering:
        tiering.store([1])
    for other in ({"weights_digest": "w2"}, {"model": "other"}, {"ranks": 2}, {"engine": {"dtype": "float16"}},
                  {"engine": {"layout": "HND"}}, {"engine": {"tokens": 16}}):
        with Tiering(tmp_path / "store", **other) as tiering:
            assert tiering.load([1]) == [None], other
    with Tiering(tmp_path / "store") as tiering:
        assert tiering.load([1]) == [content(1)]


def test_weights_are_told_apart_by_their_files(exported, tmp_path):
    config = EngineArgs(model=str(exported.huggingface), dtype="bfloat16", max_model_len=512).create_engine_config()
    with Tiering(tmp_path / "store", vllm_config=config) as tiering:
        tiering.store([1])
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in exported.huggingface.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    weights = copy / "model.safetensors"
    for changed in (False, True):
        if changed:
            data = bytearray(weights.read_bytes())
            data[-1] ^= 1
            weights.write_bytes(data)
        config = EngineArgs(model=str(copy), dtype="bfloat16", max_model_len=512).create_engine_config()
        with Tiering(tmp_path / "store", vllm_config=config, model=exported.huggingface.name) as tiering:
            assert tiering.load([1]) == [None if changed else content(1)]


def test_what_cannot_be_told_apart_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match="weights of an engine that shows no VllmConfig cannot be told apart; give the "
                                         "tier 'weights_digest'"):
        Tiering(tmp_path / "store", weights_digest="")
    config = EngineArgs(model=str(exported.huggingface), dtype="bfloat16", max_model_len=512).create_engine_config()
    config.lora_config = LoRAConfig(max_lora_rank=8)
    with pytest.raises(ValueError, match="LoRA adapters of one name cannot be told apart; give the tier"):
        Tiering(tmp_path / "store", vllm_config=config)
    config.lora_config, config.load_config.load_format = None, "dummy"
    with pytest.raises(ValueError, match="weights of load_format 'dummy' are in no file; .*'weights_digest'"):
        Tiering(tmp_path / "store", vllm_config=config)
    assert not (tmp_path / "store").exists()


def test_wrong_parameters_are_refused_by_name(tmp_path):
    for wrong in ({"threads": 1}, {"durability": "none"}, {"page_bytes": 1}, {"dtype": "f12"}, {"evict": "all"}):
        with pytest.raises(cairn.InvalidArgument, match=next(iter(wrong))):
            Tiering(tmp_path / "store", **wrong)
    with pytest.raises(TypeError, match="nonsense"):
        Tiering(tmp_path / "store", nonsense=1)
    with pytest.raises(TypeError, match="path"):
        Tiering(tmp_path / "store", path=None)
    with pytest.raises(ValueError, match="NEAR"):
        Tiering(tmp_path / "store", locality="NEAR")


def test_a_store_that_another_process_has_open_is_named_with_it(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys, cairn\nstore = cairn.Store(sys.argv[1], create_if_missing=True)\n"
                               "print('open', flush=True)\nsys.stdin.read()", tmp_path / "store"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "open\n"
    with pytest.raises(cairn.Locked, match=rf"{tmp_path}.*{other.pid}"):
        Tiering(tmp_path / "store")
    other.communicate()
    with Tiering(tmp_path / "store") as tiering:
        tiering.store([1])
