# SPDX-License-Identifier: Apache-2.0
"""The stores of a rank of SGLang: its own, and that of the rank which writes what all ranks have alike."""

import threading
import time

from ._core import Objects, Store
from ._errors import InvalidArgument, InvalidState, NotFound, Stale, described
from ._held import Held

DURABILITIES = ("memory", "process", "power")
WAIT_SECONDS = 0.05  # For the writer to make its store.
TRIES = 3  # When its writer overtakes a follower.
SECONDS_BETWEEN_WARNINGS = 60


class Own:
    """A store that this rank writes. followed: other ranks read what was put, so it is flushed behind each batch."""

    writes = True

    def __init__(self, folder, options, settings, followed, log):
        """settings: durability and timeout of puts."""
        if settings["durability"] not in DURABILITIES:
            raise InvalidArgument(f"durability is {settings['durability']!r}, which is none of "
                                  f"{', '.join(DURABILITIES)}")
        self.folder, self.timeout, self._settings, self._followed = folder, settings["timeout"], settings, followed
        self.held = Held(folder, {"create_if_missing": True, "evict": "branches", **options}, log, lambda _: None)
        self.failed, self.worked, self.close = self.held.failed, self.held.worked, self.held.close

    @property
    def store(self):
        """Raises why it is not open."""
        return self.held.store

    def read(self, call):
        """call(objects) of what was put."""
        return call(Objects(self.store))

    def put(self, items, **where):
        """The outcome of each; raises what the call as a whole fails with."""
        store = self.store
        outcomes = Objects(store).put(items, raises=False, **self._settings, **where)
        if self._followed:
            store.flush()
        return outcomes


class Followed:
    """The store of the rank that writes, read beside it."""

    writes = False

    def __init__(self, folder, timeout, log):
        self.folder, self.timeout, self._log = folder, timeout, log
        self._lock = threading.Lock()
        self._store, self._closed, self._told_at = None, False, None

    def wait(self, ready):
        """Until the writer has made it and ready() is true. Ranks start together. NotFound: it did not."""
        end = time.monotonic() + self.timeout
        why = NotFound("it has not said what it writes")
        while True:
            try:
                if ready():
                    return
            except NotFound as error:
                why = error
            if time.monotonic() > end:
                raise NotFound(f"{self.folder}: the rank that writes this has made nothing for {self.timeout:g} s: "
                               f"{described(why)}")
            time.sleep(WAIT_SECONDS)

    @property
    def store(self):
        with self._lock:
            if self._closed:
                raise InvalidState(f"{self.folder} is closed")
            if self._store is None:
                self._store = Store(self.folder, read_only=True)
            return self._store

    def read(self, call):
        """call(objects) of what the writer's batches have put. Stale: the writer is faster than this."""
        store = self.store
        for left in range(TRIES, 0, -1):
            store.refresh()
            try:
                return call(Objects(store))
            except Stale:
                if left == 1:
                    raise

    def failed(self, what, error):
        now = time.monotonic()
        if self._told_at is None or now - self._told_at > SECONDS_BETWEEN_WARNINGS:
            self._told_at = now
            self._log.warning("Cairn %s, reading beside the rank that writes: %s", what, described(error))

    def close(self):
        with self._lock:
            self._closed = True
            store, self._store = self._store, None
        if store is not None:
            store.close()
