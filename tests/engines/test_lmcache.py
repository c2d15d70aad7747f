# SPDX-License-Identifier: Apache-2.0
"""Property: what LMCache loads from cairn.lmcache is what it stored, or reported missing; after a restart, a
kill, damage and a full disk, too; and what one salt stored is never there for another.
Method: LMCache's own bench tool, server and adapter, with every byte compared."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest

import cairn
import cairn.lmcache
from lmcache_driver import BATCH, CHUNK_BYTES, Driver, config, content, key

LMCACHE = pathlib.Path(sys.executable).parent / "lmcache"
DRIVER = pathlib.Path(__file__).with_name("lmcache_driver.py")
ENVIRONMENT = os.environ | {"LMCACHE_DISABLE_BANNER": "1", "LMCACHE_LOG_LEVEL": "WARNING"}
SHAPE = "(2,128,16,2,64):bfloat16:4"  # The KV that the server is given: 2 chunks of 256 tokens a request.
REQUESTS = 3


def run(*command, timeout=300):
    return subprocess.run(list(map(str, command)), env=ENVIRONMENT, check=True, text=True, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def test_bench_tool_stores_finds_and_verifies(tmp_path):
    report = tmp_path / "report.json"
    run(LMCACHE, "bench", "l2", "--l2-adapter", json.dumps(config(tmp_path / "store")), "--num-keys", 16,
        "--data-size-kb", 256, "--rounds", 3, "--in-flight", 2, "--lookup-max-hit-rate", 0.5, "--no-skip-verify",
        "--format", "json", "--output", report)
    metrics = json.loads(report.read_text())["metrics"]
    done = {metrics[name]["operation"]: metrics[name] for name in ("op_0", "op_1", "op_2")}
    assert {name: one["total_success"] for name, one in done.items()} == {"Store": 96, "Lookup": 48, "Load": 96}
    assert {one["rounds_timed_out"] for one in done.values()} == {0}


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def served_requests(path, log):
    """What LMCache's client says of requests to a server that has just started: an empty L1, and our L2."""
    rpc, http = free_port(), free_port()
    with open(log, "w") as output:
        server = subprocess.Popen(
            [LMCACHE, "server", "--host", "localhost", "--port", str(rpc), "--http-port", str(http), "--l1-size-gb",
             "1", "--no-l1-use-lazy", "--eviction-policy", "LRU", "--supported-transfer-mode", "auto",
             "--disable-observability", "--l2-adapter", json.dumps(config(path))],
            env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT)
    try:
        for _ in range(240):
            with socket.socket() as probe:
                if probe.connect_ex(("localhost", http)) == 0:
                    break
            assert server.poll() is None, log.read_text()
            time.sleep(0.25)
        return run(LMCACHE, "bench", "server", "--mode", "cpu", "--rpc-url", f"tcp://localhost:{rpc}", "--url",
                   f"http://localhost:{http}", "--num-tokens", 512, "--kvcache-shape-spec", SHAPE, "--num-blocks", 128,
                   "--start", 0, "--end", REQUESTS, "--interval", 0.2)
    finally:
        time.sleep(2)  # The server stores to its L2 behind its answers.
        server.terminate()
        server.wait(60)


def test_server_finds_everything_after_a_restart(tmp_path):
    first = served_requests(tmp_path / "store", tmp_path / "first.log")
    second = served_requests(tmp_path / "store", tmp_path / "second.log")
    requests = [str(i) for i in range(REQUESTS)]
    assert re.findall(r"seq (\d+)/cold. LOOKUP: 0/2 chunks", first) == requests
    assert re.findall(r"seq (\d+)/cold. LOOKUP: 2/2 chunks", second) == requests
    checksums = [re.findall(r"seq \d+/warm. CHECKSUM: (\w+)", output) for output in (first, second)]
    assert len(set(checksums[0])) == REQUESTS and checksums[0] == checksums[1]


def test_killed_in_mid_store(tmp_path):
    """What was reported to LMCache as stored survives; the rest is whole or missing."""
    writer = subprocess.Popen([sys.executable, DRIVER, tmp_path / "store", "{}"], env=ENVIRONMENT,
                              stdout=subprocess.PIPE, text=True)
    told = -1
    for line in writer.stdout:
        told = int(line)
        if told == 20:
            break
    writer.kill()
    told = max([told, *map(int, re.findall(r"^\d+\n", writer.stdout.read(), re.M))])
    writer.wait()
    with Driver(tmp_path / "store") as driver:
        stored = (told + 1) * BATCH
        numbers = range(stored + 4 * BATCH)
        found = driver.lookup([key(i) for i in numbers])
        assert all(found[:stored])
        assert driver.load([key(i) for i in numbers]) == [content(i) if there else None
                                                          for i, there in enumerate(found)]


