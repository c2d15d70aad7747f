# SPDX-License-Identifier: Apache-2.0
"""The package itself: its stubs, its docstrings, and what its library shows and needs."""

import inspect
import os
import pathlib
import re
import signal
import subprocess
import sys

import cairn
from cairn import _core

ROOT = pathlib.Path(os.environ["CAIRN_SOURCE_DIR"])
SOURCE = ROOT / "api/python"


def test_the_stub_is_that_of_the_module(tmp_path):
    """Mended by: PYTHONPATH=build/release/python build/python/bin/python -P api/python/make_stub.py"""
    made = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, "-P", SOURCE / "make_stub.py", made], check=True)
    assert made.read_text() == (SOURCE / "cairn/_core.pyi").read_text()
    assert (SOURCE / "cairn/py.typed").exists()


def test_all_that_is_public_is_documented():
    bare = []
    for name in cairn.__all__:
        thing = getattr(cairn, name)
        if inspect.ismodule(thing) or name == "__version__":
            continue
        if not inspect.getdoc(thing):
            bare.append(name)
        for method, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not method.startswith("_") and callable(value) and not inspect.getdoc(value):
                bare.append(f"{name}.{method}")
    assert bare == []


def test_what_the_module_has_the_package_has():
    inner = {name for name in vars(_core) if not name.startswith("_")}
    assert inner <= set(cairn.__all__)


def test_only_the_modules_own_name_is_visible():
    listed = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["PyInit__core"]


def test_it_needs_nothing_but_the_c_library():
    listed = subprocess.run(["readelf", "-d", _core.__file__], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", listed.stdout))
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}


def test_the_version_is_one():
    assert cairn.__version__ == _core.__version__
    assert f'version = "{cairn.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_the_command_line_comes_as_a_module(tmp_path, spec):
    """In a pipe, too: Python ignores SIGPIPE, and a program that inherits that complains at the end of `head`."""
    command = [sys.executable, "-m", "cairn"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    assert cairn.__version__ in version
    missing = subprocess.run([*command, "ls", tmp_path / "none"], capture_output=True, text=True)
    assert missing.returncode == 3 and missing.stderr.startswith("cairn: ls: NotFound"), missing
    with cairn.Store(tmp_path / "s", create_if_missing=True) as store:
        chat = store.create_branch(store.register_model(spec), "chat")
        chat.append(range(100_000))
    with subprocess.Popen([*command, "cat", tmp_path / "s", "chat"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as shown:
        shown.stdout.close()
        assert shown.stderr.read() == b""
    assert shown.returncode == -signal.SIGPIPE
