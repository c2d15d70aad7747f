# SPDX-License-Identifier: Apache-2.0
"""Says which argument of a call is wrong, where the extension module names all types of all of them.

The extension module refuses a call by printing the signature. `explained` puts a Python function around each of its
functions, which looks at the arguments only once a call was refused: it names the argument, the value and what it may
be, or the nearest name of a misspelled keyword. It runs no code of an argument's own class, since that may have effects
and the call may have run it before.
"""

import ast
import difflib
import functools
import inspect
import re
import reprlib

import numpy

REFUSED = "incompatible function arguments"  # As nanobind says it.
NO_SUCH_OBJECT = "std::bad_cast"  # As it says of an object, such as self, whose class the function looks at itself.
NUMBER_MAX = 2**64 - 1  # Sizes, positions and counts are 64 bits wide.


def nearest(name, names):
    """How a message goes on that refuses `name`: with the name that was probably meant."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _parameters(function):
    """The parameters of a function of the extension module, or None where it has several signatures."""
    signatures = getattr(function, "__nb_signature__", ())
    if len(signatures) != 1:
        return None
    text, _, defaults = signatures[0]
    # Defaults that Python cannot read stand beside the signature, and in it by their numbers.
    text = re.sub(r"\\(\d+)", lambda found: f"default({found[1]})", text)
    arguments = ast.parse(text + ": ...").body[0].args
    positional = arguments.posonlyargs + arguments.args
    parameters, none = [], inspect.Parameter.empty
    given = [none] * (len(positional) - len(arguments.defaults)) + arguments.defaults

    def add(argument, kind, default):
        if isinstance(default, ast.Call) and getattr(default.func, "id", "") == "default":
            default = defaults[int(ast.unparse(default.args[0]))]
        elif isinstance(default, ast.AST):
            default = _literal(default)
        annotation = ast.unparse(argument.annotation) if argument.annotation else none
        parameters.append(inspect.Parameter(argument.arg, kind, default=default, annotation=annotation))

    for argument, default in zip(positional, given, strict=True):
        add(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD, default)
    if arguments.vararg:
        add(arguments.vararg, inspect.Parameter.VAR_POSITIONAL, none)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        add(argument, inspect.Parameter.KEYWORD_ONLY, none if default is None else default)
    if arguments.kwarg:
        add(arguments.kwarg, inspect.Parameter.VAR_KEYWORD, none)
    return parameters


def _literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _is_number(value):
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def _number(value):
    """The value of a number whose class is known, else None."""
    if isinstance(value, int):
        return int.__index__(value)
    return int(value) if type(value).__module__ == "numpy" and isinstance(value, numpy.integer) else None


def _shown(value):
    if type(value) in (bool, int, float, complex, str, bytes):
        return reprlib.repr(value)
    return f"an object of class {type(value).__name__}"


def _wrong(parameter, value):
    """Why `value` cannot be that argument, as an exception's class and text, or None."""
    kinds = str(parameter.annotation).split(" | ")
    if value is None:
        return None if "None" in kinds or parameter.annotation is parameter.empty else (TypeError, "must not be None")
    number = _number(value) if "int" in kinds and _is_number(value) else None
    if number is not None and not 0 <= number <= NUMBER_MAX:
        return ValueError, f"{number} is not from 0 to {NUMBER_MAX}"
    simple = {"int": _is_number(value), "float": isinstance(value, float) or _is_number(value),
              "str": isinstance(value, str), "bool": isinstance(value, bool), "None": False}
    if all(kind in simple for kind in kinds) and not any(simple[kind] for kind in kinds):
        wanted = " or ".join(kind for kind in kinds if kind != "None")
        return TypeError, f"{_shown(value)} is no {wanted}"
    return None


def _explanation(function, owner, parameters, args, kwargs):
    """The exception to raise in place of nanobind's, or None where this knows nothing better."""
    name = function.__name__
    if owner is not None and args and not isinstance(args[0], owner):
        return TypeError(f"{owner.__name__}.{name}(): self: {_shown(args[0])} is no {owner.__name__}")
    signature = inspect.Signature(parameters)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for keyword in kwargs:
            if keyword not in known:
                return TypeError(f"{name}() has no argument '{keyword}'" + nearest(keyword, known))
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        return TypeError(f"{name}(): {error}")
    for parameter in parameters:
        if parameter.name in bound.arguments and parameter.name != "self":
            wrong = _wrong(parameter, bound.arguments[parameter.name])
            if wrong is not None:
                kind, text = wrong
                return kind(f"{name}(): {parameter.name}: {text}")
    return None


def explained(function, owner=None):
    """`function`, with errors that name the argument. Of a method, `owner` is the class that `self` has to have."""
    parameters = _parameters(function)
    if parameters is None:
        return function

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (TypeError, RuntimeError) as error:
            if REFUSED not in str(error) and str(error) != NO_SUCH_OBJECT:
                raise
            better = _explanation(function, owner, parameters, args, kwargs)
            if better is None:
                raise
        raise better

    call.__signature__ = inspect.Signature(parameters)
    return call


def explain(module):
    """Puts `explained` around all methods of the classes of the extension module.

    Constructors stay as they are: the extension module calls them without a look at the class.
    """
    for kind in vars(module).values():
        if not isinstance(kind, type):
            continue
        for name, method in list(vars(kind).items()):
            if name.startswith("__"):
                continue
            if type(method).__name__ == "nb_method":
                setattr(kind, name, explained(method, kind))
            elif type(method).__name__ == "nb_func":
                setattr(kind, name, staticmethod(explained(method)))
