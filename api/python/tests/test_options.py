# SPDX-License-Identifier: Apache-2.0
"""Each option of C++ is an argument of Store."""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ["CAIRN_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tests/c_abi"))
import headers  # noqa: E402

STUB = ROOT / "api/python/cairn/_core.pyi"  # python.package holds it equal to the module.
# Those that are no arguments, and why.
OTHERS = {
    "allocator": "the memory is the interpreter's",
    "listener": "its lines come through on_event",
    "world": "the simulated machine is for tests in C++",
}


def test_store_takes_each_option_of_cpp():
    options = headers.fields((ROOT / "api/include/cairn/options.h").read_text())["Options"]
    constructor = re.search(r"^class Store\b.*?def __init__\(self, ([^\n]*)", STUB.read_text(), re.S | re.M).group(1)
    lacking = set(options) - set(re.findall(r"(\w+): ", constructor))
    assert len(options) > 20
    assert lacking == set(OTHERS), "each needs a CAIRN_ROW in api/python/src/options.cc; then make _core.pyi again (make_stub.py)"
