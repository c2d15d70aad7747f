# SPDX-License-Identifier: Apache-2.0
"""The store of an adapter, which goes on without it: it may have no room yet, or have been poisoned.

A lasting failure is reported once when it begins and once when it is over, however many calls fail in between.
"""

import threading
import time

from . import _shared
from ._errors import Error, InvalidState, NoSpace, described

RETRY_SECONDS = 60  # Opening reads the log, and closing waits for calls.
QUIET_SECONDS = 10  # Between the last failure and a success that ends it: at the edge of room both alternate.


class Held:
    """The store at `path`, opened with `options`, or once there is room. All methods are thread-safe.

    opened: called with the store behind each opening, before anyone gets it. What it raises ends this one.
    log: of the adapter.
    """

    def __init__(self, path, options, log, opened):
        self.path = path
        self._options, self._log, self._opened = options, log, opened
        self._lock = threading.Lock()
        self._thread = None
        self._store, self._why = None, None  # Why there is no store: an Error.
        self._retry_at = 0.0
        self._bad_since = self._failed_at = None  # When a lasting failure began, and was last met.
        self._untold = 0  # Failures beside the one that was reported.
        self._errors = {}  # Code -> count, since take_errors().
        self._acquired = False
        try:
            store = _shared.acquire(path, options, log)
            self._acquired = True
            opened(store)
            self._store = store
        except NoSpace as error:
            self._why, self._retry_at = error, time.monotonic() + RETRY_SECONDS
            self.failed("keeps and finds nothing", error)
        except BaseException:
            if self._acquired:
                _shared.release(path)
            raise

    @property
    def store(self):
        """Raises why it is not open."""
        store = self._store
        if store is None:
            raise type(self._why)(str(self._why))  # A traceback of its own.
        return store

    @property
    def usable(self):
        """Whether nothing that lasts is known to be wrong."""
        return self._bad_since is None

    def failed(self, what, error):
        """A call of the adapter's failed: says `what` Cairn does not do for that, unless that was said."""
        code = type(error).__name__
        with self._lock:
            self._errors[code] = self._errors.get(code, 0) + 1
            lasting = isinstance(error, NoSpace) or _is_useless(self._store)
            told = lasting and self._bad_since is not None
            if lasting:
                self._failed_at = time.monotonic()
                self._bad_since = self._bad_since or self._failed_at
                self._untold += told
        if not told:
            self._log.warning("Cairn %s: %s%s", what, described(error),
                              ". The next failures are counted, not told, until it is over" if lasting else "")
        if lasting:
            self._retry()

    def worked(self):
        """A write went well: if something lasted, it is over."""
        if self._bad_since is None:
            return
        with self._lock:
            now = time.monotonic()
            if self._bad_since is None or now - self._failed_at < QUIET_SECONDS:
                return
            seconds, untold = now - self._bad_since, self._untold
            self._bad_since, self._untold = None, 0
        self._log.warning("Cairn: %s is written again, after %.0f s in which %d calls more than the one that was told "
                          "failed", self.path, seconds, untold)

    def take_errors(self):
        """{code: how many calls failed with it}, since the last time."""
        if not self._errors:
            return {}
        with self._lock:
            errors, self._errors = self._errors, {}
        return errors

    def close(self):
        """Ends it. Raises what closing the store raises."""
        with self._lock:
            self._retry_at = float("inf")
            thread = self._thread
        if thread is not None:
            thread.join()
        self._store, self._why = None, InvalidState("the adapter is closed")
        if self._acquired:
            self._acquired = False
            _shared.release(self.path)

    def _retry(self):
        """Opens the store in the background where that can help, and the last time was long enough ago."""
        with self._lock:
            store, now = self._store, time.monotonic()
            opening = self._thread is not None and self._thread.is_alive()
            if opening or now < self._retry_at or not _is_useless(store):
                return
            self._retry_at = now + RETRY_SECONDS
            self._store, self._why = None, self._why or InvalidState(f"{self.path} is opened again")
            self._thread = threading.Thread(target=self._open, args=(store,), name="cairn-open", daemon=True)
            self._thread.start()

    def _open(self, old):
        again = self._acquired
        try:
            if self._acquired:
                store = _shared.reopen(self.path, old, self._log)
            else:
                store = _shared.acquire(self.path, self._options, self._log)
                self._acquired = True
            self._opened(store)
        except (Error, ValueError) as error:
            self._why = error if isinstance(error, Error) else InvalidState(str(error))
            return
        self._store, self._why = store, None
        self._log.warning("Cairn: %s is open%s", self.path, " again" if again else "")


def _is_useless(store):
    try:
        return store is None or store.poisoned is not None
    except InvalidState:  # Another adapter has closed it.
        return True
