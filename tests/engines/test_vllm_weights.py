# SPDX-License-Identifier: Apache-2.0
"""Property: cairn.vllm.CairnConnector never serves KV that other weights computed: other files of a model or of an
adapter, in any format and at any byte; weights that were replaced in a running engine; and what such an engine kept
is not found by the next one, and goes. Resets leave nothing behind.
Method: the connector's two halves, driven as in vllm_driver.py, with vLLM's own method that loads adapters; and
real engines beside ones without Cairn (vllm_weights_process.py)."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import types

import pytest
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.lora.request import LoRARequest
from vllm.lora.worker_manager import WorkerLoRAManager
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

import cairn
from cairn import _digest, _vllm_identity
from vllm_driver import SHAPE, Engine, config_of, request_of, table
from vllm_adapter import adapter_in

PROMPT = [3 * i % 97 for i in range(101)]
FOUND = len(PROMPT) - 1  # All but the last token.


@pytest.fixture
def start(exported, monkeypatch, tmp_path):
    """Starts an engine; each is closed at the end, if it was not before."""
    made = []

    def make(files=None, **extra):
        config, cache = config_of(files or exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
        config.kv_transfer_config.kv_connector_extra_config |= extra
        made.append(Engine(config, cache, "NHD"))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def load(monkeypatch):
    """As vLLM's worker loads an adapter, but for the adapter itself."""
    monkeypatch.setattr(WorkerLoRAManager, "_load_adapter", lambda manager, lora_request: None)
    return lambda lora: WorkerLoRAManager._load_adapter(None, lora)


def found(engine, name, lora=None, first=1, drawn=()):
    """How many tokens of the prompt were found for another request of it, which is then kept."""
    request = request_of(name, PROMPT)
    request.lora_request = lora
    return engine.run(request, table(first), list(drawn))[0]


def namespaces(engine):
    return [info.name for info in engine.worker._shared.store.namespaces()]


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


