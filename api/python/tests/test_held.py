# SPDX-License-Identifier: Apache-2.0
"""The stores of adapters: their limits, and how an adapter lives without room and with a log that failed."""

import json
import logging
import shutil
import subprocess
import sys
import threading
import time

import pytest

import cairn
from cairn import _defaults, _held, _shared

FREE_BYTES = 100 << 30
SHARE_BYTES = 80 << 30


@pytest.fixture
def told(caplog, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2 * FREE_BYTES, 0, FREE_BYTES))
    caplog.set_level(logging.INFO)
    return caplog


def limits_of(path, **options):
    _shared.acquire(path, {"create_if_missing": True, **options})
    _shared.release(path)
    return _defaults.fill(path, options)[0]


def test_a_new_store_of_an_adapter_takes_four_fifths_of_the_free_disk_and_evicts(tmp_path, told, monkeypatch):
    path = tmp_path / "new"
    limits = {"max_bytes": SHARE_BYTES, "evict": "branches"}
    assert limits_of(path) == limits
    (line,) = told.messages
    assert line == (f"Cairn: {path} is a new store: max_bytes is 80.0 GiB, 80% of what the disk has free, and what was "
                    "not used for longest is evicted when room runs out. The options max_bytes and evict change that")
    told.clear()
    monkeypatch.setattr(shutil, "disk_usage", None)  # Limits of an existing store do not change.
    assert limits_of(path) == limits
    assert "80% of what the disk had free when it was made" in told.messages[0]


@pytest.mark.parametrize("given", [{"max_bytes": 1 << 30}, {"evict": "kv"}, {"max_bytes": "3GiB", "evict": "never"}])
def test_what_is_given_goes_before_the_limits_of_a_new_store(tmp_path, told, given):
    assert limits_of(tmp_path / "new", **given) == {"max_bytes": SHARE_BYTES, "evict": "branches", **given}


def test_a_store_that_was_there_keeps_everything(tmp_path, told):
    cairn.Store(tmp_path / "old", create_if_missing=True).close()
    assert limits_of(tmp_path / "old") == {}
    assert limits_of(tmp_path / "old", max_bytes=1 << 30) == {"max_bytes": 1 << 30}
    assert told.messages == []


def test_a_disk_below_ten_segments_is_its_own_limit(tmp_path, told, monkeypatch):
    """A smaller max_bytes than that is refused."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 30, 0, 700 << 20))
    assert limits_of(tmp_path / "new") == {"evict": "branches"}
    assert limits_of(tmp_path / "small", segment_bytes=1 << 20)["max_bytes"] == int((700 << 20) * 0.8)


def test_limits_that_cannot_be_read_are_none_and_a_warning_names_the_file(tmp_path, told):
    limits_of(tmp_path / "new")
    told.clear()
    (tmp_path / "new" / "DEFAULTS").write_text('{"max_bytes"')
    assert limits_of(tmp_path / "new") == {}
    assert str(tmp_path / "new" / "DEFAULTS") in told.messages[0]


def test_the_library_itself_makes_no_limits(tmp_path):
    cairn.Store(tmp_path / "own", create_if_missing=True).close()
    assert not (tmp_path / "own" / "DEFAULTS").exists()


def test_an_opening_that_takes_long_was_begun_again(tmp_path, monkeypatch):
    """Each got the store, and closing gave back one of them."""
    monkeypatch.setattr(_held, "RETRY_SECONDS", 0.01)
    acquire, calls, go_on = _shared.acquire, [], threading.Event()

    def slow(*options):
        calls.append(options)
        if len(calls) == 1:
            raise cairn.NoSpace("not now")
        assert go_on.wait(30)
        return acquire(*options)
    monkeypatch.setattr(_shared, "acquire", slow)
    held = _held.Held(tmp_path / "new", {"create_if_missing": True}, logging.getLogger("test"), lambda store: None)
    for _ in range(5):
        time.sleep(0.02)
        held.failed("finds nothing", cairn.NoSpace("not now"))
    go_on.set()
    held._thread.join()
    assert len(calls) == 2 and held.store
    held.close()
    cairn.Store(tmp_path / "new").close()


# A process of its own, in which files may grow no further, or with a disk of its own that is full.
BEGIN = """
import cairn, json, logging, os, resource, sys, time
from cairn import _held
lines = []
class Keep(logging.Handler):
    def emit(self, record): lines.append(record.getMessage())
log = logging.getLogger("adapter"); log.addHandler(Keep()); logging.getLogger("cairn").addHandler(Keep())
_held.QUIET_SECONDS = 0.0
path = sys.argv[1] + "/store"
def until(call):
    end = time.monotonic() + 60
    while not call(): assert time.monotonic() < end, lines; time.sleep(0.01)
def use(held, call, what):
    try: call(held.store); held.worked(); return True
    except cairn.Error as error: held.failed(what, error); return False
