# SPDX-License-Identifier: Apache-2.0
"""A shared library shows the C API, all of it, and public names of the C++ API: nothing else.

Usage: check_symbols.py libcairn.so
"""

import re
import subprocess
import sys

import headers


def declared_names():
    """Classes that the C++ headers define, and functions that they declare."""
    names = set()
    for text in headers.read(c=False).values():
        plain = headers.strip(text)
        names |= set(re.findall(r"\b(?:class|struct)\s+(\w+)(?=[^;(]*?\{)", plain))
        names |= {name.split("::")[0] for name in headers.cpp_functions(text)}
    return names | {"internal"}  # internal::DieBadResult, which Result calls.


def main(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", "-C", library], check=True, text=True,
                           capture_output=True).stdout.splitlines()
    symbols = [line.split(" ", 2)[2] for line in lines]
    of_c = {symbol for symbol in symbols if symbol.startswith("cairn_")}
    declared_in_c = set(headers.c_functions(headers.read(c=True)))
    public = declared_names()
    wrong = [f"declared and not shown: {name}" for name in sorted(declared_in_c - of_c)]
    wrong += [f"shown and not declared: {name}" for name in sorted(of_c - declared_in_c)]
    for symbol in symbols:
        name = re.match(r"cairn::(\w+)", symbol)
        if symbol not in of_c and (name is None or name.group(1) not in public):
            wrong.append(f"no symbol of the API: {symbol}")
    print("\n".join(wrong + [f"{len(of_c)} symbols of C, {len(symbols) - len(of_c)} of C++"]))
    return 1 if wrong or not of_c or len(symbols) == len(of_c) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
