"""Run the library against itself: kernels × releases × adjacencies × models × (ε, δ).

A line for every setting as it is done: the largest lower bound as a share of its claim. Ends with 1 if a
claim was refuted.
"""

import argparse
import os
import sys

from tests.soundness.attacks import tightness
from tests.soundness.sweep.settings import settings
from tests.soundness.sweep.sweep import sweep


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soundness.sweep", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every k-th setting only")
    parser.add_argument("--num-runs", type=int, default=4_000, help="runs on each of the two data sets")
    parser.add_argument("--failure", type=float, default=1e-6, help="that any one lower bound is too large")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    asked = parser.parse_args()
    chosen, refuted = list(settings())[:: asked.every], 0
    found = sweep(chosen, num_runs=asked.num_runs, failure=asked.failure, workers=asked.workers)
    for done, (setting, one) in enumerate(found, 1):
        refuted += not one.sound
        word = f"{tightness(one):.2f} of its claim" if one.sound else f"REFUTED: {one.violations[0]}"
        print(f"{done}/{len(chosen)}  {setting.family}: {setting.name}: {word}", flush=True)
    print(f"{len(chosen)} settings, {refuted} refuted")
    return int(refuted > 0)


if __name__ == "__main__":
    sys.exit(main())
