# SPDX-License-Identifier: Apache-2.0
"""ObjectQueue: batches of calls on objects that end behind one file descriptor."""

import gc
import select
import sys
import weakref

import numpy as np
import pytest

import cairn
from cairn import ObjectQueue

KEYS = ["a", b"\x00b", "c"]
SPACES = ["", "one", "two"]


@pytest.fixture
def queue(store):
    made = ObjectQueue(store, "pages", page_bytes=4096)
    yield made
    made.close()


def end(queue, number):
    """Outcomes of a batch; no other is under way."""
    poll = select.poll()
    poll.register(queue.fileno(), select.POLLIN)
    assert poll.poll(60_000)
    ended = queue.drain()
    assert not poll.poll(0) and [one[0] for one in ended] == [number]
    return ended[0][1]


def values(*sizes):
    return [(np.arange(size) % 251).astype(np.uint8) for size in sizes]


def test_what_is_put_is_read_in_its_namespace(queue, store):
    put = values(5000, 0, 4096)
    assert end(queue, queue.submit_put(KEYS, put, SPACES)) == [True] * 3
    assert end(queue, queue.submit_exists(KEYS, SPACES)) == [True] * 3
    assert end(queue, queue.submit_exists(KEYS, ["two", "two", "two"])) == [False, False, True]
    room = [np.zeros(one.size, np.uint8) for one in put]
    assert end(queue, queue.submit_get(KEYS, room, SPACES)) == [True] * 3
    assert all((was == is_).all() for was, is_ in zip(put, room))
    assert end(queue, queue.submit_delete(KEYS[:2], ["", ""])) == [True, False]
    assert end(queue, queue.submit_get(KEYS, room, SPACES)) == [False, True, True]
    assert sorted((info.name, info.branches) for info in cairn.Objects(store).usage()) == [("one", 1), ("two", 1)]


def test_one_bad_key_minds_no_other(queue):
    outcomes = end(queue, queue.submit_put(["", "x", "y" * 257], values(10, 10, 10), [""] * 3))
    assert [type(one) for one in outcomes] == [cairn.InvalidArgument, bool, cairn.InvalidArgument]
    for size in (9, 11):
        small, right = values(size, 10)
        short, whole = end(queue, queue.submit_get(["x", "x"], [small, right], ["", ""]))
        assert isinstance(short, cairn.InvalidArgument) and whole is True


def test_arguments_are_refused_by_name(queue, store):
    with pytest.raises(cairn.InvalidArgument, match="namespaces: must be as many as keys"):
        queue.submit_exists(["a", "b"], [""])
    with pytest.raises(cairn.InvalidArgument, match="buffers: must be as many as keys"):
        queue.submit_put(["a"], [], [""])
    with pytest.raises(cairn.InvalidArgument, match=r"buffers\[0\]: a bytes is no contiguous writable memory"):
        queue.submit_get(["a"], [b"1"], [""])
    with pytest.raises(cairn.InvalidArgument, match=r"buffers\[0\]: a ndarray is no contiguous memory"):
        queue.submit_put(["a"], [np.zeros(10, np.uint8)[::2]], [""])
    for wrong in ({"threads": 1}, {"threads": 65}, {"page_bytes": 1}, {"dtype": "f12"}, {"durability": "x"},
                  {"if_present": "x"}):
        with pytest.raises(cairn.InvalidArgument, match=next(iter(wrong))):
            ObjectQueue(store, "others", **{"page_bytes": 4096, **wrong})


def test_close_does_what_was_submitted(store):
    queue = ObjectQueue(store, "pages", page_bytes=4096)
    for number in range(50):
        queue.submit_put([f"{number}"], values(10_000), [""])
    queue.close()
    queue.close()
    assert [outcomes for _, outcomes in queue.drain()] == [[True]] * 50
    with pytest.raises(cairn.InvalidState):
        queue.submit_exists(["0"], [""])


def test_a_closed_store_is_told(store):
    queue = ObjectQueue(store, "pages", page_bytes=4096)
    store.close()
    assert isinstance(end(queue, queue.submit_exists(["0"], [""]))[0], cairn.InvalidState)


def test_memory_is_kept_until_the_end_and_not_longer(queue):
    value = np.zeros(1 << 20, np.uint8)
    gone = weakref.ref(value)
    number = queue.submit_put(["a"], [value], [""])
    del value
    assert gone() is not None
    assert end(queue, number) == [True]
    gc.collect()
    assert gone() is None


def test_calls_leave_no_object_behind(queue):
    room = values(100)
    end(queue, queue.submit_put(["a"], room, [""]))

    def calls(count):
        for _ in range(count):
            end(queue, queue.submit_get(["a"], room, [""]))
            end(queue, queue.submit_exists(["a", "b"], ["", ""]))

    calls(100)
    gc.collect()
    before = sys.getallocatedblocks()
    calls(2000)
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 100
