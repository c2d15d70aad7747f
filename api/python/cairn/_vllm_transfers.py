# SPDX-License-Identifier: Apache-2.0
"""Loads and saves through slots of shared memory, in the scheduler's process: which rows are where on their way.

A save: a slot for each part of it -> all ranks copy rows in, and report -> appends from the slots. A load: a slot for a
part of it -> restored, by a thread -> all ranks copy rows out, and report -> the next part. cairn.KvSlots says what
may happen to a slot; a message or report that comes late changes nothing.
"""

import collections
import concurrent.futures
import dataclasses
from typing import Any

import cairn

from ._vllm_layout import Rows, rows_of
from ._vllm_messages import Save
from ._vllm_slot_memory import SlotMemory
from ._vllm_slot_messages import Copy, Over

RESTORES_AT_ONCE = 4  # Each is a thread that waits for the store, whose own threads do the work.
LOAD_SHARE = 4  # A load has this part of the slots at most, so that a long one leaves some to others.


class NotCopied(Exception):
    """The slot lacks rows that an append wants, since the store has changed after they were chosen."""


@dataclasses.dataclass(eq=False)
class Part:
    """Positions [begin, end) of a transfer."""

    of: Any  # Load or Saving.
    begin: int
    end: int
    use: Any = None  # cairn.SlotUse, while it has a slot.
    rows: Any = None
    restored: Any = None  # A future: (up to where, why not further).


@dataclasses.dataclass(eq=False)
class Load:
    start: Any  # _vllm_messages.Start
    check: Any  # Called before ranks are told; cairn.Conflict: nothing that was restored is right.
    good: int  # Behind it nothing may be used, once the load has failed.
    waiting: Any  # Parts without a slot, in order.
    parts: set = dataclasses.field(default_factory=set)  # Those with one.
    stopped: bool = False  # It failed, or is given up: no more parts.
    given_up: bool = False
    ends: bool = False  # Ranks were told its last part.

    def fail(self, good):
        self.good, self.stopped = min(self.good, good), True
        self.waiting.clear()


@dataclasses.dataclass(eq=False)
class Saving:
    sequence: Any
    save: Save
    key: Any  # What it begins with, where nothing is stored of it.
    parts: list
    missing: int  # Parts that not all ranks have reported.
    copied: bool = True


