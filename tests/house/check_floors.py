# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house on the source tree. Exit status 1 and `file:line: [rule] text` if one is broken.

  floor           who may include whom; inside of engine/, too
  public          public headers include the standard library and each other only
  world           files, threads and clocks are touched in base/io (and gpu/cuda) alone
  self-contained  every library header compiles alone, and twice in one file: here, or in the build as
                  the first include of its own .cc (only CAIRN_UNITY puts others before it)
  unity           names in unnamed namespaces differ within a folder, which cmake/CairnUnity.cmake compiles as one
                  file, but for the files that it compiles alone
  spdx, width, length, size   licence line, 100 columns, 1000 lines, no binary file above 8.5 MB
  words           comments name who acts, and begin with their subject
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import typing

SPDX = "SPDX-License-Identifier: Apache-2.0"
MAX_COLUMNS = 100
MAX_LINES = 1000
MAX_BINARY_BYTES = 8_500_000

# In pieces, so that this file keeps the rule.
HIDING_WORDS = re.compile(r"\bwho" r"ever\b|(?://|#|\.) (?:What" r" of|Of that" r" which)\b", re.IGNORECASE)
# A genitive whose noun the reader must look for in the code.
BEGINS_WITH_OF = re.compile(r"(?://|#) " r"Of (?:a|an|the|all|it|what|that|those)\b")

CPP_EXTENSIONS = (".h", ".cc", ".c", ".cu", ".cuh")
SKIPPED_FOLDERS = {".git", ".venv", "build", "__pycache__", ".cache"}

# Each floor and the floors that it may include besides itself.
PUBLIC = "api/include/cairn"
BASE = [PUBLIC, "base/core", "base/codec", "base/io"]
SHADOW = "base/shadow"
BELOW_ENGINE = BASE + [SHADOW, "wal", "sstable", "gpu"]

# The floors inside of engine/, from the lowest up; those in one row do not include each other. No source file
# lies in engine/ itself.
ENGINE_ROWS = [["engine/config"], ["engine/tree/memory"],
               ["engine/tree/ops", "engine/tree/records", "engine/device", "engine/manifest", "engine/slots"],
               ["engine/commit"], ["engine/restore/plan"], ["engine/restore/gpu"], ["engine/restore"], ["engine/find"],
               ["engine/background", "engine/blend", "engine/follow", "engine/metrics", "engine/objects", "engine/sessions/sparse"],
               ["engine/sessions/shadow"], ["engine/store"], ["engine/exchange"]]
ENGINE = [floor for row in ENGINE_ROWS for floor in row]

FACE = "api/cpp"
LIBRARY = BELOW_ENGINE + ENGINE + [FACE]
# The simulated machine, which the product does not contain.
SIM = "sim"
MAY_INCLUDE = {
    PUBLIC: [],
    "base/core": BASE[:1],
    "base/codec": BASE[:2],
    "base/io": BASE[:3],
    "wal": BASE,
    "sstable": BASE,
    SHADOW: BASE[:3],
    "gpu": BASE + [SHADOW],
    **{floor: BELOW_ENGINE + [lower for row in ENGINE_ROWS[:i] for lower in row]
       for i, row in enumerate(ENGINE_ROWS) for floor in row},
    FACE: BELOW_ENGINE + ENGINE,
    "api/c": LIBRARY,
    "api/python": LIBRARY + ["api/c"],
    SIM: BASE,
    "tools": LIBRARY + [SIM, "api/c"],
    "fuzz": LIBRARY + [SIM, "api/c", "tools", "tests"],
    "tests": LIBRARY + [SIM, "api/c", "api/python", "tools", "fuzz"],
}

# Floors that reach the world only through base/io, and the folders inside them that are exempt.
WORLDLESS = LIBRARY + ["api/c"]
WORLDLY_FOLDERS = ("base/io/", "gpu/cuda/")
WORLD_HEADER = re.compile(
    r"(thread|chrono|condition_variable|future|semaphore|latch|barrier|stop_token|fstream|filesystem|ctime"
    r"|(time|fcntl|unistd|pthread|sched|poll|dirent|liburing)\.h|sys/.*|linux/.*)$")
WORLD_NAME = re.compile(
    r"\bstd::(this_thread|thread|jthread|async|future|promise|condition_variable\w*|chrono|filesystem"
    r"|[io]?fstream|random_device|fopen|freopen|tmpfile|time|clock|rand|system|rename|remove)\b")
