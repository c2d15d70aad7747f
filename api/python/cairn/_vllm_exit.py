# SPDX-License-Identifier: Apache-2.0
"""Shuts down what vLLM made of this package and did not shut down: a script may end right behind generate()."""

import atexit
import contextlib
import weakref

from . import _exit as _exit  # Registers its handler first, so that it runs last: it closes stores.

_made = weakref.WeakSet()


def add(one):
    """one.shutdown() is called when the interpreter ends, if not before."""
    _made.add(one)


@atexit.register
def _shut_down():
    with contextlib.ExitStack() as shutdowns:  # All of them, also behind one that fails.
        for one in list(_made):
            shutdowns.callback(one.shutdown)
