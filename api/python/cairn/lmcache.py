# SPDX-License-Identifier: Apache-2.0
"""LMCache keeps its chunks of KV in a store of Cairn: a `native_plugin` for its L2.

    lmcache server ... --l2-adapter '{"type": "native_plugin", "module_path": "cairn.lmcache",
        "class_name": "CairnConnector", "adapter_params": {"path": "/data/kv.store", "max_bytes": 100000000000}}'

A chunk is an object under LMCache's key without its salt; chunks of one salt are a namespace, so that what one
user stored is never found for another. In a key that is too long a hash stands for the model's name, which is stored
once and compared whenever chunks are read. All is there after a restart. What is damaged, or of another size than
is asked for, is told as missing and dropped, so that LMCache computes and stores it again.

LMCache is not imported: the interface is duck-typed (lmcache/v1/distributed/l2_adapters, NativeConnectorL2Adapter).
"""

import dataclasses
import hashlib
import itertools
import logging

from ._core import Objects
from ._errors import Corruption, InvalidArgument, ModelMismatch, described
from ._object_calls import ObjectCalls

_log = logging.getLogger(__name__)

NAMESPACE = "lmcache"  # Holds chunks without a salt; others: lmcache/SALT. A salt has no slash.
MAX_KEY_BYTES = 256
KEY_FORM = "MODEL@RANK@GROUP@HASH, or with @SALT behind it"
TIMEOUT = 30.0  # Seconds: for so long LMCache itself waits for a delete.


def _parse(key):
    """(key of the object, namespace, name of the model if it is too long for the key, else None) of LMCache's keys."""
    fields = key.split("@")
    if len(fields) not in (4, 5) or not all(fields):
        raise InvalidArgument(f"key {key!r}: is not {KEY_FORM}")
    namespace = NAMESPACE if len(fields) == 4 else f"{NAMESPACE}/{fields[4]}"
    name, model = "@".join(fields[:4]), None
    if len(name.encode()) > MAX_KEY_BYTES:
        model = fields[0]
        name = "@".join([_short(model), *fields[1:4]])
    if len(name.encode()) > MAX_KEY_BYTES:
        raise InvalidArgument(f"key {key!r}: has more than {MAX_KEY_BYTES} bytes behind its model")
    return name, namespace, model


def _short(model):
    """Stands for the name of a model in keys, and is the key of the object that holds the name. No name begins so."""
    return "@sha256:" + hashlib.sha256(model.encode()).hexdigest()


@dataclasses.dataclass
class _Call:
    """One submit of LMCache: its keys, and those that the store was not asked about."""

    number: int
    kind: str
    keys: list
    refused: dict  # Position -> why.
    models: dict  # Long name of a model -> (its positions in the call, memory for the name that is stored).

    def __str__(self):
        return f"{self.kind} of {len(self.keys)} chunks"