def fill():
    with open(sys.argv[1] + "/other", "wb", buffering=0) as file:
        try:
            while True: file.write(bytes(1 << 16))
        except OSError: pass
"""


def run(code, folder, *before):
    done = subprocess.run([*before, sys.executable, "-P", "-c", BEGIN + code, folder], timeout=300, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def own_disk(tmp_path):
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=48m tmpfs "$0" && exec "$@"', tmp_path]
    if subprocess.run([*mount, "true"], check=False).returncode != 0:
        pytest.skip("the system lets nobody mount a small disk of their own")
    return mount


def test_a_poisoned_store_is_opened_again_and_told_once(tmp_path):
    told = run("""
openings = []
held = _held.Held(path, {"create_if_missing": True}, log, openings.append)
def append(store):
    store.create_branch(store.register_model(cairn.ModelSpec("ids"))).append([1, 2, 3] * 5000)
assert use(held, append, "")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
del lines[:]
for _ in range(10): assert not use(held, append, "keeps nothing")
held._thread.join()  # Opening fails, too.
assert not held.usable
for _ in range(10): assert not use(held, append, "keeps nothing")
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert not use(held, append, "keeps nothing") and len(openings) == 1  # Not before a minute is over.
held._retry_at = 0
until(lambda: use(held, append, "keeps nothing"))
assert held.usable and len(openings) == 2
print(json.dumps([lines, sum(held.take_errors().values())]))
held.close()
""", tmp_path)
    lines, errors = told
    lines = [line for line in lines if "max_bytes" not in line]
    assert [line.split(":")[0] for line in lines] == ["Cairn keeps nothing", "Cairn", "Cairn"], lines
    assert "until it is over" in lines[0] and "is open again" in lines[1] and "is written again" in lines[2]
    assert errors >= 21
    with cairn.Store(tmp_path / "store") as store:
        assert [info.length for info in store.list_branches()[0]] == [15000, 15000]


def test_an_adapter_without_room_starts_and_goes_on_once_there_is_some(tmp_path, own_disk):
    lines, errors = run("""
fill()
held = _held.Held(path, {"create_if_missing": True, "segment_bytes": 1 << 20}, log, lambda store: None)
def append(store): store.create_branch(store.register_model(cairn.ModelSpec("ids"))).append([1, 2, 3])
for _ in range(10): assert not use(held, append, "keeps nothing")
os.unlink(sys.argv[1] + "/other")
assert not use(held, append, "keeps nothing")
held._retry_at = 0
until(lambda: use(held, append, "keeps nothing"))
print(json.dumps([lines, held.take_errors()]))
held.close()
""", tmp_path, *own_disk)
    assert errors["NoSpace"] >= 12
    assert [line.split(":")[0] for line in lines] == ["Cairn keeps and finds nothing", *["Cairn"] * 3], lines
    assert "NoSpace" in lines[0] and "is a new store" in lines[1]
    assert lines[2].endswith("is open") and "is written again" in lines[3]


def test_lmcache_without_room_fails_its_calls_and_goes_on(tmp_path, own_disk):
    lines, results = run("""
import cairn.lmcache
fill()
adapter = cairn.lmcache.CairnConnector(path, segment_bytes=1 << 20)
key, data = "m@00000000@0@ab", bytes(range(256)) * 100
import select
poll = select.poll(); poll.register(adapter.event_fd(), select.POLLIN)  # Once, as LMCache does.
def end(number):
    while True:
        assert poll.poll(60_000)
        for told in adapter.drain_completions():
            assert told[0] == number
            return told[1:]
def put(): return end(adapter.submit_batch_set([key], [memoryview(bytearray(data))]))
results = [put(), put(), end(adapter.submit_batch_exists([key]))]
os.unlink(sys.argv[1] + "/other")
adapter._held._retry_at = 0
until(lambda: put()[0])
into = bytearray(len(data))
assert end(adapter.submit_batch_get([key], [memoryview(into)])) == (True, "", [True]) and into == data
print(json.dumps([lines, results]))
adapter.close()
""", tmp_path, *own_disk)
    assert [result[0] for result in results] == [False] * 3 and "NoSpace" in results[0][1]
    assert [line for line in lines if "NoSpace" in line] == lines[:1]
    assert "is written again" in lines[-1]


def test_an_adapter_of_a_wrong_configuration_does_not_start(tmp_path):
    """Only room is waited for."""
    with pytest.raises(TypeError, match="max_byte"):
        _held.Held(tmp_path / "store", {"create_if_missing": True, "max_byte": 1}, logging.getLogger(), print)

    def opened(store):
        raise cairn.ModelMismatch("layers")

    with pytest.raises(cairn.ModelMismatch):
        _held.Held(tmp_path / "store", {"create_if_missing": True}, logging.getLogger(), opened)
    cairn.Store(tmp_path / "store").close()  # Nobody has it open.
