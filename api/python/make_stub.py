#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the stub of the extension module: make_stub.py FILE, by default api/python/cairn/_core.pyi.

PYTHONPATH leads to a built package. Its __init__ is left out, for it puts functions of Python around the module's.
"""

import importlib.util
import pathlib
import sys
import types

from nanobind import stubgen

package = types.ModuleType("cairn")
package.__path__ = importlib.util.find_spec("cairn").submodule_search_locations
sys.modules["cairn"] = package
made = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "cairn/_core.pyi"
stubgen.main(["-q", "-m", "cairn._core", "-o", str(made)])
