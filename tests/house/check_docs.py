# SPDX-License-Identifier: Apache-2.0
"""Checks the documents. Exit status 1 and `file:line: [rule] text` if a rule is broken.

  link    a relative link leads to a file of the repository, and its #anchor to a heading there
  named   a file that a document names by its path, from the root or from engine/, or by its name in backticks,
          exists; so does a document that other files name
  pages   README.md and engine/README.md stay short
"""

import argparse
import os
import re
import sys

MAX_LINES = {"README.md": 160, "engine/README.md": 150}
FOLDERS = "api|base|cmake|docs|engine|fuzz|gpu|sstable|tests|tools|wal"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
INSIDE_ENGINE = "background|commit|config|device|exchange|find|follow|manifest|metrics|objects|restore|sessions|store|tree"
NAMED = re.compile(rf"(?<![\w/.-])(?:{FOLDERS}|{INSIDE_ENGINE})/[\w/.-]*\.(?:h|cc|cu|c|py|md|txt|json|svg|yml|cmake)\b")
DOCUMENT = re.compile(rf"(?<![\w/.-])(?:(?:{FOLDERS})/[\w/.-]*\w|README|CHANGELOG)\.md\b")
BARE = re.compile(r"`(\w+\.(?:h|cc|cu|py))`")
FENCE = re.compile(r"^ *(```|~~~)")
EXTENSIONS = (".h", ".cc", ".c", ".cu", ".py", ".pyi", ".sh", ".txt", ".cmake", "")
SKIPPED_FOLDERS = {".git", ".venv", "build", "shared", "__pycache__", ".cache"}
# The changelog names files as they were at the time. The self-test names files that do not exist.
PAST = {"CHANGELOG.md", "tests/house/check_docs_self_test.py"}


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text):
    found, fenced = set(), False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else re.match(r"#+ (.*)", line)
        if heading:
            base = name = slug(heading.group(1))
            count = 0
            while name in found:
                count += 1
                name = f"{base}-{count}"
            found.add(name)
    return found


def prose(text):
    """(line number, line) without fenced blocks and code spans."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def check_links(path, text, files, read):
    for number, line in prose(text):
        for match in LINK.finditer(line):
            link = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if target not in files and not any(file.startswith(target + "/") for file in files):
                yield f"{path}:{number}: [link] {link}: there is no such file"
            elif anchor and target.endswith(".md") and anchor not in anchors(read(target)):
                yield f"{path}:{number}: [link] {link}: {target} has no such heading"


def check_named(path, text, files, pattern):
    for number, line in enumerate(text.splitlines(), 1):
        for name in pattern.findall(line):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            if files.isdisjoint((name, beside, f"engine/{name}")):
                yield f"{path}:{number}: [named] {name}: there is no such file"


def check_bare(path, text, names):
    for number, line in enumerate(text.splitlines(), 1):
        for name in set(BARE.findall(line)) - names:
            yield f"{path}:{number}: [named] {name}: no file is called so"


def check(root, files):
    names = {os.path.basename(path) for path in files}

    def read(path):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()

    for path in sorted(files):
        if path.endswith(".md"):
            text = read(path)
            yield from check_links(path, text, files, read)
            if path not in PAST:
                yield from check_named(path, text, files, NAMED)
                yield from check_bare(path, text, names)
            lines = text.count("\n")
            if lines > MAX_LINES.get(path, lines):
                yield f"{path}:{lines}: [pages] more than {MAX_LINES[path]} lines"
        elif path not in PAST and os.path.splitext(path)[1] in EXTENSIONS and not path.startswith("fuzz/corpus/"):
            try:
                text = read(path)
            except UnicodeDecodeError:
                continue
            yield from check_named(path, text, files, DOCUMENT)


def files_of(root):
    found = set()
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        found.update(os.path.relpath(os.path.join(folder, name), root) for name in names)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    root = parser.parse_args().root
    broken = list(check(root, files_of(root)))
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
