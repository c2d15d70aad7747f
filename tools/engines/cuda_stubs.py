#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes stand-ins for the CUDA libraries that torch links and a machine without a GPU never calls.

PyPI's torch for Linux is a CUDA build. Its libraries name others (cuBLAS, cuDNN, NCCL, ...), 2.5 GB
of them, which the loader wants to find with every symbol, though nothing calls one. A stand-in has
the name, the symbols and their versions; each function returns 999 (cudaErrorUnknown). Needs gcc and
readelf. For tests on machines without a GPU only.

Usage: cuda_stubs.py SITE_PACKAGES
"""

import collections
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

CUDA_LIBRARY = re.compile(r"\[(lib(?:cu|nv|nccl)[^\]]*)\]")


def readelf(option, path):
    done = subprocess.run(["readelf", option, "-W", path], check=True, capture_output=True, text=True)
    return done.stdout


def version_owners(path):
    """Which library a symbol version is of: {version: library}."""
    owners, library = {}, None
    for line in readelf("-V", path).splitlines():
        if file := re.search(r"File: (\S+)", line):
            library = file.group(1)
        elif name := re.search(r"Name: (\S+)\s+Flags", line):
            owners[name.group(1)] = library
    return owners


class Object:
    """One of torch's libraries: what it needs, defines and leaves to others."""

    def __init__(self, path):
        self.needed = sorted(CUDA_LIBRARY.findall("\n".join(
            line for line in readelf("-d", path).splitlines() if "(NEEDED)" in line)))
        self.defined, self.undefined = set(), set()  # Names; (name, version or "").
        for line in readelf("--dyn-syms", path).splitlines():
            fields = line.split()
            if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
                continue
            name, _, version = fields[7].partition("@")
            if fields[6] != "UND":
                self.defined.add(name)
            elif fields[4] != "WEAK":
                self.undefined.add((name, version.lstrip("@")))
        self.owners = version_owners(path)


def missing_symbols(objects, found):
    """{library: {version: names}} of what no library has."""
    process = ctypes.CDLL(None)  # libc and the interpreter.
    defined = set().union(*(one.defined for one in objects))
    missing = {library: collections.defaultdict(set)
               for one in objects for library in one.needed if library not in found}
    for one in objects:
        absent = [library for library in one.needed if library in missing]
        for name, version in one.undefined:
            if version:
                library = one.owners.get(version)
            elif absent and name not in defined and not hasattr(process, name):
                library = absent[0]  # Any library that the object needs may have it.
            else:
                continue
            if library in missing:
                missing[library][version].add(name)
    return missing


def write_stub(folder, library, versions):
    names = sorted(set().union(*versions.values())) or ["cairn_stub"]
    script = "".join(f"{version} {{ global: {' '.join(name + ';' for name in sorted(symbols))} }};\n"
                     for version, symbols in sorted(versions.items()) if version)
    with tempfile.TemporaryDirectory() as scratch:
        source, version_script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in names))
        version_script.write_text(script)
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", source, "-o", folder / library,
                   f"-Wl,-soname,{library}"]
        if script:
            command.append(f"-Wl,--version-script={version_script}")
        subprocess.run(command, check=True)


def main():
    site = pathlib.Path(sys.argv[1])
    folder = site / "torch" / "lib"
    found = {path.name for path in site.glob("nvidia/**/*.so*")} | {path.name for path in folder.iterdir()}
    missing = missing_symbols([Object(path) for path in sorted(folder.glob("*.so"))], found)
    for library, versions in sorted(missing.items()):
        write_stub(folder, library, versions)
    print(f"stand-ins for {len(missing)} CUDA libraries: {' '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
