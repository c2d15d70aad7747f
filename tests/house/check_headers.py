# SPDX-License-Identifier: Apache-2.0
"""Compiles every public header alone, without a warning, by one compiler: in C++20, and those of C in C11, too.

Exit status 1 if a header does not compile, 77 if the compiler is not installed.
"""

import argparse
import os
import shutil
import sys

import check_floors

NOT_INSTALLED = 77
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def jobs_of(root):
    """(path, language) of each header below `root`."""
    of_c = (f"{check_floors.PUBLIC}/c.h", f"{check_floors.PUBLIC}/c/")
    for path in check_floors.list_files(root):
        if path.startswith(check_floors.PUBLIC + "/") and path.endswith(".h"):
            yield path, "C++"
            if path.startswith(of_c):
                yield path, "C"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--cache", help="file that remembers the headers that passed")
    arguments = parser.parse_args()
    if shutil.which(arguments.compiler) is None:
        print(f"{arguments.compiler} is not installed")
        return NOT_INSTALLED
    root = os.path.abspath(arguments.root)
    jobs = list(jobs_of(root))
    compiler = check_floors.HeaderCompiler(root, arguments.compiler, WARNINGS, arguments.cache)
    violations = compiler.check_jobs(jobs)
    for violation in violations:
        print(violation)
    print(f"{arguments.compiler}: {len(jobs) - len(violations)} of {len(jobs)} compile")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
