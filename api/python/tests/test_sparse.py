# SPDX-License-Identifier: Apache-2.0
"""Sparse sessions on a simulated device: what a step asks for is what was appended; refusals, and who keeps what."""

import gc
import sys
import threading
import time

import numpy as np
import pytest

import cairn

TOKENS = 96
PIECE = 4
SMALL = dict(planes=(0, 1), piece_tokens=PIECE, page_tokens=16, slots=12, wanted_max=6)


@pytest.fixture
def kv(spec):
    buffer = cairn.KvBuffer(spec, TOKENS)
    buffer.bytes[:] = np.random.default_rng(4).integers(0, 256, len(buffer.bytes), np.uint8)
    return buffer


@pytest.fixture
def chat(store, spec, kv):
    branch = store.create_branch(store.register_model(spec), "chat")
    branch.append(np.arange(TOKENS, dtype=np.uint32), kv)
    return branch


@pytest.fixture
def arena(store, gpu):
    return store.sparse_arena(gpu, pinned_bytes=2 << 20, device_bytes=1 << 20)


@pytest.fixture
def session(arena, chat):
    return arena.open(chat, **SMALL)


def there(gpu, pieces):
    """The same numbers in memory of the device."""
    memory = gpu.allocate(pieces.nbytes)
    memory.copy_in(pieces)
    return memory.tensor(list(pieces.shape), "i32")


def left_out(view, kv, layer, pieces, planes=(0, 1)):
    """Compares what has a slot; how many have none."""
    slots, rows = view.to_host()
    assert slots.shape == pieces.shape and slots.dtype == np.int32 and len(rows) == len(planes)
    for head, row in enumerate(pieces):
        for piece, slot in zip(row, slots[head]):
            for plane, values in zip(planes, rows) if slot >= 0 else ():
                stored = kv.numpy(layer, plane)[head, piece * PIECE : (piece + 1) * PIECE]
                assert np.array_equal(values[head, slot], stored)
    return int((slots < 0).sum())


def test_what_is_wanted_is_what_was_appended(session, kv):
    assert session.pieces == TOKENS // PIECE and session.heads == 2 and session.device_bytes > 0
    random = np.random.default_rng(1)
    for step in range(6):
        for layer in range(2):
            pieces = np.stack([random.permutation(session.pieces)[:6] for _ in range(2)])
            kinds = [pieces.astype(np.uint32), pieces.astype(np.int32), pieces, pieces.tolist(), pieces[:, ::-1]]
            given = kinds[step % len(kinds)]
            assert left_out(session.fetch(layer, given), kv, layer, np.asarray(given)) == 0
    stats = session.stats()
    assert stats["fetches"] == 12 and stats["wanted"] == 144 and stats["left_out"] == 0
    assert 0 < stats["faults"] and stats["page_bytes_read"] == stats["pages_read"] * 2 * 16 * 8


def test_what_is_there_keeps_its_slot(session, arena):
    pieces = np.array([[0, 1, 2], [20, 21, 22]])
    first = session.fetch(1, pieces).to_host()[0]
    read = session.stats()["pages_read"]
    second = session.fetch(1, pieces[:, ::-1]).to_host()[0]
    assert np.array_equal(first, second[:, ::-1]) and session.stats()["pages_read"] == read == 2
    assert arena.stats()["fetches"] == 2 and arena.pinned_bytes > 0
    assert arena.device_bytes == session.device_bytes


def test_the_values_alone_by_default(arena, chat, kv):
    session = arena.open(chat, slots=8, wanted_max=4)
    pieces = np.array([[3], [7]])
    assert left_out(session.fetch(0, pieces), kv, 0, pieces, planes=(1,)) == 0


def test_the_tensors_are_of_the_device(session, gpu):
    view = session.fetch(0, [[1, 5, 9], [2, 6, 10]])
    keys, values = view.planes
    for tensor in (view.slots, keys, values):
        assert tensor.__dlpack_device__() == (2, gpu.ordinal)
    with pytest.raises(cairn.InvalidArgument, match="host memory"):
        cairn.Gpu.allocate(gpu, 64).copy_in(values)


