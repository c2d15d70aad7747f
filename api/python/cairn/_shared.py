# SPDX-License-Identifier: Apache-2.0
"""One open store for all adapters of a process: a store has one owner, and a process may have several adapters."""

import logging
import os
import threading

from . import _defaults
from ._core import Store
from ._errors import Error, InvalidArgument


class _Shared:
    def __init__(self, options):
        self.store = None  # Not open: that failed.
        self.options = options
        self.users = 0


_log = logging.getLogger("cairn")
_lock = threading.Lock()
_open = {}  # Real path -> _Shared.


def acquire(path, options, log=_log):
    """The store at `path`, opened with `options` or open with the same ones already. release() it.

    A store that is made gets limits (cairn/_defaults.py). Unless `recovery` says otherwise a damaged store is opened
    with what is sound of it, and a warning says what is gone: KV that is missing is computed again, and a server that
    does not start serves nobody.
    """
    path = os.path.realpath(path)
    if not options.get("read_only"):  # A reader beside a writer decides nothing.
        options = {"recovery": "set_aside", **options}
    with _lock:
        shared = _open.get(path) or _Shared(options)
        for name in sorted(shared.options.keys() | options.keys()):
            was, is_ = shared.options.get(name), options.get(name)
            if was != is_:
                raise InvalidArgument(f"{name}: {path} is open in this process with {was!r}, not with {is_!r}")
        if shared.store is None:
            shared.store = _opened(path, options, log)
        _open[path] = shared
        shared.users += 1
        return shared.store


def reopen(path, old, log=_log):
    """The store in place of `old`, which acquire() gave and which is of no use any more: opened again, unless another
    user has done that. Raises what prevents it; another call tries again."""
    path = os.path.realpath(path)
    with _lock:
        shared = _open[path]
        if old is not None and shared.store is old:
            shared.store = None
            try:
                old.close()
            except Error:
                pass  # What it could not write is lost already.
        if shared.store is None:
            shared.store = _opened(path, shared.options, log, logging.WARNING)
        return shared.store


def release(path):
    """Closes the store if that was its last user. Raises what closing raises."""
    path = os.path.realpath(path)
    with _lock:
        shared = _open[path]
        shared.users -= 1
        if shared.users > 0:
            return
        del _open[path]
        if shared.store is not None:
            shared.store.close()


def _opened(path, options, log, level_min=logging.INFO):
    options, lines = _defaults.fill(path, options)
    store = Store(path, **options)
    for level, line in lines:
        if level >= level_min:
            log.log(level, "%s", line)
    if store.recovery_note:
        log.warning("%s: %s", path, store.recovery_note)
    return store
