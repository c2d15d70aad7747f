# SPDX-License-Identifier: Apache-2.0
"""Property: what a request says in kv_transfer_params holds, and what is refused is named in its answer: it runs
without Cairn then. No request reads over a border of namespaces, neither from the store nor from vLLM's own prefix
cache, unless the operator allowed it. A store that is poisoned, or has no room, stops no request, is told once, and is used again.
Method: the connector's two halves, as in vllm_driver.py, and one `vllm serve` that runs the commands of
docs/engines.md."""

import contextlib
import json
import logging
import pathlib
import re
import resource
import subprocess
import sys
import time
import types

import pytest
import torch
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

import cairn
import vllm_process
import vllm_server
from cairn import _held, _vllm_scheduler
from conftest import OwnLlama
from vllm_driver import SHAPE, Engine, Scheduled, config_of, request_of, table, with_pictures
from vllm_adapter import adapter_in
from vllm.lora.request import LoRARequest

PROMPT = [3 * i % 97 for i in range(101)]
DRAWN = [40, 41, 42]
ALL = [*PROMPT, *DRAWN, 0]  # What a request of these leaves.


@pytest.fixture
def engine(exported, monkeypatch, tmp_path):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    config.kv_transfer_config.kv_connector_extra_config |= {
        "allow_namespaces": ["team-*", "own"], "allow_pinned": True, "namespace": "own",
        "keep": {"ttl": 3600.0, "priority": 3}}
    engine = Engine(config, cache, "NHD")
    yield engine
    engine.close()


def asking(name, tokens=PROMPT, salt=None, lora=None, **params):
    request = request_of(name, tokens)
    request.kv_transfer_params, request.cache_salt, request.lora_request = params or None, salt, lora
    return request


def branches(engine, namespace="own"):
    store = engine.worker._shared.store
    return [store.get_branch(info.id) for info in store.list_branches(namespace=namespace)[0]]


def answer_of(engine, request):
    """Of a request that is over before its turn."""
    engine.scheduler.on_new_request(request)
    found = engine.scheduler.get_num_new_matched_tokens(request, 0)[0]
    request.status = RequestStatus.FINISHED_ABORTED
    return found, engine.scheduler.request_finished_all_groups(request, ([],))[1]


REFUSED = [
    ({"tll": 5}, "tll: is none of ttl, priority, .*; did you mean 'ttl'?"),
    ({"ttl": 0}, "ttl: 0 is no number of seconds above 0"),
    ({"ttl": "1h"}, "ttl: '1h' is no number"),
    ({"ttl": True}, "ttl: True is no number"),
    ({"ttl": float("nan")}, "ttl: nan is no number"),
    ({"ttl": 1e12}, "ttl: 1000000000000.0 is no number of seconds above 0 and up to 315360000"),
    ({"priority": 256}, "priority: 256 is no whole number from 0 to 255"),
    ({"priority": 1.5}, "priority: 1.5 is no whole number"),
    ({"pinned": 1}, "pinned: 1 is neither true nor false"),
    ({"pinned": True, "ttl": 5}, "ttl: does not end what is pinned"),
    ({"save": "no"}, "save: 'no' is neither"),
    ({"save": False, "branch": "x"}, 'branch: says how to keep what "save": false does not keep'),
    ({"save": False, "ttl": 5}, "ttl: says how to keep"),
    ({"prefetch": 1}, "prefetch: 1 is neither"),
    ({"branch": ""}, "branch: '' is no printable text"),
    ({"branch": "a\0b"}, "branch: 'a\\\\x00b' is no printable text"),
    ({"branch": 257 * "x"}, "branch: .* is no printable text of 1 to 256 bytes"),
    ({"namespace": "other"}, "namespace: 'other' is not allowed here; .*'allow_namespaces'"),
    ({"namespace": "team-a#0123"}, "namespace: .* has '#'"),
    ({"namespace": "team-@generation:" + 32 * "0"}, "namespace: .* has '#', '@generation:' or '@degrees:'"),
    ({"namespace": "team-a@degrees:2x1"}, "namespace: .* '@degrees:' in it"),
    ({"namespace": 5}, "namespace: 5 is no printable text of 1 to 128 bytes"),
    ({"do_remote_prefill": True}, "do_remote_prefill: is none of"),
    ({"ttl": 10**400}, "ttl: 1000.*\\.\\.\\. is no number of seconds"),
    ({"priority": 10**5000}, "priority: a number of 16610 bits is no whole number"),
    ({1: 2}, "1: is no name of a parameter"),
]


