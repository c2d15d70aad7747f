# SPDX-License-Identifier: Apache-2.0
"""The settings in the header of a GGUF file, read as if an enemy had written it: no length is believed.

  "GGUF", u32 version, u64 tensors, u64 pairs; a pair: text key, u32 type, value; a text: u64 length and bytes;
  an array: u32 type, u64 count, values
"""

import mmap
import os
import pathlib
import re
import struct

from ._errors import Corruption, InvalidArgument, NotFound, UnsupportedFormat

VERSIONS = (2, 3)
PAIRS_MAX = 1 << 16
TEXT_MAX = 1 << 16  # Bytes of a text that is kept; longer ones, such as chat templates, are passed over.
ARRAY_MAX = 1 << 12  # Numbers of an array that is kept: one a layer.
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class _Header:
    def __init__(self, path, memory):
        self.path, self.memory, self.at = path, memory, 0

    def take(self, form):
        begin = self.skip(struct.calcsize(form))
        return struct.unpack_from(form, self.memory, begin)[0]

    def skip(self, count):
        if count > len(self.memory) - self.at:
            raise Corruption(f"{self.path}: ends within its settings, at byte {self.at}")
        self.at += count
        return self.at - count

    def text(self):
        count = self.take("<Q")
        begin = self.skip(count)
        return self.memory[begin:begin + count].decode(errors="replace") if count <= TEXT_MAX else ""

    def value(self, kind):
        """None: it is of no use here."""
        if kind == _TEXT:
            return self.text()
        if kind in _NUMBERS:
            return self.take(_NUMBERS[kind])
        if kind != _ARRAY:
            raise Corruption(f"{self.path}: a value of type {kind}, at byte {self.at}")
        inner, count = self.take("<I"), self.take("<Q")
        if inner in _NUMBERS:
            if count > ARRAY_MAX:
                self.skip(count * struct.calcsize(_NUMBERS[inner]))
                return None
            return [self.take(_NUMBERS[inner]) for _ in range(count)]
        if inner != _TEXT or count > len(self.memory):
            raise Corruption(f"{self.path}: an array of {count} values of type {inner}, at byte {self.at}")
        for _ in range(count):
            self.skip(self.take("<Q"))
        return None


def settings_of(path):
    """{key: number, text or list of numbers}. InvalidArgument: it is no GGUF file. NotFound, UnsupportedFormat,
    Corruption."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"model: there is no {path}") from None
    try:
        if os.fstat(file).st_size < 24 or os.pread(file, 4, 0) != b"GGUF":
            raise InvalidArgument(f"model: {path} is no GGUF file")
        with mmap.mmap(file, 0, prot=mmap.PROT_READ) as memory:
            return _pairs(_Header(path, memory))
    finally:
        os.close(file)


def _pairs(header):
    header.skip(4)
    version = header.take("<I")
    if version not in VERSIONS:
        raise UnsupportedFormat(f"{header.path}: GGUF of version {version}; 2 and 3 are known")
    header.skip(8)
    count = header.take("<Q")
    if count > PAIRS_MAX:
        raise Corruption(f"{header.path}: {count} settings; at most {PAIRS_MAX}")
    found = {}
    for _ in range(count):
        key = header.text()
        value = header.value(header.take("<I"))
        if value is not None:
            found[key] = value
    return found


def parts_of(path):
    """The files of a model that was split, of which `path` is one; else that file alone. NotFound: one is missing."""
    path = pathlib.Path(path)
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    parts = [path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf") for number in range(1, int(match[3]) + 1)]
    for part in parts:
        if not part.exists():
            raise NotFound(f"model: there is no {part}, a part of {path.name}")
    return parts
