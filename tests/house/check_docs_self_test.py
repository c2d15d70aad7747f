# SPDX-License-Identifier: Apache-2.0
"""Shows that check_docs.py accepts a sound tree and reports each rule that is broken."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_docs.py")


class CheckDocs(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.write("README.md", "# One\n\n[two](docs/two.md#second-part-and-more), [here](#one), [web](https://x.y/z)\n")
        self.write("docs/two.md", "# Two\n\n## Second part, and `more`\n\n[back](../README.md), [docs](.)\n")
        self.write("engine/part.h", "// docs/two.md explains it.\n")

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def check(self):
        result = subprocess.run([sys.executable, CHECK, "--root", self.root], text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 1 if result.stdout else 0, result.stdout)
        return result.stdout

    def test_accepts_a_sound_tree(self):
        self.assertEqual(self.check(), "")

    def test_links_lead_somewhere(self):
        self.write("docs/three.md", "a\n[gone](gone.md), [gone](two.md#third-part)\n")
        self.assertEqual(self.check().splitlines(), [
            "docs/three.md:2: [link] gone.md: there is no such file",
            "docs/three.md:2: [link] two.md#third-part: docs/two.md has no such heading"])

    def test_pictures_are_links(self):
        self.write("docs/three.md", '![](gone.svg) <img src="gone.png">\n')
        self.assertEqual(len(self.check().splitlines()), 2)

    def test_code_holds_no_links_and_no_headings(self):
        self.write("docs/three.md", "`[x](gone.md)`\n\n```\n[x](gone.md)\n# Heading\n```\n\n[x](#heading)\n")
        self.assertEqual(self.check(), "docs/three.md:8: [link] #heading: docs/three.md has no such heading\n")

    def test_named_files_exist(self):
        self.write("engine/tree/memory/node.h", "")
        self.write("docs/three.md", "`engine/part.h`, `engine/gone.h`, `tree/memory/node.h`, `tree/gone.h`\n")
        self.write("engine/other.cc", "// docs/gone.md explains it.\n")
        self.assertEqual(self.check().splitlines(), [
            "docs/three.md:1: [named] engine/gone.h: there is no such file",
            "docs/three.md:1: [named] tree/gone.h: there is no such file",
            "engine/other.cc:1: [named] docs/gone.md: there is no such file"])

    def test_files_named_without_a_folder_exist(self):
        self.write("docs/three.md", "`part.h` of `gone.cc`, made.h\n")
        self.assertEqual(self.check(), "docs/three.md:1: [named] gone.cc: no file is called so\n")

    def test_pages_stay_short(self):
        self.write("README.md", "line\n" * 160)
        self.assertEqual(self.check(), "")
        self.write("README.md", "line\n" * 161)
        self.assertEqual(self.check(), "README.md:161: [pages] more than 160 lines\n")


if __name__ == "__main__":
    unittest.main()
