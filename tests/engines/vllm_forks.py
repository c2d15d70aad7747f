# SPDX-License-Identifier: Apache-2.0
"""Stages of processes that run beside each other, forked from one that has imported vLLM: that takes longer than they
do."""

import gc
import importlib
import os
import sys
import traceback


def run_stages(imported, stages, run):
    """stages: {name of a process: its work} of each; a process calls run(name, work). The next stage begins when all of
    them have ended. What a process raises is printed."""
    for name in imported:
        importlib.import_module(name)
    gc.freeze()  # vLLM collects garbage while it starts.
    for stage in stages:
        children = []
        for name, work in stage.items():
            child = os.fork()
            if child == 0:
                _end(name, work, run)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


def _end(name, work, run):
    """Nothing is left to do behind it, and tearing down takes seconds."""
    status = 1
    try:
        run(name, work)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
