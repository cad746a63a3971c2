"""Which check catches which planted fault: ``python -m tests.soundness.faults [--attempts N] [--only WORD]``.

Prints a table, faults against checks, with the share of attempts (other seeds) that caught the fault, and
ends with 1 where a fault is missed by all checks or a library without faults is spoken against.
"""

import argparse
import sys
import warnings

from private_mcmc.errors import PrivateMCMCError
from tests.soundness.front_door import CHECKS
from tests.soundness.front_door.setup import Check
from tests.soundness.planted import FAULTS, UNBROKEN, Fault, planted


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1)
    parser.add_argument("--only", default="", help="faults and checks that have this word in their names")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    by_fault = [fault for fault in FAULTS if given.only in fault.name]
    faults = (UNBROKEN, *(by_fault or FAULTS))
    checks = [check for check in CHECKS if by_fault or given.only in check.name]
    width = max(len(fault.name) for fault in faults)
    for number, check in enumerate(checks, 1):
        print(f"{number:2d} {check.name}")
    print(f"\n{'planted':{width}s}" + "".join(f"{number:6d}" for number in range(1, len(checks) + 1)))
    bad = 0
    for fault in faults:
        print(f"{fault.name:{width}s}", end="", flush=True)
        shares = []
        for check in checks:
            shares.append(caught(fault, check, range(given.attempts)))
            print(f"{shares[-1]:6.0%}" if shares[-1] else f"{'·':>6s}", end="", flush=True)
        print()
        bad += any(shares) if fault is UNBROKEN else max(shares) < 0.95
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
