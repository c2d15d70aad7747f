# SPDX-License-Identifier: Apache-2.0
"""Property: through SGLang's own factory cairn.sglang.CairnHiCache gives back the bytes of each page that was reported
as stored, or says that the page is missing: over restarts, a SIGKILL and a full disk, to each rank, and to ranks that
follow one which writes. Hits of several pools are those of SGLang's own back end of files. What is damaged, or of
another size, is dropped; a folder of another model is refused by field.
Method: SGLang's classes in processes of their own, and in this one (sglang_classes.py): its engine needs a card."""

import json
import pathlib
import re
import socket
import subprocess
import sys

import pytest
import torch

import cairn
import sglang_classes
import sglang_process
from sglang_classes import HostPool, backend_of, files_of
from sglang_process import got, keys_of, put

from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorageFailureInjector,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)

PROCESS = pathlib.Path(sglang_process.__file__)
SEGMENT = 256 << 10


def objects_of(backend):
    return cairn.Objects(backend._own.store)


@pytest.fixture
def opened(tmp_path):
    """Calls backend_of below the folder of the test; closes what was opened."""
    backends = []

    def open_(pool, *sidecars, at="store", **more):
        backends.append(backend_of(tmp_path / at, pool, *sidecars, segment_bytes=SEGMENT, **more))
        return backends[-1]

    yield open_
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("layout", sglang_classes.LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_pages_come_back_as_they_were(opened, layout, dtype):
    pool = HostPool(layout, dtype)
    backend = opened(pool)
    pages = [pool.fill(number, number) for number in range(4)]
    keys = keys_of(range(4))
    assert backend.batch_exists(keys) == 0 and backend.batch_get_v1(keys[:1], pool.indices(8)) == [False]
    assert backend.batch_set_v1(keys[:3], pool.indices(0, 1, 2)) == [True] * 3
    assert backend.batch_set_v1(keys[1:], pool.indices(1, 2, 3)) == [True] * 3  # Two of them are there.
    backend.close()
    backend = opened(pool)
    assert backend.batch_exists([*keys, "f" * 64]) == 4 and backend.batch_exists(["f" * 64, *keys]) == 0
    assert backend.batch_get_v1([keys[2], "f" * 64, keys[0]], pool.indices(9, 10, 11)) == [True, False, True]
    assert torch.equal(pool.page(9), pages[2]) and torch.equal(pool.page(11), pages[0])
    # As SGLang copies pages, without interface_v1.
    targets = [pool.get_dummy_flat_data_page() for _ in keys]
    assert all(map(torch.equal, backend.batch_get(keys, targets), pages))
    assert backend.set("e" * 64, pages[1]) and backend.exists("e" * 64) and not backend.exists("d" * 64)
    assert torch.equal(backend.get("e" * 64), pages[1]) and backend.get("d" * 64) is None
    strided = torch.zeros(len(pages[0]), 2, dtype=dtype)[:, 0]
    assert torch.equal(backend.get(keys[3], strided), pages[3]) and torch.equal(strided, pages[3])
    assert backend.clear() and backend.batch_exists(keys) == 0


def sidecars():
    return [(PoolName.INDEXER, HostPool(latent=True)), (PoolName.MAMBA, HostPool(page_size=1)),
            (PoolName.SWA, HostPool())]


def transfer(name, pool, numbers, policy=PoolHitPolicy.ALL_PAGES, **more):
    return PoolTransfer(name=name, keys=keys_of(numbers), host_indices=pool.indices(*range(len(numbers))),
                        hit_policy=policy, **more)


def test_hits_of_several_pools_are_those_of_sglangs_files(opened, tmp_path, monkeypatch):
    pool, extra = HostPool(), sidecars()
    ours, theirs = opened(pool, *extra), files_of(tmp_path / "files", pool)
    for name, sidecar in extra:
        theirs.register_mem_host_pool_v2(sidecar, name)
        for at in range(sidecar.pages):
            sidecar.fill(1000 + at, at)
    pools = dict(extra)
    kept = [transfer(PoolName.KV, pool, range(8)), transfer(PoolName.INDEXER, pools[PoolName.INDEXER], range(7)),
            transfer(PoolName.MAMBA, pools[PoolName.MAMBA], [2, 5]),
            transfer(PoolName.SWA, pools[PoolName.SWA], [1, 2, 3, 5, 6])]
    theirs.register_mem_host_pool_v2(pool, PoolName.KV)
    ours.register_mem_host_pool_v2(pool, PoolName.KV)
    for backend in (ours, theirs):
        assert backend.batch_set_v2(kept) == {one.name: [True] * len(one.keys) for one in kept}

    def asked(*policies):
        return [transfer(name, pools[name], range(count), policy) for name, policy, count in policies]

    every, trailing = PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES
    for wanted in ([], asked((PoolName.INDEXER, every, 8)), asked((PoolName.MAMBA, trailing, 1)),
                   asked((PoolName.SWA, trailing, 2)), asked((PoolName.SWA, trailing, 3)), asked((PoolName.SWA, every, 8)),
                   asked((PoolName.INDEXER, every, 8), (PoolName.MAMBA, trailing, 1), (PoolName.SWA, trailing, 2))):
        for numbers in (range(10), range(3), [9, 1], []):
            keys = keys_of(numbers)
            assert ours.batch_exists_v2(keys, wanted) == theirs.batch_exists_v2(keys, wanted), (wanted, numbers)
    before = {name: [one.page(at).clone() for at in range(4)] for name, one in pools.items()}
    for one in pools.values():
        one.kv_buffer.zero_()
    assert ours.batch_get_v2([transfer(PoolName.SWA, pools[PoolName.SWA], [5, 0, 1])]) == {
        PoolName.SWA: [True, False, True]}
    assert torch.equal(pools[PoolName.SWA].page(0), before[PoolName.SWA][3])
    assert torch.equal(pools[PoolName.SWA].page(2), before[PoolName.SWA][0])


def test_block_groups_say_how_far_they_go_and_stop_nobody(opened):
    """As SGLang's policy has it; its back end of files refuses that."""
    pool, extra = HostPool(), sidecars()
    backend, groups = opened(pool, *extra), extra[2][1]
    put(backend, pool, range(8))
    backend.batch_set_v2([transfer(PoolName.SWA, groups, range(5))])
    asked = transfer(PoolName.SWA, groups, range(8), PoolHitPolicy.BLOCK_GROUPS, block_pages=3, group_pages=2)
    result = backend.batch_exists_v2(keys_of(range(8)), [asked])
    assert (result.kv_hit_pages, result.extra_pool_hit_pages) == (8, {PoolName.KV: 8, PoolName.SWA: 6})
    asked.group_pages = 0
    with pytest.raises(cairn.InvalidArgument, match="group_pages is 0"):
        backend.batch_exists_v2(keys_of(range(8)), [asked])
    asked.hit_policy = "newest"
    with pytest.raises(cairn.InvalidArgument, match="pool swa: its hit policy newest is not known"):
        backend.batch_exists_v2(keys_of(range(8)), [asked])


def test_wrong_indices_and_unknown_pools_are_named(opened, caplog):
    pool = HostPool()
    backend = opened(pool)
    assert backend.batch_set_v1(keys_of([1, 2]), pool.indices(1)) == [False, False]
    assert backend.batch_get_v2([PoolTransfer(name=PoolName.KV, keys=keys_of([1]))]) == {PoolName.KV: [False]}
    assert "host_indices has 32 entries, not 64" in caplog.text and "has 0 entries, not 32" in caplog.text
    with pytest.raises(cairn.InvalidArgument, match="pool mamba: is not registered"):
        backend.batch_get_v2([PoolTransfer(name=PoolName.MAMBA, keys=keys_of([1]))])
    with pytest.raises(cairn.InvalidArgument, match="pool kv: a page has 2 bytes, not 32768"):
        backend.set("a" * 64, torch.zeros(1, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """(folder, what each of two ranks said)."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    both = [subprocess.Popen([sys.executable, PROCESS, "rank", folder, str(number), str(port)], stdout=subprocess.PIPE,
                             text=True) for number in (0, 1)]
    return folder, [json.loads(one.communicate()[0].splitlines()[-1]) for one in both]


def test_ranks_agree_on_what_all_of_them_have(ranks):
    folder, said = ranks
    for one, here in zip(said, (8, 5)):
        assert one["own"] == {"before": 0, "stored": [True] * 8, "here": here, "hits": 5, "loaded": [True] * 5,
                              "completed": 5}
    assert sorted(one.name for one in (folder / "own").iterdir()) == ["tp0-pp0-cp0-dp0", "tp1-pp0-cp0-dp0"]


def test_ranks_follow_the_one_that_writes(ranks):
    """KV that all have alike is stored once, and found by the others when the batch is over."""
    folder, said = ranks
    for one, stored in zip(said, ([True] * 8, None)):
        assert one["alike"] == {"before": 0, "stored": stored, "here": 8, "hits": 8, "loaded": [True] * 8,
                                "completed": 8}
    assert [one.name for one in (folder / "alike").iterdir()] == ["tp0-pp0-cp0-dp0"]


def test_states_are_each_ranks_own(opened):
    """SGLang has them divided among ranks, also where their KV is alike."""
    pools = [HostPool(latent=True), HostPool(latent=True)]
    states = [HostPool(page_size=1), HostPool(page_size=1)]
    both = [opened(pools[rank], (PoolName.MAMBA, states[rank]), rank=rank, size=2, mla=True) for rank in (0, 1)]
    for number in range(3):
        put(both[0], pools[0], [number])
        assert both[1].batch_exists(keys_of(range(3))) == number + 1
    assert put(both[1], pools[1], range(3, 6)) == [True] * 3  # SGLang does not ask; nothing is stored.
    kept = [state.fill(rank, 0) for rank, state in enumerate(states)]
    for backend, state in zip(both, states):
        assert backend.batch_set_v2([transfer(PoolName.MAMBA, state, [2])]) == {PoolName.MAMBA: [True]}
        state.kv_buffer.zero_()
        wanted = transfer(PoolName.MAMBA, state, [2], PoolHitPolicy.TRAILING_PAGES)
        assert backend.batch_exists_v2(keys_of(range(6)), [wanted]).restorable_prefix_pages == [3]
        assert backend.batch_get_v2([wanted]) == {PoolName.MAMBA: [True]}
    assert all(torch.equal(state.page(0), one) for state, one in zip(states, kept))
    assert both[1].clear() and both[1].batch_exists(keys_of(range(3))) == 3 and both[0].clear()
    assert both[1].batch_exists(keys_of(range(3))) == 0


def test_a_rank_that_finds_no_writer_says_so(opened):
    with pytest.raises(cairn.NotFound, match="tp0-pp0-cp0-dp0: the rank that writes this has made nothing for 0.2 s"):
        opened(HostPool(latent=True), rank=1, size=2, mla=True, timeout=0.2)


def test_killed_in_mid_store(tmp_path):
    """What was reported as stored survives; the rest is whole or missing."""
    writer = subprocess.Popen([sys.executable, PROCESS, "store", tmp_path / "store", "{}"], stdout=subprocess.PIPE,
                              text=True)
    told = [int(writer.stdout.readline()) for _ in range(20)]
    writer.kill()
    told += map(int, re.findall(r"^\d+\n", writer.stdout.read(), re.M))
    writer.wait()
    pool = HostPool()
    backend = backend_of(tmp_path / "store", pool)
    stored = len(told) * sglang_process.BATCH
    assert backend.batch_exists(keys_of(range(stored))) == stored
    each = [got(backend, pool, [number])[0] for number in range(stored + 8)]
    assert each[:stored] == [True] * stored and not any(one is False for one in each)
    backend.close()


def test_a_full_disk_refuses_and_keeps_what_is_stored(small_disk):
    own_disk, disk = small_disk
    done = subprocess.run([*own_disk, sys.executable, PROCESS, "store", disk / "store",
                           json.dumps({"evict": "never", "segment_bytes": SEGMENT})],
                          capture_output=True, text=True, check=True)
    assert re.search(r"^refused; 0 missing, 0 wrong$", done.stdout, re.M)
    assert done.stderr.count("NoSpace") == 1 and len(re.findall(r"^\d+$", done.stdout, re.M)) > 10


def damage(backend, page):
    """Turns a bit in a page that is in a table."""
    backend._own.store.compact()
    folder = pathlib.Path(backend._own.folder)
    backend.close()
    middle = page.view(torch.uint8).numpy().tobytes()[:64]
    (path,) = [path for path in (folder / "tables").iterdir() if middle in path.read_bytes()]
    with open(path, "r+b") as file:
        file.seek(path.read_bytes().find(middle))
        file.write(bytes([middle[0] ^ 1]))


def test_damaged_page_is_missing_and_stored_again(opened, caplog):
    pool = HostPool(dtype=torch.float32)  # Which is not packed.
    backend = opened(pool)
    pages = [pool.fill(number, number) for number in range(4)]
    keys, places = keys_of(range(4)), pool.indices(*range(4))
    backend.batch_set_v1(keys, places)
    damage(backend, pages[2])
    backend = opened(pool)
    assert backend.batch_get_v1(keys, places) == [True, True, False, True]
    assert "Corruption" in caplog.text and backend.batch_exists(keys) == 2
    pool.fill(2, 2)
    assert backend.batch_set_v1(keys, places) == [True] * 4
    assert backend.batch_get_v1(keys, places) == [True] * 4 and torch.equal(pool.page(2), pages[2])


def test_page_of_another_size_under_a_known_key(opened, caplog):
    """Or of another class of objects, which SGLang's keys do not tell."""
    pool = HostPool()
    backend = opened(pool)
    objects, kv = objects_of(backend), backend._pools["kv"]
    for number, size, of in ((0, 16383, kv._class()), (1, 16385, kv._class()), (2, 16384, objects.register_class("x"))):
        objects.put([(name, bytes(size)) for name in kv._names(keys_of([number]))], object_class=of,
                    namespace="sglang/kv")
    assert backend.batch_get_v1(keys_of(range(3)), pool.indices(0, 1, 2)) == [False] * 3
    for why in ("it has 16383 bytes, not 16384", "has 16385 bytes; there is room for 16384", "ModelMismatch"):
        assert why in caplog.text
    assert [backend.exists(key) for key in keys_of(range(3))] == [False] * 3
    assert put(backend, pool, range(3)) == [True] * 3 and got(backend, pool, range(3)) == [True] * 3


@pytest.mark.parametrize("field, pool, more", [
    ("weights", {}, {"weights_digest": "w2"}), ("model", {}, {"model": "other"}), ("tp_size", {}, {"size": 2}),
    ("pp_size", {}, {"pp_size": 2}), ("attn_cp_size", {}, {"attn_cp_size": 2}), ("is_mla_model", {}, {"mla": True}),
    ("dtype", {"dtype": torch.float16}, {}), ("layout", {"layout": "page_head"}, {}),
    ("page_size", {"page_size": 16}, {}), ("pieces", {"layers": 3}, {})])
def test_a_folder_of_another_model_is_refused_by_field(opened, field, pool, more):
    first = HostPool()
    backend = opened(first)
    put(backend, first, [0])
    backend.close()
    with pytest.raises(cairn.ModelMismatch, match=rf"tp0-pp0-cp0-dp0: {field} of the pages of pool kv is .* here; give"):
        opened(HostPool(**pool), **more)
    again = opened(first)
    assert again.batch_exists(keys_of([0])) == 1


def test_a_follower_of_another_layout_is_refused_by_field(opened):
    opened(HostPool(latent=True), size=2, mla=True)
    with pytest.raises(cairn.ModelMismatch, match="layout of the pages of pool kv is 'page_first', and 'page_head' here"):
        opened(HostPool("page_head", latent=True), rank=1, size=2, mla=True)


def test_what_hicache_does_not_define_is_refused_by_name(opened, tmp_path):
    with pytest.raises(cairn.InvalidArgument, match="pool kv: its layout 'sideways' gives no pages"):
        opened(HostPool("sideways"))
    with pytest.raises(cairn.InvalidArgument, match="'path', the folder of the stores, is missing"):
        backend_of("", HostPool())
    for wrong, why in (({"tp_lcm_size": 4, "should_split_heads": True}, "tp_lcm_size is 4"),
                       ({"dcp_size": 2, "size": 2, "mla": True, "logical_page_size": 64}, "dcp_size is 2"),
                       ({"weights_digest": None}, "model_name 'small': is no path; give 'weights_digest'"),
                       ({"durability": "none"}, "durability"), ({"evict": "all"}, "evict")):
        with pytest.raises(cairn.InvalidArgument, match=why):
            put(opened(HostPool(), **wrong), HostPool(), [0])
    with pytest.raises(TypeError, match="nonsense"):
        opened(HostPool(), nonsense=1)


def test_weights_are_told_apart_by_their_files(opened, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    pool = HostPool()
    backend = opened(pool, model=str(model), weights_digest=None)
    put(backend, pool, [0])
    backend.close()
    (model / "model.safetensors").write_bytes(b"others!")
    with pytest.raises(cairn.ModelMismatch, match="weights of the pages of pool kv"):
        opened(pool, model=str(model), weights_digest=None)


def test_a_store_that_another_server_has_open_is_named_with_it(opened, tmp_path):
    (tmp_path / "store").mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys, cairn\nstore = cairn.Store(sys.argv[1], create_if_missing=True,"
                               "segment_bytes=262144)\nprint('open', flush=True)\nsys.stdin.read()",
         tmp_path / "store" / "tp0-pp0-cp0-dp0"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "open\n"
    with pytest.raises(cairn.Locked, match=rf"tp0-pp0-cp0-dp0.*{other.pid}"):
        opened(HostPool())
    other.communicate()
    opened(HostPool())


def test_sglangs_failure_injector(tmp_path, monkeypatch):
    """Whatever fails: what is reported as loaded is what was stored."""
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.4")
    pool = HostPool()
    backend = backend_of(tmp_path / "store", pool)
    assert isinstance(backend, HiCacheStorageFailureInjector)
    stored, loaded = set(), 0
    for number in range(60):
        if all(put(backend, pool, [number])):
            stored.add(number)
        there = got(backend, pool, [number, number // 2])
        assert False not in there
        loaded += there.count(True)
    assert 0 < len(stored) < 60 and loaded > 0
    backend.close()


def test_a_store_without_room_stores_and_finds_nothing(opened, monkeypatch, caplog):
    def full(*_):
        raise cairn.NoSpace("no room")

    pool = HostPool()
    with monkeypatch.context() as patch:
        patch.setattr(cairn._shared, "acquire", full)
        backend = opened(pool)
        assert put(backend, pool, [0]) == [False] and backend.batch_exists(keys_of([0])) == 0
        assert got(backend, pool, [0]) == [None] and not backend.clear()
    assert caplog.text.count("keeps and finds nothing: NoSpace: no room") == 1


def test_the_least_recently_used_pages_go(opened):
    limit = 40 * SEGMENT
    pool = HostPool()
    backend = opened(pool, max_bytes=limit)
    last = 2 * limit // sglang_classes.PAGE_BYTES // 8 * 8
    for first in range(0, last, 8):
        assert all(put(backend, pool, range(first, first + 8)))
    assert got(backend, pool, [0, last - 1]) == [None, True]
