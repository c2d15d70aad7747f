# SPDX-License-Identifier: Apache-2.0
"""What the tests of real engines share: the project's model in their formats, and the project's own word on it."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tools" / "llama" / "data"
BUILD = ROOT / os.environ.get("CAIRN_BUILD", "build/release")

# Nothing is fetched, and each process of a test has one core. What such a process compiles of the engines' Python stays in
# their environment, which comes without: else each one compiles all of it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(sys.prefix, "bytecode")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclasses.dataclass
class Exported:
    huggingface: pathlib.Path  # float32
    gguf: pathlib.Path


def export(*arguments):
    subprocess.run([sys.executable, ROOT / "tools" / "llama" / "export", *arguments], check=True)


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    files = Exported(folder / "hf", folder / "model.gguf")
    export("--hf", files.huggingface, "--gguf", files.gguf)
    return files


@pytest.fixture
def small_disk(tmp_path):
    """(the words before a command that give it a disk of its own, of 48 MiB; its folder). Empty for each command."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=48m tmpfs "$0" && exec "$@"', disk]
    if subprocess.run([*words, "true"], check=False).returncode != 0:
        pytest.skip("the system lets nobody mount a small disk of their own")
    return words, disk


class OwnLlama:
    """tools/llama, the program that the model was made for."""

    heldout = DATA / "heldout.txt"

    @staticmethod
    def _run(*arguments):
        done = subprocess.run([BUILD / "bin" / "cairn-llama", *arguments], check=True, capture_output=True)
        return json.loads(done.stdout)

    def encode(self, path):
        return self._run("encode", "--file", path)

    def logits(self, ids):
        """[token][vocabulary]: behind each of the ids."""
        return numpy.array(self._run("logits", "--ids", ",".join(map(str, ids))), numpy.float32)


@pytest.fixture(scope="session")
def own_llama():
    return OwnLlama()
