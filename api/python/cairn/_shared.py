# SPDX-License-Identifier: Apache-2.0
"""One open store for all adapters of a process: a store has one owner, and a process may have several adapters."""

import os
import threading

from ._core import Store
from ._errors import InvalidArgument


class _Shared:
    def __init__(self, store, options):
        self.store = store
        self.options = options
        self.users = 0


_lock = threading.Lock()
_open = {}  # Real path -> _Shared.


def acquire(path, options):
    """The store at `path`, opened with `options` or open with the same ones already. release() it."""
    path = os.path.realpath(path)
    with _lock:
        shared = _open.get(path)
        if shared is None:
            shared = _open[path] = _Shared(Store(path, **options), options)
        for name in sorted(shared.options.keys() | options.keys()):
            was, is_ = shared.options.get(name), options.get(name)
            if was != is_:
                raise InvalidArgument(f"{name}: {path} is open in this process with {was!r}, not with {is_!r}")
        shared.users += 1
        return shared.store


def release(store):
    """Closes the store if it was the last user of it. Raises what closing raises."""
    with _lock:
        path, shared = next(entry for entry in _open.items() if entry[1].store is store)
        shared.users -= 1
        if shared.users > 0:
            return
        del _open[path]
        store.close()
