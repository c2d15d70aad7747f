# SPDX-License-Identifier: Apache-2.0
"""Objects: bytes under keys of the caller's own."""

import asyncio
import ctypes

import numpy as np
import pytest

import cairn


@pytest.fixture
def objects(store):
    return cairn.Objects(store)


def test_what_was_put_is_got(objects):
    pages = objects.register_class("kv", page_bytes=4096, dtype="bf16")
    assert objects.register_class("kv", page_bytes=4096, dtype="bf16") == pages
    values = [np.random.default_rng(i).integers(0, 2**16, 3000, np.uint16) for i in range(3)]
    assert objects.put([(f"k{i}", value) for i, value in enumerate(values)], object_class=pages) == [True] * 3
    assert objects.put([(b"k0", b"other")], object_class=pages) == [False]
    rooms = [np.zeros(3000, np.uint16) for _ in range(4)]
    got = objects.get([(f"k{i}", room) for i, room in enumerate(rooms)])
    assert got[:3] == [6000] * 3 and isinstance(got[3], cairn.NotFound)
    assert all(np.array_equal(a, b) for a, b in zip(values, rooms))
    (short,) = objects.get([("k0", bytearray(10))])
    assert isinstance(short, cairn.InvalidArgument)
    assert objects.put([("k0", b"new")], object_class=pages, replace=True) == [True]
    room = bytearray(3)
    assert objects.get([("k0", room)]) == [3] and room == b"new"


def test_memory_of_ctypes(objects):
    """Its buffers leave their strides out."""
    number, page = objects.register_class("pages", page_bytes=64), bytearray(b"0123456789abcdef" * 4)
    room = bytearray(64)
    for kind in (ctypes.c_ubyte, ctypes.c_char, ctypes.c_uint16):
        array = kind * (64 // ctypes.sizeof(kind))
        objects.put([("a", array.from_buffer(page))], object_class=number, replace=True)
        assert objects.get([("a", array.from_buffer(room))]) == [64] and room == page
        page.reverse()


def test_what_is_there(objects, store):
    raw = objects.register_class("raw")
    objects.put([(bytes([i]), b"x" * i) for i in range(1, 100)], object_class=raw, namespace="n", depths=range_list(99))
    found = objects.exists([b"\1", b"\2", b"\0", b"\3"], namespace="n")
    assert [found[i] for i in range(4)] == [True, True, False, True] and (found.count, found.leading) == (3, 2)
    info = objects.stat(b"\7", namespace="n")
    assert (info.key, info.object_class, info.bytes, info.depth, info.pinned) == (b"\7", "raw", 7, 6, False)
    first, cursor = objects.list(namespace="n", limit=60)
    rest, end = objects.list(namespace="n", limit=60, cursor=cursor)
    assert [one.key for one in first + rest] == [bytes([i]) for i in range(1, 100)] and end == b""
    objects.touch([b"\1"], namespace="n")
    gone = objects.delete([b"\1", b"\0"], namespace="n")
    assert gone[0] is None and isinstance(gone[1], cairn.NotFound)
    (usage,) = [one for one in objects.usage() if one.name == "n"]
    assert usage.branches == 98
    objects.set_policy("n", cairn.NamespacePolicy(max_bytes=1 << 30, evict="kv"))
    with pytest.raises(cairn.NotFound):
        objects.stat(b"\1", namespace="n")


def range_list(count):
    return list(range(count))


def test_what_is_no_object_is_refused_by_name(objects):
    raw = objects.register_class("raw")
    readonly = np.zeros(4, np.uint8)
    readonly.flags.writeable = False
    for call, said in [
        (lambda: objects.put([("a", b"1"), "b"], object_class=raw), r"items\[1\]: must be a tuple"),
        (lambda: objects.put([(5, b"1")], object_class=raw), "key: a int is neither"),
        (lambda: objects.put([("a", np.zeros((4, 4))[:, ::2])], object_class=raw), r"items\[0\]: is not contiguous"),
        (lambda: objects.get([("a", readonly)]), r"items\[0\]: is read only"),
        (lambda: objects.put([("a", b"1")], object_class=raw, depths=[1, 2]), "depths"),
        (lambda: objects.register_class("x", page_bytes=1), "page_bytes"),
    ]:
        with pytest.raises(cairn.InvalidArgument, match=said):
            call()


def test_awaited(objects):
    raw = objects.register_class("raw")

    async def main():
        puts = objects.put_async([(f"k{i}", np.full(5000, i, np.uint8)) for i in range(20)], object_class=raw)
        sizes = [await ticket for ticket in puts]
        rooms = [np.zeros(5000, np.uint8) for _ in range(20)]
        gets = objects.get_async([(f"k{i}", room) for i, room in enumerate(rooms)] + [("none", bytearray(1))])
        got = [await ticket for ticket in gets[:-1]]
        with pytest.raises(cairn.NotFound):
            await gets[-1]
        return sizes, got, all(np.all(room == i) for i, room in enumerate(rooms))

    assert asyncio.run(main()) == ([5000] * 20, [5000] * 20, True)


def test_a_single_key_is_no_list_of_keys(store):
    objects = cairn.Objects(store)
    for keys in "key", b"key":
        for call in objects.exists, objects.touch, objects.delete:
            with pytest.raises(cairn.InvalidArgument, match="keys: a single key; give a list of keys"):
                call(keys)


def test_put_raises_unless_asked_not_to():
    with cairn.Store(":memory:", segment_bytes=1 << 20, max_bytes="16MiB") as store:
        objects = cairn.Objects(store)
        raw = objects.register_class("raw")
        items = [("large", np.random.default_rng(0).bytes(20 << 20)), ("small", b"1")]
        with pytest.raises(cairn.NoSpace):
            objects.put(items, object_class=raw)
        large, small = objects.put(items, object_class=raw, raises=False)
        assert isinstance(large, cairn.NoSpace) and small is False  # The first call had stored it.
