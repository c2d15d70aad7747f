# SPDX-License-Identifier: Apache-2.0
"""Tokens, states and the tree of branches."""

import array

import numpy as np
import pytest

import cairn


def test_what_was_appended_is_there_after_a_reopening(tmp_path, spec):
    path = tmp_path / "store"
    kv = cairn.KvBuffer(spec, 3)
    kv.bytes[:] = np.arange(len(kv.bytes)) % 251
    with cairn.Store(path, create_if_missing=True, segment_bytes=1 << 20) as store:
        chat = store.create_branch(store.register_model(spec), "chat", namespace="a")
        assert chat.append([11, 12, 13], kv, durability="power") == 3
        assert chat.durable_length == 3
    with cairn.Store(path) as store:
        chat = store.find_branch("chat", namespace="a")
        back = cairn.KvBuffer(chat.store.models()[0], 3)
        room = np.zeros(3, np.uint32)
        result = chat.restore(back, room)
        assert back == kv and room.tolist() == [11, 12, 13]
        assert (result.begin, result.end, result.kv_ends, result.bytes) == (0, 3, [3], 3 * spec.token_bytes)
        assert store.models()[0].spec == spec


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 2**32 - 1],
        (1, 2, 2**32 - 1),
        [np.int64(1), np.uint8(2), np.uint32(2**32 - 1)],
        np.array([1, 2, 2**32 - 1], np.uint32),
        np.array([1, 2, 2**32 - 1], np.int64),
        np.array([1, 0, 2, 0, 2**32 - 1, 0], np.uint64)[::2],
        array.array("I", [1, 2, 2**32 - 1]),
        memoryview(array.array("L", [1, 2, 2**32 - 1])),
        np.array([1, 2, 2**32 - 1], ">u4"),
        np.array([1, 0, 2, 0, 2**32 - 1, 0], ">i8")[::2],
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_token_ids_come_in_many_forms(chat, ids):
    assert chat.append(ids) == 3
    tokens = chat.tokens()
    assert tokens.dtype == np.uint32 and tokens.tolist() == [1, 2, 2**32 - 1]


@pytest.mark.parametrize("ids", [range(1, 4), range(1, 8, 3)], ids=str)
def test_a_range_of_token_ids(chat, ids):
    chat.append(ids)
    assert chat.tokens().tolist() == list(ids)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u2", "<i2", ">i2", ">i4", ">u4", "<i8", ">u8"])
def test_token_ids_of_every_width_and_byte_order(chat, dtype):
    chat.append(np.array([1, 2, 127], dtype))
    assert chat.tokens().tolist() == [1, 2, 127]


def test_other_arrays_of_the_other_byte_order_are_refused_by_name(chat):
    chat.append([1, 2])
    with pytest.raises(cairn.InvalidArgument, match=">u4, of the other byte order"):
        chat.restore(tokens=np.zeros(2, ">u4"))


@pytest.mark.parametrize(
    "ids, said",
    [
        ([1, -1], r"tokens\[1\]: -1"),
        ([2**32], r"tokens\[0\]: 4294967296"),
        ([1, "x"], r"tokens\[1\]: 'x'"),
        ([1.5], r"tokens\[0\]: 1.5"),
        (np.array([5, -7]), r"tokens\[1\]: -7"),
        (np.array([1.0]), "f64 are no token ids"),
        (np.array([1.0], ">f4"), "f32 are no token ids"),
        (np.array([True, False]), "bool are no token ids"),
        (np.array([5, -7], np.int8), r"tokens\[1\]: -7"),
        (np.array([5, -7], ">i2"), r"tokens\[1\]: -7"),
        (range(-1, 2), r"tokens\[0\]: -1"),
        ([True], r"tokens\[0\]: True"),
        (np.zeros((2, 2), np.uint32), r"shape \[2, 2\]"),
        ("abc", "a str is no array"),
    ],
)
def test_what_is_no_token_id_is_refused_by_place(chat, ids, said):
    with pytest.raises(cairn.InvalidArgument, match=said):
        chat.append(ids)
    assert chat.length == 0


