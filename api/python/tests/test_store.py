# SPDX-License-Identifier: Apache-2.0
"""Opening, closing, errors, and what a store tells about itself."""

import gc

import pytest

import cairn


def test_a_closed_store_raises(tmp_path, spec):
    store = cairn.Store(tmp_path / "store", create_if_missing=True)
    model = store.register_model(spec)
    chat = store.create_branch(model)
    store.close()
    store.close()
    for call in (lambda: chat.append([1]), lambda: chat.length, lambda: store.create_branch(model), store.flush,
                 lambda: chat.append_async([1]), lambda: chat.restore(cairn.KvBuffer(spec, 1))):
        with pytest.raises(cairn.InvalidState):
            call()


def test_a_branch_keeps_its_store_open(tmp_path, spec):
    def make():
        store = cairn.Store(tmp_path / "store", create_if_missing=True)
        return store.create_branch(store.register_model(spec))

    chat = make()
    gc.collect()
    assert chat.append([1, 2]) == 2
    with pytest.raises(cairn.Locked):
        cairn.Store(tmp_path / "store")
    del chat
    cairn.Store(tmp_path / "store").close()


def test_errors_have_a_class_for_their_code(tmp_path):
    with pytest.raises(cairn.NotFound) as caught:
        cairn.Store(tmp_path / "none")
    error = caught.value
    assert isinstance(error, cairn.Error) and isinstance(error, LookupError)
    assert error.code == "NotFound" and error.message and str(error) == f"NotFound: {error.message}"
    assert len(cairn.Error.__subclasses__()) == 21
    assert issubclass(cairn.DeadlineExceeded, TimeoutError) and issubclass(cairn.InvalidArgument, ValueError)


def test_options(tmp_path):
    with pytest.raises(TypeError, match="creat_if_missing"):
        cairn.Store(tmp_path / "a", creat_if_missing=True)
    with pytest.raises(cairn.InvalidArgument, match="max_memory_bytes"):
        cairn.Store(tmp_path / "a", create_if_missing=True, max_memory_bytes=1)
    with pytest.raises(cairn.InvalidArgument, match="max_bytes: 'much' is no value for it"):
        cairn.Store(tmp_path / "a", max_bytes="much")
    with pytest.raises(cairn.InvalidArgument, match="never, kv, branches"):
        cairn.Store(tmp_path / "a", evict="all")
    with cairn.Store(":memory:", backend="threads", evict="kv") as store:
        assert store.io_name == "memory"


def test_a_follower_shows_what_is_durable(tmp_path, spec):
    with cairn.Store(tmp_path / "s", create_if_missing=True) as store:
        chat = store.create_branch(store.register_model(spec), "chat")
        chat.append([1, 2])
        store.flush()
        with cairn.Store(tmp_path / "s", read_only=True) as follower:
            seen = follower.find_branch("chat")
            assert seen.length == 2
            with pytest.raises(cairn.ReadOnly):
                seen.append([3])
            chat.append([3])
            store.flush()
            assert follower.refresh() is True and seen.length == 3


def test_what_a_store_tells(tmp_path, spec):
    store = cairn.Store(tmp_path / "store", create_if_missing=True, segment_bytes=1 << 20)
    chat = store.create_branch(store.register_model(spec), "chat")
    chat.append([1, 2, 3])
    metrics = store.metrics()
    assert metrics["tokens_appended"] == 3 and metrics["branches"] == 1 and metrics["save"]["count"] == 1
    assert "cairn_branches 1" in store.prometheus_text()
    assert store.alarms() == [] and store.poisoned is None and store.recovery_note == ""
    store.compact()
    report = store.verify("all")
    assert report.ok and report.damages == []
    store.pause_background()
    store.resume_background()
    store.checkpoint(tmp_path / "copy")
    with cairn.Store(tmp_path / "copy") as copy:
        assert copy.find_branch("chat").length == 3
