# SPDX-License-Identifier: Apache-2.0
"""Property: a digest of weights differs whenever a byte of any of their files does, whatever the format, and is the
same otherwise; it is remembered as long as the files are the same ones, and what was remembered wrongly is never used.
Method: files that are changed in one place, and a count of the bytes that are read."""

import os
import time

import pytest

import cairn
from cairn import _core, _digest

NAMES = ["model.safetensors", "pytorch_model.bin", "consolidated.00.pth", "model.gguf", "adapter_model.bin",
         "weights.xyz"]
BYTES = (2 << 20) + 12345


def folder_of(path, name, content, config="{}"):
    path.mkdir(exist_ok=True)
    (path / name).write_bytes(content)
    (path / "config.json").write_text(config)
    return path



@pytest.fixture
def no_wait(monkeypatch):
    monkeypatch.setattr(_digest, "SETTLED_NS", -10**12)


@pytest.fixture
def reads(monkeypatch):
    """Paths of files whose bytes are read."""
    read, original = [], _digest._digest_file

    def digest_file(path, threads):
        read.append(path.name)
        return original(path, threads)

    monkeypatch.setattr(_digest, "_digest_file", digest_file)
    return read


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_of_every_format_counts(tmp_path, name):
    content = bytearray(os.urandom(BYTES))
    of = lambda **more: _digest.Digests(tmp_path).of(folder_of(tmp_path / "m", name, content, **more))
    first = of()
    assert of() == first and first.startswith("xxh3-128:")
    for at in (0, 4096, BYTES // 2, (1 << 20) - 1, 1 << 20, BYTES - 1):
        content[at] ^= 1
        assert of() != first
        content[at] ^= 1
    assert of(config='{"lora_alpha": 16}') != of(config='{"lora_alpha": 64}')
    assert of() == first
    content.append(0)
    assert of() != first


def test_one_file_and_words_count_and_papers_do_not(tmp_path):
    folder = folder_of(tmp_path / "m", "model.gguf", b"GGUF" * 100)
    digests = _digest.Digests(tmp_path)
    assert digests.of(folder / "model.gguf") != digests.of(folder)
    assert digests.of(folder, "a") != digests.of(folder, "b")
    before = digests.of(folder)
    for name in ("README.md", "tokenizer.json", ".gitattributes"):
        (folder / name).write_text("other")
    assert digests.of(folder) == before
    (folder / "model.gguf").rename(folder / "other.gguf")
    assert digests.of(folder) != before


def test_a_large_file_is_hashed_in_pieces_whose_order_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(_digest, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(_digest, "READ_BYTES", 1024)
    pieces = [bytes([i]) * 1024 for i in range(9)]
    first = _digest.Digests(tmp_path).of(folder_of(tmp_path / "m", "w.bin", b"".join(pieces)))
    assert _digest.Digests(tmp_path).of(folder_of(tmp_path / "m", "w.bin", b"".join(pieces[::-1]))) != first
    assert _digest.Digests(tmp_path).of(folder_of(tmp_path / "m", "w.bin", b"".join(pieces))) == first


def test_what_is_remembered_is_read_again_only_when_it_changed(tmp_path, no_wait, reads):
    model = folder_of(tmp_path / "m", "model.bin", b"a" * 1000)
    (tmp_path / "store").mkdir()

    def start():
        reads.clear()
        digests = _digest.Digests(tmp_path / "store")
        digest = digests.of(model)
        digests.save()
        return digest

    first = start()
    assert sorted(reads) == ["config.json", "model.bin"]
    assert start() == first and reads == []
    # Written in place, with the old size and the old time of change.
    times = (model / "model.bin").stat()
    with open(model / "model.bin", "r+b") as file:
        file.write(b"b")
    os.utime(model / "model.bin", ns=(times.st_atime_ns, times.st_mtime_ns))
    second = start()
    assert reads == ["model.bin"] and second != first
    # Replaced by a file of another inode.
    (model / "new").write_bytes(b"a" * 1000)
    os.replace(model / "new", model / "model.bin")
    assert start() == first and reads == ["model.bin"]


def test_a_file_that_just_changed_is_not_remembered(tmp_path, reads):
    model = folder_of(tmp_path / "m", "model.bin", b"a")
    for _ in range(2):
        reads.clear()
        digests = _digest.Digests(tmp_path)
        digests.of(model)
        digests.save()
        assert "model.bin" in reads


@pytest.mark.parametrize("damage", ["bits", "cut", "empty", "garbage", "link", "folder"])
def test_a_damaged_memory_is_ignored(tmp_path, no_wait, reads, damage):
    model = folder_of(tmp_path / "m", "model.bin", b"a" * 1000)
    digests = _digest.Digests(tmp_path)
    first = digests.of(model)
    digests.save()
    path = tmp_path / _digest.REMEMBERED
    content = path.read_bytes()
    if damage == "bits":
        at = content.index(b"[[") + 3
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
    elif damage in ("link", "folder"):
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere") if damage == "link" else path.mkdir()
    else:
        path.write_bytes({"cut": content[:-9], "empty": b"", "garbage": os.urandom(100)}[damage])
    reads.clear()
    assert _digest.Digests(tmp_path).of(model) == first
    assert "model.bin" in reads


def test_where_nothing_can_be_written_it_says_so(tmp_path, no_wait, caplog):
    model = folder_of(tmp_path / "m", "model.bin", b"a")
    digests = _digest.Digests(tmp_path / "missing")
    digests.of(model)
    digests.save()
    digests.save()
    (record,) = caplog.records
    assert "weights are read at every start" in record.message and str(tmp_path / "missing") in record.message


def test_the_memory_is_bounded_and_keeps_the_newest(tmp_path, no_wait, reads, monkeypatch):
    monkeypatch.setattr(_digest, "REMEMBERED_MAX", 4)
    for number in range(6):
        digests = _digest.Digests(tmp_path)
        digests.of(folder_of(tmp_path / str(number), "w.bin", bytes([number])))
        digests.save()
    assert len(_digest.Digests(tmp_path)._known) == 4
    reads.clear()
    _digest.Digests(tmp_path).of(tmp_path / "5")
    assert reads == []


def test_folders_without_weights_are_refused(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    for path in (tmp_path / "m", tmp_path / "missing"):
        with pytest.raises(_digest.NoFiles, match="no files of weights"):
            _digest.Digests(tmp_path).of(path)


def test_a_store_lives_with_it(tmp_path, no_wait):
    """It is none of the files that a directory must not have to become a store, nor one that a copy needs."""
    path = tmp_path / "store"
    path.mkdir()
    digests = _digest.Digests(path)
    digests.of(folder_of(tmp_path / "m", "w.bin", b"a"))
    digests.save()
    for _ in range(2):
        with cairn.Store(path, create_if_missing=True) as store:
            assert (path / _digest.REMEMBERED).exists()
    with cairn.Store(path) as store:
        store.checkpoint(tmp_path / "copy")
        assert store.verify().damages == []
    assert not (tmp_path / "copy" / _digest.REMEMBERED).exists()


def test_a_second_start_takes_no_time(tmp_path, no_wait):
    model = folder_of(tmp_path / "m", "w.bin", os.urandom(64 << 20))
    digests = _digest.Digests(tmp_path)
    digests.of(model)
    digests.save()
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        _digest.Digests(tmp_path).of(model)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.05


def test_samples_see_the_ends_and_the_middle():
    memory = bytearray(1 << 20)
    numpy = pytest.importorskip("numpy")
    address = numpy.frombuffer(memory, numpy.uint8).ctypes.data
    first = _core._hash_samples([(address, len(memory))])
    for at in (0, len(memory) - 1):
        memory[at] ^= 1
        assert _core._hash_samples([(address, len(memory))]) != first
        memory[at] ^= 1
    memory[:] = bytes(b ^ 1 for b in memory)
    assert _core._hash_samples([(address, len(memory))]) != first
    assert _core._hash_samples([]) != first


@pytest.mark.parametrize("name", ["tokenizer-checkpoint125.safetensors", "vocab_embeddings.safetensors", "merges.bin", "LICENSED.pth"])
def test_weights_count_by_any_name(tmp_path, name):
    folder_of(tmp_path / "m", "model.safetensors", b"1" * 100)
    of = lambda: _digest.Digests(tmp_path).of(tmp_path / "m")
    (tmp_path / "m" / name).write_bytes(b"a")
    first = of()
    (tmp_path / "m" / name).write_bytes(b"b")
    assert of() != first
    before = of()
    (tmp_path / "m" / "tokenizer.json").write_text("{}")
    assert of() == before


def test_a_file_that_was_just_changed_is_not_remembered(tmp_path, reads):
    """A clock of whole seconds gives two contents one identity. What counts is when the file was read, not when the
    digest is saved."""
    folder = folder_of(tmp_path / "m", "model.safetensors", b"1" * 100)
    digests = _digest.Digests(tmp_path)
    first = digests.of(folder)
    identity = os.stat(folder / "model.safetensors")
    (folder / "model.safetensors").write_bytes(b"2" * 100)
    os.utime(folder / "model.safetensors", ns=(identity.st_atime_ns, identity.st_mtime_ns))
    assert digests.of(folder) != first and reads.count("model.safetensors") == 2
    assert digests.of(folder) != first and reads.count("model.safetensors") == 3
    digests.save()
    assert _digest.Digests(tmp_path)._known == {}


@pytest.mark.parametrize("text", ["5", "[5]", '[[[1], 2, 3, 4, 5, "x"]]', '[[1, 2, 3, "x"]]', '{"a": 1}'])
def test_a_memory_of_another_shape_is_read_anew(tmp_path, text):
    (tmp_path / _digest.REMEMBERED).write_text(f"{_digest._checksum(text)}\n{text}\n")
    assert _digest.Digests(tmp_path)._known == {}
