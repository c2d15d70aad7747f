# SPDX-License-Identifier: Apache-2.0
"""Property: the examples of docs/engines.md run as they stand, one behind the other, and in another process."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_quick_start_for_transformers(exported, tmp_path):
    text = (ROOT / "docs" / "engines.md").read_text().partition("## transformers")[2].partition("\n## ")[0]
    first, second = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len([line for line in first.splitlines() if line]) <= 10
    (tmp_path / "model").symlink_to(exported.huggingface)

    def run(code):
        done = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", code], cwd=tmp_path, env=os.environ,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run(first)
    assert "And it came to pass" in said and "Branch('chat', length=45)" in said, said
    assert run(first) == said
    loaded = first.partition("ids =")[0]
    said = run("import torch\n" + loaded + second + "    print(len(cache.tokens), other.branch.info().name)\n")
    assert said.split()[-1] == "what-if" and int(said.split()[-2]) > 85, said
