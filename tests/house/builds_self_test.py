# SPDX-License-Identifier: Apache-2.0
"""Shows that tools/builds counts each way once, fails when one does, and knows the library's sources."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import unittest
import unittest.mock

sys.dont_write_bytecode = True
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/builds")
loader = importlib.machinery.SourceFileLoader("builds", TOOL)
builds = importlib.util.module_from_spec(importlib.util.spec_from_loader("builds", loader))
loader.exec_module(builds)


def skipped():
    raise builds.Skipped("there is no compiler")


def failed():
    builds.run("sh", "-c", "echo first; echo 'x.cc:1: error: wrong'; exit 3")


class Builds(unittest.TestCase):
    def outcome(self, *ways):
        """(what it said, exit status), of ways that do this."""
        said = io.StringIO()
        names = {f"way{i}": way for i, way in enumerate(ways)}
        with unittest.mock.patch.object(builds, "WAYS", names), contextlib.redirect_stdout(said), \
                unittest.mock.patch.object(sys, "argv", ["builds"]):
            status = builds.main()
        return said.getvalue().splitlines(), status

    def test_counts(self):
        lines, status = self.outcome(lambda: None, lambda: "fine", skipped)
        self.assertEqual(("2 passed, 0 failed, 1 skipped", 0), (lines[-1], status))
        self.assertIn("skipped: way2, 0 s: there is no compiler", lines)

    def test_a_failure_shows_the_first_error(self):
        lines, status = self.outcome(lambda: None, failed)
        self.assertEqual(("1 passed, 1 failed", 1), (lines[-1], status))
        self.assertIn("x.cc:1: error: wrong", lines)
        self.assertNotIn("first", lines)

    def test_sources(self):
        for path in ("base/io/fiber.cc", "engine/restore/plan/restorable.h", "api/c/view.cc", "wal/log.cc"):
            self.assertTrue(builds.SOURCES.fullmatch(path), path)
        for path in ("tools/cli/main.cc", "tests/wal/log_test.cc", "api/python/src/store.cc", "gpu/cuda/device.cu"):
            self.assertFalse(builds.SOURCES.fullmatch(path), path)


if __name__ == "__main__":
    unittest.main()
