# SPDX-License-Identifier: Apache-2.0
"""The limits of an adapter's store where the user gives none: a cache that fills the disk and then refuses helps none.

A store that is made gets them, and a file in its directory keeps them for later openings. A store without that file was
made by an earlier version or another program: it keeps everything until its disk is full, as it always did.
"""

import json
import logging
import os
import pathlib
import shutil

REMEMBERED = "DEFAULTS"  # In the store's directory (engine/store/store_directory.cc).
FREE_SHARE = 0.8  # The disk's: other programs write there, too.
EVICT = "branches"  # The least recently used KV goes first; whole branches once there is no KV to take.
# The fewest segments that a store needs (cairn/options.h). Where that is more than the share, the disk is the limit.
SEGMENTS_MIN = 10
SEGMENT_BYTES = 64 << 20
SEGMENT_BYTES_MAX = 1 << 30
MODE = 0o600  # As the library makes files.


def fill(path, options):
    """(`options` of cairn.Store with the limits that they leave open, [(level, line of a log)] to report once it is
    open).

    Makes the directory, if the store is to be made. Leaves all errors to the store.
    """
    path = pathlib.Path(path)
    new = _is_new(path)
    if options.get("read_only") or new and not (options.get("create_if_missing") and path.parent.is_dir()):
        return options, []
    lines = []
    if new:
        limits = _of_the_disk(path, options)
        _save(path, limits, options.get("file_mode", MODE), lines)
    else:
        limits = _load(path, lines)
    filled = {**limits, **options}
    if filled != options:
        # The user of a new store may not know; at later starts the store has reported it before.
        lines.append((logging.WARNING if new else logging.INFO, _described(path, new, filled, "max_bytes" in options)))
    return filled, lines


def _is_new(path):
    return not any(path.glob("MANIFEST-*"))


def _of_the_disk(path, options):
    segment = options.get("segment_bytes", SEGMENT_BYTES) or SEGMENT_BYTES
    if not isinstance(segment, int):
        segment = SEGMENT_BYTES_MAX  # A text, which the library reads.
    max_bytes = int(shutil.disk_usage(path.parent).free * FREE_SHARE)
    return {"evict": EVICT} | ({"max_bytes": max_bytes} if max_bytes >= SEGMENTS_MIN * segment else {})


def _described(path, new, options, given):
    words = []
    if "max_bytes" in options:
        share = "" if given else f", {FREE_SHARE:.0%} of what the disk {'has' if new else 'had'} free" + (
            "" if new else " when it was made")
        words.append(f"max_bytes is {_size(options['max_bytes'])}{share}")
    if options.get("evict", "never") != "never":
        words.append("what was not used for longest is evicted when room runs out")
    return (f"Cairn: {path}{' is a new store' if new else ''}: {', and '.join(words)}. The options max_bytes and evict "
            "change that")


def _size(value):
    if not isinstance(value, int):
        return value
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _save(path, limits, mode, lines):
    temporary = path / (REMEMBERED + ".tmp")
    try:
        if not path.exists():
            path.mkdir(mode | (mode & 0o444) >> 2)  # Who may read files may enter.
        temporary.unlink(missing_ok=True)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(file, "w") as out:
            out.write(json.dumps(limits) + "\n")
        os.replace(temporary, path / REMEMBERED)
    except OSError as error:
        lines.append((logging.WARNING, f"Cairn: the limits of {path} hold until it is closed, since they cannot be "
                                       f"kept: {error}"))


def _load(path, lines):
    """What is in the file. Nothing where there is none; of one that cannot be read a warning says so."""
    file = path / REMEMBERED
    try:
        limits = json.loads(file.read_text())
        if not isinstance(limits, dict) or not limits.keys() <= {"max_bytes", "evict"}:
            raise ValueError("is not what Cairn wrote")
        return limits
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        lines.append((logging.WARNING, f"Cairn: {file}: {error}; the store has no limits but those that are given"))
        return {}
