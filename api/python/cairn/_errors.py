# SPDX-License-Identifier: Apache-2.0
"""One exception for each code of cairn::Status. Branch on the class; messages are for people."""


class Error(Exception):
    """The base class of all errors of Cairn.

    code: the name of the status code, as "NotFound". reason: which of several causes, as
    "NamespaceQuota", or None. message: file, offset, field or argument, what was expected and found.
    """

    code = ""
    reason = None

    @property
    def message(self):
        return self.args[0] if self.args else ""

    def __str__(self):
        return self.message


class NotFound(Error, LookupError):
    """No such store, branch, model or file."""


class AlreadyExists(Error):
    """The name is taken."""


class InvalidArgument(Error, ValueError):
    """The call can never succeed as written; the message names the argument."""


class InvalidState(Error):
    """Closed, used in a child after fork(), or not while paused."""


class Conflict(Error):
    """expected_length differs; the message names the real one."""


class ModelMismatch(Error):
    """State of one model offered to another; names the field."""


class Corruption(Error):
    """Stored bytes fail their check; names file and offset."""


class Evicted(Error):
    """Positions have no KV any more, or were never given any."""


class Expired(Error):
    """Not raised yet: a branch that expired is dropped, so NotFound."""


class Stale(Error):
    """A reader fell behind the writer; refresh and retry."""


class NoSpace(Error):
    """max_bytes or the disk is full; nothing of the call was written."""


class Busy(Error):
    """Buffers are full right now; retry later."""


class Poisoned(Error):
    """A write of the log failed earlier; reopen the store to write again."""


class UnknownOutcome(Error):
    """Cut after its write was issued; expected_length settles it."""


class IoError(Error):
    """The operating system refused; names call, file and errno."""


class ReadOnly(Error):
    """The store was opened for reading only."""


class Locked(Error):
    """Another process owns the store for writing."""


class UnsupportedFormat(Error):
    """The file is of a newer format than this library knows."""


class Cancelled(Error):
    """Cut before anything was written."""


class DeadlineExceeded(Error, TimeoutError):
    """Its deadline passed before anything was written."""


class OutOfMemory(Error, MemoryError):
    """An allocation failed; the call left no trace."""


def described(error):
    """For a line of a log, where no traceback shows the class."""
    return f"{type(error).__name__}: {error}"


BY_CODE = {kind.__name__: kind for kind in Error.__subclasses__()}
for _name, _kind in BY_CODE.items():
    _kind.code = _name
for _kind in Error, *BY_CODE.values():
    _kind.__module__ = "cairn"  # So a traceback says cairn.NotFound.

__all__ = ["Error", *BY_CODE]