class CairnConnector:
    """The connector for LMCache's NativeConnectorL2Adapter. All methods are thread-safe; submits never wait for a disk.

    path: the directory of the store, made if there is none. All connectors of a process with this path share it,
    and must agree on what follows but for durability, page_bytes, dtype, threads and timeout.
    max_bytes: the store's cap; the least recently used content goes when it, or the disk, is full. None: what the store
    was made with, which is 80 % of the disk's free space then; of one that an earlier version made, the disk.
    durability: reached before a store is reported to LMCache as done: "memory" (a crash of the process loses it),
    "process" (one of the machine does), "power" (nothing does).
    dtype: of the KV; "bf16" and "f16" are packed on the disk, which takes processor time. page_bytes: what is
    read, checked and packed as one. Chunks keep those they were stored with.
    threads: of this connector, at least 2; one takes no stores, so that loads do not wait for them.
    timeout: seconds that a batch may take.
    options: any other keyword of cairn.Store.

    Without room for a store all calls fail, with one warning, and it is opened once there is room; so is a store whose
    log was poisoned, at most once a minute.
    """

    def __init__(self, path, *, max_bytes=None, durability="process", dtype="opaque", page_bytes=65536, threads=4,
                 timeout=TIMEOUT, **options):
        options = {"create_if_missing": True, "evict": "branches", **options}
        if max_bytes is not None:
            options["max_bytes"] = int(max_bytes)
        self._numbers = itertools.count(1)
        self._queue = ObjectCalls(path, options, _log, f"lmcache {dtype} {page_bytes}", {
            "page_bytes": page_bytes, "dtype": dtype, "durability": durability, "threads": threads, "timeout": timeout})
        self._held = self._queue.held

    # --- Called by LMCache

    def event_fd(self):
        """Readable while drain_completions has something to report."""
        return self._queue.fileno()

    def submit_batch_set(self, keys, buffers):
        """Stores buffers[i] under keys[i]; they are borrowed until the call is over. Returns its number."""
        return self._submit("set", "submit_put", keys, buffers)

    def submit_batch_get(self, keys, buffers):
        """Reads keys[i] into buffers[i], which are borrowed until the call is over. Returns its number."""
        return self._submit("get", "submit_get", keys, buffers)

    def submit_batch_exists(self, keys):
        """Looks up which keys exist. Returns the number of the call."""
        return self._submit("exists", "submit_exists", keys)

    def submit_batch_delete(self, keys):
        """Drops keys; of one that is not there that is a success. Returns the number of the call."""
        return self._submit("delete", "submit_delete", keys)

    def drain_completions(self):
        """[(number, ok, error, [bool of each key])] of calls that are over. Never blocks.

        ok: nothing went wrong; else error says what first did, with its key. A chunk that is missing is no error.
        """
        return [ended for call, outcomes in self._queue.drain() if (ended := self._end(call, outcomes)) is not None]

    def close(self):
        """Does what was submitted; the last connector of a store closes it. Blocks for so long. Idempotent."""
        self._queue.close()

    # --- For programs

    def usage(self):
        """{"objects", "bytes"} that the store has of LMCache, of all salts and connectors; bytes as stored."""
        ours = [info for info in Objects(self._held.store).usage() if info.name.split("/")[0] == NAMESPACE]
        return {"objects": sum(info.branches for info in ours), "bytes": sum(info.bytes for info in ours)}

    # ---

    def _submit(self, kind, submit, keys, buffers=None):
        names, namespaces, refused, models = [], [], {}, {}
        for i, key in enumerate(keys):
            try:
                name, namespace, model = _parse(key)
            except ValueError as error:  # InvalidArgument, or text that UTF-8 does not have.
                refused[i] = error
                continue
            if model is not None:
                text = model.encode()
                models.setdefault(model, ([], bytearray(text if kind == "set" else len(text))))[0].append(i)
            names.append(name)
            namespaces.append(namespace)
        arguments = [names, namespaces]
        if buffers is not None:
            arguments.insert(1, [buffer for i, buffer in enumerate(buffers) if i not in refused])
            # A long name is stored beside the chunks, and compared when they are read.
            for model, (_, memory) in models.items():
                names.append(_short(model))
                arguments[1].append(memoryview(memory))
                namespaces.append(NAMESPACE)
        else:
            models = {}
        call = _Call(next(self._numbers), kind, list(keys), refused, models)
        self._queue.submit(call, submit, *arguments)
        return call.number

    def _end(self, call, outcomes):
        """LMCache's result of a call, or None for one that it did not make."""
        if call.kind == "drop":
            return None
        if isinstance(outcomes, Exception):
            return call.number, False, described(outcomes), [False] * len(call.keys)
        named = [outcomes.pop() for _ in call.models][::-1]
        for i, error in sorted(call.refused.items()):
            outcomes.insert(i, error)
        for (model, (positions, memory)), outcome in zip(call.models.items(), named):
            if call.kind == "get" and (outcome is not True or memory != model.encode()):
                for i in positions:  # Another model's, or the model is unknown.
                    outcomes[i] = outcome if isinstance(outcome, Exception) else False
        oks, first_error, useless = [], "", []
        for i, (key, outcome) in enumerate(zip(call.keys, outcomes)):
            if call.kind == "set" and isinstance(outcome, ModelMismatch):
                outcome = True  # It exists, with other pages.
            if isinstance(outcome, Exception):
                self._held.failed(f"fails in {call.kind} of {key}", outcome)
                first_error = first_error or f"{call.kind} of {key}: {described(outcome)}"
                # Damaged, or of another size: while it exists, no other is stored under its key.
                if call.kind == "get" and i not in call.refused and isinstance(outcome, (Corruption, InvalidArgument)):
                    useless.append(key)
            oks.append(outcome is True or call.kind == "delete" and outcome is False)
        if useless and not self._queue.closed:
            self._submit("drop", "submit_delete", useless)
        if call.kind == "set" and not first_error:
            self._held.worked()
        return call.number, not first_error, first_error, oks
