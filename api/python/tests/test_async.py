# SPDX-License-Identifier: Apache-2.0
"""Awaitables over the completion queue."""

import asyncio
import gc
import os
import select
import threading

import numpy as np
import pytest

import cairn


def test_appends_are_awaited_together(chat):
    async def main():
        tickets = [chat.append_async([i], durability="power") for i in range(50)]
        return await asyncio.gather(*(asyncio.ensure_future(wait(ticket)) for ticket in tickets))

    async def wait(ticket):
        return await ticket

    assert asyncio.run(main()) == list(range(1, 51))
    assert chat.durable_length == 50


def test_the_loop_goes_on_while_a_call_is_awaited(chat):
    """No thread waits: the queue's descriptor wakes the loop itself."""
    counted = 0

    async def main():
        nonlocal counted
        threads = threading.active_count()
        task = asyncio.ensure_future(many())
        while not task.done():
            counted += 1
            await asyncio.sleep(0)
        assert threading.active_count() == threads
        return await task

    # A call that has ended before it is awaited gives the loop no turn: so large ones.
    async def many():
        tokens = np.arange(16_384, dtype=np.uint32)
        calls = 0
        while calls < 200:
            try:
                length = await chat.append_async(tokens, durability="power")
            except cairn.Busy:  # The next segment of the log is still being made.
                await asyncio.sleep(0.001)
                continue
            calls += 1
            assert length == calls * len(tokens)
            if counted > 20:
                return

    asyncio.run(main())
    assert counted > 20


def test_restores_are_awaited(chat, spec):
    kv = cairn.KvBuffer(spec, 100)
    kv.bytes[:] = np.random.default_rng(1).integers(0, 256, len(kv.bytes), np.uint8)

    async def main():
        await chat.append_async(np.arange(100, dtype=np.uint32), kv)
        backs = [cairn.KvBuffer(spec, 100) for _ in range(10)]
        progress = cairn.LayerProgress(2)
        results = [await chat.restore_async(back, progress=progress if i == 0 else None)
                   for i, back in enumerate(backs)]
        assert [progress[i] for i in range(len(progress))] == ["complete", "complete"]
        return all(back == kv for back in backs), results[0].bytes

    assert asyncio.run(main()) == (True, 100 * spec.token_bytes)


def test_errors_come_out_of_await(store, chat, spec):
    async def main():
        with pytest.raises(cairn.Conflict):
            await chat.append_async([1], expected_length=9)
        with pytest.raises(cairn.InvalidArgument):
            await chat.restore_async(cairn.KvBuffer(spec, 1), end=7)
        assert await chat.append_async([1]) == 1

    asyncio.run(main())


def test_a_ticket_of_no_loop_is_awaited_by_a_thread(chat):
    ticket = chat.append_async([1], durability="power")

    async def main():
        return await ticket, await ticket

    assert asyncio.run(main()) == (1, 1)
    assert ticket.done and ticket.released and ticket.result() == 1 and ticket.length == 1


def test_two_loops_one_after_the_other(chat):
    async def one():
        return await chat.append_async([1], durability="power")

    assert asyncio.run(one()) == 1
    gc.collect()
    assert asyncio.run(one()) == 2


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_loops_leave_nothing_open(chat):
    async def one():
        await chat.append_async([1])

    async def abandoned():
        task = asyncio.ensure_future(wait(chat.append_async([1], durability="power")))
        await asyncio.sleep(0)
        task.cancel()

    async def wait(ticket):
        return await ticket

    asyncio.run(one())
    before = descriptors()
    for _ in range(50):
        asyncio.run(one())
    # The one of the last loop goes with the next.
    assert descriptors() <= before + 1
    for _ in range(20):
        asyncio.run(abandoned())
    asyncio.run(one())
    assert descriptors() <= before + 2


def test_who_awaits_may_be_cancelled_and_the_call_goes_on(chat):
    async def main():
        ticket = chat.append_async([1, 2], durability="power")

        async def wait():
            return await ticket

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        # It may be over by now; then it cannot be cancelled any more.
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        return await ticket

    assert asyncio.run(main()) == 2


def test_a_queue_for_loops_of_another_kind(store, chat):
    """poll() on the descriptor, without asyncio."""
    queue = cairn.CompletionQueue(store)
    assert queue.drain() == [] and queue.wait(timeout=0) is False
    ticket = chat.append_async([1], durability="power", queue=queue, user_data=77)
    poll = select.poll()
    poll.register(queue.fileno(), select.POLLIN)
    assert poll.poll(10_000)
    assert queue.drain() == [77] and ticket.result() == 1


def test_waiting_has_a_deadline(chat):
    ticket = chat.append_async([1], durability="power")
    assert ticket.wait(timeout=10) == 1
    assert ticket.cancel() is None
    with pytest.raises(cairn.InvalidArgument, match="timeout"):
        ticket.wait(timeout=-1)
    with pytest.raises(cairn.InvalidArgument, match="timeout"):
        chat.append([1], timeout=float("nan"))
