# SPDX-License-Identifier: Apache-2.0
"""Property: slot files of a llama-server become branches that hold each token once; any earlier point of one comes out
as a file that the server restores and goes on from with the same tokens; a file that is damaged, or of another model,
is refused by name; and `cairn llama serve-slots` does all that beside a server, also when one of the two is killed.
Method: the real server, and its own files."""

import contextlib
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy
import pytest

import cairn
import cairn.llamacpp
import llama_engine
import llama_models
from cairn import _llama_model, _llama_serve, _llama_slots
from llama_slots_server import Server, post

SECONDS = 20  # For what happens in another thread or process.


@pytest.fixture(autouse=True)
def digests(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def server(exported, folder):
    running = Server(exported.gguf, folder)
    yield running
    running.close()


@pytest.fixture(scope="module")
def ids(own_llama):
    return own_llama.encode(own_llama.heldout)


@pytest.fixture
def store(tmp_path):
    with cairn.Store(tmp_path / "store", create_if_missing=True) as opened:
        yield opened


def slot_store(store, gguf, **options):
    weights = _llama_model.Weights(gguf)
    return _llama_slots.SlotStore(store, weights, weights.digest(), **options)


@pytest.fixture
def slots(store, exported):
    return slot_store(store, exported.gguf)


@pytest.fixture(scope="module")
def saved(server, folder, ids):
    """(file, its ids): a slot of 400 tokens of a text, and what was drawn behind them."""
    drawn, _ = server.complete(ids[:400], 20)
    assert server.slot("save", "saved")[0] == 200
    return folder / "saved", _llama_slots.read(folder / "saved").ids, drawn


def test_any_point_comes_out_as_a_file_that_the_server_restores(server, folder, saved, slots, store):
    path, ids, drawn = saved
    assert ids[400:] == drawn[:-1]  # The last one that was drawn is not computed yet.
    length, added = slots.put("chat", _llama_slots.read(path))
    assert length == added == len(ids) == 419
    assert slots.get("chat", folder / "whole") == 419
    assert (folder / "whole").read_bytes() == path.read_bytes()
    for position in (410, 401, 333):
        assert slots.get("chat", folder / "earlier", position) == position
        server.slot("erase", slot=1)
        status, said = server.slot("restore", "earlier", slot=1)
        assert status == 200 and said["n_restored"] == position, said
        again, computed = server.complete((ids + drawn)[:max(position, 400) + 1], 5, slot=1)
        assert computed <= max(position, 400) + 1 - position
        if position >= 400:
            assert again == drawn[position - 399:][:5]


def test_a_slot_that_is_saved_again_writes_what_is_new(server, folder, saved, slots, store):
    path, ids, drawn = saved
    slots.put("chat", _llama_slots.read(path))
    raw, written = store.metrics()["raw_bytes"], store.metrics()["log_bytes_written"]
    assert slots.put("chat", _llama_slots.read(path)) == (419, 0)
    assert store.metrics()["log_bytes_written"] == written
    server.slot("restore", "saved")
    server.complete(ids + drawn[-1:], 16)
    assert server.slot("save", "again")[0] == 200
    assert slots.put("chat", _llama_slots.read(folder / "again")) == (435, 16)
    (model,) = store.models()
    assert store.metrics()["raw_bytes"] - raw == 16 * (model.spec.token_bytes + 4)
    # Another conversation with the same beginning has that from the first one.
    server.slot("restore", "saved")
    server.complete(ids[:300] + [5, 6, 7], 4)
    server.slot("save", "other")
    raw = store.metrics()["raw_bytes"]
    assert slots.put("other", _llama_slots.read(folder / "other")) == (306, 6)
    assert store.metrics()["raw_bytes"] - raw == 6 * (model.spec.token_bytes + 4)


def test_an_edited_conversation_keeps_what_was_there(server, folder, saved, slots, store, exported):
    path, ids, _ = saved
    server.slot("restore", "saved")
    server.complete(ids[:350] + [9, 8], 4)
    server.slot("save", "edited")
    edited = _llama_slots.read(folder / "edited")
    slots.put("chat", _llama_slots.read(path))
    with pytest.raises(cairn.Conflict, match="position 350"):
        slot_store(store, exported.gguf, on_conflict="raise").put("chat", edited)
    assert slots.put("chat", edited)[0] == len(edited.ids) == 355
    names = sorted(info.name for info in store.list_branches()[0])
    assert names[0] == "chat" and re.fullmatch(r"chat@\d+", names[1])
    assert store.find_branch("chat").tokens().tolist() == edited.ids
    assert store.find_branch(names[1]).tokens().tolist() == ids


@pytest.mark.parametrize("options", [{"cache_type": "q8_0"}, {"unified": False}])
def test_servers_of_other_settings(exported, tmp_path, store, ids, options):
    if "cache_type" in options:
        options = {"cache_type": next(one for one in __import__("xllamacpp").ggml_type if one.name.endswith("Q8_0"))}
    server = Server(exported.gguf, tmp_path, **options)
    drawn, _ = server.complete(ids[:200], 12)
    server.slot("save", "one")
    slots = slot_store(store, exported.gguf)
    slots.put("chat", _llama_slots.read(tmp_path / "one"))
    slots.get("chat", tmp_path / "two", 205)
    assert server.slot("restore", "two", slot=1)[0] == 200
    assert server.complete((ids[:200] + drawn)[:206], 5, slot=1) == (drawn[6:11], 1)
    server.close()


def test_a_branch_of_a_context_comes_out_as_a_slot(server, folder, exported, store, ids, slots, saved):
    model = llama_engine.Model(exported.gguf)
    engine = model.context()
    context = cairn.llamacpp.Context(store, engine.pointer, exported.gguf, library=llama_engine.PATH)
    engine.decode(ids[:120], 0)
    context.sequence("chat").save(ids[:120])
    for like, status in ((None, 400), (saved[0], 200)):  # The server has a stream for each slot, the context one.
        assert slots.get("chat", folder / "context", 100, like) == 100
        assert server.slot("restore", "context", slot=1)[0] == status
    store.create_branch(context.model, "bare").append([1, 2, 3])
    with pytest.raises(cairn.Evicted, match="can be restored at 0 tokens, and not at 3"):
        slots.get("bare", folder / "none", 3)
    engine.close()
    model.close()


# --- Files that are none

def changed(path, tmp_path, change):
    content = bytearray(path.read_bytes())
    change(content)
    other = tmp_path / "changed"
    other.write_bytes(content)
    return other


def test_a_file_that_is_cut_anywhere_is_refused(saved, tmp_path):
    content = saved[0].read_bytes()
    for size in [*range(0, 40), 1000, 1688, 1700, 20000, len(content) // 2, len(content) - 1]:
        (tmp_path / "cut").write_bytes(content[:size])
        with pytest.raises(cairn.Corruption, match="cut: "):
            _llama_slots.read(tmp_path / "cut")
    (tmp_path / "cut").write_bytes(content + b"\0")
    with pytest.raises(cairn.Corruption, match="goes on behind its end"):
        _llama_slots.read(tmp_path / "cut")


def test_each_flipped_bit_of_what_is_no_row_is_refused_or_another_id(saved, slots, store, tmp_path):
    """Bits of ids give other ids; llama.cpp's files have no checksum, so neither those nor rows can be told."""
    path, ids, _ = saved
    header = 12 + 4 * (len(ids) + 4) + 8 + 12 * len(ids) + 16
    cells = 12 + 4 * (len(ids) + 4) + 8
    heads = [*range(24), *(byte for byte in range(cells - 12, header + 12)
                           if not cells <= byte < header - 16 or (byte - cells) % 12 < 8)]  # The slot's own number.
    slots.put("chat", _llama_slots.read(path))
    for byte in numpy.random.default_rng(1).choice(heads, 250, replace=False):
        for bit in (0, 7):
            def flip(content):
                content[byte] ^= 1 << bit
            with pytest.raises(cairn.Error) as refused:
                slots.put("chat", _llama_slots.read(changed(path, tmp_path, flip)))
            assert "changed" in str(refused.value) and "saved" not in str(refused.value), refused.value
    assert store.find_branch("chat").tokens().tolist() == ids and len(store.list_branches()[0]) == 1


def test_a_file_of_another_llama_cpp_or_of_pictures(saved, tmp_path):
    path, ids, _ = saved
    words = 12 + 4 * (len(ids) + 4)

    def with_words(offset, *values):
        return changed(path, tmp_path, lambda content: struct.pack_into(f"<{len(values)}I", content, offset, *values))

    for offset, values, kind, named in [
            (0, [0x67676C61], cairn.InvalidArgument, "is no slot file"),
            (4, [5], cairn.UnsupportedFormat, "version 5 of llama.cpp's slot files; 3 and 4 are known"),
            (4, [3], cairn.Corruption, "state: "),
            (8, [0xFFFFFFF0], cairn.Corruption, "ends within its 4294967280 words"),
            (16, [2], cairn.UnsupportedFormat, "ids in a form of llama-server that is not known"),
            (20, [0xFFFFFFFF], cairn.Corruption, "has 4294967295 ids in"),
            (20, [len(ids) - 1], cairn.Error, "pictures|end before"),
            (24, [0xFFFFFFFF], cairn.InvalidArgument, "has pictures"),
            (words - 4, [1], cairn.InvalidArgument, "has pictures"),
            (words, [0], cairn.Corruption, "state: "), (words, [5000], cairn.Corruption, "state: "),
            (words + 4, [1 << 28], cairn.Corruption, "state: ")]:
        with pytest.raises(kind, match=named):
            _llama_slots.read(with_words(offset, *values))


def test_states_that_no_branch_holds(saved, slots, tmp_path):
    path, ids, _ = saved
    cells = 12 + 4 * (len(ids) + 4) + 8

    def at(cell, position):
        return changed(path, tmp_path, lambda content: struct.pack_into("<i", content, cells + 12 * cell, position))

    for cell, position, named in [(0, 5000, "and 419 ids"), (5, 6, "several cells have one position"),
                                  (0, -1, "have positions from -1")]:
        with pytest.raises(cairn.Corruption, match=named):
            slots.put("chat", _llama_slots.read(at(cell, position)))


def test_a_slot_of_another_model_or_kv_type_is_refused_by_name(saved, slots, store, tmp_path, exported, ids):
    path = saved[0]
    llama_models.llama(tmp_path / "small.gguf", name="small one")
    with pytest.raises(cairn.InvalidArgument, match="saved: state: is of 4 layers; small one has 3"):
        slot_store(store, tmp_path / "small.gguf").put("chat", _llama_slots.read(path))
    slots.put("chat", _llama_slots.read(path))
    other = tmp_path / "other.gguf"
    other.write_bytes(exported.gguf.read_bytes().replace(b"cairn-llama", b"other-llama"))
    with pytest.raises(cairn.ModelMismatch, match="'cairn-llama', not of 'other-llama'"):
        slot_store(store, other).put("chat", _llama_slots.read(path))
    with pytest.raises(cairn.ModelMismatch, match="is of the model 'cairn-llama', and not of 'other-llama'"):
        slot_store(store, other).get("chat", tmp_path / "out")
    server = Server(exported.gguf, tmp_path, cache_type=next(
        one for one in __import__("xllamacpp").ggml_type if one.name.endswith("Q8_0")))
    server.complete(ids[:400], 2)
    server.slot("save", "quantised")
    server.close()
    with pytest.raises(cairn.ModelMismatch, match="quantised: branch: .*cache_dtype"):
        slots.put("chat", _llama_slots.read(tmp_path / "quantised"))
    with pytest.raises(cairn.ModelMismatch, match="like: .* has another shape than the branch"):
        slots.get("chat", tmp_path / "out", like=tmp_path / "quantised")
    assert not (tmp_path / "out").exists() and store.find_branch("chat").length == 419


def test_a_slot_for_a_server_that_is_too_small(saved, slots, exported, tmp_path):
    slots.put("chat", _llama_slots.read(saved[0]))
    server = Server(exported.gguf, tmp_path, context=512)  # 256 for each of two slots.
    slots.get("chat", tmp_path / "large")
    status, said = server.slot("restore", "large")
    assert status == 400 and "Unable to restore slot" in said["error"]["message"]
    slots.get("chat", tmp_path / "smaller", 200)
    assert server.slot("restore", "smaller")[0] == 200
    server.close()


def test_files_that_cannot_be_read_or_written(slots, saved, tmp_path):
    slots.put("chat", _llama_slots.read(saved[0]))
    (tmp_path / "link").symlink_to(saved[0])
    os.mkfifo(tmp_path / "pipe")
    for name, follow, kind in [("none", True, cairn.NotFound), ("pipe", True, cairn.InvalidArgument),
                               ("link", False, cairn.IoError), (".", True, cairn.InvalidArgument)]:
        with pytest.raises(kind, match=re.escape(str(tmp_path))):
            _llama_slots.read(tmp_path / name, follow)
    assert _llama_slots.read(tmp_path / "link").ids == saved[1]
    with pytest.raises(cairn.IoError, match="nowhere/out: No such file or directory"):
        slots.get("chat", tmp_path / "nowhere" / "out")
    with pytest.raises(cairn.InvalidArgument, match="tokens: 420; the branch has 419"):
        slots.get("chat", tmp_path / "out", 420)
    with pytest.raises(cairn.NotFound):
        slots.get("nobody", tmp_path / "out")


def command(*arguments, module="cairn.llamacpp", **options):
    words = [*("llama" if module == "cairn" else "",), *map(str, arguments)]
    return subprocess.run([sys.executable, "-m", module, *filter(None, words)], text=True, capture_output=True,
                          check=False, **options)


def test_a_full_disk(saved, exported, tmp_path):
    """A disk of its own of 48 MiB: of a store, and of a file that is laid out."""
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=48m tmpfs "$0" && exec "$@"', tmp_path]
    if subprocess.run([*mount, "true"], check=False).returncode != 0:
        pytest.skip("the system lets nobody mount a small disk of their own")
    code = f"""
import os, sys, cairn
from cairn import _llama_model, _llama_slots
weights = _llama_model.Weights({str(exported.gguf)!r})
with cairn.Store("full.store", create_if_missing=True, segment_bytes=1 << 20) as store:
    slots = _llama_slots.SlotStore(store, weights, "digest")
    slot = _llama_slots.read({str(saved[0])!r})
    slots.put("chat", slot)
    fill = os.open("rest", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fill, bytes(1 << 16))
    except OSError:
        pass
    try:
        slots.get("chat", "out")
    except cairn.NoSpace as error:
        print("get:", error)
    print(sorted(os.listdir(".")))
    try:
        for number in range(1000):
            slot.ids[0] = number
            slots.put(str(number), slot)
    except cairn.NoSpace as error:
        print("put: NoSpace")
    print(store.find_branch("chat").restorable_length())
"""
    done = subprocess.run([*mount, sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r})\n{code}"], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "get: out: No space left on device" and lines[1] == "['full.store', 'rest']"
    assert lines[2:] == ["put: NoSpace", "419"]


# --- The command

def test_the_command(saved, exported, tmp_path, server, folder):
    path, ids, _ = saved
    place, gguf = tmp_path / "s", exported.gguf
    for module in ("cairn", "cairn.llamacpp"):
        assert "put|get|serve-slots" in command("--help", module=module).stdout
    done = command("put", place, "chat", path, "--model", gguf, module="cairn")
    assert (done.returncode, done.stdout) == (0, "419 tokens, 419 new\n"), done.stderr
    done = command("get", place, "chat", folder / "by-command", "--model", gguf, "--at", 405)
    assert (done.returncode, done.stdout) == (0, "405 tokens\n"), done.stderr
    assert server.slot("restore", "by-command", slot=1)[1]["n_restored"] == 405
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-1])
    for words, status, named in [
            (("put", place, "chat", tmp_path / "cut", "--model", gguf), 4, "Corruption: .*cut: state: ends within"),
            (("put", place, "chat", path, "--model", path), 2, "InvalidArgument: model: .* is no GGUF file"),
            (("put", place, "chat", path, "--model", tmp_path / "no"), 3, "NotFound: model: there is no"),
            (("put", place, "chat", path), 2, "--model"),
            (("get", place, "who", tmp_path / "out", "--model", gguf), 3, "NotFound"),
            (("get", place, "chat", tmp_path / "out", "--model", gguf, "--at", "9999"), 2, "tokens: 9999"),
            (("put", place, "chat", path, "--model", gguf, "--revision", "lora"), 6, "ModelMismatch: .*revision")]:
        done = command(*words)
        assert done.returncode == status and re.search(named, done.stderr), (words, done)
    with cairn.Store(place) as store:
        assert store.find_branch("chat").tokens().tolist() == ids
        done = command("put", place, "chat", path, "--model", gguf)
        assert done.returncode == 5 and f"process {os.getpid()}" in done.stderr, done.stderr
        done = command("get", place, "chat", tmp_path / "beside", "--model", gguf)  # Reads beside its owner.
        assert done.returncode == 0, done.stderr


