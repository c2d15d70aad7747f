# SPDX-License-Identifier: Apache-2.0
"""Several changes of branches: all of them or none, in this process and the next."""

import numpy as np
import pytest

import cairn


def filled(spec, tokens):
    buffer = cairn.KvBuffer(spec, tokens)
    buffer.bytes[:] = np.random.default_rng(tokens).integers(0, 256, len(buffer.bytes), np.uint8)
    return buffer


def names(store):
    return sorted(info.name for info in store.list_branches()[0])


def test_changes_of_new_and_old_branches_are_one(store, chat, spec):
    chat.append(list(range(10)), filled(spec, 10))
    model = store.register_model(spec)
    batch = store.batch()
    new = batch.create(model, "new")
    kv = filled(spec, 3)
    batch.append(new, [7, 8, 9], kv, expected_length=0)
    twin = batch.fork(chat, 4, "twin")
    batch.append(twin, [5])
    batch.append(chat, [11], expected_length=10)
    assert (new, twin, len(batch)) == (0, 1, 5) and names(store) == ["chat"]
    made = batch.write(durability="power")
    assert [branch.info().name for branch in made] == ["new", "twin"]
    assert made[0].tokens().tolist() == [7, 8, 9] and made[1].tokens().tolist() == [0, 1, 2, 3, 5]
    assert chat.length == 11
    back = cairn.KvBuffer(spec, 3)
    made[0].restore(back)
    assert back == kv

    batch = store.batch()
    batch.rewind(chat, 2)
    batch.rename(made[0], "renamed")
    batch.drop(made[1])
    assert batch.write() == []
    assert chat.tokens().tolist() == [0, 1] and names(store) == ["chat", "renamed"]


def test_a_change_that_is_refused_applies_none_and_is_named(store, chat):
    batch = store.batch()
    batch.append(chat, [1])
    batch.append(chat, [2], expected_length=7)
    with pytest.raises(cairn.Conflict, match="op 1 of the batch"):
        batch.write()
    assert chat.length == 0
    batch = store.batch()
    batch.append(chat, [1])
    batch.fork(chat, 1, "chat")
    with pytest.raises(cairn.AlreadyExists):
        batch.write()
    assert chat.length == 0
    with pytest.raises(cairn.InvalidArgument):
        store.batch().write()


def test_a_batch_may_be_written_again(store, chat):
    batch = store.batch()
    ids = np.array([1, 2], np.uint32)
    batch.append(chat, ids)
    batch.write()
    batch.write(timeout=10)
    assert chat.tokens().tolist() == [1, 2, 1, 2]


def test_what_no_batch_can_name(store, chat, spec, tmp_path):
    batch = store.batch()
    for wrong in (0, -1, 1 << 40, "chat"):
        with pytest.raises(cairn.InvalidArgument, match="branch: "):
            batch.append(wrong, [1])
    with cairn.Store(tmp_path / "other", create_if_missing=True) as other:
        theirs = other.create_branch(other.register_model(spec), "theirs")
        batch.append(theirs, [1])
        with pytest.raises(cairn.InvalidArgument):
            batch.write()
        with pytest.raises(cairn.ModelMismatch):
            batch.create(cairn.Store(":memory:", create_if_missing=True).register_model(
                cairn.ModelSpec.of("another", layers=1, kv_heads=1, head_dim=8, dtype="f16")))
    assert chat.length == 0


def test_it_is_there_in_the_next_process(spec, tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as store:
        batch = store.batch()
        for i in range(20):
            batch.append(batch.create(store.register_model(spec), f"chat {i:2}"), [i], filled(spec, 1))
        assert len(batch.write()) == 20
    with cairn.Store(tmp_path / "store") as store:
        assert names(store) == [f"chat {i:2}" for i in range(20)]
        assert store.find_branch("chat  7").tokens().tolist() == [7]