def test_restart_and_salts(tmp_path):
    mine, yours = [key(1, "anna"), key(1, "berta")]
    with Driver(tmp_path / "store") as driver:
        assert driver.store([mine], [content(1)])
        assert driver.lookup([mine, yours, key(1)]) == [True, False, False]
        assert driver.load([mine, yours, key(1)]) == [content(1), None, None]
        assert driver.store([yours, key(1)], [content(2), content(3)])  # As they would be of another adapter.
        driver.adapter.delete([mine])
    with Driver(tmp_path / "store") as driver:
        assert driver.lookup([mine, yours, key(1)]) == [False, True, True]
        assert driver.load([mine, yours, key(1)]) == [None, content(2), content(3)]
        assert driver.connector.usage()["objects"] == 2


def damage(folder, data):
    """Turns a bit in the middle of `data`, in the one table that has it."""
    middle = data[len(data) // 2:len(data) // 2 + 64]
    [path] = [path for path in pathlib.Path(folder, "tables").iterdir() if middle in path.read_bytes()]
    with open(path, "r+b") as file:
        file.seek(path.read_bytes().find(middle))
        file.write(bytes([middle[0] ^ 1]))


def test_damaged_chunk_is_missing_and_stored_again(tmp_path):
    with Driver(tmp_path / "store") as driver:
        assert driver.store_numbers(range(4))
        driver.connector._held.store.compact()
    damage(tmp_path / "store", content(2))
    with Driver(tmp_path / "store") as driver:
        keys = [key(i) for i in range(4)]
        assert driver.load(keys) == [content(0), content(1), None, content(3)]
        assert driver.lookup(keys) == [True, True, False, True]
        assert driver.store_numbers(range(4))
        assert driver.load(keys) == [content(i) for i in range(4)]


def test_chunk_of_another_size_is_missing_and_stored_again(tmp_path):
    with Driver(tmp_path / "store") as driver:
        assert driver.store_numbers([1])
        for size in (CHUNK_BYTES - 1, CHUNK_BYTES + 1):
            assert driver.load([key(1)], size) == [None]
            assert driver.lookup([key(1)]) == [False]
            assert driver.store([key(1)], [content(1, size)])
            assert driver.load([key(1)], size) == [content(1, size)]
            assert driver.load([key(1)]) == [None]
            assert driver.store_numbers([1])


def test_deleted_chunks_are_gone(tmp_path):
    with Driver(tmp_path / "store") as driver:
        assert driver.store_numbers(range(8))
        driver.adapter.delete([key(i) for i in (1, 3, 100)])
        assert driver.lookup([key(i) for i in range(8)]) == [i not in (1, 3) for i in range(8)]
        assert driver.adapter.get_usage().total_bytes_used == 6 * CHUNK_BYTES
        assert driver.connector.usage()["objects"] == 6


def test_oldest_chunks_go_at_max_bytes(tmp_path):
    limit = 64 << 20
    with Driver(tmp_path / "store", max_bytes=limit, segment_bytes=1 << 20) as driver:
        last = 2 * limit // CHUNK_BYTES // BATCH * BATCH
        for first in range(0, last, BATCH):
            assert driver.store_numbers(range(first, first + BATCH)), first
        found = driver.lookup([key(i) for i in range(last)])
        loaded = driver.load([key(i) for i in range(last)])  # Meanwhile more of them go.
        assert not found[0] and all(loaded[-BATCH:])
        assert all(one is None or found[i] and one == content(i) for i, one in enumerate(loaded))
        there = last - loaded.count(None)
        assert limit // 4 < there * CHUNK_BYTES <= limit


def test_full_disk_refuses_and_keeps_what_is_stored(small_disk):
    own_disk, disk = small_disk
    told = run(*own_disk, sys.executable, DRIVER, disk / "store",
               json.dumps({"evict": "never", "segment_bytes": 1 << 20}))
    assert re.search(r"^refused; 0 missing, 0 wrong$", told, re.M)
    assert "NoSpace" in told
    assert len(re.findall(r"^\d+$", told, re.M)) > 10


def test_adapters_of_one_process_share_a_store(tmp_path):
    with Driver(tmp_path / "store") as first, Driver(tmp_path / "store", durability="power") as second:
        assert first.store_numbers([1])
        assert second.load([key(1)]) == [content(1)]
        first.adapter.close()
        assert second.load([key(1)]) == [content(1)]
        with pytest.raises(cairn.InvalidArgument, match="max_bytes: .* is open in this process with None, not with"):
            cairn.lmcache.CairnConnector(tmp_path / "store", max_bytes=1 << 30)
    cairn.Store(tmp_path / "store").close()  # Nobody has it any more.


def test_bad_keys_are_refused_by_name(tmp_path):
    connector = cairn.lmcache.CairnConnector(tmp_path / "store")
    long, good = "m@00000000@0@" + "a" * 250, "m@00000000@0@ab"
    keys = ["", "one", good, "a@@0@c", long, "a@b@c@d@e@f"]

    def end(number):
        while not (told := connector.drain_completions()):
            time.sleep(0.001)
        assert told[0][0] == number
        return told[0][1:]

    memory = [bytearray(content(1)) for _ in keys]
    ok, error, each = end(connector.submit_batch_set(keys, [memoryview(one) for one in memory]))
    assert not ok and error == f"set of : InvalidArgument: key '': is not {cairn.lmcache.KEY_FORM}"
    only_good = [one is good for one in keys]
    assert each == only_good
    ok, error, each = end(connector.submit_batch_exists(keys[3:]))
    assert not ok and "a@@0@c" in error and each == [False] * 3
    ok, error, each = end(connector.submit_batch_get(keys[1:3], [memoryview(bytearray(CHUNK_BYTES)) for _ in "12"]))
    assert not ok and "key 'one'" in error and each == [False, True]
    assert end(connector.submit_batch_delete([good, good])) == (True, "", [True, True])
    with pytest.raises(cairn.InvalidArgument, match=r"buffers\[0\]: a bytes is no contiguous writable memory"):
        connector.submit_batch_get([good], [b"1234"])
    connector.close()
    with pytest.raises(cairn.InvalidState):
        connector.submit_batch_exists([good])
    for wrong in ({"threads": 1}, {"durability": "none"}, {"page_bytes": 1}, {"dtype": "f12"}, {"evict": "all"}):
        with pytest.raises(cairn.InvalidArgument, match=next(iter(wrong))):
            cairn.lmcache.CairnConnector(tmp_path / "store", **wrong)
    with pytest.raises(TypeError, match="nonsense"):
        cairn.lmcache.CairnConnector(tmp_path / "store", nonsense=1)
    cairn.Store(tmp_path / "store").close()  # None of these has it open.


def test_models_of_long_names_are_kept_and_told_apart(tmp_path):
    """Such as a path of a hub's snapshot: with it a key has more bytes than an object's may have."""
    paths = ["/mnt/filestore/research/" + "x" * 300 + name for name in ("a", "b")]
    with Driver(tmp_path / "store") as driver:
        for number, path in enumerate(paths):
            keys = [key(i, salt, path) for i in range(4) for salt in ("", "tenant")]
            assert driver.lookup(keys) == [False] * 8
            assert driver.store(keys, [content(10 * number + i) for i in range(8)])
    with Driver(tmp_path / "store") as driver:
        for number, path in enumerate(paths):
            keys = [key(i, salt, path) for i in range(4) for salt in ("", "tenant")]
            assert driver.lookup(keys) == [True] * 8
            assert driver.load(keys + [key(9, "", path)]) == [content(10 * number + i) for i in range(8)] + [None]


def test_a_hash_that_stands_for_another_name_serves_nothing(tmp_path, monkeypatch):
    """Two names of one hash: the whole name is stored and compared."""
    monkeypatch.setattr(cairn.lmcache, "_short", lambda model: "@sha256:same")
    first, second = "a" * 300, "b" * 300
    with Driver(tmp_path / "store") as driver:
        assert driver.store([key(1, "", first)], [content(1)])
        assert driver.load([key(1, "", second), key(1)]) == [None, None]
        assert driver.load([key(1, "", first)]) == [content(1)]
