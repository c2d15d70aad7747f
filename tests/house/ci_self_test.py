# SPDX-License-Identifier: Apache-2.0
"""Shows that .ci/run sums what its three parts say and fails when one does, and that tools/test-engines never
calls a test passed that did not run."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


class Checkout(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def copy(self, path):
        target = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(ROOT, path), target)

    def write(self, path, text):
        target = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(target, 0o755)

    def run_script(self, path, *arguments):
        done = subprocess.run([os.path.join(self.folder.name, path), *arguments], capture_output=True, text=True,
                              check=False)
        return done.stdout.splitlines(), done.returncode


class CiRun(Checkout):
    def outcome(self, tests, engines, builds=("0 passed, 0 failed", 0)):
        """(last line, exit status), of parts that are (last line, exit status) each."""
        self.copy(".ci/run")
        for path, (line, status) in {"tools/test": tests, "tools/test-engines": engines, "tools/builds": builds}.items():
            self.write(path, f"#!/bin/sh\necho much $*\necho '{line}'\nexit {status}\n")
        lines, status = self.run_script(".ci/run")
        self.assertIn("much changed", lines)
        self.assertIn("much", lines)
        return lines[-1], status

    def test_sums(self):
        self.assertEqual(("12 passed, 0 failed", 0), self.outcome(("10 passed, 0 failed", 0), ("2 passed, 0 failed", 0)))
        self.assertEqual(("12 passed, 0 failed, 4 skipped", 0),
                         self.outcome(("10 passed, 0 failed, 3 skipped", 0), ("2 passed, 0 failed, 1 skipped", 0)))

    def test_either_fails(self):
        self.assertEqual(("11 passed, 1 failed", 1), self.outcome(("9 passed, 1 failed", 1), ("2 passed, 0 failed", 0)))
        self.assertEqual(("11 passed, 1 failed", 1), self.outcome(("10 passed, 0 failed", 0), ("1 passed, 1 failed", 1)))
        self.assertEqual(("12 passed, 0 failed", 1), self.outcome(("10 passed, 0 failed", 0), ("2 passed, 0 failed", 9)))

    def test_a_build_fails(self):
        self.assertEqual(("12 passed, 1 failed", 1),
                         self.outcome(("10 passed, 0 failed", 0), ("2 passed, 0 failed", 0), ("0 passed, 1 failed", 1)))

    def test_a_part_that_ends_early_is_a_failure(self):
        self.assertEqual(("2 passed, 1 failed", 1), self.outcome(("no line", 0), ("2 passed, 0 failed", 0)))
        self.assertEqual(("10 passed, 1 failed", 1), self.outcome(("10 passed, 0 failed", 0), ("", 139)))

    def test_engines_that_cannot_be_had_fail_nothing(self):
        self.assertEqual(("10 passed, 0 failed, 7 skipped", 0),
                         self.outcome(("10 passed, 0 failed", 0), ("0 passed, 0 failed, 7 skipped", 77)))


class TestEngines(Checkout):
    def setUp(self):
        super().setUp()
        self.copy("tools/test-engines")
        self.write("tests/engines/test_a.py", "def helper():\n    pass\n\n\ndef test_one():\n    pass\n")
        self.write("tests/engines/test_b.py", "def test_two(fixture):\n    pass\n")

    def test_without_the_registry_each_is_told_by_name(self):
        self.write("tools/engines/install", "#!/bin/sh\nexit 3\n")
        lines, status = self.run_script("tools/test-engines", "--no-setup")
        said = ": not run, the registry cannot be reached"
        self.assertEqual([f"skipped: engines.test_a.test_one{said}", f"skipped: engines.test_b.test_two{said}",
                          "0 passed, 0 failed, 2 skipped"], lines[-3:])
        self.assertEqual(77, status)

    def test_engines_that_do_not_install_are_a_failure(self):
        self.write("tools/engines/install", "#!/bin/sh\nexit 1\n")
        lines, status = self.run_script("tools/test-engines", "--no-setup")
        self.assertEqual(("0 passed, 1 failed", 1), (lines[-1], status))


if __name__ == "__main__":
    unittest.main()
