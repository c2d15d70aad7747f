# SPDX-License-Identifier: Apache-2.0
"""The first example of each page runs as it stands."""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(os.environ["CAIRN_SOURCE_DIR"])


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_example_runs(page, tmp_path, monkeypatch):
    example = re.search(r"```python\n(import cairn\n.*?)```", (ROOT / page).read_text(), re.S).group(1)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, page, "exec"), {})
    assert (tmp_path / "example.store").is_dir()
