# SPDX-License-Identifier: Apache-2.0
"""Batches of calls on objects for an adapter, on a store that may be opened again meanwhile (_held.py)."""

import contextlib
import os
import threading

from ._core import ObjectQueue
from ._errors import Error, InvalidState
from ._held import Held

PAGE_BYTES = 65536  # The most, unless the user says otherwise.
PAGE_STEP = 64
_DTYPES = {"bfloat16": "bf16", "float16": "f16"}  # Those that the store packs; of others it keeps the bytes.


def packing_of(dtype):
    """The dtype of a class of objects that hold KV of torch's dtype of this name."""
    return _DTYPES.get(str(dtype).removeprefix("torch."), "opaque")


def page_of(size):
    """Bytes of a page, so that an object of this size is whole pages but for some bytes."""
    pages = -(-size // PAGE_BYTES)
    return -(-size // (pages * PAGE_STEP)) * PAGE_STEP


class ObjectCalls:
    """An ObjectQueue on the store at `path`, and behind each later opening of it. All methods are thread-safe.

    object_class, settings: the arguments of ObjectQueue. opened: called with each store that was opened.

    Without a store every call fails, and goes on failing until there is one.
    """

    def __init__(self, path, options, log, object_class, settings, opened=None):
        self._object_class, self._settings, self._also = object_class, settings, opened
        self._lock = threading.Lock()
        self._calls = {}  # (queue, its number of the call) -> the adapter's call.
        self._ended = []  # (call, outcomes) that no queue has any more.
        self._queue, self._closed = None, False
        # An adapter asks for it once. It becomes that of the queue, whichever is open.
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self.held = Held(path, options, log, self._opened)
        except BaseException:
            os.close(self._fd)
            raise

    def fileno(self):
        """Readable while drain() has something to report."""
        return self._fd

    @property
    def closed(self):
        return self._closed

    def submit(self, call, name, *arguments):
        """Calls the ObjectQueue's method `name`; drain() reports `call`, any object, when that is over.

        InvalidState: this is closed. Raises what the method says of its arguments.
        """
        with self._lock:  # A call may be over before its number is known here.
            if self._closed:
                raise InvalidState("the adapter is closed")
            queue = self._queue
            if queue is not None:
                with contextlib.suppress(InvalidState):  # Its store is closed, to be opened again.
                    self._calls[queue, getattr(queue, name)(*arguments)] = call
                    return
        error = self._why()
        self.held.failed(f"fails in {call}", error)
        with self._lock:
            self._ended.append((call, error))
            if self._queue is None:
                os.eventfd_write(self._fd, 1)
            else:  # Just opened.
                self._queue.submit_exists([], [])

    def drain(self):
        """[(call, outcomes)] of calls that are over; never blocks. Outcomes: those of ObjectQueue.drain, or one Error,
        where there was no store."""
        with self._lock:
            queue, ended, self._ended = self._queue, self._ended, []
        if queue is None:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._fd)
            return ended
        return ended + self._over(queue)

    def close(self):
        """Does what was submitted; the last adapter of a store closes it. Blocks for so long. Idempotent."""
        with self._lock:
            was, self._closed = self._closed, True
        if was:
            return
        self._retire(self._take())
        self.held.close()
        self._retire(self._take())  # An opening was under way.
        os.close(self._fd)

    def _opened(self, store):
        """Behind each opening of the store: another queue takes the place of the one before."""
        if self._also is not None:
            self._also(store)
        queue = ObjectQueue(store, self._object_class, **self._settings)
        with self._lock:
            before, self._queue = self._queue, queue
            os.dup2(queue.fileno(), self._fd, inheritable=False)
        self._retire(before)
        queue.submit_exists([], [])  # Its end reports calls that ended before, too.

    def _take(self):
        with self._lock:
            queue, self._queue = self._queue, None
        return queue

    def _retire(self, queue):
        """Ends a queue, and keeps what became of its calls."""
        if queue is None:
            return
        queue.close()
        ended = self._over(queue)
        with self._lock:
            self._ended += ended

    def _over(self, queue):
        drained = queue.drain()
        with self._lock:
            calls = [(self._calls.pop((queue, number), None), outcomes) for number, outcomes in drained]
        return [one for one in calls if one[0] is not None]

    def _why(self):
        try:
            self.held.store
        except Error as error:
            return error
        return InvalidState("the store is opened again")
