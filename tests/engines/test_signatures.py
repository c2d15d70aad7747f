# SPDX-License-Identifier: Apache-2.0
"""Property: the classes of real engines that adapters subclass are those that the adapters were written for.
Method: signatures.json, recorded by tools/engines/record_signatures.py, against the installed packages."""

import copy
import importlib.util
import json
import pathlib
import sysconfig

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "engines" / "record_signatures.py"
SPEC = importlib.util.spec_from_file_location("record_signatures", TOOL)
recorder = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(recorder)


def installed():
    return recorder.record(pathlib.Path(sysconfig.get_path("purelib")))


def test_nothing_has_drifted():
    assert recorder.drift(json.loads(recorder.RECORD.read_text()), installed()) == []


def test_a_drift_is_named():
    was = installed()
    now = copy.deepcopy(was)
    methods = now["transformers"]["CacheLayerMixin"]["methods"]
    update = methods.pop("@abstractmethod update")
    methods["update"] = update
    methods["reset"] = "(self, hard)"
    now["transformers"].pop("Cache")
    where = "transformers: CacheLayerMixin: methods: "
    assert recorder.drift(was, now) == [
        "transformers: Cache is gone", where + "@abstractmethod update is gone",
        where + f"reset: {was['transformers']['CacheLayerMixin']['methods']['reset']} is now (self, hard)",
        where + "update is new"]