def test_what_is_refused_is_named_in_the_answer_and_runs_without_the_store(engine):
    engine.run(request_of("first", PROMPT), table(1), [])
    kept = len(branches(engine))
    for params, said in REFUSED:
        request = asking("refused")
        request.kv_transfer_params = params
        found, answer = answer_of(engine, request)
        assert found == 0 and re.match(said, answer["cairn"]["refused"]), answer
    assert len(branches(engine)) == kept
    assert engine.scheduler.get_kv_connector_stats().data["refused"] == len(REFUSED)
    assert engine.scheduler.get_kv_connector_stats() is None  # Nothing is new.
    assert answer_of(engine, asking("accepted", ttl=5)) == (100, None)


def test_by_default_no_request_pins_or_chooses_a_namespace(exported, monkeypatch, tmp_path):
    engine = Engine(*config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE)), "NHD")
    for params, said in (({"pinned": True}, "pinned: is not allowed here; kv_connector_extra_config 'allow_pinned'"),
                         ({"namespace": "team"}, "namespace: 'team' is not allowed here")):
        assert answer_of(engine, asking("refused", **params))[1]["cairn"]["refused"].startswith(said)
    engine.close()


def test_how_it_is_kept(engine):
    for name, params, keep in (("plain", {}, {"ttl": 3600, "priority": 3}),
                               ("ttl", {"ttl": 60}, {"ttl": 60, "priority": 3}),
                               ("priority", {"priority": 200}, {"ttl": 3600, "priority": 200}),
                               ("pinned", {"pinned": True}, {"ttl": 3600, "priority": 3, "pinned": True})):
        before = {branch.id for branch in branches(engine)}
        engine.run(asking(name, [len(name), *PROMPT], **params), table(1), DRAWN)
        (branch,) = [branch for branch in branches(engine) if branch.id not in before]
        assert branch.info().keep == cairn.Keep(**keep)


def test_what_is_not_to_be_saved_is_found_and_not_kept(engine):
    engine.run(request_of("first", PROMPT), table(1), [])
    assert engine.run(asking("second", [*PROMPT, 5, 6], save=False), table(11), [7])[0] == 101
    assert [branch.tokens().tolist() for branch in branches(engine)] == [[*PROMPT, 0]]


def test_namespaces_and_salts_are_borders_of_the_store(engine):
    """A request finds what was kept with its own namespace and its own cache_salt."""
    places = [({}, None), ({"namespace": "team-a"}, None), ({"namespace": "team-b"}, None),
              ({"namespace": "team-a"}, "salt"), ({}, "salt")]
    for number, (params, salt) in enumerate(places):
        assert engine.run(asking(f"{number}", salt=salt, **params), table(1), [])[0] == 0
        assert engine.run(asking(f"{number} again", salt=salt, **params), table(11), [])[0] == 100
    assert branches(engine, "team-a")
    assert engine.run(asking("own", namespace="own"), table(11), [])[0] == 100  # Where it is anyway.


def hashed(engine, salt=None, **params):
    """The hashes of its blocks, by which vLLM's prefix cache finds them."""
    init_none_hash(sha256)
    request = asking("hashed", salt=salt, **params)
    request._block_hasher = get_request_block_hasher(16, sha256)
    request.update_block_hashes()
    engine.scheduler.on_new_request(request)
    engine.scheduler.request_finished_all_groups(request, ([],))
    return request, tuple(request.block_hashes)