WORLD_CALL = re.compile(
    r"\b(open|openat|creat|pread|pwrite|preadv2?|pwritev2?|fsync|fdatasync|sync_file_range|fallocate"
    r"|posix_fallocate|ftruncate|truncate|mmap|munmap|msync|madvise|renameat2?|unlink|unlinkat|mkdir"
    r"|rmdir|opendir|fstat|statx|lseek|ioctl|flock|fcntl|fopen|freopen|fdopen|popen|syscall|fork|poll"
    r"|epoll_wait|eventfd|io_uring_\w+|pthread_\w+|sleep|usleep|nanosleep|clock_nanosleep|clock_gettime"
    r"|gettimeofday|getrandom|sched_yield)\s*\(\s*(\))?")
CALLS_WITHOUT_ARGUMENTS = {"fork", "sched_yield"}
# Words after which a name and a parenthesis are a call; after any other word they are a declaration.
WORDS_BEFORE_CALLS = {"return", "co_return", "else", "do", "throw", "case", "and", "or", "not"}

STANDARD_HEADERS = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
clocale cmath compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio
cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream functional
future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory memory_resource
mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
source_location span sstream stack stdexcept stop_token streambuf string string_view strstream syncstream system_error
thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
assert.h ctype.h errno.h float.h inttypes.h limits.h math.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h
""".split())

TOKEN = re.compile(
    r"""(?P<include>^[ \t]*\#[ \t]*include[ \t]*(?:"[^"\n]*"|<[^>\n]*>))"""
    r"""|(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"""
    r"""|(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]*)\(.*?\)(?P=delimiter)")"""
    r"""|(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')"""
    r"""|(?P<number>\.?\d(?:'?[\w.])*)"""
    r"""|(?P<word>[A-Za-z_]\w*)""",
    re.S | re.M)
INCLUDE = re.compile(r"""^[ \t]*\#[ \t]*include[ \t]*(["<])([^">\n]*)[">]""", re.M)


UNITY = "cmake/CairnUnity.cmake"
UNNAMED_NAMESPACE = re.compile(r"^namespace \{$.*?^\}", re.M | re.S)
# A definition at the beginning of a line: a type, or a function up to the end of its parameters, or a value.
UNNAMED_DEFINITION = re.compile(
    r"^(?:(?:class|struct|enum class|enum) (\w+)|"
    r"(?!using |static_assert|class |struct |enum )[a-zA-Z][\w:<>,&*\[\] \n]*?[ &*]([A-Za-z]\w*)"
    r"(\([^;{}]*?\)(?= const| \{|;|\n *:)| = |\{|\[))", re.M)
# CMakeLists.txt gives files for one level of the processor options of their own.
OPTIONS_OF_ITS_OWN = re.compile(r"_avx[a-z0-9]*\.cc$")


class Violation(typing.NamedTuple):
    path: str
    line: int
    rule: str
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


def list_files(root):
    """Paths relative to root, build trees and hidden stores left out."""
    paths = []
    for folder, folders, names in os.walk(root):
        if "CMakeCache.txt" in names:
            folders[:] = []
            continue
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in sorted(names)]
    return paths


def blank(text):
    """The code with comments and string contents replaced by spaces; lines and include directives stay."""
    def replace(match):
        if match.lastgroup in ("comment", "raw", "string", "delimiter") and match.group("include") is None:
            return re.sub(r"[^\n]", " ", match.group())
        return match.group()
    return TOKEN.sub(replace, text)


def floor_of(path):
    """The floor of a file: the longest of their names that is a folder of its path."""
    return max((floor for floor in MAY_INCLUDE if path.startswith(floor + "/")), key=len, default=None)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def included_path(target):
    """The repository path behind an include, "cairn/..." being found below api/include."""
    return "api/include/" + target if target.startswith("cairn/") else target


def check_includes(path, code):
    floor = floor_of(path)
    for match in INCLUDE.finditer(code):
        quote, target = match.groups()
        line = line_of(code, match.start())
        other = floor_of(included_path(target))
        if other is None and quote == '"':
            yield Violation(path, line, "floor", f'"{target}" is not a path from the repository root')
        elif other is not None and other != floor and other not in MAY_INCLUDE[floor]:
            yield Violation(path, line, "floor", f"{floor} must not include {other} ({target}): move the code down, or "
                            "ask through an interface of the lower folder (docs/design/folders.md)")
        elif floor == PUBLIC and other is None and target not in STANDARD_HEADERS:
            yield Violation(path, line, "public", f"a public header must not include <{target}>")
        if touches_world_by_rule(path) and quote == "<" and WORLD_HEADER.match(target):
            yield Violation(path, line, "world", f"<{target}> belongs in base/io")


def touches_world_by_rule(path):
    return floor_of(path) in WORLDLESS and not path.startswith(WORLDLY_FOLDERS)


