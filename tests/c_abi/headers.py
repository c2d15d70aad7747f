# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers: which functions C++ has, and which C has."""

import pathlib
import re

FOLDER = pathlib.Path("api/include/cairn")
FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\($")


def read(c):
    """The text of all headers of C, or of C++, by name below api/include/cairn."""
    paths = [FOLDER / "c.h", *sorted(FOLDER.glob("c/*.h"))] if c else sorted(set(FOLDER.glob("*.h")) - {FOLDER / "c.h"})
    return {str(path.relative_to(FOLDER)): path.read_text() for path in paths}


def c_functions(texts):
    """The functions that the headers declare, in their order."""
    return [name for text in texts.values()
            for name in re.findall(r"^CAIRN_API [^;(]*?(cairn_\w+)\(", text, re.M)]


def strip(text):
    """Without comments, strings, preprocessor lines and attributes; `public:` becomes a statement."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(\\\n|[^\n])*", " ", text, flags=re.M)
    text = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', "0", text)
    text = re.sub(r"\[\[.*?\]\]", " ", text)
    return re.sub(r"\b(public|private|protected)\s*:(?!:)", r"@\1;", text)


def cpp_functions(text):
    """Public functions of a header as "Class::Method" or "Function", in their order, each once.

    Constructors, destructors, operators and members of templates are left out.
    """
    found, scopes, statement = [], [], ""
    skipping = 0  # Braces of a body, an enumeration or an initializer that are still open.

    def note(declaration):
        public = all(scope["public"] for scope in scopes)
        classes = [scope["name"] for scope in scopes if scope["kind"] == "class"]
        before = declaration.split("(", 1)[0] + "("
        name = FUNCTION.search(before)
        if "(" not in declaration or not public or name is None or name.group(1) == "void":
            return  # The last is of a pointer to a function.
        if "=" in before or before.count("<") != before.count(">"):
            return
        if re.search(r"\b(operator|using|static_assert|friend|template|explicit)\b|~", before):
            return
        full = "::".join(classes + [name.group(1)])
        if (classes and name.group(1) == classes[-1]) or full in found:
            return
        found.append(full)

    for char in strip(text):
        if skipping:
            skipping += {"{": 1, "}": -1}.get(char, 0)
        elif char == "{":
            head = statement.strip()
            scope = re.match(r"(?:template\s*<.*>\s*)?(class|struct|union)\s+(\w+)", head, re.S)
            if re.match(r"(inline\s+)?namespace\b", head):
                hidden = head.endswith("internal")
                scopes.append({"kind": "namespace", "name": "", "public": not hidden})
            elif scope and "(" not in head:
                template = head.startswith("template")
                scopes.append({"kind": "class", "name": scope.group(2),
                               "public": scope.group(1) != "class" and not template, "template": template})
            else:
                note(head)
                skipping = 1
                # A new statement follows a body; text after an initializer ends with `;`.
                statement = ""
                continue
            statement = ""
        elif char == "}":
            if scopes:
                scopes.pop()
            statement = ""
        elif char == ";":
            head = statement.strip()
            if head.startswith("@"):
                scopes[-1]["public"] = head == "@public" and not scopes[-1].get("template")
            else:
                note(head)
            statement = ""
        else:
            statement += char
    return found


def fields(text):
    """{struct: its fields} of the plain structs, without what is nested in them."""
    found = {}
    for name, body in re.findall(r"^(?:typedef )?struct (\w+) \{(.*?)^\}", strip(text), re.S | re.M):
        body = re.sub(r"\)(\s*const)?\s*\{[^{}]*\}", ");", body)  # Functions have no bodies.
        body = re.sub(r"\b(struct|enum class)\s+\w+[^;{]*\{([^{}]|\{[^{}]*\})*\}", "int", body)
        names = []
        for statement in re.sub(r"\{[^{}]*\}", "", body).split(";"):
            pointer = re.search(r"\(\*\s*(\w+)\)\s*\(", statement)
            plain = re.sub(r"=[^,]*", "", re.sub(r"<.*>", "", statement))
            if pointer:  # To a function.
                names.append(pointer.group(1))
            elif "(" not in plain and not re.match(r"\s*(static|using|friend|bool operator)\b", plain):
                names += [last.group(1) for part in plain.split(",")
                          if (last := re.search(r"\w[\s*&]+(\w+)\s*(\[\w+\])?\s*$", part)
                              or re.match(r"\s*(\w+)\s*(\[\w+\])?\s*$", part)) and plain.strip() != "int"]
        found[name] = names
    return found


def snake(name):
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def expected(function):
    """The name that C has for it, unless names.txt says otherwise."""
    return "cairn_" + "_".join(snake(part) for part in function.split("::"))
