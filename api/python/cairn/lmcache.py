# SPDX-License-Identifier: Apache-2.0
"""LMCache keeps its chunks of KV in a store of Cairn: a `native_plugin` for its L2.

    lmcache server ... --l2-adapter '{"type": "native_plugin", "module_path": "cairn.lmcache",
        "class_name": "CairnConnector", "adapter_params": {"path": "/data/kv.store", "max_bytes": 100000000000}}'

A chunk is an object under LMCache's key without its salt; chunks of one salt are a namespace, so that what one
user stored is never found for another. All is there after a restart. What is damaged, or of another size than
is asked for, is told as missing and dropped, so that LMCache computes and stores it again.

LMCache is not imported: the interface is duck-typed (lmcache/v1/distributed/l2_adapters, NativeConnectorL2Adapter).
"""

import dataclasses
import logging
import threading

from . import _shared
from ._core import ObjectQueue, Objects
from ._errors import Corruption, InvalidArgument, ModelMismatch

_log = logging.getLogger(__name__)

NAMESPACE = "lmcache"  # Of chunks without a salt; others: lmcache/SALT. A salt has no slash.
MAX_KEY_BYTES = 256
KEY_FORM = "MODEL@RANK@GROUP@HASH, or with @SALT behind it"
TIMEOUT = 30.0  # Seconds: for so long LMCache itself waits for a delete.


def _parse(key):
    """(key of the object, namespace) of one of LMCache's keys."""
    fields = key.split("@")
    if len(fields) not in (4, 5) or not all(fields):
        raise InvalidArgument(f"key {key!r}: is not {KEY_FORM}")
    if len(fields) == 4:
        name, namespace = key, NAMESPACE
    else:
        name, namespace = key[:-1 - len(fields[4])], f"{NAMESPACE}/{fields[4]}"
    if len(name.encode()) > MAX_KEY_BYTES:
        raise InvalidArgument(f"key {key!r}: has more than {MAX_KEY_BYTES} bytes in front of its salt")
    return name, namespace


@dataclasses.dataclass
class _Call:
    """One submit of LMCache: its keys, and those that the store was not asked about."""

    kind: str
    keys: list
    refused: dict  # Position -> why.


class CairnConnector:
    """The connector for LMCache's NativeConnectorL2Adapter. All methods are thread-safe; submits never wait for a disk.

    path: the directory of the store, made if there is none. All connectors of a process with this path share it,
    and must agree on what follows but for durability, page_bytes, dtype, threads and timeout.
    max_bytes: of the store; what was not used for longest goes when it, or the disk, is full. None: the disk.
    durability: of a store that LMCache is told as done: "memory" (a crash of the process loses it), "process"
    (one of the machine does), "power" (nothing does).
    dtype: of the KV; "bf16" and "f16" are packed on the disk, which takes processor time. page_bytes: what is
    read, checked and packed as one. Chunks keep those they were stored with.
    threads: of this connector, at least 2; one takes no stores, so that loads do not wait for them.
    timeout: seconds that a batch may take.
    options: any other keyword of cairn.Store.
    """

    def __init__(self, path, *, max_bytes=None, durability="process", dtype="opaque", page_bytes=65536, threads=4,
                 timeout=TIMEOUT, **options):
        options = {"create_if_missing": True, "evict": "branches", **options}
        if max_bytes is not None:
            options["max_bytes"] = int(max_bytes)
        self._store = _shared.acquire(path, options)
        try:
            self._queue = ObjectQueue(self._store, f"lmcache {dtype} {page_bytes}", page_bytes=page_bytes, dtype=dtype,
                                      durability=durability, threads=threads, timeout=timeout)
        except BaseException:
            _shared.release(self._store)
            raise
        self._lock = threading.Lock()
        self._calls = {}  # Number of the queue -> _Call.

    # --- Called by LMCache

    def event_fd(self):
        """Readable while drain_completions has something to tell."""
        return self._queue.fileno()

    def submit_batch_set(self, keys, buffers):
        """Stores buffers[i] under keys[i]; they are borrowed until the call is over. Returns its number."""
        return self._submit("set", self._queue.submit_put, keys, buffers)

    def submit_batch_get(self, keys, buffers):
        """Reads keys[i] into buffers[i], which are borrowed until the call is over. Returns its number."""
        return self._submit("get", self._queue.submit_get, keys, buffers)

    def submit_batch_exists(self, keys):
        """Looks which keys are there. Returns the number of the call."""
        return self._submit("exists", self._queue.submit_exists, keys)

    def submit_batch_delete(self, keys):
        """Drops keys; of one that is not there that is a success. Returns the number of the call."""
        return self._submit("delete", self._queue.submit_delete, keys)

    def drain_completions(self):
        """[(number, ok, error, [bool of each key])] of calls that are over. Never blocks.

        ok: nothing went wrong; else error says what first did, with its key. A chunk that is missing is no error.
        """
        return [told for number, outcomes in self._queue.drain() if (told := self._end(number, outcomes)) is not None]

    def close(self):
        """Does what was submitted; the last connector of a store closes it. Blocks for so long. Idempotent."""
        self._queue.close()
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            _shared.release(store)

    # --- For programs

    def usage(self):
        """{"objects", "bytes"} that the store has of LMCache, of all salts and connectors; bytes as stored."""
        ours = [info for info in Objects(self._store).usage() if info.name.split("/")[0] == NAMESPACE]
        return {"objects": sum(info.branches for info in ours), "bytes": sum(info.bytes for info in ours)}

    # ---

    def _submit(self, kind, submit, keys, buffers=None):
        names, namespaces, refused = [], [], {}
        for i, key in enumerate(keys):
            try:
                name, namespace = _parse(key)
            except ValueError as error:  # InvalidArgument, or text that UTF-8 does not have.
                refused[i] = error
                continue
            names.append(name)
            namespaces.append(namespace)
        if buffers is None:
            arguments = (names, namespaces)
        elif refused:
            arguments = (names, [buffer for i, buffer in enumerate(buffers) if i not in refused], namespaces)
        else:
            arguments = (names, buffers, namespaces)
        with self._lock:  # A call may be over before its number is known here.
            number = submit(*arguments)
            self._calls[number] = _Call(kind, list(keys), refused)
        return number

    def _end(self, number, outcomes):
        """LMCache's result of a call, or None for one that it did not make."""
        with self._lock:
            call = self._calls.pop(number)
        for i, error in sorted(call.refused.items()):
            outcomes.insert(i, error)
        if call.kind == "drop":
            return None
        oks, first_error, useless = [], "", []
        for i, (key, outcome) in enumerate(zip(call.keys, outcomes)):
            if call.kind == "set" and isinstance(outcome, ModelMismatch):
                outcome = True  # It is there, with other pages.
            if isinstance(outcome, Exception):
                _log.warning("%s of %s: %s", call.kind, key, outcome)
                first_error = first_error or f"{call.kind} of {key}: {outcome}"
                # Damaged, or of another size: while it is there, no other is stored under its key.
                if call.kind == "get" and i not in call.refused and isinstance(outcome, (Corruption, InvalidArgument)):
                    useless.append(key)
            oks.append(outcome is True or call.kind == "delete" and outcome is False)
        if useless and self._store is not None:
            self._submit("drop", self._queue.submit_delete, useless)
        return number, not first_error, first_error, oks
