# SPDX-License-Identifier: Apache-2.0
"""The --slot-save-path of a llama-server, kept in a store, and laid out again for it.

Two ways lead here: inotify shows each file that the server has saved; and a small HTTP server takes the server's own
calls on slots, so that a file is there before the server opens it, and stored before its client has the answer.
"""

import contextlib
import ctypes
import http.server
import json
import logging
import os
import pathlib
import re
import select
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request

from . import _llama_slots
from ._errors import Conflict, Error, InvalidArgument, IoError, ModelMismatch, NotFound, described

_log = logging.getLogger(__name__)

BODY_MAX = 64 << 10
SECONDS = 600  # That a call of the server may take.
RETRIES, RETRY_SECONDS = 5, 0.2  # While a file is written to.
_CLOSE_WRITE, _MOVED_TO, _OVERFLOW = 0x8, 0x80, 0x4000
_EVENT = struct.Struct("iIII")
_SLOT = re.compile(r"/slots/(\d{1,9})\?action=(save|restore|erase)")
_REFUSED_IN_NAMES = set('/\\:*?"<>|') | {chr(code) for code in (*range(32), 127)}


def check_name(name):
    """As llama-server has it, and no hidden files."""
    if not isinstance(name, str) or not name or len(name.encode(errors="surrogatepass")) > 200 \
            or name.startswith(".") or _REFUSED_IN_NAMES & set(name) or not name.isprintable():
        raise InvalidArgument(f"filename: {name!r} is no name of a slot file")
    return name


class SlotKeeper:
    """Files of a folder as branches of a SlotStore, by their names.

    remove: a file goes once it is stored. server: the URL of the llama-server, which is asked once which model it has.
    """

    def __init__(self, folder, slots, *, remove=False, server=None):
        self.folder, self.slots, self.remove = pathlib.Path(folder), slots, remove
        self.server = server and server.rstrip("/")
        self._lock = threading.Lock()
        self._kept = {}  # Name -> identity of the file whose content its branch has.
        self._checked = False

    def scan(self):
        """Keeps what was saved while nobody watched, and drops what a writer left unfinished."""
        for path in sorted(self.folder.iterdir()):
            if path.name.endswith(_llama_slots.PARTIAL):
                path.unlink(missing_ok=True)
            elif not path.name.startswith("."):
                self.keep_or_tell(path.name)

    def keep_or_tell(self, name):
        try:
            return self.keep(name)
        except Error as error:
            _log.warning("Cairn: %s is not kept: %s", name, described(error))
            return None

    def keep(self, name):
        """(tokens of the branch, of these the new ones). None: it is kept already, or gone."""
        path = self.folder / check_name(name)
        with self._lock:
            for attempt in range(RETRIES + 1):
                try:
                    if self._kept.get(name) == _llama_slots.identity_of(os.lstat(path)):
                        return None
                    slot = _llama_slots.read(path, follow=False)
                    break
                except (NotFound, FileNotFoundError):
                    return None
                except Conflict:
                    if attempt == RETRIES:
                        raise
                    threading.Event().wait(RETRY_SECONDS)
            length, added = self.slots.put(name, slot)
            self._kept[name] = slot.identity
            _log.info("Cairn: %s has %d tokens, %d of them new", name, length, added)
            if self.remove:
                path.unlink(missing_ok=True)
                del self._kept[name]
            return length, added

    @contextlib.contextmanager
    def laid_out(self, name, tokens=None):
        """The name under which the server finds the branch, with `tokens` its first ones, as long as this lasts."""
        check_name(name)
        shown = name if tokens is None else f"{name}@{tokens}"
        path = self.folder / shown
        with self._lock:
            made = tokens is not None or not path.exists()
            if made:
                try:
                    self.slots.get(name, path, tokens)
                except NotFound:
                    if tokens is not None or not path.exists():
                        raise
                self._kept[shown] = _llama_slots.identity_of(os.lstat(path))
        try:
            yield shown
        finally:
            if made and (self.remove or tokens is not None):
                with self._lock:
                    with contextlib.suppress(OSError):
                        if self._kept.pop(shown, None) == _llama_slots.identity_of(os.lstat(path)):
                            path.unlink()

    def call(self, path, body):
        """(status, answer) of the llama-server. IoError: it does not answer."""
        request = urllib.request.Request(self.server + path, json.dumps(body).encode() if body is not None else None,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with contextlib.suppress(ValueError):
                return error.code, json.load(error)
            return error.code, {"error": {"message": str(error)}}
        except (OSError, ValueError) as error:
            raise IoError(f"{self.server}: {error}") from None

    def check_server(self):
        """ModelMismatch: the server has another model. Servers that do not say so are believed."""
        if self._checked:
            return
        status, said = self.call("/props", None)
        path = said.get("model_path") if isinstance(said, dict) and status == 200 else None
        ours = self.slots.weights.parts
        if isinstance(path, str) and os.path.exists(path) and not any(os.path.samefile(path, part) for part in ours):
            raise ModelMismatch(f"{self.server}: has the model {path}, and not {ours[0]}")
        self._checked = True

    def answer(self, path, body):
        """(status, answer) to a call of the server's own API for slots."""
        match = _SLOT.fullmatch(path)
        if match is None:
            return 404, _refusal("this port has POST /slots/ID?action=save|restore|erase; the server has the rest")
        self.check_server()
        action = match[2]
        if action == "erase":
            return self.call(path, body)
        name, tokens = body.get("filename"), body.get("tokens")
        if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or action == "save"):
            raise InvalidArgument(f"tokens: {tokens!r}; a number of tokens, of a restore")
        check_name(name)
        if action == "save":
            status, said = self.call(path, {"filename": name})
            if status == 200:
                said["cairn"] = self._stored(name)
            return status, said
        with self.laid_out(name, tokens) as shown:
            status, said = self.call(path, {"filename": shown})
        return status, said

    def _stored(self, name):
        """The word on it beside the server's own. The file was saved in any case."""
        try:
            kept = self.keep(name)
        except Error as error:
            _log.warning("Cairn: %s is not kept: %s", name, described(error))
            return {"error": described(error)}
        if kept is None:  # The watcher was first.
            kept = self.slots.store.find_branch(name, namespace=self.slots.namespace).length, 0
        return {"branch": name, "tokens": kept[0], "added": kept[1]}