CHANGES = {
    "lora_alpha": (dict(lora_alpha=16), dict(lora_alpha=64)),
    "use_rslora": (dict(), dict(use_rslora=True)),
    "safetensors": (dict(content=b"a" * 9000), dict(content=b"a" * 8999 + b"b")),
    "bin": (dict(name="adapter_model.bin", content=b"PK" * 9000),
            dict(name="adapter_model.bin", content=b"PK" * 8999 + b"PL")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_adapter_is_told_by_every_byte_of_its_files(start, load, tmp_path, change):
    """Under one name and path."""
    first, second = CHANGES[change]
    lora = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet", **first)))
    assert found(start(), "first", lora) == 0
    start().close()
    assert found(start(), "same", lora) == FOUND
    adapter_in(tmp_path / "poet", **second)
    assert found(start(), "other", lora) == 0
    adapter_in(tmp_path / "poet", **first)
    assert found(start(), "back", lora) == FOUND


@pytest.mark.parametrize("change", ["lora_alpha", "safetensors"])
def test_with_less_than_all_bytes_old_kv_would_be_served(start, tmp_path, monkeypatch, change):
    """So it is the config, and what lies behind the first block, that tell."""
    files_of, first_block = _digest.files_of, 4096
    monkeypatch.setattr(_digest, "files_of", lambda path: [file for file in files_of(path) if file.suffix != ".json"])
    monkeypatch.setattr(_digest, "_digest_file", lambda path, threads: (
        _digest._identity(path.stat()), path.read_bytes()[:first_block].hex()))
    first, second = CHANGES[change]
    lora = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet", **first)))
    found(start(), "first", lora)
    adapter_in(tmp_path / "poet", **second)
    assert found(start(), "other", lora) == FOUND


def test_without_a_generation_old_kv_would_be_served(start, monkeypatch):
    monkeypatch.setattr(_vllm_identity.Weights, "generation", "")
    engine = start()
    found(engine, "first")
    engine.scheduler.reset_cache()
    assert found(engine, "new", first=11) == FOUND


def test_an_adapter_is_told_by_the_files_that_were_loaded(start, load, tmp_path):
    """They are replaced later, and vLLM goes on with what it has."""
    folder = adapter_in(tmp_path / "poet")
    lora, engine = LoRARequest("poet", 1, str(folder)), start()
    load(lora)
    adapter_in(folder, b"others")
    assert found(engine, "first", lora) == 0
    engine.close()
    engine = start()
    load(lora)
    assert found(engine, "others", lora) == 0
    engine.close()
    adapter_in(folder)
    assert found(start(), "first again", lora) == FOUND


@pytest.mark.parametrize("inplace", [True, False])
def test_weights_loaded_over_an_adapter_are_a_generation(start, load, tmp_path, inplace):
    """By `load_inplace`, or since others took its place meanwhile. A load of the same files is none."""
    folder, engine = adapter_in(tmp_path / "poet"), start()
    lora = LoRARequest("poet", 1, str(folder))
    again = LoRARequest("poet", 1, str(folder), load_inplace=inplace)
    load(lora)
    assert found(engine, "first", lora) == 0
    load(again)
    assert found(engine, "same", lora, 11) == FOUND
    adapter_in(folder, b"others")
    if inplace:
        # Before it is loaded nobody knows.
        assert found(engine, "waiting", again, 21) == 0
        assert not engine.worker._shared.store.list_branches("waiting")[0]
    load(again)
    assert found(engine, "others", again, 1) == 0
    assert found(engine, "others too", lora, 11) == FOUND
    assert len(engine.worker._shared.store.models()) == 2
    # The first content again is another generation.
    adapter_in(folder)
    load(again)
    assert found(engine, "third", lora, 21) == 0
    engine.close()
    assert found(start(), "first again", lora) == FOUND


def test_a_request_that_runs_while_an_adapter_is_replaced_is_not_kept(start, load, tmp_path):
    folder, engine = adapter_in(tmp_path / "poet"), start()
    lora = LoRARequest("poet", 1, str(folder))
    load(lora)
    running(engine, lora, lambda: (adapter_in(folder, b"others"), load(lora)))
    store = engine.worker._shared.store
    (info,) = store.list_branches("running")[0]
    assert (info.length, info.kv_lengths) == (len(PROMPT), [len(PROMPT)])


def running(engine, lora, between):
    """A request in whose middle something happens."""
    request, tables = request_of("running", PROMPT), table(1)
    request.lora_request = lora
    engine.scheduler.on_new_request(request)
    engine.scheduler.get_num_new_matched_tokens(request, 0)
    engine.scheduler.update_state_after_alloc(request, types.SimpleNamespace(get_block_ids=lambda: tables), 0)
    engine.step({"running": (0, len(PROMPT))}, tables, list(request.all_token_ids))
    request.num_computed_tokens = request.num_tokens
    between()
    for token in range(20):
        request.append_output_token_ids(token)
        engine.step({"running": (request.num_tokens - 1, 1)}, tables, list(request.all_token_ids))
        request.num_computed_tokens = request.num_tokens
    request.status = RequestStatus.FINISHED_STOPPED
    engine.scheduler.request_finished_all_groups(request, tables)
    engine.step({}, tables, [])


def test_a_load_of_kv_that_weights_left_behind_is_computed(start, load, tmp_path):
    """Found, and then the adapter is replaced before its blocks are filled."""
    folder, engine = adapter_in(tmp_path / "poet"), start()
    lora = LoRARequest("poet", 1, str(folder))
    load(lora)
    found(engine, "first", lora)
    request, tables = request_of("late", PROMPT), table(11)
    request.lora_request = lora
    engine.scheduler.on_new_request(request)
    loaded, _ = engine.scheduler.get_num_new_matched_tokens(request, 0)
    assert loaded == FOUND
    engine.scheduler.update_state_after_alloc(request, types.SimpleNamespace(get_block_ids=lambda: tables), loaded)
    before = engine.read(loaded, tables)
    adapter_in(folder, b"others")
    load(lora)
    engine.step({"late": (loaded, 1)}, tables, PROMPT)
    assert (engine.read(loaded, tables) == before).all()
    assert engine.worker.get_block_ids_with_load_errors() == set(tables[0][:7])


@pytest.mark.parametrize("side", ["scheduler", "worker"])
def test_after_a_reset_nothing_is_found_and_nothing_goes_under_the_old_name(start, side):
    engine = start()
    assert (found(engine, "first"), found(engine, "second", first=11)) == (0, FOUND)
    assert getattr(engine, side).reset_cache() is True
    assert found(engine, "new") == 0
    assert found(engine, "new again", first=11) == FOUND
    (passing,) = [name for name in namespaces(engine) if name]
    assert _vllm_identity.generation_of(passing)
    # Another reset: what the last generation kept is dropped at once.
    engine.scheduler.reset_cache()
    wait_for(lambda: not engine.worker._shared.store.list_branches(namespace=passing)[0])
    assert found(engine, "newest", first=21) == 0
    engine.close()
    # As loaded from files again.
    engine = start()
    assert found(engine, "restarted") == FOUND
    store = engine.worker._shared.store
    wait_for(lambda: not any(store.list_branches(namespace=name)[0] for name in namespaces(engine) if name))


def test_a_killed_engine_leaves_generations_that_the_next_opening_drops(start, tmp_path):
    engine = start()
    found(engine, "first")
    engine.scheduler.reset_cache()
    found(engine, "passing")
    store = engine.worker._shared.store
    store.flush()
    store.checkpoint(tmp_path / "left")
    engine.close()
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "left").rename(tmp_path / "store")
    engine = start()
    store = engine.worker._shared.store
    wait_for(lambda: not any(store.list_branches(namespace=name)[0] for name in namespaces(engine) if name))
    assert found(engine, "restarted") == FOUND


def test_a_request_that_runs_over_a_reset_is_not_kept(start):
    engine = start()
    running(engine, None, engine.scheduler.reset_cache)
    (info,) = engine.worker._shared.store.list_branches("running")[0]
    assert (info.length, info.kv_lengths) == (len(PROMPT), [len(PROMPT)])


def test_what_a_generation_keeps_goes_first_and_is_not_pinned(start):
    engine = start(keep={"priority": 7, "pinned": True, "ttl": 1000.0})
    found(engine, "first")
    engine.scheduler.reset_cache()
    found(engine, "passing")
    store = engine.worker._shared.store
    keeps = {bool(name): store.list_branches(namespace=name)[0][0].keep for name in namespaces(engine)}
    assert (keeps[False].priority, keeps[False].pinned, keeps[False].ttl) == (7, True, 1000.0)
    assert (keeps[True].priority, keeps[True].pinned, keeps[True].ttl) == (0, False, 1000.0)


def test_a_hundred_thousand_resets_leave_nothing(start):
    engine = start()
    found(engine, "first")
    store = engine.worker._shared.store
    for number in range(100_000):
        engine.scheduler.reset_cache()
        if number % 10_000 == 0:
            assert found(engine, f"passing {number}", first=1 + number % 7) == 0
    engine.scheduler.reset_cache()
    wait_for(lambda: len(store.list_branches()[0]) == sum(info.branches for info in store.namespaces()))
    store.compact()
    assert len(store.models()) == 1
    assert [info.name for info in store.namespaces()] == [""]
    assert len(engine.worker._side.engine._written) == 0


def test_a_model_is_told_by_every_byte_and_its_config(exported, start, tmp_path):
    """Whatever its folder is called; and what no file holds needs a name."""
    folder = shutil.copytree(exported.huggingface, tmp_path / "copy")
    other = types.SimpleNamespace(huggingface=folder)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()

    def identity(files=other):
        engine = start(files)
        told = engine.worker._shared.layout.identity
        engine.close()
        return told.weights_digest

    first = identity()
    assert identity(exported) == first
    for at in (len(whole) - 1, len(whole) // 2 + 5000):
        weights.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        assert identity() != first
    weights.write_bytes(whole)
    assert identity() == first
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    assert identity() != first
    for name in ("pytorch_model.bin", "consolidated.00.pth"):
        weights.rename(folder / name)
        weights = folder / name
        before = identity()
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert identity() != before
        weights.write_bytes(whole)
    weights.unlink()
    with pytest.raises(ValueError, match="no files of weights; give kv_connector_extra_config 'weights_digest'"):
        start(other)
    start(other, weights_digest="mine").close()


def test_weights_of_load_format_dummy_need_a_name(exported, monkeypatch, tmp_path):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    config.load_config.load_format = "dummy"
    with pytest.raises(ValueError, match="'dummy' are in no file; give kv_connector_extra_config 'weights_digest'"):
        KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)


def test_a_model_of_a_hub_is_read_from_its_cache(exported, monkeypatch, tmp_path):
    """And needs a name where it is not there."""
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    config.model_config.model, config.load_config.download_dir = "somebody/model", str(tmp_path / "hub")
    with pytest.raises(ValueError, match="'weights_digest', a text that changes"):
        KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
    cached = tmp_path / "hub" / "models--somebody--model"
    shutil.copytree(exported.huggingface, cached / "snapshots" / "5a1b")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("5a1b")
    made = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
    digest = made._shared.layout.identity.weights_digest
    made.shutdown()
    config.model_config.model = str(exported.huggingface)
    made = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
    assert made._shared.layout.identity.weights_digest == digest
    made.shutdown()


def test_what_an_earlier_version_kept_is_told_once(start, caplog, tmp_path):
    engine = start(weights_digest="made otherwise")
    found(engine, "first")
    (earlier,) = engine.worker._shared.store.models()
    engine.close()
    engine = start()
    store = engine.worker._shared.store
    held = cairn.models.bytes_of(store, earlier.id)
    assert held == len(PROMPT) * earlier.spec.token_bytes
    (said,) = [record.getMessage() for record in caplog.records if "earlier version" in record.getMessage()]
    assert f"{held} bytes" in said and f"cairn.models.drop_branches(store, {earlier.id})" in said
    caplog.clear()
    engine.close()
    engine = start()
    assert not [record for record in caplog.records if "earlier version" in record.getMessage()]
    store = engine.worker._shared.store
    assert cairn.models.drop_branches(store, earlier.id) == 1
    assert cairn.models.bytes_of(store, earlier.id) == 0


def test_real_engines_whose_weights_change_say_what_they_say_without_a_store(exported, tmp_path):
    def run(extra, name):
        (tmp_path / name).mkdir()
        done = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("vllm_weights_process.py"), json.dumps(
            {"model": str(exported.huggingface), "extra": extra, "folder": str(tmp_path / name)})],
            capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours, plain = pool.map(run, [{"path": str(tmp_path / "store")}, None], ["ours", "plain"])
    for step, (_, ids, logprobs) in plain.items():
        assert ours[step][1] == ids, step
        assert max(abs(a - b) for a, b in zip(ours[step][2], logprobs, strict=True)) < 0.01, step
    # Content that was replaced moves them further than that.
    assert max(abs(a - b) for a, b in zip(plain["adapter"][2], plain["replaced"][2])) > 0.1
    hit = ours["base again"][0]
    assert hit > 200
    assert {step: said[0] for step, said in ours.items()} == {
        "base": 0, "base again": hit, "adapter": 0, "adapter again": hit, "replaced": 0, "replaced again": 0,
        "replaced and found": hit, "reset": 0, "reset again": hit, "adapter after a reset": 0}