# --- serve-slots

@contextlib.contextmanager
def serving(keeper):
    """The port of a front, as long as it serves."""
    stop, ports, bound = threading.Event(), [], threading.Event()

    def started(port):
        ports.append(port)
        bound.set()

    thread = threading.Thread(target=_llama_serve.serve, args=(keeper, "127.0.0.1", 0, stop, started))
    thread.start()
    try:
        assert bound.wait(SECONDS)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        stop.set()
        thread.join()


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def own_server(exported, tmp_path):
    (tmp_path / "slots").mkdir()
    running = Server(exported.gguf, tmp_path / "slots")
    yield running
    running.close()


def length_of(store, name):
    try:
        return store.find_branch(name).length
    except cairn.NotFound:
        return 0


def test_slots_are_kept_and_laid_out_again(own_server, slots, store, ids, tmp_path):
    place = tmp_path / "slots"
    drawn, _ = own_server.complete(ids[:200], 12)
    own_server.slot("save", "before")  # While nobody watched.
    keeper = _llama_serve.SlotKeeper(place, slots, remove=True, server=own_server.url)
    with serving(keeper) as url:
        assert length_of(store, "before") == 211 and list(place.iterdir()) == []
        status, said = own_server.slot("save", "chat", url=url)
        assert status == 200 and said["n_saved"] == 211
        assert said["cairn"]["branch"] == "chat" and said["cairn"]["tokens"] == 211
        own_server.slot("save", "aside")  # At the server itself: the watcher sees it.
        wait_for(lambda: length_of(store, "aside") == 211 and list(place.iterdir()) == [])
        assert own_server.slot("restore", "chat", slot=1)[0] == 400  # The file is gone.
        for tokens, restored in ((None, 211), (205, 205)):
            more = {} if tokens is None else {"tokens": tokens}
            status, said = own_server.slot("restore", "chat", slot=1, url=url, **more)
            assert status == 200 and said["n_restored"] == restored, said
            assert own_server.complete((ids[:200] + drawn)[:206], 5, slot=1) == (drawn[6:11], 1)
        assert own_server.slot("erase", slot=1, url=url)[0] == 200
        # It goes on from there, and is saved under its name again: what was there is kept beside it.
        own_server.slot("restore", "chat", slot=1, url=url, tokens=205)
        own_server.complete((ids[:200] + drawn)[:205] + [9], 3, slot=1)
        status, said = own_server.slot("save", "chat", slot=1, url=url)
        assert said["cairn"]["tokens"] == 208 == length_of(store, "chat")
        assert len(store.list_branches("chat@")[0]) == 1
    assert list(place.iterdir()) == []


