# SPDX-License-Identifier: Apache-2.0
"""A Chromium without a window, driven over its DevTools pipe. Needs nothing but the standard library."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile


def find() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. `problems` are the exceptions and console errors of it, and what it asked the network for."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="cairn-browser-", ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def place_pipes() -> None:  # Chromium reads commands from 3 and answers on 4.
            commands, answers = os.dup(to_read), os.dup(to_write)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [find() or "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={self._profile.name}", "about:blank"],
            stderr=subprocess.DEVNULL, preexec_fn=place_pipes, close_fds=False)
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._count = 0
        self._session: str | None = None
        self._events: list[dict] = []
        self._scripts = True
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def _next(self) -> dict:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], 60)[0]:
                raise RuntimeError("the browser has not answered for a minute")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message: dict) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("file:"):
            self.problems.append("asked for " + parameters["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append("a dialog: " + parameters["message"])
            self._send("Page.handleJavaScriptDialog", accept=True)
        self._events.append(message)

    def _send(self, method: str, **parameters: object) -> int:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._count

    def call(self, method: str, **parameters: object) -> dict:
        number = self._send(method, **parameters)
        while True:
            message = self._next()
            if message.get("id") != number:
                self._note(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            else:
                return message["result"]

    def open(self, page: pathlib.Path) -> None:
        self.problems.clear()
        self._events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._note(self._next())
        self.settle()

    def settle(self) -> None:
        """Waits until two frames are drawn. Where no scripts run the page is as it was loaded."""
        if not self._scripts:
            return
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.call("Runtime.evaluate", expression=frames, awaitPromise=True)

    def value(self, expression: str) -> object:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.settle()

    def scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def scripts(self, on: bool) -> None:
        self._scripts = on
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def key(self, key: str) -> None:
        codes = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27,
                 "Home": 36, "End": 35}
        text = {"text": key} if len(key) == 1 else {}
        code = codes.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.settle()

    def screenshot(self, file: pathlib.Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
