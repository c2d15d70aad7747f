# SPDX-License-Identifier: Apache-2.0
"""The package itself: its stubs, its docstrings, and what its library shows and needs."""

import inspect
import os
import pathlib
import re
import subprocess
import sys

import cairn
from cairn import _core

SOURCE = pathlib.Path(os.environ["CAIRN_SOURCE_DIR"]) / "api/python"


def test_the_stub_is_that_of_the_module(tmp_path):
    """Mended by: python -P -m nanobind.stubgen -m cairn._core -o api/python/cairn/_core.pyi"""
    made = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, "-P", "-m", "nanobind.stubgen", "-q", "-m", "cairn._core", "-o", made], check=True)
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
    assert f'version = "{cairn.__version__}"' in (SOURCE / "pyproject.toml").read_text()
