# SPDX-License-Identifier: Apache-2.0
"""Slots of shared memory: what takes a slot from state to state, and that what may not be is named."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import cairn

BYTES, SLOTS = 256, 4


@pytest.fixture
def slots():
    return cairn.KvSlots(np.zeros(SLOTS * BYTES, np.uint8), BYTES, 2)


def test_a_save_waits_for_all_ranks(slots):
    use = slots.begin_save()
    assert slots.state_of(use) == "filling" and slots.missing_reports(use) == 2
    first = slots.report(use, 1)
    assert (first.state, first.all_reported, first.all_copied) == ("filling", False, False)
    with pytest.raises(cairn.InvalidState):
        slots.begin_append(use)
    last = slots.report(use, 0, copied=True)
    assert (last.state, last.all_reported, last.all_copied) == ("filled", True, True)
    slots.begin_append(use)
    assert slots.state_of(use) == "appending"
    slots.end_append(use)
    with pytest.raises(cairn.Stale):
        slots.state_of(use)
    counts = slots.counts()
    assert (counts["slots"], counts["free"], counts["uses"], counts["failed"]) == (SLOTS, SLOTS, 1, 0)


def test_a_load_is_told_when_it_is_restored(slots):
    use = slots.begin_load()
    with pytest.raises(cairn.InvalidState):
        slots.report(use, 0)
    assert slots.end_restore(use) and slots.state_of(use) == "emptying"
    slots.report(use, 0)
    with pytest.raises(cairn.Conflict):
        slots.report(use, 0)
    assert slots.report(use, 1, False).state == "free"
    failed = slots.begin_load()
    assert not slots.end_restore(failed, False)
    assert slots.counts()["strange"] == 2 and slots.counts()["failed"] == 2


def test_a_use_that_is_given_up_keeps_its_slot_until_nobody_touches_it(slots):
    uses = [slots.begin_save() for _ in range(SLOTS)]
    with pytest.raises(cairn.Busy):
        slots.begin_load()
    assert slots.leave(uses[0]) == "left"
    slots.report(uses[0], 0)
    with pytest.raises(cairn.Busy):
        slots.begin_save()
    assert slots.report(uses[0], 1).state == "free"
    load = slots.begin_load()
    assert slots.leave(load) == "left"
    assert not slots.end_restore(load) and slots.counts()["refused"] == 2


def test_no_use_begins_while_a_rank_is_gone(slots):
    use = slots.begin_save()
    slots.report(use, 0)
    slots.rank_gone(1)
    with pytest.raises(cairn.Stale):
        slots.state_of(use)
    with pytest.raises(cairn.Busy):
        slots.begin_save()
    with pytest.raises(cairn.Conflict):
        slots.rank_gone(1)
    slots.rank_came(1)
    with pytest.raises(cairn.Conflict):
        slots.rank_came(1)
    assert slots.begin_save().number > use.number


def test_a_use_is_plain_data(slots):
    use = slots.begin_save()
    again = pickle.loads(pickle.dumps(use))
    assert again == use == cairn.SlotUse(use.slot, use.number) and len({use, again}) == 1
    assert use != cairn.SlotUse(use.slot, use.number + 1) and slots.state_of(again) == "filling"


def test_a_slot_is_the_same_memory_in_another_process(tmp_path):
    area = cairn.SharedMemory.create(str(tmp_path), SLOTS * BYTES)
    slots = cairn.KvSlots(area.bytes, BYTES - 1, 1)
    assert (slots.slot_bytes, slots.ranks) == (BYTES, 1) and slots.slots == len(area.bytes) // BYTES
    slots.begin_save()
    use = slots.begin_save()
    program = ("import sys, cairn\n"
               "area = cairn.SharedMemory.map(sys.argv[1])\n"
               "cairn.KvSlots.memory_of(area.bytes, int(sys.argv[2]), int(sys.argv[3]))[:] = 7\n")
    subprocess.run([sys.executable, "-c", program, area.address, str(BYTES), str(use.slot)], check=True)
    memory = slots.bytes(use)
    del area, slots
    assert memory.tolist() == [7] * BYTES and os.listdir(tmp_path)
    del memory
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_is_named(slots):
    memory = np.zeros(BYTES, np.uint8)
    for slot_bytes, ranks in ((0, 1), (BYTES + 1, 1), (BYTES, 0), (BYTES, 1025)):
        with pytest.raises(cairn.InvalidArgument):
            cairn.KvSlots(memory, slot_bytes, ranks)
    with pytest.raises(cairn.InvalidArgument):
        cairn.KvSlots.memory_of(memory, BYTES, 1)
    with pytest.raises(TypeError):
        cairn.KvSlots(np.zeros((2, BYTES), np.uint8), BYTES, 1)
    with pytest.raises(cairn.InvalidArgument):
        slots.report(slots.begin_save(), 2)
    for call in (slots.begin_append, slots.end_append, slots.leave, slots.bytes, slots.state_of, slots.end_restore):
        with pytest.raises(cairn.InvalidArgument):
            call(cairn.SlotUse(SLOTS, 1))
        with pytest.raises(cairn.Stale):
            call(cairn.SlotUse(2, 99))
    with pytest.raises(cairn.InvalidArgument):
        slots.rank_gone(2)
