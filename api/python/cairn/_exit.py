# SPDX-License-Identifier: Apache-2.0
"""Ends open stores, and threads that call on_event, before the interpreter ends.

A thread that waits for a store beyond that point cannot come back to Python.
"""

import atexit
import gc
import threading
import weakref

from . import _core
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
    # A program that froze its heap, as vLLM's server does, keeps all classes to its end. The extension module would
    # print forty lines on that and call it a fault in counting references.
    if gc.get_freeze_count() > 0:
        _core._end_quietly()
