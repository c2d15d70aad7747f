# SPDX-License-Identifier: Apache-2.0
"""Each public function of C++, and each field of its structs, is there in C, or there is a reason why not;
docs/c.md has the table of functions.

Usage: check_complete.py [--table | --self-test]

The C name of Class::Method is cairn_class_method, that of Struct.field cairn_struct.field. What is called otherwise, or is not there, says
tests/c_abi/names.txt.
"""

import pathlib
import re
import sys

import headers

NAMES = pathlib.Path("tests/c_abi/names.txt")
DOC = pathlib.Path("docs/c.md")
BEGIN, END = "<!-- names: tests/c_abi/check_complete.py --table -->\n", "<!-- end of names -->"


def read_names(text):
    """{C++: ([C names], reason)} of lines "C++ = C C" and "C++ - reason"."""
    names = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            function, kind, rest = re.match(r"(\S+) ([=-]) (.+)", line).groups()
            names[function] = (rest.split(), "") if kind == "=" else ([], rest)
    return names


def compare(cpp, in_c, names):
    """What is wrong, and the rows [(C++, C names or a reason)]."""
    wrong, rows = [], []
    for function in cpp:
        c_names, reason = names.get(function, ([headers.expected(function)], ""))
        wrong += [f"{function}: C has no {name}; write it, or its reason into {NAMES}"
                  for name in c_names if name not in in_c]
        rows.append((function, ", ".join(f"`{name}`" for name in c_names) or reason))
    wrong += [f"{NAMES}: C++ has no {name}" for name in names if name not in cpp]
    wrong += [f"{NAMES}: {name} has its name by the rule" for name, (c_names, _) in names.items()
              if c_names == [headers.expected(name)]]
    return wrong, rows


def compare_fields(cpp, in_c, names):
    """What is wrong with the fields {struct: [field]}."""
    wrong, used = [], set()
    for struct, fields in cpp.items():
        for field in fields:
            line = next((line for line in (f"{struct}.{field}", f"{struct}.*") if line in names), None)
            used.add(line)
            c_names, _ = names.get(line, ([f"cairn_{headers.snake(struct)}.*"], ""))
            for c_struct, c_field in (name.replace("*", field).split(".") for name in c_names):
                if c_field not in in_c.get(c_struct, []):
                    wrong.append(f"{struct}.{field}: C has no {c_struct}.{c_field}; add it, or a line to {NAMES}")
    return wrong + [f"{NAMES}: of no use: {name}" for name in names if name not in used]


def read_fields(c):
    found = {}
    for text in headers.read(c).values():
        found.update(headers.fields(text))
    return found


def table(rows):
    return "| C++ | C |\n|---|---|\n" + "".join(f"| `{a}` | {b} |\n" for a, b in rows)


def self_test():
    text = """namespace [[x]] cairn { class B; int Free(int a = f(1)); class A { public: A(); ~A();
      int One() const { return f(); } std::function<void(int)> f{}; static int Two(); bool operator==(A);
     private: int Hidden(); }; template <typename T> class R { public: int No(); };
     struct S { int x = g(); uint64_t Three() const; enum class E { k }; int y; }; int Last();
     namespace internal { void Die(); } }"""
    found = headers.cpp_functions(text)
    assert found == ["Free", "A::One", "A::Two", "S::Three", "Last"], found
    names = read_names("# a\nA::Two = cairn_two cairn_zwei\nS::Three - why\nGone - x\nLast = cairn_last\n")
    wrong, rows = compare(found, {"cairn_free", "cairn_two", "cairn_last"}, names)
    assert rows[2:4] == [("A::Two", "`cairn_two`, `cairn_zwei`"), ("S::Three", "why")], rows
    assert [line.split(":")[0] for line in wrong] == ["A", "A", str(NAMES), str(NAMES)], wrong
    cpp = headers.fields("""
struct Many {
  std::vector<int> a{}, b{};  // of c
  uint64_t d = 0, e[2] = {0, 0};
  enum class Kind : uint8_t { kA, kB } kind{};
  struct Inner {
    int x = 0;
  } inner{};
  void (*call)(void* context, int i) = nullptr;
  bool found() const { return d != 0; }
  bool operator==(const Many&) const = default;
};
struct Late { std::optional<int> f{};
};""")
    assert cpp == {"Many": ["a", "b", "d", "e", "kind", "inner", "call"], "Late": ["f"]}, cpp
    names = read_names("Many.* = cairn_one.x_*\nMany.e - why\nMany.z - none\n")
    of_c = {"cairn_one": ["x_a", "x_b", "x_d", "x_kind", "x_inner"]}
    wrong = compare_fields(cpp, of_c, names)
    assert [line.split(":")[0] for line in wrong] == ["Many.call", "Late.f", str(NAMES)], wrong
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    cpp = [name for text in headers.read(c=False).values() for name in headers.cpp_functions(text)]
    names = read_names(NAMES.read_text())
    of_fields = {name: line for name, line in names.items() if "." in name}
    wrong, rows = compare(cpp, set(headers.c_functions(headers.read(c=True))),
                          {name: line for name, line in names.items() if name not in of_fields})
    wrong += compare_fields(read_fields(c=False), read_fields(c=True), of_fields)
    if arguments == ["--table"]:
        print(table(rows), end="")
        return 0
    if BEGIN + table(rows) + END not in DOC.read_text():
        wrong.append(f"{DOC}: its table is not that of `check_complete.py --table`")
    print("\n".join(wrong + [f"{len(cpp)} functions of C++"]))
    return 1 if wrong or len(cpp) < 100 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