def test_files_stay_unless_they_are_to_go(own_server, slots, store, ids, tmp_path):
    place = tmp_path / "slots"
    with serving(_llama_serve.SlotKeeper(place, slots, server=own_server.url)) as url:
        own_server.complete(ids[:100], 2)
        own_server.slot("save", "chat", url=url)
        assert (place / "chat").exists()
        (place / "chat").unlink()
        assert own_server.slot("restore", "chat", url=url)[0] == 200
        assert (place / "chat").exists()
        assert own_server.slot("restore", "chat", url=url, tokens=70)[1]["n_restored"] == 70
        assert sorted(path.name for path in place.iterdir()) == ["chat"] and length_of(store, "chat") == 101


def test_what_the_front_refuses(own_server, slots, tmp_path, exported, store):
    place = tmp_path / "slots"
    with serving(_llama_serve.SlotKeeper(place, slots, server=own_server.url)) as url:
        for path, body, status, named in [
                ("/slots/0?action=restore", {"filename": "../x"}, 400, "no name of a slot file"),
                ("/slots/0?action=restore", {"filename": ".x"}, 400, "no name of a slot file"),
                ("/slots/0?action=save", {"filename": 7}, 400, "no name of a slot file"),
                ("/slots/0?action=save", {}, 400, "no name of a slot file"),
                ("/slots/0?action=restore", {"filename": "nobody"}, 404, "NotFound"),
                ("/slots/0?action=restore", {"filename": "a", "tokens": "9"}, 400, "tokens: '9'"),
                ("/slots/0?action=save", {"filename": "a", "tokens": 9}, 400, "of a restore"),
                ("/completion", {"prompt": "a"}, 404, "the server has the rest"),
                ("/slots/0?action=drop", {}, 404, "the server has the rest")]:
            got, said = post(url, path, **body)
            assert got == status and named in str(said["error"]["message"]), (path, body, got, said)
        import urllib.request
        for content, status in [(b"[1]", 400), (b"{", 400), (bytes(70000), 400)]:
            request = urllib.request.Request(url + "/slots/0?action=save", content)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            assert refused.value.code == status
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url + "/slots")
    llama_models.llama(tmp_path / "small.gguf", name="small")
    other = slot_store(store, tmp_path / "small.gguf")
    with serving(_llama_serve.SlotKeeper(place, other, server=own_server.url)) as url:
        status, said = own_server.slot("save", "chat", url=url)
        assert status == 409
        assert f"has the model {exported.gguf}, and not {tmp_path}/small.gguf" in said["error"]["message"]
    with serving(_llama_serve.SlotKeeper(place, slots, server="http://127.0.0.1:9")) as url:
        assert own_server.slot("save", "chat", url=url)[0] == 502


