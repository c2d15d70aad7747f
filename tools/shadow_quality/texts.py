# SPDX-License-Identifier: Apache-2.0
"""Texts cut from Debian packages, of ten different kinds at 4K tokens and two at 8K."""

import dataclasses
import gzip
import hashlib
import pathlib
import subprocess


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of a package. tokens: of the prompt."""

    name: str
    kind: str
    package: str
    file: str
    tokens: int = 4096


# Positions kept for the steps of an 8K text: the model was trained on 8192 positions.
_LONG = 8192 - 128
SOURCES = [
    Source("history", "prose", "debian-history", "usr/share/doc/debian-history/docs/project-history.en.txt.gz"),
    Source("faq", "questions and answers", "debian-faq", "usr/share/doc/debian/FAQ/debian-faq.en.txt.gz"),
    Source("quotations", "short quotations", "fortunes", "usr/share/games/fortunes/science"),
    Source("jargon", "dictionary", "dict-jargon", "usr/share/dictd/jargon.dict.dz"),
    Source("bisect", "article", "git-doc", "usr/share/doc/git-doc/git-bisect-lk2009.txt"),
    Source("tarfile", "Python code", "libpython3.11-stdlib", "usr/lib/python3.11/tarfile.py"),
    Source("videodev2", "C header", "linux-libc-dev", "usr/include/linux/videodev2.h"),
    Source("ptrace", "manual page, roff", "manpages-dev", "usr/share/man/man2/ptrace.2.gz"),
    Source("select", "HTML", "sqlite3-doc", "usr/share/doc/sqlite3/lang_select.html"),
    Source("countries", "JSON", "iso-codes", "usr/share/iso-codes/json/iso_3166-1.json"),
    Source("reference", "manual, 8K", "developers-reference",
           "usr/share/developers-reference/developers-reference.txt.gz", _LONG),
    Source("mock", "Python code, 8K", "libpython3.11-stdlib", "usr/lib/python3.11/unittest/mock.py", _LONG),
]
GRID = ("history", "tarfile", "quotations")  # For what varies one thing at a time.
NEEDLES = ("history", "faq", "jargon")  # In which an access code is hidden.
_SKIP = 0.1  # A file's beginning: title pages, licences, lists of contents.


@dataclasses.dataclass
class Text:
    source: Source
    version: str  # The package's.
    ids: list  # Prompt, then what is teacher-forced, and one token more.
    digest: str

    @property
    def prompt(self):
        return self.ids[:self.source.tokens]

    @property
    def forced(self):
        return self.ids[self.source.tokens:]


def unpacked(package, cache):
    """(folder, version) of a package's files. Downloaded once, with apt; nothing is installed."""
    folder = cache / "packages" / package
    if not (folder / "version").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", package], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        archive = next(folder.glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, folder / "files"], check=True)
        version = subprocess.run(["dpkg-deb", "-f", archive, "Version"], check=True, capture_output=True, text=True)
        archive.unlink()
        (folder / "version").write_text(version.stdout.strip())
    return folder / "files", (folder / "version").read_text()


def read(source, cache):
    folder, version = unpacked(source.package, cache)
    raw = pathlib.Path(folder, source.file).read_bytes()
    if source.file.endswith((".gz", ".dz")):
        raw = gzip.decompress(raw)
    return raw.decode("utf-8", errors="replace"), version


def cut(source, cache, encode, steps):
    """The Text: from the first whole line behind a tenth of the file on."""
    whole, version = read(source, cache)
    begin = whole.index("\n", int(len(whole) * _SKIP)) + 1
    wanted = source.tokens + steps + 1
    # Texts have more than one character a token; code has many more.
    ids = encode(whole[begin:begin + 12 * wanted])[:wanted]
    if len(ids) < wanted:
        raise SystemExit(f"{source.package}: {source.file} has {len(ids)} tokens, {wanted} are wanted")
    return Text(source, version, ids, hashlib.sha256(str(ids).encode()).hexdigest()[:12])
