# SPDX-License-Identifier: Apache-2.0
"""Says why the connector does not start in the last line of the log.

The engine is a process of its own. Where it does not start, vLLM's server ends with "See root cause above" and a long
traceback of its own, and the cause is a hundred lines above. The server's process loads the connector's module as well:
it prints at its very end what the connector said in the engine.
"""

import atexit
import contextlib
import multiprocessing
import os
import pathlib
import secrets
import sys
import tempfile

from ._errors import described

# In the environment, which the engine inherits: the server's process, and a file that a connector makes if it refuses.
_PLACE = "CAIRN_VLLM_REFUSAL"


def expect():
    """Called when the module is loaded. The engine is a child of the server's by multiprocessing."""
    if multiprocessing.parent_process() is not None:
        return
    path = pathlib.Path(tempfile.gettempdir()) / f"cairn-{secrets.token_hex(16)}"
    os.environ[_PLACE] = f"{os.getpid()} {path}"
    atexit.register(_print, os.getpid(), path)


def tell(error):
    """A connector does not start for that."""
    process, _, path = os.environ.get(_PLACE, "").partition(" ")
    if not path or int(process) == os.getpid():
        return  # The traceback of this process ends with it.
    with contextlib.suppress(OSError):  # Both sides refuse alike; without the file it is where it was in the log.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as out:
            out.write(described(error))


def _print(process, path):
    if os.getpid() != process:
        return
    with contextlib.suppress(OSError):
        text = path.read_text()
        path.unlink()
        print(f"vLLM did not start, since Cairn's connector refused: {text}", file=sys.stderr, flush=True)
