# SPDX-License-Identifier: Apache-2.0
"""`cairn llama put`, `get` and `serve-slots`: in Python, since the digest of weights that all adapters share is."""

import argparse
import logging
import os
import signal
import sys
import threading

from . import _llama_slots, _shared
from ._core import Store
from ._errors import Error, IoError, described
from ._llama_model import Weights
from ._llama_serve import SlotKeeper, serve

# As the command in C++ ends (tools/cli/command.cc).
_EXITS = {"InvalidArgument": 2, "NotFound": 3, "Corruption": 4, "Busy": 5, "Locked": 5, "AlreadyExists": 6,
          "Conflict": 6, "ModelMismatch": 6, "UnsupportedFormat": 7}


def _arguments(words):
    parser = argparse.ArgumentParser(
        prog="cairn llama", description="Slot files of llama-server in a store.",
        epilog="Exit codes are those of cairn --help. docs/engines.md has the server's calls.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="put|get|serve-slots")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--model", required=True, metavar="GGUF", help="the server's model: its bytes tell it apart")
    shared.add_argument("--namespace", default="", help="of the branches")
    shared.add_argument("--revision", default="", metavar="TEXT",
                        help="of what changes KV and is in no GGUF file: LoRA, a control vector, rope settings")
    writes = argparse.ArgumentParser(add_help=False)
    writes.add_argument("--durability", default="process", choices=("memory", "process", "power"))
    writes.add_argument("--on-conflict", default="fork", choices=("fork", "rewind", "raise"),
                        help="where the branch has other tokens: keep them in another branch, forget them, or refuse")
    put = commands.add_parser("put", parents=[shared, writes], help="makes a branch what a slot file is")
    get = commands.add_parser("get", parents=[shared], help="writes a branch as a slot file")
    for command in (put, get):
        command.add_argument("store", metavar="STORE")
        command.add_argument("branch", metavar="BRANCH")
        command.add_argument("file", metavar="SLOTFILE")
    get.add_argument("--at", type=int, metavar="TOKENS", help="the first TOKENS tokens; by default all that have KV")
    get.add_argument("--like", metavar="SLOTFILE", help="write it as this one is, of the server that shall restore it; "
                                                        "by default as the last one that was put")
    keep = commands.add_parser("serve-slots", parents=[shared, writes], help="keeps the slots that a server saves, and "
                               "lays them out again; until SIGINT or SIGTERM")
    keep.add_argument("folder", metavar="DIR", help="--slot-save-path of the server")
    keep.add_argument("store", metavar="STORE")
    keep.add_argument("--server", default="http://127.0.0.1:8080", metavar="URL", help="%(default)s")
    keep.add_argument("--listen", default="127.0.0.1:8081", metavar="HOST:PORT",
                      help="where calls of /slots/ID?action=... are taken; %(default)s")
    keep.add_argument("--remove", action="store_true", help="delete a file once it is stored, at durability power")
    return parser.parse_args(words)


def _digested(arguments):
    weights = Weights(arguments.model)
    try:
        return weights, weights.digest()
    except OSError as error:
        raise IoError(f"model: {error}") from None


def _slots(arguments, store, **more):
    weights, digest = _digested(arguments)
    return _llama_slots.SlotStore(store, weights, digest, namespace=arguments.namespace, revision=arguments.revision,
                                  **more)


def _put(arguments):
    slot = _llama_slots.read(arguments.file)  # First: a store is not made for a file that is none.
    store = _shared.acquire(arguments.store, {"create_if_missing": True})
    try:
        slots = _slots(arguments, store, durability=arguments.durability, on_conflict=arguments.on_conflict)
        length, added = slots.put(arguments.branch, slot)
        print(f"{length} tokens, {added} new")
    finally:
        _shared.release(arguments.store)


def _get(arguments):
    with Store(arguments.store, read_only=True) as store:
        length = _slots(arguments, store).get(arguments.branch, arguments.file, arguments.at, arguments.like)
        print(f"{length} tokens")


def _serve(arguments):
    host, _, port = arguments.listen.rpartition(":")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    store = _shared.acquire(arguments.store, {"create_if_missing": True})
    try:
        slots = _slots(arguments, store, durability="power" if arguments.remove else arguments.durability,
                       on_conflict=arguments.on_conflict)
        keeper = SlotKeeper(arguments.folder, slots, remove=arguments.remove, server=arguments.server)
        serve(keeper, host or "127.0.0.1", int(port), stop,
              lambda bound: print(f"cairn: slots of {arguments.folder} on port {bound}", flush=True))
    finally:
        _shared.release(arguments.store)


def main(words=None):
    """The exit status."""
    arguments = _arguments(sys.argv[1:] if words is None else words)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        {"put": _put, "get": _get, "serve-slots": _serve}[arguments.command](arguments)
    except Error as error:
        print(f"cairn: llama {arguments.command}: {described(error)}", file=sys.stderr)
        return _EXITS.get(error.code, 1)
    except OSError as error:
        print(f"cairn: llama {arguments.command}: {os.strerror(error.errno) if error.errno else error}",
              file=sys.stderr)
        return 1
    return 0
