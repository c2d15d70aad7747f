# SPDX-License-Identifier: Apache-2.0
"""How asynchronous calls end in asyncio: one completion queue for each store and event loop.

The queue's file descriptor is watched by the loop (add_reader), so no thread waits for anything.
"""

import asyncio
import contextlib
import functools
import itertools
import weakref

from . import _core

_loops = weakref.WeakKeyDictionary()  # Event loop -> {store: _Queue}


class _Queue:
    """The calls of one store that were made in one loop and are not over yet."""

    def __init__(self, loop, store):
        self.loop = weakref.ref(loop)
        self.queue = _core.CompletionQueue(store)
        self.next_number = itertools.count(1).__next__  # Numbers the next call.
        self.waiting = {}  # Number -> future, of calls that are awaited.
        # Dies with this object: nothing of the store's outlives the loop.
        self.store = weakref.ref(store, functools.partial(_forget, weakref.ref(self)))
        loop.add_reader(self.queue.fileno(), self.drain)

    def future_of(self, number):
        """The future for which an `await` of an unfinished call waits.

        Only the loop drains, and a call is over before its end is reported: so it cannot be too late.
        """
        if number not in self.waiting:
            self.waiting[number] = self.loop().create_future()
        return self.waiting[number]

    def drain(self):
        for number in self.queue.drain():
            waiter = self.waiting.pop(number, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        store = self.store()
        if store is not None:
            store._sweep()  # The tickets of these calls may be gone.


def _forget(of_store, _):
    """The store is gone: its queue is not watched any more."""
    of_store = of_store()
    loop = of_store and of_store.loop()
    if loop is None:
        return
    with contextlib.suppress(RuntimeError):  # The loop is closed, and watches nothing.
        loop.call_soon_threadsafe(lambda: loop.remove_reader(of_store.queue.fileno()))


def queue_of(store):
    """The queue of `store` in the running event loop; None outside of one."""
    loop = asyncio._get_running_loop()
    if loop is None:
        return None
    stores = _loops.get(loop)
    if stores is None:
        stores = _loops[loop] = weakref.WeakKeyDictionary()
    queue = stores.get(store)
    if queue is None:
        # Futures that nobody waits for any more would keep their loop.
        for closed in [other for other in _loops if other.is_closed()]:
            del _loops[closed]
        queue = stores[store] = _Queue(loop, store)
    return queue


def wait_for(ticket, queue, number):
    """The generator behind `await ticket`."""
    if not ticket.done:
        loop = asyncio.get_running_loop()
        if queue is None or queue.loop() is not loop:
            # Made elsewhere: a thread waits for it.
            return (yield from loop.run_in_executor(None, ticket.wait).__await__())
        # The awaiting task may be cancelled; others may await it, too.
        yield from asyncio.shield(queue.future_of(number)).__await__()
    return ticket.result()
