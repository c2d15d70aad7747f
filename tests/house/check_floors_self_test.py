# SPDX-License-Identifier: Apache-2.0
"""Shows that check_floors.py finds each kind of broken rule, at its line, and nothing in clean code.

Every sample is a small tree in a temporary folder with the violations that it must yield.
"""

import os
import shutil
import sys
import tempfile
import unittest

import check_floors

CPP = "// SPDX-License-Identifier: Apache-2.0\n"
COMPILER = "g++"


class CheckFloors(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.write("base/core/x.h", CPP + "#pragma once\nstruct X {};\n")
        self.write("base/codec/x.h", CPP + '#pragma once\n#include "base/core/x.h"\nstruct C { X x; };\n')
        for folder in ("api/include/cairn", "base/io", "wal", "sstable", "gpu", "engine/store", "sim", "tests/sim",
                       "api/cpp", "api/c"):
            self.write(folder + "/y.h", CPP + "#pragma once\n")

    def write(self, path, text):
        full_path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full_path), exist_ok=True)
        with open(full_path, "w", encoding="utf-8") as file:
            file.write(text)

    def found(self, flags=(), cache=None):
        violations = check_floors.check_tree(self.root, COMPILER, list(flags), cache)
        return sorted((v.path, v.line, v.rule) for v in violations)

    def assert_rule(self, path, text, *expected):
        """`expected`: (line, rule) of every violation in this file, which must be the only ones in the tree."""
        self.write(path, text)
        self.assertEqual(self.found(), sorted((path, line, rule) for line, rule in expected), text)

    def test_clean_tree(self):
        self.assertEqual(self.found(), [])

    def test_floors(self):
        forbidden = [
            ("api/include/cairn", "base/core/x.h"), ("base/core", "base/codec/x.h"), ("base/core", "base/io/y.h"),
            ("base/codec", "base/io/y.h"), ("base/io", "wal/y.h"), ("wal", "sstable/y.h"), ("wal", "engine/store/y.h"),
            ("sstable", "wal/y.h"), ("gpu", "wal/y.h"), ("gpu", "sstable/y.h"), ("wal", "gpu/y.h"),
            ("engine/store", "api/c/y.h"), ("engine/store", "api/cpp/y.h"), ("engine/store", "tests/sim/y.h"),
            ("tools/cli", "tests/sim/y.h"), ("engine/store", "sim/y.h"), ("api/cpp", "sim/y.h"), ("base/io", "sim/y.h"),
        ]
        for folder, target in forbidden:
            with self.subTest(folder=folder, target=target):
                path = folder + "/bad.cc"
                self.assert_rule(path, CPP + f'#include "{target}"\n', (2, "floor"))
                os.remove(os.path.join(self.root, path))
        allowed = [
            ("base/core", "cairn/y.h"), ("base/codec", "base/core/x.h"), ("base/io", "base/codec/x.h"),
            ("wal", "base/io/y.h"), ("gpu", "base/io/y.h"), ("engine/store", "wal/y.h"),
            ("engine/store", "gpu/y.h"), ("api/cpp", "engine/store/y.h"), ("api/c", "engine/store/y.h"),
            ("tools/cli", "engine/store/y.h"), ("tests/wal", "tests/sim/y.h"), ("fuzz", "tests/sim/y.h"),
            ("sim", "base/io/y.h"), ("tests/wal", "sim/y.h"), ("tools/bench", "sim/y.h"),
        ]
        for folder, target in allowed:
            self.write(folder + "/good.cc", CPP + f'#include "{target}"\n')
        self.assertEqual(self.found(), [])

    def test_floors_of_the_engine(self):
        rooms = ["engine/config", "engine/tree/memory", "engine/tree/ops", "engine/commit", "engine/restore/plan",
                 "engine/restore/gpu", "engine/restore", "engine/find", "engine/background", "engine/sessions/shadow",
                 "engine/store"]
        beside = [("engine/tree/ops", "engine/tree/records"), ("engine/background", "engine/follow"),
                  ("engine/follow", "engine/metrics"), ("engine/metrics", "engine/background")]
        for folder in rooms + ["engine/tree/records", "engine/follow", "engine/metrics"]:
            self.write(folder + "/z.h", CPP + "#pragma once\n")
        for folder, target in list(zip(rooms, rooms[1:])) + beside + [("wal", "engine/store")]:
            with self.subTest(folder=folder, target=target):
                self.assert_rule(folder + "/bad.h", CPP + f'#pragma once\n#include "{target}/z.h"\n', (3, "floor"))
                os.remove(os.path.join(self.root, folder + "/bad.h"))
        for upper, lower in zip(rooms[1:], rooms):
            self.write(upper + "/good.cc", CPP + f'#include "{lower}/z.h"\n')
        self.assertEqual(self.found(), [])
        for path in ("engine/bad.cc", "engine/elsewhere/bad.cc", "engine/tree/bad.cc"):
            self.assert_rule(path, CPP, (1, "floor"))
            os.remove(os.path.join(self.root, path))

    def test_paths_and_places(self):
        self.assert_rule("wal/bad.cc", CPP + '#include "y.h"\n', (2, "floor"))
        os.remove(os.path.join(self.root, "wal/bad.cc"))
        self.assert_rule("elsewhere/bad.cc", CPP, (1, "floor"))

    def test_public_headers(self):
        text = CPP + "#pragma once\n#include <string>\n#include <stdint.h>\n#include <zstd.h>\n"
        self.assert_rule("api/include/cairn/bad.h", text, (5, "public"))

    def test_world_headers(self):
        text = CPP + "".join(f"#include <{name}>\n" for name in (
            "thread", "chrono", "condition_variable", "future", "semaphore", "fstream", "filesystem", "fcntl.h",
            "unistd.h", "sys/mman.h", "liburing.h", "ctime", "time.h"))
        self.assert_rule("engine/store/bad.cc", text, *((line, "world") for line in range(2, 15)))
        shutil.move(os.path.join(self.root, "engine/store/bad.cc"), os.path.join(self.root, "base/io/good.cc"))
        self.write("wal/good.cc", CPP + "#include <mutex>\n#include <atomic>\n#include <cpuid.h>\n")
        self.assertEqual(self.found(), [])

    def test_world_calls(self):
        text = CPP + "\n".join((
            "int a = ::open(path, 0);",
            "auto b = std::this_thread::get_id();",
            "std::thread c;",
            "void F() { usleep(1); }",
            "int G() { return pwrite(1, p, 2, 3); }",
            "FILE* d = std::fopen(p, q);",
            "FILE* e = fopen(p, q);",
            "int h = !clock_gettime(0, &t);",
            "std::chrono::seconds i;",
            ""))
        self.assert_rule("wal/bad.cc", text, *((line, "world") for line in range(2, 11)))

    def test_world_is_not_touched_by_words(self):
        self.write("wal/good.cc", CPP + "\n".join((
            "// open(path) and std::thread",
            "/* usleep(1);",
            "   #include <thread> */",
            'const char* a = "fopen(x) std::thread";',
            'const char* b = R"x(open(1) ")x";',
            "int c = 1'000; char d = '\"'; int e = file.open(1) + file->open(2) + File::open(3);",
            "class F { bool open(int mode) const; Mode& open(int mode); bool open() const; };",
            "int reopen(int x); int g = reopen(1) + (open() ? 1 : 0);",
            "")))
        self.assertEqual(self.found(), [])

    def test_a_quote_in_a_comment_hides_nothing(self):
        text = CPP + "// it's\nint a = sleep(1);\n/* \" */ int b = sleep(1);\nchar c = '\\''; int d = sleep(1);\n"
        self.assert_rule("wal/bad.cc", text, (3, "world"), (4, "world"), (5, "world"))

    def test_self_contained(self):
        self.assert_rule("wal/bad.h", CPP + "#pragma once\nstruct Y { std::string name; };\n", (1, "self-contained"))
        self.assert_rule("wal/bad.h", CPP + "struct Twice {};\n", (1, "self-contained"))
        self.assert_rule("wal/bad.h", CPP + "#pragma once\n#include <string>\nstruct Y { std::string name; };\n")
        self.assert_rule("api/include/cairn/c.h", CPP + "#pragma once\nnamespace c {}\n", (1, "self-contained"))

    def test_a_header_that_its_source_includes_first_is_compiled_by_the_build(self):
        lacking = CPP + "#pragma once\nstruct Y { std::string name; };\n"
        own, other = '#include "wal/bad.h"\n', "#include <string>\n"
        self.write("wal/bad.cc", CPP + own + other)
        self.assert_rule("wal/bad.h", lacking)
        self.assert_rule("wal/bad.h", CPP + "struct Twice {};\n", (1, "self-contained"))
        for source in (other + own, "//" + own + other, other):
            self.write("wal/bad.cc", CPP + source)
            self.assert_rule("wal/bad.h", lacking, (1, "self-contained"))

    def test_the_cache_notices_a_change_below(self):
        cache = os.path.join(self.root, "cache.json")
        self.assertEqual(self.found(cache=cache), [])
        with open(cache, encoding="utf-8") as file:
            self.assertIn('"', file.read())
        self.assertEqual(self.found(cache=cache), [])
        self.write("base/core/x.h", CPP + "#pragma once\nstruct Renamed {};\n")
        self.assertEqual(self.found(cache=cache), [("base/codec/x.h", 1, "self-contained")])
        self.assertEqual(self.found(cache=cache), [("base/codec/x.h", 1, "self-contained")])

    def test_headers_of_absent_parts_are_left_out(self):
        self.write("base/io/uring_ring.h", CPP + "#pragma once\n#include <no_such_ring.h>\n")
        self.write("gpu/cuda/stream.h", CPP + "#pragma once\n#include <no_such_cuda.h>\n")
        self.assertEqual(self.found(flags=["-DCAIRN_WITH_URING=0", "-DCAIRN_WITH_CUDA=0"]), [])
        self.assertEqual(self.found(flags=["-DCAIRN_WITH_URING=1", "-DCAIRN_WITH_CUDA=1"]),
                         [("base/io/uring_ring.h", 1, "self-contained"), ("gpu/cuda/stream.h", 1, "self-contained")])

    def test_spdx(self):
        self.assert_rule("wal/bad.cc", "int a;\n", (1, "spdx"))
        self.assert_rule("wal/bad.cc", CPP + "int a;\n")
        self.assert_rule("tools/bad.py", "import os\n", (1, "spdx"))
        os.remove(os.path.join(self.root, "tools/bad.py"))
        self.assert_rule("tools/bad", "#!/usr/bin/env bash\necho\n", (2, "spdx"))
        self.assert_rule("tools/bad", "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n")

    def test_words(self):
        self.assert_rule("wal/bad.cc", CPP + "// Who" + "ever reads.\n// A log. What" + " of it is read.\n// Why.\n",
                         (2, "words"), (3, "words"))
        # Only a comment's first words count, and only these: the four lines behind the second are allowed.
        self.assert_rule("wal/bad.cc", CPP + "int a;  // O" + "f the record.\n// O" + "f those that are left, one.\n"
                         "// The length\n// of the record. Of a log.\n// Offset.\n", (2, "words"), (3, "words"))
        os.remove(os.path.join(self.root, "wal/bad.cc"))
        self.assert_rule("tools/bad.py", CPP.replace("//", "#") + "A = 1  # O" + "f a sum.\n", (2, "words"))

    def test_width_and_length(self):
        self.assert_rule("wal/bad.cc", CPP + "//" + "x" * 98 + "\n//" + "x" * 99 + "\n", (3, "width"))
        self.assert_rule("wal/bad.cc", CPP + "//" + "\u00e4" * 98 + "\n")
        self.assert_rule("wal/bad.cc", CPP + "\n" * 999)
        self.assert_rule("wal/bad.cc", CPP + "\n" * 1000, (1001, "length"))

    def test_names_that_collide_where_a_folder_is_one_file(self):
        def source(inside):
            return CPP + "namespace cairn {\n\nnamespace {\n\n" + inside + "\n}  // namespace\n\n}\n"

        kinds = ["Status Bad(const std::string& what) { return Status(what); }\n", "constexpr int kLimit = 1;\n",
                 "class Walk final : public Base {\n int x;\n};\n", "enum Kind : uint16_t {\n  kOne,\n};\n"]
        for kind in kinds:
            self.write("wal/a.cc", source(kind))
            self.assert_rule("wal/b.cc", source(kind), (6, "unity"))
            self.write("cmake/CairnUnity.cmake", "set(alone wal/b)\n")
            self.assert_rule("wal/b.cc", source(kind))
            os.remove(os.path.join(self.root, "cmake/CairnUnity.cmake"))
        self.write("wal/a.cc", source("bool Is(int x) {\n  return x;\n}\n"))
        self.assert_rule("wal/b.cc", source("bool Is(long x) {\n  return x;\n}\n"))
        self.assert_rule("wal/b.cc", CPP + "bool Is(int x) {\n  return x;\n}\n")
        os.remove(os.path.join(self.root, "wal/b.cc"))
        self.assert_rule("sstable/b.cc", source("bool Is(int x) {\n  return x;\n}\n"))

    def test_size(self):
        self.write("tests/golden/text", "x" * (check_floors.MAX_BINARY_BYTES + 1))
        self.write("tests/golden/data", "\0" * check_floors.MAX_BINARY_BYTES)
        self.write("build/data", "\0" * (check_floors.MAX_BINARY_BYTES + 1))
        self.assertEqual(self.found(), [])
        self.write("tests/golden/data", "\0" * (check_floors.MAX_BINARY_BYTES + 1))
        self.assertEqual(self.found(), [("tests/golden/data", 1, "size")])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COMPILER = sys.argv.pop(1)
    unittest.main()
