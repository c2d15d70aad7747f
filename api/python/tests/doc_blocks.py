# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of the documents, for tests that run them as they stand."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
CODE = {"python", "cpp", "c", "sh"}
FENCE = re.compile(r"^(```|~~~)(\w*)\s*$")
HEADING = re.compile(r"^#+ (.*)")


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int  # The number of its first line of code, from 1.
    section: str  # The heading above it.
    language: str
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def of(page):
    """All blocks of code of a page. Blocks without a language are no code: diagrams, formulas."""
    found, section, begin = [], "", None
    lines = (ROOT / page).read_text().splitlines()
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if begin is None and fence:
            begin, language = number, fence.group(2)
        elif begin is None:
            heading = HEADING.match(line)
            section = heading.group(1) if heading else section
        elif fence:
            text = "\n".join(lines[begin + 1:number]) + "\n"
            if language in CODE:
                found.append(Block(page, begin + 2, section, language, text))
            begin = None
    return found
