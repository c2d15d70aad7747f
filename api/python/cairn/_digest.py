# SPDX-License-Identifier: Apache-2.0
"""Digests of weights, for all adapters: of every byte of every file, or of memory.

A digest of files is remembered in the store's directory by the identity of each file (device, inode, size, times of
change and of its inode's change), so that a second start reads no weights. A file whose identity is another one is
read again. XXH3-128 tells apart what changes by accident or by training; it does not withstand somebody who makes
two files of one digest on purpose, which would serve them their own state.
"""

import concurrent.futures
import hashlib
import json
import logging
import os
import pathlib
import threading
import time

from . import _core

_log = logging.getLogger(__name__)

FORM = "xxh3-128:"  # A digest begins with this: those of other versions are others.
CHUNK_BYTES = 16 << 20  # Hashed at once, by one thread; part of the digest's value.
READ_BYTES = 1 << 20  # Stays in a processor's cache between reading and hashing.
THREADS = min(16, 2 * (os.cpu_count() or 1))  # Half of them wait for the disk.

# A clock of a file system may be this coarse: a file that was changed so shortly before it was read may change again
# and keep its times, so its digest is not remembered, not even in this process.
SETTLED_NS = 2_000_000_000

REMEMBERED = "DIGESTS"  # In the store's directory (engine/store/store_directory.cc).
REMEMBERED_MAX = 1024  # Files; about 150 KiB.
REMEMBERED_BYTES_MAX = 1 << 20

# Files beside weights that a model's state does not depend on. Any other file counts, and weights do by any name.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".npz", ".h5", ".msgpack")
_OTHER_SUFFIXES = (".md", ".txt", ".png", ".jpg", ".lock", ".tmp")
_OTHER_NAMES = ("tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "chat_template",
                "generation_config", "LICENSE", "NOTICE")


class NoFiles(ValueError):
    """There are no files to digest."""


def files_of(path):
    """The files that make up weights at `path`, a folder or a file. NoFiles: there are none."""
    path = pathlib.Path(path)
    if path.is_file():
        return [path]
    files = [file for file in sorted(path.iterdir())
             if file.is_file() and (file.suffix in _WEIGHTS or not file.name.endswith(_OTHER_SUFFIXES)
                                    and not file.name.startswith((".", *_OTHER_NAMES)))] if path.is_dir() else []
    if not any(file.suffix != ".json" for file in files):
        raise NoFiles(f"{path}: has no files of weights")
    return files


def identities_of(files):
    """Changes whenever the content of a file does. OSError."""
    return tuple(_identity(file.stat()) for file in files)


def _identity(info):
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def hash_each(buffers):
    """The hash of each of these pieces of memory, by many threads."""
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(_core._hash, buffers))


def _read_chunk(chunk):
    """The hashes of the pieces of a chunk. Of a file that shrinks meanwhile the caller does not use them."""
    file, begin, end = chunk
    memory = memoryview(bytearray(READ_BYTES))
    hashes = []
    for at in range(begin, end, READ_BYTES):
        wanted, count = min(READ_BYTES, end - at), 0
        while count < wanted and (more := os.preadv(file, [memory[count:wanted]], at + count)) > 0:
            count += more
        hashes.append(_core._hash(memory[:count]))
    return b"".join(hashes)


def _digest_file(path, threads):
    """(identity, hex digest) of all bytes of a file."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = _identity(os.fstat(file))
        size = before[2]
        chunks = [(file, at, min(at + CHUNK_BYTES, size)) for at in range(0, size, CHUNK_BYTES)]
        digest = hashlib.sha256(size.to_bytes(8, "little"))
        for hashes in threads.map(_read_chunk, chunks):
            digest.update(hashes)
        if _identity(os.fstat(file)) != before:
            raise OSError(f"{path}: was changed while it was read")
        return before, digest.hexdigest()
    finally:
        os.close(file)


def cache_directory():
    """Where digests are remembered for those who have a store and not its path; made if it is not there."""
    directory = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cairn"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        pass  # save() says what comes of that.
    return directory


class Digests:
    """Digests of files, and what was found before, in the directory of a store or that of cache_directory().

    Nothing is written before save(): the directory may not be a store's yet.
    """

    def __init__(self, directory):
        self._path = pathlib.Path(directory) / REMEMBERED
        self._known = self._load()  # Identity -> hex digest; the last are the newest.
        self._saved = True
        self._lock = threading.Lock()

    def of(self, path, words=""):
        """A digest of `words` and of all files at `path`: their names and every byte. NoFiles, OSError."""
        return self.of_files(files_of(path), words)

    def of_files(self, files, words="", named=True):
        """The same of these files; not named: of their bytes alone, in this order. OSError."""
        digest = hashlib.sha256(words.encode())
        with self._lock, concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
            for file in files:
                identity = _identity(file.stat())
                found = self._known.pop(identity, None)
                settled = time.time_ns() - SETTLED_NS
                if found is None:
                    identity, found = _digest_file(file, threads)
                    self._saved = False
                if max(identity[3:]) < settled:
                    self._known[identity] = found
                digest.update(f"\0{file.name if named else ''}\0{found}".encode())
            while len(self._known) > REMEMBERED_MAX:
                del self._known[next(iter(self._known))]
        return FORM + digest.hexdigest()

    def save(self):
        """Remembers what is new for the next start. Says so where it cannot."""
        with self._lock:
            rows = [[*identity, digest] for identity, digest in self._known.items()]
            saved, self._saved = self._saved, True
        if saved:
            return
        text = json.dumps(rows)
        temporary = self._path.with_name(REMEMBERED + ".tmp")
        try:
            temporary.unlink(missing_ok=True)
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w") as out:
                out.write(f"{_checksum(text)}\n{text}\n")
            os.replace(temporary, self._path)
        except OSError as error:
            _log.warning("Cairn: weights are read at every start, since %s cannot be written: %s", self._path, error)

    def _load(self):
        """Nothing, if the file is damaged: then weights are read again."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as held:
                checksum, _, text = held.read(REMEMBERED_BYTES_MAX).decode().rstrip("\n").partition("\n")
            if checksum != _checksum(text):
                return {}
            known = {tuple(map(int, identity)): str(digest) for *identity, digest in json.loads(text)}
            return {identity: digest for identity, digest in known.items() if len(identity) == 5}
        except (OSError, ValueError, TypeError):
            return {}


def _checksum(text):
    return hashlib.sha256(text.encode()).hexdigest()