def test_pieces_on_the_device(session, gpu, kv):
    pieces = np.array([[5, 2, 23], [3, 9, 0]], np.int32)
    assert left_out(session.fetch(0, there(gpu, pieces)), kv, 0, pieces) == 0
    with pytest.raises(cairn.InvalidArgument, match="host memory"):
        session.prefetch(0, there(gpu, pieces))
    wide = gpu.allocate(48)
    with pytest.raises(cairn.InvalidArgument, match="int32 or uint32"):
        session.fetch(0, wide.tensor([2, 3], "i64"))
    other = cairn.Gpu.simulated(4, ordinal=1)
    with pytest.raises(cairn.InvalidArgument, match="cuda:1"):
        session.fetch(0, there(other, pieces))


def test_relaxed_fetches_leave_out_and_have_it_the_next_time(session, gpu, kv):
    pieces = np.array([[12, 16], [13, 23]], np.int32)
    view = session.fetch(0, there(gpu, pieces), mode="relaxed")  # The session keeps them.
    gc.collect()
    session.fetch(1, [[], []])  # Behind it the stream has come so far.
    missing = left_out(view, kv, 0, pieces)
    assert missing == 4
    for _ in range(5000):
        time.sleep(0.001)
        try:
            view = session.fetch(0, pieces, mode="relaxed")
        except cairn.Busy:
            continue
        session.fetch(1, [[], []])
        missing = left_out(view, kv, 0, pieces)
        if missing == 0:
            break
    assert missing == 0 and session.stats()["left_out"] >= 4


def test_prefetched_pages_need_no_disk(session, kv):
    pieces = np.array([[12, 10], [11, 22]])
    session.prefetch(1, pieces)
    for _ in range(5000):
        if session.stats()["pages_read"] == 4:
            break
        time.sleep(0.001)
    assert left_out(session.fetch(1, pieces), kv, 1, pieces) == 0
    assert session.stats()["faults"] == 0 and session.stats()["pages_read"] == 4


def test_prefetches_that_are_too_late_are_left(session):
    session.prefetch(0, np.array([[1, 20], [7, 3]], np.uint32), timeout=0)
    time.sleep(0.05)
    assert session.stats()["pages_read"] == 0


def test_graphs(session, arena, chat, gpu):
    """A simulated device has no graphs that Python can make; tests/engine/sparse_replay_test.cc has them."""
    pieces = np.array([[1, 20], [7, 3]], np.uint32)
    with pytest.raises(cairn.InvalidArgument, match="on the device"):
        session.capture(0, pieces, stream=0)
    with pytest.raises(cairn.InvalidArgument, match="is not captured"):
        session.capture(0, there(gpu, pieces), stream=0)
    launched = []
    other = arena.open(chat, **SMALL)
    cairn.SparseSession.replay([session, other], lambda: launched.append(1))
    assert launched == [1]
    for sessions, why in (([], "no sessions"), ([session, session], "twice")):
        with pytest.raises(cairn.InvalidArgument, match=why):
            cairn.SparseSession.replay(sessions, lambda: launched.append(1))

    def fail():
        raise KeyError("not now")

    with pytest.raises(KeyError, match="not now"):
        cairn.SparseSession.replay([session], fail)
    assert launched == [1] and session.stats()["fetches"] == 0


def test_a_replayed_session_outlives_its_replay(arena, chat):
    """What it keeps for graphs stays while one is launched, whatever becomes of the list."""
    sessions = [arena.open(chat, **SMALL)]
    users, during = sys.getrefcount(sessions[0]), []

    def launch():
        during.append(sys.getrefcount(sessions[0]))
        sessions.clear()

    cairn.SparseSession.replay(sessions, launch)
    assert during == [users + 1] and arena.device_bytes == 0


