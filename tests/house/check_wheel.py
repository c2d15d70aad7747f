# SPDX-License-Identifier: Apache-2.0
"""Checks a wheel: it has all files of the package, the command line and no others, asks for numpy alone, its module
needs libc and the interpreter, and its command line libc. Prints a line for each mistake, or the oldest glibc that will
do.

Usage: check_wheel.py WHEEL. Needs readelf.
"""

import email
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "api" / "python" / "cairn"
LIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1"}
NEWEST_GLIBC = (2, 36)  # Debian 12's, where the project is built.
REQUIRED = ["numpy"]
COMMAND = "cairn/bin/cairn"


def file_mistakes(names):
    suffixes = (".py", ".pyi", ".typed")
    expected = {COMMAND} | {f"cairn/{path.name}" for path in PACKAGE.iterdir() if path.suffix in suffixes}
    found = {name for name in names if ".dist-info/" not in name}
    modules = {name for name in found if re.fullmatch(r"cairn/_core\.[^/]*\.so", name)}
    return ([f"{name} is not in the wheel" for name in sorted(expected - found)] +
            [f"{name} should not be in the wheel" for name in sorted(found - modules - expected)] +
            ([] if len(modules) == 1 else [f"{len(modules)} modules instead of one"]))


def readelf(option, module):
    return subprocess.run(["readelf", option, "-W", module], check=True, capture_output=True, text=True).stdout


def module_mistakes(name, module):
    """The mistakes of the module or command line, and the version of glibc that it needs."""
    dynamic, symbols = readelf("-d", module), readelf("--dyn-syms", module)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    mistakes = [f"{name} needs {library}" for library in sorted(needed - LIBC)]
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        mistakes.append(f"{name} looks for libraries in a folder of the machine that built it")
    if ".debug_info" in readelf("-S", module):
        mistakes.append(f"{name} has debug information")
    glibc = (0, 0)
    for binding, symbol in re.findall(r" (GLOBAL|WEAK) .* UND (\S+)", symbols):
        imported, _, version = symbol.partition("@")
        if version.startswith("GLIBC_"):
            glibc = max(glibc, tuple(map(int, version.removeprefix("GLIBC_").split("."))))
        elif version or binding == "GLOBAL" and not (name != COMMAND and re.match("_?Py", imported)):
            mistakes.append(f"{name} needs {symbol}, which neither libc nor the interpreter has")
    if glibc > NEWEST_GLIBC:
        mistakes.append(f"{name} needs glibc {'.'.join(map(str, glibc))}")
    return mistakes, glibc


def main():
    with zipfile.ZipFile(sys.argv[1]) as wheel, tempfile.TemporaryDirectory() as folder:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        mistakes = file_mistakes(names)
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        required = email.message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist", [])
        if required != REQUIRED:
            mistakes.append(f"it asks for {required}, not for {REQUIRED}")
        glibc = (0, 0)
        for name in names:
            if name.endswith(".so") or name == COMMAND:
                of_module, needed = module_mistakes(name, wheel.extract(name, folder))
                mistakes += of_module
                glibc = max(glibc, needed)
    newest = ".".join(map(str, glibc[:2]))
    print("\n".join(mistakes) or f"{pathlib.Path(sys.argv[1]).name}: {len(names)} files, needs glibc {newest} or newer")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
