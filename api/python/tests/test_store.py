# SPDX-License-Identifier: Apache-2.0
"""Opening, closing, errors, and what a store reports about itself."""

import gc
import inspect
import logging
import pydoc
import subprocess
import sys
import traceback

import numpy
import pytest

import cairn
from cairn import _shared


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
    with pytest.raises(cairn.Locked, match="LOCK: held by another opening in this process"):
        cairn.Store(tmp_path / "store")
    del chat
    cairn.Store(tmp_path / "store").close()


def test_locked_names_the_process_that_has_the_store(tmp_path):
    code = "import cairn, sys; s = cairn.Store(sys.argv[1], create_if_missing=True); print(flush=True); input()"
    command = [sys.executable, "-c", code, tmp_path / "store"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(cairn.Locked, match=f"LOCK: held by process {holder.pid}$"):
            cairn.Store(tmp_path / "store")
        holder.stdin.write(b"\n")


OPENING = """
import cairn, ctypes, sys
options = dict(max_memory_bytes="64MiB", hot_tail_bytes="16MiB", reuse_memory_bytes="1MiB")
def resident_mib():
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
cairn.Store(sys.argv[1] + "/empty", create_if_missing=True, **options).close()
before = resident_mib()
store = cairn.Store(sys.argv[1] + "/full", **options)
print(resident_mib() - before, len(store.namespaces()))
"""


def test_a_namespace_takes_memory_only_while_its_branches_do(tmp_path, spec):
    """Each cache_salt of vLLM is one. Those that are not in use took 265 bytes each: 25 MiB of these."""
    with cairn.Store(tmp_path / "full", create_if_missing=True, segment_bytes="4MiB") as store:
        model = store.register_model(spec)
        for i in range(100_000):
            store.create_branch(model, "x", namespace=f"{i:064x}", durability="memory").append([1], durability="memory")
        store.compact()
    command = [sys.executable, "-c", OPENING, tmp_path]
    opened = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    mib, namespaces = opened.split()
    assert float(mib) < 10 and int(namespaces) == 100_000


def test_errors_have_a_class_for_their_code(tmp_path):
    with pytest.raises(cairn.NotFound) as caught:
        cairn.Store(tmp_path / "none")
    error = caught.value
    assert isinstance(error, cairn.Error) and isinstance(error, LookupError)
    assert error.code == "NotFound" and error.message and str(error) == error.message
    # A traceback's last line has the class once.
    assert traceback.format_exception_only(error) == [f"cairn.NotFound: {error.message}\n"]
    assert len(cairn.Error.__subclasses__()) == 21
    assert issubclass(cairn.DeadlineExceeded, TimeoutError) and issubclass(cairn.InvalidArgument, ValueError)


def test_options(tmp_path):
    with pytest.raises(TypeError, match="creat_if_missing.; did you mean 'create_if_missing'"):
        cairn.Store(tmp_path / "a", creat_if_missing=True)
    with pytest.raises(TypeError, match='no option "zzz"$'):
        cairn.Store(tmp_path / "a", zzz=1)
    with pytest.raises(cairn.InvalidArgument, match="max_memory_bytes"):
        cairn.Store(tmp_path / "a", create_if_missing=True, max_memory_bytes=1)
    with pytest.raises(cairn.InvalidArgument, match='max_bytes: "much" is no size; one is written as "20GiB"'):
        cairn.Store(tmp_path / "a", max_bytes="much")
    with pytest.raises(cairn.InvalidArgument, match="never, kv, branches"):
        cairn.Store(tmp_path / "a", evict="all")
    with pytest.raises(cairn.InvalidArgument, match="spare_segments_min: -1 is no value for it; it is from 0 to 4294967295"):
        cairn.Store(tmp_path / "a", spare_segments_min=-1)
    with cairn.Store(":memory:", backend="threads", evict="kv") as store:
        assert store.io_name == "memory"


def test_sizes_are_numbers_or_text(tmp_path):
    with cairn.Store(":memory:", max_bytes="64 GiB", max_memory_bytes="64MiB", hot_tail_bytes=1 << 20) as store:
        assert store.metrics()["max_bytes"] == 64 << 30
        store.set_namespace("a", cairn.NamespacePolicy(max_bytes="2GB"))
        assert [n.policy.max_bytes for n in store.namespaces()] == [2_000_000_000]
    for wrong in "1.5GiB", "-1", "GiB", "1 XiB", "1K", "20000000TiB", "":
        with pytest.raises(cairn.InvalidArgument, match="max_bytes: .* is no size"):
            cairn.Store(tmp_path / "a", max_bytes=wrong)
        with pytest.raises(cairn.InvalidArgument, match="max_bytes: .* is no size"):
            cairn.NamespacePolicy(max_bytes=wrong)


def test_help_shows_the_options_and_their_defaults():
    text = pydoc.render_doc(cairn.Store, renderer=pydoc.plaintext)
    for option in "create_if_missing: bool = False", "max_memory_bytes: int | str = 1073741824", "evict: str = 'never'":
        assert option in text


def test_a_wrong_argument_is_named(store, spec):
    model = store.register_model(spec)
    branch = store.create_branch(model, "chat")
    for call, kind, said in (
        (lambda: branch.fork(-1), ValueError, "fork\\(\\): position: -1 is not from 0 to 18446744073709551615"),
        (lambda: branch.fork("1"), TypeError, "fork\\(\\): position: '1' is no int"),
        (lambda: store.create_branch(model, nam="x"), TypeError, "create_branch\\(\\) has no argument 'nam'; did you mean 'name'"),
        (lambda: store.create_branch(), TypeError, "create_branch\\(\\): missing a required argument: 'model'"),
        (lambda: branch.append([1], durability=5), TypeError, "append\\(\\): durability: 5 is no str"),
        (lambda: branch.append([1], kvs=None), TypeError, "no argument 'kvs'; did you mean 'kv'"),
    ):
        with pytest.raises(kind, match=said):
            call()
    # A method that is called through its class, with the wrong object before its arguments.
    with pytest.raises(TypeError, match="Store.find_branch\\(\\): self: 3 is no Store"):
        cairn.Store.find_branch(3, "x")
    assert str(inspect.signature(cairn.Branch.fork)).startswith("(self, position: 'int | None' = None")
    assert "position" in cairn.Branch.fork.__doc__


def test_a_refusal_runs_no_code_of_an_argument(store, spec):
    calls = []

    class Position:
        def __index__(self):
            calls.append("index")
            return -1

        def __repr__(self):
            calls.append("repr")
            raise ValueError("no text")

    class Number(int):
        __index__ = Position.__index__
        __repr__ = __str__ = Position.__repr__

        def __format__(self, how):
            return self.__repr__()

    branch = store.create_branch(store.register_model(spec), "chat")
    with pytest.raises(TypeError, match="durability: an object of class Position is no str"):
        branch.append([1], durability=Position())
    with pytest.raises(ValueError, match="position: -7 is not from 0"):
        branch.fork(Number(-7))
    assert calls == []
    with pytest.raises(TypeError):
        branch.fork(Position())
    assert len(calls) <= 1  # By the call itself.
    with pytest.raises(ValueError, match="position: -7 is not from 0"):
        branch.fork(numpy.int64(-7))


def test_handles_of_one_branch_are_equal(store, spec):
    model = store.register_model(spec)
    one, other = store.create_branch(model, "one"), store.create_branch(model, "other")
    again = store.find_branch("one")
    assert one == again and hash(one) == hash(again) and {one: 1}[again] == 1
    assert one != other and one != "one"
    assert len(one) == 0 and one  # True, though it is empty.


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


def test_an_adapter_starts_with_a_damaged_store(tmp_path, spec, caplog):
    path = tmp_path / "store"
    with cairn.Store(path, create_if_missing=True) as store:
        store.create_branch(store.register_model(spec), "chat").append([1, 2, 3])
        store.compact()
    (*_, table) = sorted(path.glob("tables/*.index"))  # The tree's; those of prefixes come before it.
    table.write_bytes(table.read_bytes()[:1000])
    with pytest.raises(cairn.Corruption, match=table.name):
        cairn.Store(path)
    with pytest.raises(cairn.Corruption, match=table.name):
        _shared.acquire(path, {"recovery": "refuse"})
    with caplog.at_level(logging.WARNING):
        store = _shared.acquire(path, {})
    assert table.name in store.recovery_note and table.name in caplog.text
    assert list(path.glob(f"lost/*/{table.name}"))
    store.create_branch(store.register_model(spec), "new").append([1])
    _shared.release(path)
    with cairn.Store(path) as again:
        assert again.find_branch("new").length == 1