def test_a_file_that_is_none_is_told_and_left(own_server, slots, store, ids, tmp_path, caplog):
    place = tmp_path / "slots"
    own_server.complete(ids[:100], 2)
    own_server.slot("save", "whole")
    content = (place / "whole").read_bytes()
    (place / "cut").write_bytes(content[:-9])
    (place / f".x.1{_llama_slots.PARTIAL}").write_bytes(content)
    with serving(_llama_serve.SlotKeeper(place, slots, remove=True, server=own_server.url)):
        assert sorted(path.name for path in place.iterdir()) == ["cut"]
        assert "cut is not kept: Corruption" in caplog.text
        (place / "cut").write_bytes(content)  # Written again, and whole now.
        wait_for(lambda: length_of(store, "cut") == 101)
    assert length_of(store, "whole") == 101


def test_a_file_that_is_being_written_is_read_when_it_is_whole(saved, slots, tmp_path, monkeypatch):
    (tmp_path / "slow").write_bytes(saved[0].read_bytes())
    keeper, looks = _llama_serve.SlotKeeper(tmp_path, slots), []
    inner = _llama_slots.identity_of

    def changing(info):
        looks.append(info)
        return inner(info) if len(looks) > changes else len(looks)

    monkeypatch.setattr(_llama_slots, "identity_of", changing)
    monkeypatch.setattr(_llama_serve, "RETRY_SECONDS", 0.01)
    changes = 1000
    with pytest.raises(cairn.Conflict, match="slow: was written to while it was read; try again"):
        keeper.keep("slow")
    looks.clear()
    changes = 7
    assert keeper.keep("slow") == (419, 419) and keeper.keep("slow") is None