def _refusal(message):
    return {"error": {"message": message, "type": "invalid_request_error"}}


_STATUSES = {"NotFound": 404, "InvalidArgument": 400, "Evicted": 409, "Conflict": 409, "ModelMismatch": 409,
             "NoSpace": 507, "IoError": 502}


class Front:
    """The HTTP server. close() it."""

    def __init__(self, keeper, host, port):
        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = SECONDS

            def do_POST(self):
                try:
                    length = int(self.headers.get("Content-Length") or 0)
                    if not 0 <= length <= BODY_MAX:
                        raise InvalidArgument(f"body: {length} bytes; at most {BODY_MAX}")
                    body = json.loads(self.rfile.read(length) or b"{}")
                    if not isinstance(body, dict):
                        raise InvalidArgument("body: is no object of JSON")
                    status, said = keeper.answer(self.path, body)
                except ValueError as error:  # InvalidArgument, too.
                    status, said = 400, _refusal(str(error))
                except Error as error:
                    status, said = _STATUSES.get(error.code, 500), _refusal(described(error))
                self._send(status, said)

            def do_GET(self):
                self._send(404, _refusal("ask the server itself"))

            def _send(self, status, said):
                content = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, form, *arguments):
                _log.debug(form, *arguments)

        self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="cairn.slots", daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Watch:
    """Names of files of a folder that were closed behind a write, or moved to it."""

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self._file = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._file < 0 or libc.inotify_add_watch(self._file, os.fsencode(folder), _CLOSE_WRITE | _MOVED_TO) < 0:
            error = os.strerror(ctypes.get_errno())
            self.close()
            raise IoError(f"{folder}: cannot be watched: {error}")

    def wait(self, seconds):
        """The names, each once; None: some were lost, so look at all."""
        ready, _, _ = select.select([self._file], [], [], seconds)
        names = {}
        while ready:
            try:
                read = os.read(self._file, 1 << 16)
            except BlockingIOError:
                break
            at = 0
            while at < len(read):
                _, mask, _, length = _EVENT.unpack_from(read, at)
                at += _EVENT.size
                if mask & _OVERFLOW:
                    return None
                names[os.fsdecode(read[at:at + length].rstrip(b"\0"))] = True
                at += length
        return [name for name in names if not name.startswith(".")]

    def close(self):
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def serve(keeper, host, port, stop, started=lambda port: None):
    """Until `stop`, an Event, is set. started: called with the port once everything that was there is kept."""
    watch = Watch(keeper.folder)
    try:
        keeper.scan()
        front = Front(keeper, host, port)
        started(front.port)
        try:
            while not stop.is_set():
                names = watch.wait(0.2)
                if names is None:
                    keeper.scan()
                for name in names or ():
                    keeper.keep_or_tell(name)
        finally:
            front.close()
    finally:
        watch.close()
