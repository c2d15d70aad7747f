# SPDX-License-Identifier: Apache-2.0
"""The corpus: the King James text of Debian's bible-kjv-text package, decoded from its own file.

/usr/lib/bible.data ("EC02 Compressed Data File") is big-endian: at 0x54 the window size, the number
of windows and the offset of the first window, then the offsets of the others. The three-byte header
of Unix compress (1f 9d 90) is stored once, before the first window; every window is a compress
stream without it, so `gzip -dc` reads header plus window. The output is one title line and then
one verse a line: "Ge1:1 In the beginning ...".
"""

import re
import struct
import subprocess

BIBLE_DATA = "/usr/lib/bible.data"

# Whole books that training never sees: a history, a book of wisdom, a prophet and a letter.
HELD_OUT_BOOKS = ("Jdgs", "Eccl", "Jonah", "Phi")

_VERSE = re.compile(r"^([0-9]?[A-Za-z]+)([0-9]+):([0-9]+) (.*)$")


def decode_package(path=BIBLE_DATA):
    """The package's text, one verse a line, with references."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"EC02":
        raise ValueError(f"{path}: not an EC02 file")
    window_count = struct.unpack(">I", data[0x58:0x5C])[0]
    offsets = struct.unpack(f">{window_count}I", data[0x5C:0x5C + 4 * window_count]) + (len(data),)
    header = data[offsets[0] - 3:offsets[0]]
    text = b""
    for begin, end in zip(offsets, offsets[1:]):
        window = header + data[begin:end]
        gzip = subprocess.run(["gzip", "-dc"], input=window, stdout=subprocess.PIPE, check=True)
        text += gzip.stdout
    return text.decode("ascii")


def books(text):
    """{book: text}: one verse a line, a blank line between chapters, no references."""
    result = {}
    last_chapter = None
    for line in text.splitlines()[1:]:
        book, chapter, _, verse = _VERSE.match(line).groups()
        if book not in result:
            result[book] = ""
        elif chapter != last_chapter:
            result[book] += "\n"
        result[book] += verse + "\n"
        last_chapter = chapter
    return result


def split(all_books):
    """(training books, held-out books), both {book: text}."""
    missing = [book for book in HELD_OUT_BOOKS if book not in all_books]
    if missing:
        raise ValueError(f"the package has no book named {missing}")
    training = {name: text for name, text in all_books.items() if name not in HELD_OUT_BOOKS}
    held_out = {name: all_books[name] for name in HELD_OUT_BOOKS}
    return training, held_out
