# SPDX-License-Identifier: Apache-2.0
"""python -m shadow_quality CACHE OUT: measures what is not measured yet and writes OUT/shadow_quality.md and .svg."""

import argparse
import pathlib
import time

from . import measure, report, through_cairn
from .model import encoder

parser = argparse.ArgumentParser()
parser.add_argument("cache", type=pathlib.Path)
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--minutes", type=float, default=38)

if __name__ == "__main__":
    options = parser.parse_args()
    digests = measure.digests(options.cache, encoder())
    deadline = time.time() + 60 * options.minutes
    complete = measure.measure_all(options.cache, deadline, digests)
    complete = through_cairn.measure_all(options.cache, deadline, digests) and complete
    report.write(options.out, measure.results_of(options.cache, digests),
                 through_cairn.results_of(options.cache, digests))
    if not complete:
        raise SystemExit("shadow-quality: the time is over; what is missing is measured by the next call")