def is_call(code, match):
    """Whether a lower-case name before a parenthesis is a call of the C library, not an accessor of our own."""
    if match.group(2) and match.group(1) not in CALLS_WITHOUT_ARGUMENTS:
        return False
    before = code[max(0, match.start() - 200):match.start()].rstrip()
    if before.endswith((".", "->")):
        return False
    if before.endswith("::"):
        return re.search(r"\w\s*::$", before) is None
    if re.search(r"\w\s?[&*]$", before):
        return False
    word = re.search(r"[A-Za-z_]\w*$", before)
    return word is None or word.group() in WORDS_BEFORE_CALLS


def check_world(path, code):
    if not touches_world_by_rule(path):
        return
    for match in WORLD_NAME.finditer(code):
        yield Violation(path, line_of(code, match.start()), "world", f"{match.group()} belongs in base/io")
    for match in WORLD_CALL.finditer(code):
        if is_call(code, match):
            line = line_of(code, match.start())
            yield Violation(path, line, "world", f"{match.group(1)}() belongs in base/io")


def is_shell_script(path, text):
    return os.path.splitext(path)[1] in ("", ".sh") and re.match(r"#!.*\b(ba)?sh\b", text) is not None


def check_unity(codes, alone):
    """`codes`: {path: code without comments and strings} of the library's sources."""
    violations = []
    seen = {}
    for path, code in sorted(codes.items()):
        if path.removesuffix(".cc") in alone or OPTIONS_OF_ITS_OWN.search(path):
            continue
        for block in UNNAMED_NAMESPACE.finditer(code):
            for definition in UNNAMED_DEFINITION.finditer(block[0]):
                type_name, name, rest = definition.groups()
                parameters = " ".join(rest.split()) if rest and rest.startswith("(") else ""
                name = type_name or name
                first = seen.setdefault((os.path.dirname(path), name, parameters), path)
                if first != path:
                    line = line_of(code, block.start() + definition.start())
                    violations.append(Violation(path, line, "unity", f"{first} defines {name}, too"))
    return violations


def compiled_alone(root):
    try:
        with open(os.path.join(root, UNITY), encoding="utf-8") as file:
            return set(re.search(r"set\(alone ([^)]*)\)", file.read())[1].split())
    except OSError:
        return set()


def check_form(path, text):
    """Licence line, width and length."""
    lines = text.split("\n")
    extension = os.path.splitext(path)[1]
    shell = is_shell_script(path, text)
    if extension not in CPP_EXTENSIONS + (".py",) and not shell:
        return
    comment = "//" if extension in CPP_EXTENSIONS else "#"
    spdx_index = 1 if text.startswith("#!") else 0
    if len(lines) <= spdx_index or lines[spdx_index] != f"{comment} {SPDX}":
        yield Violation(path, spdx_index + 1, "spdx", f"this line must be `{comment} {SPDX}`")
    for number, line in enumerate(lines, 1):
        if hiding := HIDING_WORDS.search(line):
            yield Violation(path, number, "words", f"`{hiding.group().strip('/#. ')}`: name who acts")
        if genitive := BEGINS_WITH_OF.search(line):
            yield Violation(path, number, "words", f"`{genitive.group()}`: begin with the subject, as in "
                            "\"The record's length in bytes.\"; see docs/style.md")
    if extension in CPP_EXTENSIONS:
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                yield Violation(path, number, "width", f"{len(line)} columns, {MAX_COLUMNS} are allowed")
    line_count = len(lines) - (lines[-1] == "")
    if line_count > MAX_LINES:
        yield Violation(path, MAX_LINES + 1, "length", f"{line_count} lines, {MAX_LINES} are allowed")


def check_size(root, path):
    full_path = os.path.join(root, path)
    size = os.path.getsize(full_path) if os.path.isfile(full_path) else 0
    if size > MAX_BINARY_BYTES:
        with open(full_path, "rb") as file:
            if b"\0" in file.read(8192):
                yield Violation(path, 1, "size", f"{size} bytes of binary, {MAX_BINARY_BYTES} are allowed")


