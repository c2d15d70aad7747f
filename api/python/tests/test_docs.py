# SPDX-License-Identifier: Apache-2.0
"""Property: every block of code of these documents runs as it stands.

Method: the blocks of a page in the order in which they stand, in one folder: Python in one namespace, shell by bash
with `cairn` of the build, C++ compiled and linked with the library of the build. docs/engines.md is read by
tests/engines/test_docs.py.
"""

import os
import pathlib
import subprocess

import pytest

import doc_blocks

BUILD = pathlib.Path(os.environ["CAIRN_BUILD_DIR"]).resolve()
PAGES = ["docs/python.md", "docs/objects.md", "docs/reuse.md", "docs/sparse.md", "docs/shadow.md"]
# The beginning of a block, and why it does not run here.
NOT_HERE = {
    ("docs/python.md", "tools/setup"): "installs packages of the system and compiles for ten minutes: tools/test-wheel "
                                       "builds and installs a wheel",
}


def reason_of(block):
    return next((why for (page, begin), why in NOT_HERE.items() if page == block.page and block.text.startswith(begin)),
                None)


def run(command, folder):
    path = os.pathsep.join([str(BUILD / "bin"), os.environ["PATH"]])
    done = subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def link_flags():
    """Those of the build's own cairn.pc, which is written for an installed library."""
    return run(["pkg-config", "--static", f"--define-variable=includedir={doc_blocks.ROOT}/api/include",
                f"--define-variable=libdir={BUILD}", "--cflags", "--libs", str(BUILD / "cairn.pc")], BUILD).split()


def compiler():
    """The compiler that made the library."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    return next(line.partition("=")[2] for line in cache.splitlines() if line.startswith("CMAKE_CXX_COMPILER:"))


class Reader:
    """Who does what a page says, from top to bottom."""

    def __init__(self, folder):
        self.folder = folder
        self.names = {"__name__": "__main__"}

    def python(self, block):
        # Behind as many lines as on the page, so that an error names the line there.
        code = "\n" * (block.line - 1) + block.text
        exec(compile(code, str(doc_blocks.ROOT / block.page), "exec"), self.names)

    def sh(self, block):
        run(["bash", "-euo", "pipefail", "-c", block.text], self.folder)

    def cpp(self, block):
        folder = self.folder / f"line-{block.line}"
        folder.mkdir()
        (folder / "example.cc").write_text(block.text)
        run([compiler(), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "example.cc",
             "-o", "example", *link_flags()], folder)
        run(["./example"], folder)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_example_runs(page, tmp_path, monkeypatch):
    example = next(block for block in doc_blocks.of(page) if block.language == "python")
    monkeypatch.chdir(tmp_path)
    Reader(tmp_path).python(example)
    assert (tmp_path / "example.store").is_dir()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    done = 0
    for block in doc_blocks.of(page):
        if reason_of(block) is None:
            getattr(reader, block.language)(block)
            done += 1
    assert done > 0


def test_pages_have_examples_in_both_languages():
    for page in PAGES[1:]:
        assert {"cpp", "python"} <= {block.language for block in doc_blocks.of(page)}, page


def test_every_exception_is_of_a_block():
    blocks = [block for page in PAGES for block in doc_blocks.of(page)]
    for page, begin in NOT_HERE:
        assert any(block.page == page and block.text.startswith(begin) for block in blocks), begin