class Transfers:
    """Of one engine. Called by one thread.

    ended(start, good): a load is over, of which [start.begin, good) may be used. failed(what, error): something to say.
    """

    def __init__(self, layout, shape, area, ranks, ended, failed):
        self.layout, self.shape, self.ended, self.failed = layout, shape, ended, failed
        self.slots = cairn.KvSlots(area, shape.slot_bytes, ranks)
        self.memory = SlotMemory(layout, shape, area)
        self.loads, self.saves = {}, {}  # By request.
        self.begun = set()  # Keys of saves under way.
        self.waits = 0  # Saves that found no slot, since take_waits().
        self._parts = {}  # Use -> Part
        self._threads = concurrent.futures.ThreadPoolExecutor(RESTORES_AT_ONCE, "cairn-load")

    @property
    def busy(self):
        return bool(self._parts or self.loads)

    # Loads.

    def load(self, start, check):
        step, capacity = self.layout.step, self.shape.capacity
        assert start.begin % step == 0 and capacity % step == 0
        load = Load(start, check, start.end, collections.deque())
        for begin in range(start.begin, start.end, capacity):
            end = min(begin + capacity, start.end)
            rows = rows_of(self.layout, begin, end, start.tables, start.end)
            if rows:
                load.waiting.append(Part(load, begin, end, rows=rows))
        self.loads[start.request_id] = load
        self._restore()

    def stop(self, request_id):
        """Its request is over."""
        load = self.loads.get(request_id)
        if load is None:
            return
        load.given_up = True
        load.fail(load.good)
        for part in load.parts:
            self._leave(part)

    def _restore(self):
        """Has parts restored that find a slot."""
        for load in self.loads.values():
            while load.waiting and len(load.parts) < max(1, self.slots.slots // LOAD_SHARE):
                part = load.waiting[0]
                try:
                    part.use = self.slots.begin_load()
                except cairn.Busy:
                    return
                load.waiting.popleft()
                load.parts.add(part)
                self._parts[part.use] = part
                part.restored = self._threads.submit(self._bring, load.start.hit, part)

    def _bring(self, hit, part):
        """By a thread. (Up to where it is restored, the error that ended it)."""
        try:
            self._bring_rows(hit, part, part.begin, part.end)
            return part.end, None
        except cairn.Conflict as error:
            return part.begin, error
        except cairn.Error as error:
            return self._salvage(hit, part), error

    def _bring_rows(self, hit, part, begin, end):
        hit.restore(self.memory.view(part.use.slot, part.begin, cut(part.rows, begin, end)), begin=begin, end=end,
                    require_kv=True)

    def _salvage(self, hit, part):
        """Block by block up to the first that cannot be; windows and states are not restored in pieces."""
        good, block = part.begin, self.layout.groups[0].block
        if self.layout.asynchronous or self.layout.groups[0].window:
            return good
        while good < part.end:
            end = min((good // block + 1) * block, part.end)
            try:
                self._bring_rows(hit, part, good, end)
            except cairn.Error:
                break
            good = end
        return good

    def tell(self, seconds):
        """(Copies that ranks are to be told, loads that are over without one). Waits for a restore, `seconds` at most."""
        restoring = [part for part in self._parts.values() if part.restored is not None]
        if seconds and restoring:
            concurrent.futures.wait([part.restored for part in restoring], seconds, concurrent.futures.FIRST_COMPLETED)
        copies = []
        for part in sorted(restoring, key=lambda one: one.begin):
            if part.restored.done():
                copies += self._restored(part)
        self._restore()
        for copy in reversed(copies):  # The last of a request ends it.
            load = self.loads[copy.request_id]
            if not (load.stopped or load.waiting or load.ends or any(part.restored for part in load.parts)):
                load.ends, copy.done = True, copy.request_id
        return copies, [over for load in list(self.loads.values()) if (over := self._over(load)) is not None]

    def _restored(self, part):
        load = part.of
        good, error = part.restored.result()
        part.restored = None
        if not load.stopped:
            try:
                load.check()
            except cairn.Conflict as conflict:
                good, error = part.begin, conflict
        if error is not None and not load.stopped:
            self.failed(f"loaded {good - part.begin} of {part.end - part.begin} tokens of request "
                        f"{load.start.request_id}", error)
        if good < part.end:
            load.fail(load.start.begin if isinstance(error, cairn.Conflict) else good)
        if not self.slots.end_restore(part.use, good > part.begin and part.begin < load.good):
            self._drop(part)
            return []
        rows = cut(part.rows, part.begin, good)
        return [Copy(part.use.slot, part.use.number, part.begin, rows, load.start.request_id)]

    def _over(self, load):
        """What ranks are told of a load that ends without a last part. None: it goes on, or they know."""
        if load.parts or load.waiting:
            return None
        start = load.start
        del self.loads[start.request_id]
        self.ended(start, load.good)
        if load.ends:
            return None
        hybrid, bad = self.layout.asynchronous, []
        if load.good < start.end and not hybrid and not load.given_up:
            block = self.layout.groups[0].block
            bad = start.tables[0][load.good // block:-(-start.end // block)]
        return Over(start.request_id, load.good < start.end and hybrid, list(bad))

    # Saves.

    def save(self, sequence, save, begin, key):
        """The copies of as much of positions [begin, save.kv_end) as there are slots for. None of them: it has to wait."""
        saving = Saving(sequence, save, key, [], 0)
        copies = []
        for first in range(begin, save.kv_end, self.shape.capacity):
            part = Part(saving, first, min(first + self.shape.capacity, save.kv_end))
            try:
                part.use = self.slots.begin_save()
            except cairn.Busy:
                break
            part.rows = rows_of(self.layout, first, part.end, save.tables, save.kv_end)
            self._parts[part.use] = part
            saving.parts.append(part)
            copies.append(Copy(part.use.slot, part.use.number, first, part.rows, save.request_id))
        saving.missing = len(copies)
        if copies:
            self.saves[save.request_id] = saving
            self.begun.update(() if key is None else (key,))
        else:
            self.waits += 1
        return copies

    def give_up(self, request_id):
        """A save whose reports do not come."""
        saving = self.saves.get(request_id)
        if saving is not None:
            self._end(saving)

    def _append(self, saving):
        save = saving.save
        for part in saving.parts if saving.copied else ():
            self.slots.begin_append(part.use)
            try:
                tokens = save.tokens[:part.end - save.first]
                drawn = max(0, save.drawn - (save.kv_end - part.end))
                saving.sequence.save(Save(save.request_id, save.first, tokens, part.end, (), drawn),
                                     lambda begin, end: self._view(part, begin, end))
            except NotCopied:
                break  # The next step saves it.
            finally:
                self.slots.end_append(part.use)
                self._parts.pop(part.use)
        self._end(saving)

    def _view(self, part, begin, end):
        if begin < part.begin:
            raise NotCopied
        return self.memory.view(part.use.slot, part.begin, cut(part.rows, begin, end))

    def _end(self, saving):
        del self.saves[saving.save.request_id]
        self.begun.discard(saving.key)
        for part in saving.parts:
            if part.use in self._parts:
                self._leave(part)
                self._drop(part)

    # Both.

    def report(self, report):
        use = cairn.SlotUse(report.slot, report.use)
        try:
            news = self.slots.report(use, report.rank, report.copied)
        except cairn.Error as error:
            self.failed(f"ignores a report of rank {report.rank}", error)
            return
        part = self._parts.get(use)
        if not report.copied:
            self.failed(f"has no copy of rank {report.rank}", cairn.IoError(report.why))
        if part is None:
            return  # It was given up.
        if not report.copied:
            self._not_copied(part)
        if not news.all_reported:
            return
        if isinstance(part.of, Load) or not news.all_copied:
            self._drop(part)
        if isinstance(part.of, Load):
            if part.of.ends:
                self._over(part.of)
            return
        saving = part.of
        saving.missing -= 1
        if saving.missing == 0 and self.saves.get(saving.save.request_id) is saving:
            self._append(saving)

    def _not_copied(self, part):
        if isinstance(part.of, Load):
            part.of.fail(part.begin)
        else:
            part.of.copied = False

    def rank_gone(self, rank):
        """Nothing is copied by it any more: all loads fail, and all saves are given up."""
        for load in self.loads.values():
            load.fail(load.start.begin)
            for part in list(load.parts):
                self._leave(part)
                if part.restored is None:
                    self._drop(part)
        for saving in list(self.saves.values()):
            self._end(saving)
        self.slots.rank_gone(rank)

    def _leave(self, part):
        try:
            self.slots.leave(part.use)
        except cairn.Error:
            pass  # It is over: its last report came, or it is left already.

    def _drop(self, part):
        self._parts.pop(part.use, None)
        if isinstance(part.of, Load):
            part.of.parts.discard(part)

    def take_waits(self):
        waits, self.waits = self.waits, 0
        return waits

    def close(self):
        self._threads.shutdown()
        for load in self.loads.values():
            self.ended(load.start, load.start.begin)
        self.loads.clear()


def cut(rows, begin, end):
    """What lies in positions [begin, end), without their blocks. A state is that of the end."""
    return [Rows(one.group, max(begin, one.begin), min(end, one.end), one.blocks if one.begin >= begin else [])
            for one in rows if max(begin, one.begin) < min(end, one.end)]