class HeaderCompiler:
    """Compiles headers alone; remembers in `cache_path` which ones passed, by all that they depend on."""

    def __init__(self, root, compiler, flags, cache_path):
        self.root = root
        self.compiler = compiler
        self.flags = ["-fsyntax-only", "-I", root, "-I", os.path.join(root, "api/include")] + flags
        self.cache_path = cache_path
        self.version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        self.passed = set()
        if cache_path and os.path.exists(cache_path):
            with open(cache_path, encoding="utf-8") as file:
                self.passed = set(json.load(file))

    def wants(self, path):
        floor = floor_of(path)
        if not path.endswith(".h") or floor not in LIBRARY + [SIM]:
            return False
        if self.is_first_in_its_source(path):
            return False
        if path.startswith("base/io/uring") and "-DCAIRN_WITH_URING=0" in self.flags:
            return False
        return not path.startswith("gpu/cuda/") or "-DCAIRN_WITH_CUDA=1" in self.flags

    def is_first_in_its_source(self, path):
        """Whether every build compiles it alone already: twice, it is nothing but its `#pragma once`."""
        source = os.path.join(self.root, path[:-len(".h")] + ".cc")
        if not os.path.isfile(source):
            return False
        with open(source, encoding="utf-8") as file:
            first = INCLUDE.search(blank(file.read()))
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            code = blank(file.read())
        return first is not None and first.group(2) == path and code.lstrip().startswith("#pragma once")

    def key(self, path, language):
        """A hash over the compiler, the flags and every file of the tree that the header reaches."""
        digest = hashlib.sha256(json.dumps([self.compiler, self.version, self.flags, path, language]).encode())
        seen, queue = set(), [path]
        while queue:
            current = queue.pop()
            full_path = os.path.join(self.root, current)
            if current in seen or not os.path.isfile(full_path):
                continue
            seen.add(current)
            with open(full_path, encoding="utf-8") as file:
                text = file.read()
            digest.update(json.dumps([current, text]).encode())
            queue += sorted(included_path(target) for _, target in INCLUDE.findall(text))
        return digest.hexdigest()

    def compile(self, path, language):
        """None, or the first line of the compiler's complaint."""
        flags = ["-x", "c++", "-std=c++20"] if language == "C++" else ["-x", "c", "-std=c11"]
        if path.endswith("_avx2.h"):
            flags += ["-mavx2", "-mbmi2"]
        elif path.endswith("_avx512.h"):
            flags += ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mbmi2"]
        include = f'#include "{included_from(path)}"\n'
        result = subprocess.run([self.compiler] + self.flags + flags + ["-"], input=include * 2,
                                cwd=self.root, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return None
        errors = [line for line in result.stderr.split("\n") if "error:" in line]
        return (errors or [result.stderr.strip() or "the compiler failed"])[0].replace(self.root + "/", "")

    def check(self, paths):
        # The C interface must be C; everything else is C++.
        jobs = [(path, "C++") for path in paths if self.wants(path)]
        jobs += [(path, "C") for path in paths if path == PUBLIC + "/c.h"]
        return self.check_jobs(jobs)

    def check_jobs(self, jobs):
        """The violations among `jobs`, each a header and the language to compile it in."""
        keys = {job: self.key(*job) for job in jobs}
        todo = [job for job in jobs if keys[job] not in self.passed]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = dict(zip(todo, pool.map(lambda job: self.compile(*job), todo)))
        if self.cache_path:
            passed = sorted(keys[job] for job in jobs if complaints.get(job) is None)
            with open(self.cache_path, "w", encoding="utf-8") as file:
                json.dump(passed, file)
        return [Violation(path, 1, "self-contained", f"not alone as {language}: {complaint}")
                for (path, language), complaint in complaints.items() if complaint is not None]


def included_from(path):
    """How other files write the include of this header."""
    return path[len("api/include/"):] if path.startswith("api/include/") else path


def check_tree(root, compiler, flags, cache_path):
    violations = []
    sources = {}
    paths = list_files(root)
    for path in paths:
        violations += check_size(root, path)
        extension = os.path.splitext(path)[1]
        if extension not in CPP_EXTENSIONS + (".py", ".sh", ""):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
        except (UnicodeDecodeError, OSError):
            if extension != "":
                violations.append(Violation(path, 1, "form", "not UTF-8 text"))
            continue
        violations += check_form(path, text)
        if extension in CPP_EXTENSIONS:
            if floor_of(path) is None:
                violations.append(Violation(path, 1, "floor", "this folder is on no floor: give it one here and in "
                                            "docs/design/folders.md"))
                continue
            code = blank(text)
            violations += check_includes(path, code)
            violations += check_world(path, code)
            if extension == ".cc" and floor_of(path) in LIBRARY + ["api/c"] and not path.endswith("_test.cc"):
                sources[path] = code
    violations += check_unity(sources, compiled_alone(root))
    violations += HeaderCompiler(root, compiler, flags, cache_path).check(paths)
    return violations


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    parser.add_argument("--compiler", default="g++", help="compiles the headers")
    parser.add_argument("--cache", help="file that remembers the headers that passed")
    parser.add_argument("--flag", action="append", default=[], help="a flag for the compiler: --flag=-DX=1")
    arguments = parser.parse_args()
    violations = check_tree(os.path.abspath(arguments.root), arguments.compiler, arguments.flag, arguments.cache)
    for violation in sorted(violations):
        print(violation)
    if violations:
        print(f"{len(violations)} places break a rule")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