def test_whoever_is_killed(exported, ids, tmp_path, own_server):
    """serve-slots as a program, killed in the middle of what it does, round after round; then all is there."""
    place = tmp_path / "slots"
    words = [sys.executable, "-m", "cairn.llamacpp", "serve-slots", place, tmp_path / "s", "--model", exported.gguf,
             "--server", own_server.url, "--listen", "127.0.0.1:0", "--remove"]
    own_server.complete(ids[:600], 2)
    for delay in (0.0, 0.01, 0.03):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            port = process.stdout.readline().split()[-1]
            assert port.isdigit()
            own_server.slot("save", f"chat-{delay}")
            time.sleep(delay)
            process.kill()
        assert process.returncode == -signal.SIGKILL
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        url = f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"
        for delay in (0.0, 0.01, 0.03):
            status, said = own_server.slot("restore", f"chat-{delay}", slot=1, url=url)
            assert status == 200 and said["n_restored"] == 601, said
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert list(place.iterdir()) == []
    with cairn.Store(tmp_path / "s") as store:
        assert store.verify().ok and len(store.list_branches()[0]) == 3


def test_a_server_that_is_killed_in_mid_save_leaves_what_is_refused(saved, slots, store, tmp_path):
    """What such a server leaves is the beginning of a file, of any length."""
    content = saved[0].read_bytes()
    slots.put("chat", _llama_slots.read(saved[0]))
    keeper = _llama_serve.SlotKeeper(tmp_path, slots, remove=True)
    for size in (0, 7, 4096, len(content) // 3):
        (tmp_path / "chat").write_bytes(content[:size])
        with pytest.raises(cairn.Corruption):
            keeper.keep("chat")
        assert (tmp_path / "chat").exists() and store.find_branch("chat").restorable_length() == 419
