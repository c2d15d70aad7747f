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
OPTIONS_READ = pathlib.Path("api/c/convert_options.cc")
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
        wrong += [f"{function}: C has no {name}. Declare it in api/include/cairn/c/ and define it in api/c; "
                  f"or add a line to {NAMES}: `{function} = another_name`, or `{function} - why C needs none`"
                  for name in c_names if name not in in_c]
        rows.append((function, ", ".join(f"`{name}`" for name in c_names) or reason))
    wrong += [f"{NAMES}: C++ has no {name}; remove the line" for name in names if name not in cpp]
    wrong += [f"{NAMES}: {name} has its name by the rule; remove the line" for name, (c_names, _) in names.items()
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
                    wrong.append(f"{struct}.{field}: C has no {c_struct}.{c_field}. Add it at the end of that struct, "
                                 f"with its default and its conversion in api/c; or add a line to {NAMES}: "
                                 f"`{struct}.{field} = another.name`, or `{struct}.{field} - why C needs none`")
    return wrong + [f"{NAMES}: {name} stands for nothing; remove the line" for name in names if name not in used]


def compare_options(fields, conversion):
    """Options of C that the conversion to C++ forgets."""
    return [f"cairn_options.{field}: {OPTIONS_READ} does not give it to C++" for field in fields
            if field not in ("struct_size", "reserved") and not re.search(rf"\.{field}\b", conversion)]


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
    wrong = compare_options(["struct_size", "a", "ab", "c"], "options.ab = read.ab; f(read.c);")
    assert [line.split(":")[0] for line in wrong] == ["cairn_options.a"], wrong
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    cpp = [name for text in headers.read(c=False).values() for name in headers.cpp_functions(text)]
    names = read_names(NAMES.read_text())
    of_fields = {name: line for name, line in names.items() if "." in name}
    wrong, rows = compare(cpp, set(headers.c_functions(headers.read(c=True))),
                          {name: line for name, line in names.items() if name not in of_fields})
    of_c = read_fields(c=True)
    wrong += compare_fields(read_fields(c=False), of_c, of_fields)
    wrong += compare_options(of_c["cairn_options"], OPTIONS_READ.read_text())
    if arguments == ["--table"]:
        print(table(rows), end="")
        return 0
    if BEGIN + table(rows) + END not in DOC.read_text():
        wrong.append(f"{DOC}: put the output of `python3 tests/c_abi/check_complete.py --table` between the two "
                     "comments of its table")
    print("\n".join(wrong + [f"{len(cpp)} functions of C++"]))
    return 1 if wrong or len(cpp) < 100 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