def test_expected_length_makes_a_retry_harmless(chat):
    assert chat.append([1, 2], expected_length=0) == 2
    with pytest.raises(cairn.Conflict, match="2") as caught:
        chat.append([1, 2], expected_length=0)
    assert caught.value.code == "Conflict" and caught.value.reason is None
    assert chat.length == 2 and len(chat) == 2


def test_the_tree(store, chat, spec):
    chat.append(range_of(10))
    twin = chat.fork(4, "twin")
    assert twin.tokens().tolist() == [0, 1, 2, 3]
    assert chat.fork().length == 10
    twin.append([77])
    chat.rewind(2)
    assert chat.tokens().tolist() == [0, 1] and twin.tokens(2).tolist() == [2, 3, 77]
    twin.rename("other")
    assert [info.name for info in store.list_branches("oth")[0]] == ["other"]
    with pytest.raises(cairn.NotFound):
        store.find_branch("twin")
    with pytest.raises(cairn.AlreadyExists):
        store.create_branch(store.models()[0], "other")
    assert store.get_branch(twin.id).length == 5
    assert [(step.begin, step.end) for step in twin.path()][-1][1] == 5
    twin.drop()
    with pytest.raises(cairn.NotFound):
        twin.append([1])
    first, cursor = store.list_branches(limit=1)
    assert len(first) == 1 and cursor
    second, _ = store.list_branches(limit=1, cursor=cursor)
    assert len(second) == 1 and second[0].id != first[0].id


def range_of(count):
    return np.arange(count, dtype=np.uint32)


def test_states_belong_to_positions(chat):
    sampler = cairn.SamplerState("named", blob_name="mine", blob=b"\0\1\2", temperature=0.5, last_logits=[1.0, 2.0])
    chat.append([1, 2], sampler=sampler, metadata=cairn.Metadata(b"{}", "application/json"))
    chat.append([3])
    assert chat.sampler_at() == (2, sampler)
    position, metadata = chat.metadata_at(2)
    assert (position, metadata.bytes, metadata.content_type) == (2, b"{}", "application/json")
    assert sampler.blob == b"\0\1\2" and sampler.generator == "named" and sampler.last_logits == [1.0, 2.0]
    with pytest.raises(cairn.NotFound):
        chat.sampler_at(1)
    with pytest.raises(cairn.InvalidArgument, match="sampler: a dict"):
        chat.append([4], sampler={})


def test_content_spans(chat):
    span = cairn.ContentSpan(1, 3, (5, 2**63), atomic=True)
    chat.append([1, 2, 3, 4], spans=[span])
    assert chat.spans() == [span] and chat.spans(3) == []
    with pytest.raises(cairn.Error):
        chat.fork(2)


def test_namespaces_and_keep(store, spec):
    model = store.register_model(spec)
    policy = cairn.NamespacePolicy(max_bytes=1 << 30, evict="kv", ttl=60.0, persist="turn_end", index="none")
    store.set_namespace("tenant", policy)
    branch = store.create_branch(model, "a", namespace="tenant", keep=cairn.Keep(pinned=True, priority=3))
    (info,) = [one for one in store.namespaces() if one.name == "tenant"]
    assert info.policy == policy and info.branches == 1
    assert (policy.max_bytes, policy.evict, policy.ttl, policy.persist, policy.index) == (
        1 << 30, "kv", 60.0, "turn_end", "none")
    store.set_namespace("documents", cairn.NamespacePolicy(index="chunks"))
    assert [one.policy.index for one in store.namespaces() if one.name == "documents"] == ["chunks"]
    assert cairn.NamespacePolicy().max_bytes is None and cairn.NamespacePolicy().evict is None
    branch.set_keep(cairn.Keep(ttl=2.5))
    assert branch.info().keep == cairn.Keep(ttl=2.5) and branch.info().keep.ttl == 2.5


def test_a_word_that_does_not_exist_is_refused_with_those_that_do(chat):
    with pytest.raises(cairn.InvalidArgument, match='durability: "safe" is none of memory, process, power'):
        chat.append([1], durability="safe")
