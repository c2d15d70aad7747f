# SPDX-License-Identifier: Apache-2.0
"""Nothing is left behind, and nothing goes too early."""

import asyncio
import gc
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import cairn


def start(call):
    """Asynchronous appends do not wait for a segment of the log."""
    while True:
        try:
            return call()
        except cairn.Busy:
            time.sleep(0.001)


def test_ten_thousand_appends_leave_no_object_behind(chat, spec):
    tensors = [np.zeros((1, 2, 4), np.uint16) for _ in range(4)]
    held = cairn.KvTensors(spec, tensors)
    ids = np.zeros(1, np.uint32)

    def appends(count):
        for _ in range(count):
            length = chat.length
            chat.append(ids, held.view(length, 1), durability="memory", expected_length=length)
            start(lambda: chat.append_async([5], held.view(length + 1, 1), durability="memory")).wait()

    appends(100)
    gc.collect()
    before = sys.getallocatedblocks()
    appends(5000)
    gc.collect()
    # Some blocks come and go by themselves; one object for each append would be 10,000.
    assert abs(sys.getallocatedblocks() - before) < 100


def test_ten_thousand_awaited_appends_leave_no_object_behind(chat):
    async def appends(count):
        for _ in range(count):
            await start(lambda: chat.append_async([5], durability="memory"))

    async def both():
        await appends(100)
        gc.collect()
        before = sys.getallocatedblocks()
        await appends(10_000)
        gc.collect()
        return sys.getallocatedblocks() - before

    assert abs(asyncio.run(both())) < 100


class Watched(np.ndarray):
    """An array that can be watched: numpy's own cannot be referred to weakly."""


@pytest.fixture
def big():
    """512 KiB of KV a token, so that asynchronous appends of four borrow it."""
    return cairn.ModelSpec.of("big", layers=1, kv_heads=1, head_dim=1 << 17, dtype="bf16")


def test_tensors_live_as_long_as_the_call_that_uses_them(store, big):
    chat = store.create_branch(store.register_model(big))
    tensors = [np.ones((4, 1, 1 << 17), np.uint16).view(Watched) for _ in "KV"]
    gone = [weakref.ref(tensor) for tensor in tensors]
    ticket = chat.append_async([1, 2, 3, 4], cairn.KvView.of(big, tensors), durability="power")
    del tensors
    gc.collect()
    if not ticket.released:
        assert all(ref() is not None for ref in gone)
    ticket.wait()
    gc.collect()
    assert all(ref() is None for ref in gone)
    back = cairn.KvBuffer(big, 4)
    chat.restore(back)
    assert np.all(back.bytes.view(np.uint16) == 1)


def test_a_ticket_that_nobody_holds_keeps_its_tensors(store, big):
    chat = store.create_branch(store.register_model(big))
    kv = cairn.KvBuffer(big, 4)
    kv.bytes.view(np.uint16)[:] = 1
    chat.append([1, 2, 3, 4], kv)
    queue = cairn.CompletionQueue(store)
    rooms, given = [], []
    for i in range(20):
        rooms.append(np.zeros((2, 4, 1, 1 << 17), np.uint16))
        tensors = [room.view(Watched) for room in rooms[-1]]
        given.append([weakref.ref(tensor) for tensor in tensors])
        chat.restore_async(cairn.KvView.of(big, tensors), queue=queue)
        del tensors
        # The arrays would be freed under the restore that writes them.
        for refs, room in zip(given, rooms):
            assert all(ref() is not None for ref in refs) or np.all(room == 1)
    over = 0
    while over < 20:
        assert queue.wait(timeout=60)
        over += len(queue.drain())
    # The next call lets go of all, and no further asynchronous one is needed for that.
    chat.append([5])
    assert all(ref() is None for refs in given for ref in refs) and all(np.all(room == 1) for room in rooms)


def test_the_loop_lets_go_of_what_nobody_waits_for(store, big):
    chat = store.create_branch(store.register_model(big))
    chat.append([1, 2, 3, 4], cairn.KvBuffer(big, 4))

    async def main():
        tensors = [[np.zeros((4, 1, 1 << 17), np.uint16).view(Watched) for _ in "KV"] for _ in range(20)]
        gone = [weakref.ref(tensor) for pair in tensors for tensor in pair]
        while tensors:
            chat.restore_async(cairn.KvView.of(big, tensors.pop()))
        end = time.monotonic() + 60
        while any(ref() is not None for ref in gone) and time.monotonic() < end:
            await asyncio.sleep(0.001)
        return all(ref() is None for ref in gone)

    assert asyncio.run(main())


def test_what_goes_with_a_call_may_ask_for_its_result(store, big):
    chat = store.create_branch(store.register_model(big))
    chat.append([1, 2, 3, 4], cairn.KvBuffer(big, 4))
    tensors = [np.zeros((4, 1, 1 << 17), np.uint16).view(Watched) for _ in "KV"]
    asked = []
    refs = [weakref.ref(tensor, lambda _: asked.append(ticket.result().end)) for tensor in tensors]
    ticket = chat.restore_async(cairn.KvView.of(big, tensors))
    del tensors
    assert ticket.wait().end == 4 and asked == [4, 4] and all(ref() is None for ref in refs)


def test_views_keep_their_tensors(spec):
    tensor = np.zeros((4, 2, 4), np.uint16).view(Watched)
    gone = weakref.ref(tensor)
    view = cairn.KvTensors(spec, [tensor] * 4).view(0, 2)
    del tensor
    gc.collect()
    assert gone() is not None
    both = view + view
    del view
    gc.collect()
    assert gone() is not None
    del both
    gc.collect()
    assert gone() is None


def test_a_store_goes_with_its_last_branch(tmp_path, spec):
    store = cairn.Store(tmp_path / "s", create_if_missing=True)
    chat = store.create_branch(store.register_model(spec))
    gone = weakref.ref(store)

    async def use():
        await chat.append_async([1])

    asyncio.run(use())
    del store
    gc.collect()
    assert gone() is not None
    del chat, use
    gc.collect()
    assert gone() is None


def test_a_program_that_froze_its_heap_ends_without_a_word():
    """As vLLM's server does: its classes live to the end, and no fault in counting references."""
    code = "import cairn, gc; cairn.Store(':memory:'); gc.freeze()"
    done = subprocess.run([sys.executable, "-P", "-c", code], timeout=120, capture_output=True, text=True, check=True)
    assert done.stderr == ""