def test_vllms_own_prefix_cache_stays_within_a_namespace(engine):
    salted, of_team = hashed(engine, namespace="team-a")
    assert len(of_team) == len(PROMPT) // 16
    assert hashed(engine, namespace="team-a")[1] == of_team
    others = [hashed(engine)[1], hashed(engine, namespace="team-b")[1], hashed(engine, "s")[1],
              hashed(engine, "s", namespace="team-a")[1], hashed(engine, namespace="refused")[1],
              hashed(engine, namespace="refused")[1]]
    assert not set(of_team).intersection(*map(set, others))
    assert len({others[i] for i in range(6)}) == 6
    assert hashed(engine, namespace="own")[1] == others[0]  # As without.
    # The cache_salt that stands for it is nothing that another client can know; it is another one in another process.
    assert len(salted.cache_salt) == 64 and hashed(engine, salted.cache_salt)[1] == of_team
    other = _vllm_scheduler.Borders()
    request = asking("hashed", namespace="team-a")
    other.put(request, "team-a")
    assert request.cache_salt != salted.cache_salt


def test_a_branch_goes_on_from_turn_to_turn(engine):
    """One branch for the chat; a turn that changes what was said leaves the old one without a name."""
    store = engine.worker._shared.store
    engine.run(asking("1", branch="chat"), table(1), DRAWN)
    assert store.find_branch("chat", namespace="own").tokens().tolist() == ALL
    second = [*ALL[:-1], 7, 8, 9]
    loaded, rows = engine.run(asking("2", second, branch="chat"), table(11), [10])
    assert loaded == 104 and torch.equal(rows[:104], engine.rows(second, 0)[:104])
    (chat,) = branches(engine)
    assert chat.info().name == "chat" and chat.tokens().tolist() == [*second, 10, 0]
    edited = [*PROMPT, 77, 78]
    assert engine.run(asking("3", edited, branch="chat"), table(21), [5])[0] == 101
    assert sorted((branch.info().name, branch.tokens().tolist()) for branch in branches(engine)) == [
        ("", [*second, 10, 0]), ("chat", [*edited, 5, 0])]
    # Also one that only repeats what is there.
    engine.run(asking("4", edited, branch="copy"), table(1), [])
    assert store.find_branch("copy", namespace="own").tokens().tolist() == [*edited, 0]


def test_a_cancelled_turn_leaves_the_branch_as_it_was(engine):
    engine.run(asking("1", branch="chat"), table(1), DRAWN)
    assert answer_of(engine, asking("2", [*ALL[:-1], 7], branch="chat")) == (104, None)
    assert [branch.tokens().tolist() for branch in branches(engine)] == [ALL]


def test_a_branch_of_another_model_is_refused(engine, tmp_path):
    engine.run(asking("1", branch="chat"), table(1), DRAWN)
    lora = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet")))
    assert answer_of(engine, asking("2", lora=lora, branch="chat"))[1] == {
        "cairn": {"refused": "branch: 'chat' has state of another model"}}
    assert [branch.info().name for branch in branches(engine)] == ["chat"]


def test_what_is_found_is_read_ahead(engine):
    store = engine.worker._shared.store
    engine.run(request_of("first", PROMPT), table(1), [])
    before = store.metrics()["prefetches"]
    request = asking("second", prefetch=True)
    engine.scheduler.on_new_request(request)
    end = time.monotonic() + 30
    while store.metrics()["prefetches"] == before:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert engine.scheduler.get_num_new_matched_tokens(request, 0)[0] == 100
    request.status = RequestStatus.FINISHED_ABORTED
    engine.scheduler.request_finished_all_groups(request, ([],))
    assert answer_of(engine, asking("nothing", [9] * 100, prefetch=True)) == (0, None)
    assert len(branches(engine)) == 1 and store.metrics()["leases"] == 0


def test_requests_of_two_models_with_one_name_took_it_from_each_other(engine, tmp_path):
    lora = LoRARequest("poet", 1, str(adapter_in(tmp_path / "poet")))
    requests = [asking("base", branch="chat"), asking("poet", branch="chat", lora=lora)]
    tables = [table(1), table(11)]
    for request, of_one in zip(requests, tables):
        assert engine.add(request, of_one) == 0
    engine.step_of([Scheduled(one.request_id, 0, len(PROMPT), of_one, PROMPT)
                    for one, of_one in zip(requests, tables)])
    for request, of_one in zip(requests, tables):
        engine.end(request, of_one)
    engine.step_of([])
    base, poet = sorted(branches(engine), key=lambda branch: branch.info().model_id)
    assert base.info().name == "chat" and poet.info().name.startswith("poet@")


