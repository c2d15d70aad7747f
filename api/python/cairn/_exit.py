# SPDX-License-Identifier: Apache-2.0
"""Ends open stores, and threads that call on_event, before the interpreter ends.

A thread that waits for a store beyond that point cannot come back to Python.
"""

import atexit
import threading
import weakref

from ._errors import Error

_JOIN_SECONDS = 10  # A callback that does not return must not keep the program from ending.

_stores = weakref.WeakSet()
_threads = weakref.WeakSet()


def opened(store):
    _stores.add(store)


def start(events, call):
    """The thread that calls `call` with each line, until the events are closed."""
    thread = threading.Thread(target=events.tell, args=(call,), name="cairn.on_event", daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


def join(thread):
    thread.join(_JOIN_SECONDS)


@atexit.register
def _end():
    for store in list(_stores):
        try:
            store.close()
        except Error:
            pass  # As of a store that nobody closes: its outcome is lost.
    for thread in list(_threads):
        join(thread)