def test_what_is_wrong_is_named(session, arena, store, chat, gpu):
    for pieces, words in [
        ([[0], [24]], "head 1: piece 24 is beyond"),
        ([[0, 1], [2, 2]], "head 1: piece 2 is wanted twice"),
        ([[0], [-1]], r"pieces\[1\]\[0\]: -1"),
        ([[0]], r"\[heads, count\]"),
        ([0, 1], r"\[heads, count\]"),
        (np.zeros((2, 7), np.int32), "wanted_max"),
        (np.zeros((2, 1), np.float32), "f32"),
        ("pieces", "no array"),
    ]:
        with pytest.raises(cairn.InvalidArgument, match=words):
            session.fetch(0, pieces)
    with pytest.raises(cairn.InvalidArgument, match="layer is 2"):
        session.fetch(2, [[0], [0]])
    with pytest.raises(cairn.InvalidArgument, match="strict, relaxed"):
        session.fetch(0, [[0], [0]], mode="lazy")
    with pytest.raises(cairn.InvalidArgument, match="timeout"):
        session.fetch(0, [[0], [0]], timeout=-1)
    with pytest.raises(cairn.InvalidArgument, match="stream"):
        session.fetch(0, [[0], [0]], stream=12345)
    for options, words in [
        (dict(group=1), "group is 1"),
        (dict(planes=()), "planes is 0"),
        (dict(planes=(2,)), "planes"),
        (dict(planes=(40,)), "no plane 40"),
        (dict(piece_tokens=1), "no multiple of 16"),
        (dict(slots=2), "wanted_max"),
        (dict(end=97), "end is 97"),
    ]:
        with pytest.raises(cairn.InvalidArgument, match=words):
            arena.open(chat, **(SMALL | options))
    with pytest.raises(cairn.InvalidArgument, match="pinned_bytes"):
        store.sparse_arena(gpu, pinned_bytes=1, device_bytes=1)
    with pytest.raises(cairn.OutOfMemory, match="device_bytes"):
        store.sparse_arena(gpu, pinned_bytes=1 << 20, device_bytes=1).open(chat, **SMALL)


def test_the_next_session_begins_with_what_was_saved(arena, chat, kv):
    pieces = np.array([[1, 2], [3, 4]])
    session = arena.open(chat, **SMALL)
    session.fetch(0, pieces)
    session.save()
    assert arena.open(chat, **SMALL, warm=False).stats()["faults"] == 0
    warm = arena.open(chat, **SMALL)
    begun_with = warm.stats()["faults"]
    assert left_out(warm.fetch(0, pieces), kv, 0, pieces) == 0
    assert warm.stats()["faults"] == begun_with


def test_a_session_grows_with_its_branch(arena, chat, kv):
    options = {**SMALL, "end": 48, "tokens_max": TOKENS}
    session = arena.open(chat, **options)
    assert session.pieces == 12
    pieces = np.array([[3, 23], [22, 0]])
    with pytest.raises(cairn.InvalidArgument, match="beyond the last, 11"):
        session.fetch(0, pieces)
    session.extend()
    assert session.pieces == 24
    assert left_out(session.fetch(0, pieces), kv, 0, pieces) == 0
    with pytest.raises(cairn.Conflict, match="token 96"):
        session.extend(48)
    with pytest.raises(cairn.InvalidArgument, match="end is 97"):
        session.extend(97)


def test_a_session_gives_back_its_memory(arena, chat):
    session = arena.open(chat, **SMALL)
    values = session.fetch(0, [[1], [2]]).planes[1]
    del session
    gc.collect()
    assert arena.device_bytes > 0
    del values
    gc.collect()
    assert arena.device_bytes == 0


def test_many_threads_fetch_from_one_session(session, kv):
    wrong = []

    def work(layer, seed):
        random = np.random.default_rng(seed)
        for _ in range(20):
            pieces = np.stack([random.permutation(session.pieces)[:3] for _ in range(2)])
            slots = session.fetch(layer, pieces).to_host()[0]
            if (slots < 0).any():
                wrong.append(slots)

    threads = [threading.Thread(target=work, args=(layer, layer)) for layer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and session.stats()["fetches"] == 40


def test_a_closed_store_and_a_dropped_branch(store, arena, session, chat):
    session.fetch(0, [[1], [2]])
    chat.drop()
    session.fetch(0, [[1], [2]])  # It is resident.
    with pytest.raises(cairn.NotFound):
        session.fetch(0, [[20], [20]])
    store.close()
    with pytest.raises(cairn.InvalidState):
        session.fetch(0, [[1], [2]])
    with pytest.raises(cairn.InvalidState):
        arena.open(chat, **SMALL)
    assert session.stats()["fetches"] >= 3
