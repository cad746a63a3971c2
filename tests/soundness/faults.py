"""Which check catches which planted fault: ``python -m tests.soundness.faults [--attempts N] [--only WORD]``.

Prints for every fault the checks that are meant to catch it, with the share of attempts (other seeds) in
which they did, and for every check how often it spoke against a library without faults. Ends with 1 where a
fault is missed by all its checks in more than one attempt of twenty, or nothing wrong is spoken against.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence

from private_mcmc.errors import PrivateMCMCError
from tests.soundness.front_door import CHECKS
from tests.soundness.front_door.setup import Check
from tests.soundness.planted import FAULTS, UNBROKEN, Fault, planted

# The cheapest check of every fault first, then the others that the issue of statistical power is about.
CAUGHT_BY = {
    "first row never clipped": ("replay: linear path", "audit: first row"),
    "coordinates clipped by the norm of their box": ("audit: clipped coordinates",),
    "last coordinate never clipped": ("audit: clipped coordinates",),
    "batch redrawn every fourth step": ("replay: batches", "audit: batches"),
    "noise used for two steps": ("replay: logistic path", "audit: below the clip"),
    "keys of a plan's stages used again": ("replay: plan's noise", "audit: plan's noise"),
    "noise used again after resuming": ("replay: resumed", "audit: resumed"),
    "only the last stage charged": ("replay: plan's budget",),
    "family: a prior's curvature 1/s for 1/s²": ("audit: last state",),
    "family: logits squashed once more": ("replay: logistic path",),
    "modulus: twice the contraction": ("audit: last state",),
    "person: a quarter of the norm clipped": ("replay: persons",),
    "person: a sum with other persons' rows": ("replay: persons", "audit: person"),
    "person: rows beyond the cap kept": ("replay: persons", "audit: person"),
    "person: cap by global order": ("audit: person",),
    "person: batches by rows": ("replay: batches of persons", "audit: batches of persons"),
    "rounding skipped": ("replay: grid",),
}


def caught(fault: Fault, check: Check, seeds: range) -> float:
    """The share of ``seeds`` with which ``check`` speaks against the library with ``fault``."""
    with planted(fault):
        try:
            attempt = check.make()
            return sum(bool(attempt(seed)) for seed in seeds) / len(seeds)
        except PrivateMCMCError:
            if fault is UNBROKEN:
                raise
            # The library's own checks stop the run.
            return 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--only", default="", help="faults and checks that have this word in their names")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    pairs = [
        (fault, check)
        for check in CHECKS
        for fault in (UNBROKEN, *FAULTS)
        if (fault is UNBROKEN or check.name in CAUGHT_BY[fault.name])
        and given.only in f"{fault.name} {check.name}"
    ]
    best: dict[str, float] = {}
    began = time.monotonic()
    for fault, check in pairs:
        share = caught(fault, check, range(100, 100 + given.attempts))
        best[fault.name] = max(share, best.get(fault.name, 0.0))
        seconds = time.monotonic() - began
        print(f"{seconds:6.0f} s  {share:5.0%}  {check.name:34s} {fault.name}", flush=True)
    wrong = best.pop(UNBROKEN.name, 0.0)
    return int(wrong > 0 or any(share < 0.95 for share in best.values()))


if __name__ == "__main__":
    sys.exit(main())
