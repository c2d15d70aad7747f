# SPDX-License-Identifier: Apache-2.0
"""The command line, as `python -m cairn` and as the script `cairn` of the wheel. `cairn --help` lists its commands;
`cairn llama` is in Python (cairn/llamacpp.py)."""

import os
import pathlib
import signal
import sys

COMMAND = pathlib.Path(__file__).parent / "bin" / "cairn"


def main():
    """Becomes the program that comes with the package, with the arguments of this process."""
    if sys.argv[1:2] == ["llama"]:
        from . import llamacpp
        sys.exit(llamacpp.main(sys.argv[2:]))
    if not COMMAND.exists():
        sys.exit(f"cairn: {COMMAND} is not there: the package was built without the command line")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that.
    os.execv(COMMAND, ["cairn", *sys.argv[1:]])


if __name__ == "__main__":
    main()
