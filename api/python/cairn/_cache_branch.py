# SPDX-License-Identifier: Apache-2.0
"""The branch of a cache: which ids it has, and up to where they and their KV are those of the cache."""

from ._errors import Conflict, InvalidArgument

ON_CONFLICT = ("raise", "fork", "rewind")


def agreement(a, b, begin=0):
    """Up to where two lists are equal, if they are up to `begin`."""
    end = min(len(a), len(b))
    return next((at for at in range(begin, end) if a[at] != b[at]), end)


def check_on_conflict(on_conflict):
    if on_conflict not in ON_CONFLICT:
        raise InvalidArgument(f"on_conflict: '{on_conflict}' is none of {', '.join(ON_CONFLICT)}")


def fork_in_place(branch, position, durability):
    """A fork that takes over the name, so that the conversation goes on under it: the branch is called
    <name>@<its id> from then on. Both or nothing, also after a crash."""
    info = branch.info()
    batch = branch.store.batch()
    if info.name:
        batch.rename(branch, f"{info.name}@{branch.id}")
    fork = batch.fork(branch, position, info.name, namespace=info.namespace, keep=info.keep)
    return batch.write(durability=durability)[fork]


class CacheBranch:
    """Ids that the branch had when it was opened, and what was written to it since.

    kept: up to here its ids are those of the cache and it has their KV, so that only what is behind has to be written.
    exact_to: KV that is written from here on is approximate; None: all is exact.
    """

    def __init__(self, branch, durability, on_conflict):
        check_on_conflict(on_conflict)
        self.branch, self.durability, self.on_conflict = branch, durability, on_conflict
        self._see()
        self.ids = branch.tokens().tolist()
        self.kept = 0
        self.exact_to = None

    def approximate(self, position):
        """Says so of what is written from there on."""
        self.exact_to = position if self.exact_to is None else min(position, self.exact_to)

    def _is_exact(self, begin):
        return self.exact_to is None or begin < self.exact_to

    def meet(self, ids):
        """How many of the ids it has. Where it has others behind them, it is left there."""
        same = agreement(ids, self.ids)
        if same < min(len(ids), len(self.ids)):
            self._leave(same)
        return same

    def settle(self, ids, whole, rewind):
        """Sees that it has no other ids than these, and with `whole` no more than these."""
        same = agreement(ids, self.ids, self.kept)
        if same == len(self.ids):
            return
        if rewind:
            self._check_unchanged()
            self._rewind(same)
        elif whole or same < len(ids):
            self._leave(same)

    def crop(self, length):
        self.kept = min(self.kept, length)
        if self.exact_to is not None and length <= self.exact_to:
            self.exact_to = None  # Nothing that is approximate is left.

    def fill(self, kv, end):
        """Stores KV of ids up to `end`, which it has."""
        self._check_unchanged()
        self.branch.fill(kv, exact=self._is_exact(end - 1), expected_length=len(self.ids), durability=self.durability)
        self.kept = end
        self._see()

    def append(self, ids, kv, end, sampler, metadata=None):
        """Appends ids, whose KV goes up to `end`."""
        self._check_unchanged()
        self.branch.append(ids, kv, exact=self._is_exact(end - 1), expected_length=len(self.ids),
                           durability=self.durability, sampler=sampler, metadata=metadata)
        self.ids += ids
        self.kept = end
        self._see()

    def _leave(self, position):
        self._check_unchanged()  # Else it may have other ids below the position, too.
        if self.on_conflict == "raise":
            raise Conflict(f"tokens: the branch has others from position {position} on; fork it there, or give "
                           "on_conflict='fork' or 'rewind'")
        if self.on_conflict == "rewind":
            self._rewind(position)
        else:
            self.branch = fork_in_place(self.branch, position, self.durability)
            self._end_at(position)

    def _see(self):
        self._seen = self.branch.info().updated_at_ns

    def _check_unchanged(self):
        """Conflict: another handle has written to it, perhaps other ids up to the same length."""
        if self.branch.info().updated_at_ns != self._seen:
            raise Conflict("branch: another one has written to it since this cache did; open it again")

    def _rewind(self, position):
        self.branch.rewind(position, durability=self.durability)
        self._end_at(position)

    def _end_at(self, position):
        del self.ids[position:]
        self.crop(position)
        self._see()
