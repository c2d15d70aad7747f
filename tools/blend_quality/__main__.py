# SPDX-License-Identifier: Apache-2.0
"""python -m blend_quality CACHE OUT: measures what is not measured yet and writes OUT/blend_quality.md and .svg."""

import argparse
import pathlib
import time

from . import first_token, measure, report

parser = argparse.ArgumentParser()
parser.add_argument("cache", type=pathlib.Path)
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--minutes", type=float, default=38)

if __name__ == "__main__":
    options = parser.parse_args()
    deadline = time.time() + 60 * options.minutes
    timed = first_token.measure(options.cache)
    complete = measure.measure_all(options.cache, deadline)
    report.write(options.out, measure.results_of(options.cache), timed)
    if not complete:
        raise SystemExit("blend-quality: the time is over; what is missing is measured by the next call")
