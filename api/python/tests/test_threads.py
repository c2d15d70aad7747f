# SPDX-License-Identifier: Apache-2.0
"""The interpreter's lock, on_event, and the end of the interpreter."""

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import cairn


def runs_beside(call):
    """Whether another thread runs while `call` does: it does only where the interpreter's lock is let go."""
    ran = threading.Event()
    ready, gate = threading.Event(), threading.Lock()
    gate.acquire()

    def other():
        ready.set()
        with gate:
            ran.set()

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    time.sleep(0.01)  # Now it waits for the gate.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # Nobody is made to let go.
    try:
        gate.release()
        end = time.monotonic() + 5
        while not ran.is_set() and time.monotonic() < end:
            call()
        return ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_what_holds_the_lock_is_told_apart():
    assert not runs_beside(lambda: sum(range(10))) and runs_beside(lambda: time.sleep(0.001))


@pytest.mark.parametrize("name", ["length", "durable_length", "repr", "len", "poisoned", "drain", "wait", "buffer",
                                  "equal"])
def test_calls_run_without_the_interpreters_lock(store, chat, spec, name):
    queue, buffer, other = cairn.CompletionQueue(store), cairn.KvBuffer(spec, 1000), cairn.KvBuffer(spec, 1000)
    call = {
        "length": lambda: chat.length,
        "durable_length": lambda: chat.durable_length,
        "repr": lambda: repr(chat),
        "len": lambda: len(chat),
        "poisoned": lambda: store.poisoned,
        "drain": queue.drain,
        "wait": lambda: queue.wait(timeout=0.1),
        "buffer": lambda: cairn.KvBuffer(spec, 1000),
        "equal": lambda: buffer == other,
    }[name]
    assert runs_beside(call)


@pytest.fixture
def full(tmp_path, spec):
    """A store that reports, when it is opened with this cap, that it is full."""
    with cairn.Store(tmp_path / "full", create_if_missing=True, segment_bytes=1 << 20) as store:
        store.create_branch(store.register_model(spec), "chat").append(np.arange(5000, dtype=np.uint32), cairn.KvBuffer(spec, 5000))
    return {"path": tmp_path / "full", "max_bytes": 1 << 20}


def test_events_come_as_text_in_a_thread_of_their_own(full):
    lines, threads = [], set()

    def on_event(line):
        lines.append(line)
        threads.add(threading.current_thread())

    with cairn.Store(**full, on_event=on_event):
        pass
    # All exist when the store is closed.
    assert any("max_bytes is 1 MiB" in line for line in lines)
    assert len(threads) == 1 and threading.current_thread() not in threads
    assert not threads.pop().is_alive()


def test_on_event_may_call_the_store_and_close_it(full):
    opened, closed = threading.Event(), threading.Event()
    seen = []

    def on_event(line):
        opened.wait()
        seen.append(len(store.find_branch("chat")))
        store.close()
        closed.set()

    store = cairn.Store(**full, on_event=on_event)
    opened.set()
    assert closed.wait(60) and seen == [5000]
    store.close()


def test_what_on_event_raises_is_shown_and_forgotten(full, monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: shown.append(args.exc_type))

    def on_event(line):
        raise KeyError(line)

    with cairn.Store(**full, on_event=on_event):
        pass
    assert shown and set(shown) == {KeyError}


def test_on_event_goes_with_its_store(full):
    class Called:
        def __call__(self, line):
            pass

    called = Called()
    gone = weakref.ref(called)
    store = cairn.Store(**full, on_event=called)
    del called
    gc.collect()
    assert gone() is not None
    store.close()
    gc.collect()
    assert gone() is None


def run(code, *arguments):
    return subprocess.run([sys.executable, "-P", "-c", code, *map(str, arguments)], timeout=120, capture_output=True,
                          text=True)


def test_what_is_open_at_the_end_of_the_interpreter_is_closed(tmp_path):
    """Although nothing frees it: someone has one reference too many."""
    ended = run("""
import ctypes, sys, cairn
store = cairn.Store(sys.argv[1], create_if_missing=True, on_event=print)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
chat = store.create_branch(store.register_model(cairn.ModelSpec("ids")), "chat")
chat.append([1, 2, 3], durability="memory")
""", tmp_path / "s")
    assert ended.returncode == 0, ended.stderr
    with cairn.Store(tmp_path / "s") as store:
        assert store.find_branch("chat").length == 3


def test_events_at_the_end_of_the_interpreter_are_told(full):
    ended = run("""
import sys, time, cairn
def tell(line):
    time.sleep(0.3)
    print(line, flush=True)
store = cairn.Store(sys.argv[1], max_bytes=1 << 20, on_event=tell)
""", full["path"])
    assert (ended.returncode, ended.stderr) == (0, "") and "max_bytes is 1 MiB" in ended.stdout


def test_the_words_of_a_restore_outlive_who_waits_for_them(store, chat, spec):
    """One thread waits for a layer, another one sees the end and lets go of what the call was given."""
    chat.append(np.arange(2000, dtype=np.uint32), cairn.KvBuffer(spec, 2000))
    for _ in range(200):
        ticket = chat.restore_async(cairn.KvBuffer(spec, 2000), progress=cairn.LayerProgress(2))
        waiting = threading.Thread(target=ticket.wait_for_layer, args=(1,))
        waiting.start()
        ticket.wait()
        waiting.join()
    assert np.all(chat.tokens() == np.arange(2000))


def test_ctrl_c_ends_a_wait_for_completions():
    code = "import cairn; queue = cairn.CompletionQueue(cairn.Store(':memory:')); print(flush=True); queue.wait()"
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as waiting:
        waiting.stdout.readline()
        time.sleep(0.2)  # Now it waits; a moment earlier it ends as well.
        waiting.send_signal(signal.SIGINT)
        try:
            told = waiting.communicate(timeout=20)[1]
        finally:
            waiting.kill()
    assert waiting.returncode == -signal.SIGINT and told.rstrip().endswith("KeyboardInterrupt")


def test_a_wait_for_completions_lasts_as_long_as_it_says():
    queue = cairn.CompletionQueue(cairn.Store(":memory:"))
    began = time.monotonic()
    assert not queue.wait(0.25)
    assert 0.25 <= time.monotonic() - began < 5
