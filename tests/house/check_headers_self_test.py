# SPDX-License-Identifier: Apache-2.0
"""Shows that tests/house/check_headers.py fails for a header that does not compile, in either language."""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_headers.py")


class CheckHeaders(unittest.TestCase):
    def outcome(self, compiler="g++", **headers):
        """(what it said, exit status), for headers by name; c_NAME is one of C."""
        with tempfile.TemporaryDirectory() as root:
            folder = os.path.join(root, "api/include/cairn")
            os.makedirs(os.path.join(folder, "c"))
            for name, text in headers.items():
                with open(os.path.join(folder, name.replace("c_", "c/") + ".h"), "w", encoding="utf-8") as file:
                    file.write("#pragma once\n" + text)
            done = subprocess.run([sys.executable, SCRIPT, "--root", root, "--compiler", compiler],
                                  capture_output=True, text=True, check=False)
        return done.stdout, done.returncode

    def test_each_language(self):
        self.assertEqual(("g++: 3 of 3 compile\n", 0), self.outcome(c_one="struct one { int a; };\n", two="class Two;\n"))

    def test_what_lacks_an_include(self):
        said, status = self.outcome(one="std::string One();\n")
        self.assertEqual(1, status)
        self.assertIn("api/include/cairn/one.h:1: [self-contained] not alone as C++", said)

    def test_what_is_no_c(self):
        said, status = self.outcome(c_one="int One(bool one);\n")
        self.assertEqual(1, status)
        self.assertIn("not alone as C:", said)
        self.assertNotIn("not alone as C++:", said)

    def test_warnings_are_errors(self):
        self.assertEqual(1, self.outcome(one="inline int One(int two) { return 1; }\n")[1])

    def test_a_compiler_that_is_not_there_is_named(self):
        self.assertEqual(("g++-0 is not installed\n", 77), self.outcome(compiler="g++-0", one=""))


if __name__ == "__main__":
    unittest.main()
