# SPDX-License-Identifier: Apache-2.0
"""python -m shadow_quality CACHE OUT: measures what is not measured yet and writes OUT/shadow_quality.md and .svg."""

import argparse
import pathlib

from . import measure, report
from .model import encoder

parser = argparse.ArgumentParser()
parser.add_argument("cache", type=pathlib.Path)
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--minutes", type=float, default=38)

if __name__ == "__main__":
    options = parser.parse_args()
    digests = measure.digests(options.cache, encoder())
    complete = measure.measure_all(options.cache, options.minutes, digests)
    report.write(options.out, measure.results_of(options.cache, digests))
    if not complete:
        raise SystemExit("shadow-quality: the time is over; what is missing is measured by the next call")