def test_a_turn_with_another_picture_dropped_the_branch_of_its_name(exported, monkeypatch, tmp_path):
    config = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), pictures=True)
    engine = Engine(*config, "NHD")
    for at, picture in enumerate("ab"):
        request = with_pictures(picture, PROMPT, (10, 30, picture * 64))
        request.kv_transfer_params = {"branch": "chat"}
        engine.run(request, table(1 + 10 * at), [])
    names = [(one.info().name, one.spans()[0].hash) for one in branches(engine, "")]
    assert sorted(name for name, _ in names) == ["", "chat"] and names[0][1] != names[1][1]
    assert engine.add(with_pictures("again", [*PROMPT, 1], (10, 30, "a" * 64)), table(21)) == len(PROMPT)
    engine.close()


def test_requests_that_are_left_alone_say_so(engine):
    request = asking("image", ttl=5)
    named = types.SimpleNamespace(mm_position=types.SimpleNamespace(offset=1, length=3), identifier="my cat",
                                  modality="image", data={})  # A user's name for it, which tells no content.
    request.mm_features = [named]
    assert answer_of(engine, request)[1]["cairn"]["refused"].startswith("kv_transfer_params: requests with embeddings")


@pytest.fixture
def told():
    """What the connector logs."""
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("vllm.cairn").addHandler(handler)
    yield lines
    logging.getLogger("vllm.cairn").removeHandler(handler)


