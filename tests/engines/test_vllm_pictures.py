# SPDX-License-Identifier: Apache-2.0
"""Property: vLLM with cairn.vllm.CairnConnector finds a prompt with a picture by what the picture shows. The same
picture is loaded with the text around it; of a prompt with another one the text before it is.
Method: a real engine with a small model that sees, whose answers differ by picture. The first answer to each picture is
computed; the next ones say the same. test_vllm_content.py has chunks, several pictures and what is left alone."""

import json
import pathlib
import subprocess
import sys

import vllm_pictures_process
from conftest import OwnLlama
from test_vllm import BLOCK, CLOSE, same, whole

TEXT = OwnLlama.heldout.read_text()


def test_a_prompt_with_a_picture_is_found_by_what_it_shows(exported, tmp_path):
    job = {"language": str(exported.huggingface), "model": str(tmp_path / "model"),
           "extra": {"path": str(tmp_path / "store")}, "before": TEXT[:400], "behind": TEXT[400:700],
           "pictures": [1, 2, 1, 2]}
    done = subprocess.run([sys.executable, pathlib.Path(vllm_pictures_process.__file__), json.dumps(job)],
                          capture_output=True, text=True, check=False)
    print((done.stderr + done.stdout)[-4000:])
    assert done.returncode == 0
    one, two, *again = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert one["prompt"] == two["prompt"] and one["begin"] > 2 * BLOCK
    assert max(abs(a - b) for a, b in zip(one["logprobs"], two["logprobs"])) > 2 * CLOSE
    assert (one["cached"], two["cached"]) == (0, whole(one["begin"]))
    for ours, theirs in zip(again, (one, two), strict=True):
        same(ours, theirs)
        assert ours["cached"] == whole(len(theirs["prompt"]) - 1) > one["begin"]