def test_a_poisoned_store_stops_no_request_and_is_opened_again(engine, monkeypatch, told):
    monkeypatch.setattr(_held, "QUIET_SECONDS", 0.0)
    held = engine.worker._shared.held
    engine.run(request_of("before", PROMPT), table(1), [])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        for number in range(10):
            engine.run(request_of(f"bad {number}", [number, *PROMPT]), table(1), DRAWN)
        held._thread.join()
        for number in range(10):
            engine.run(request_of(f"gone {number}", [number, *PROMPT]), table(1), DRAWN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not held.usable
    stats = engine.scheduler.get_kv_connector_stats()
    assert not stats.data["usable"] and sum(stats.data["errors"].values()) >= 20
    assert len(told) == 1 and "until it is over" in told[0]
    told.clear()
    held._retry_at = 0  # A minute is over.
    engine.run(request_of("tells", PROMPT), table(1), DRAWN)
    held._thread.join()
    assert engine.run(request_of("after", PROMPT), table(11), DRAWN)[0] == 100  # What was kept before is found.
    assert [line.partition("store ")[2].partition(",")[0] for line in told] == ["is open again", "is written again"]
    assert held.usable and engine.scheduler.get_kv_connector_stats().data["usable"]
    assert engine.scheduler.get_kv_connector_stats() is None


def without_room(model, folder):
    """In a process with a full disk of its own: an engine starts, says so once, and keeps once there is room."""
    other = folder / "other"
    with open(other, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_held, "QUIET_SECONDS", 0.0)
        exported = types.SimpleNamespace(huggingface=model)
        config, cache = config_of(exported, patch, folder / "store", FullAttentionSpec(**SHAPE))
        config.kv_transfer_config.kv_connector_extra_config["options"] = {"segment_bytes": 1 << 20}
        engine = Engine(config, cache, "NHD")
        held = engine.worker._shared.held
        found = [engine.run(request_of(f"full {number}", PROMPT), table(1), DRAWN)[0] for number in range(5)]
        errors = engine.scheduler.get_kv_connector_stats().data["errors"]
        other.unlink()
        held._retry_at = 0  # A minute is over.
        engine.run(request_of("tells", PROMPT), table(1), DRAWN)
        held._thread.join()
        found += [engine.run(request_of(name, PROMPT), table(1), DRAWN)[0] for name in ("kept", "found")]
        print(json.dumps([found, errors, held.usable]))
        engine.close()


def test_an_engine_without_room_for_its_store_starts_and_keeps_later(exported, small_disk):
    mount, disk = small_disk
    code = ("import pathlib, sys; sys.path.insert(0, sys.argv[1]); import test_vllm_control; "
            "test_vllm_control.without_room(*map(pathlib.Path, sys.argv[2:]))")
    done = subprocess.run([*mount, sys.executable, "-c", code, pathlib.Path(__file__).parent, exported.huggingface,
                           disk], capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-4000:]
    found, errors, usable = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[[")))
    assert found == [0] * 6 + [100] and errors["NoSpace"] >= 6 and usable
    assert log.count("Cairn keeps and finds nothing: NoSpace") == 1 and log.count("is written again") == 1


WRONG = json.dumps({"kv_connector": "CairnConnector", "kv_connector_module_path": "cairn.vllm", "kv_role": "kv_both",
                    "kv_connector_extra_config": {"path": "wrong.store", "alow_pinned": True}})


def ask(server, folder, *parameters):
    """Answers to requests with these, or to those that docs/engines.md shows; by its commands, through a shell."""
    (shown,) = re.findall(r"```bash\n(prompt=.*?)\n```", vllm_server.DOCS.read_text(), re.S)
    commands = shown if not parameters else "\n".join([shown.partition("\nask '")[0],
                                                       *(f"ask '{json.dumps(one)}'" for one in parameters)])
    done = subprocess.run(["bash", "-euc", commands.replace(":8000", f":{server.port}")], cwd=folder, check=True,
                          capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line]


def test_a_server_does_what_requests_say_and_ends_quietly(exported, tmp_path):
    """And another one that does not start says why in its last line."""
    (tmp_path / "model").symlink_to(exported.huggingface)
    (tmp_path / "prompt.txt").write_text(OwnLlama.heldout.read_text()[:1000])
    with vllm_server.Server(tmp_path, "server", 1) as server:
        wrong = vllm_server.Server(tmp_path, "wrong", more=f"--kv-transfer-config '{WRONG}'")
        try:
            answers = ask(server, tmp_path) + ask(server, tmp_path, {"namespace": "team-a"}, {"namespace": "team-b"},
                                                  {"namespace": "other"}, {"branch": "last"})
            metrics = server.get("metrics")
            log, refused = server.end(), wrong.wait()
        finally:
            wrong.kill()
    said = [answer["choices"][0]["text"] for answer in answers]
    assert said == said[:1] * 11
    cached = [(answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0) for answer in answers]
    whole = (answers[0]["usage"]["prompt_tokens"] - 1) // vllm_process.BLOCK * vllm_process.BLOCK
    # Each of team-a, "tll", team-b and other computes its prompt although vLLM has it in memory.
    assert cached == [0, *[whole] * 4, 0, 0, whole, 0, 0, whole]
    refusals = [(answer.get("kv_transfer_params") or {}).get("cairn", {}).get("refused", "") for answer in answers]
    assert [number for number, why in enumerate(refusals) if why] == [6, 9]
    assert refusals[6].startswith("tll: is none of ttl,")
    assert refusals[9].startswith("namespace: 'other' is not allowed here")
    assert re.search(r"^vllm:cairn_requests_refused_total{.*} 2.0$", metrics, re.M)
    assert re.search(r"^vllm:cairn_store_usable{.*} 1.0$", metrics, re.M)
    assert "leaked" not in log.replace("leaked semaphore", "") and log.count("Cairn does without request") == 1
    assert "teams.store is a new store: max_bytes is" in log
    assert re.match("vLLM did not start, since Cairn's connector refused: ValueError: .*'alow_pinned' is none of",
                    refused.rstrip().splitlines()[-1])
    with cairn.Store(tmp_path / "teams.store") as store:
        keep = {info.name: info.keep for info in store.list_branches(namespace="shared")[0]}
        assert keep["chat-7"] == cairn.Keep() and keep["handbook"] == cairn.Keep(pinned=True)
        assert {info.name for info in store.namespaces()} >= {"shared", "team-a", "team-b"}
