"""Checking a statement: its numbers recomputed from its constants alone, by code that did not produce it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from private_mcmc.accounting.rules import RULES
from private_mcmc.accounting.serial import unplain

_TOLERANCE = 1e-9
# The least number of assumptions that a claim of this rule quotes; 1 where it is not listed.
_ASSUMED: Mapping[str, int] = {
    "posterior.bounded": 2,
    "posterior.strongly_log_concave": 2,
    "posterior.bounded_gradient": 2,
    "posterior.beta_binomial": 3,
    "posterior.dirichlet_categorical": 3,
    "posterior.gamma_poisson": 3,
    "posterior.normal_mean": 3,
    "posterior.normal_regression": 2,
    "noise.second_moments": 2,
    "langevin": 4,
    "adaptive": 2,
    "stepwise": 0,
}


@dataclass(frozen=True)
class Verification:
    """Whether the numbers of a statement follow from its constants; truthy if they do."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


def verify(record: Mapping[str, Any]) -> Verification:
    """Check ``Statement.to_dict()`` output, also after a JSON round trip.

    The assumptions themselves (that the constants are right, that the chain ran as declared) are
    not something numbers can show; they are part of the claim, and a record that has lost them fails.
    """
    rule, assumptions = record["argument"]["rule"], record["argument"]["assumptions"]
    if not len([line for line in assumptions if str(line).strip()]) >= _ASSUMED.get(rule, 1):
        return Verification(False, f"rule {rule!r}: assumptions that the claim rests on are missing.")
    for index, part in enumerate(record["parts"]):
        inner = verify(part)
        if not inner:
            return Verification(False, f"part {index}: {inner.reason}")
        if part["adjacency"] != record["adjacency"]:
            return Verification(False, f"part {index} speaks of adjacency {part['adjacency']!r}.")
    if rule not in RULES:
        return Verification(False, f"no recomputation is known for the rule {rule!r}.")
    try:
        wanted = RULES[rule](record["adjacency"], unplain(record["argument"]["constants"]), record["parts"])
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return Verification(False, f"rule {rule!r}: the constants are incomplete or invalid ({error!r}).")
    found = [unplain(curve) for curve in record["curves"]]
    for curve in found:
        if not any(_same(curve, candidate) for candidate in wanted):
            return Verification(False, f"rule {rule!r}: the constants do not give the curve {curve}.")
    return Verification(True, f"rule {rule!r}: every curve follows from the constants.")


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(_same(found[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, tuple):
        return isinstance(found, tuple) and len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        return found == wanted or math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=0.0)
    return bool(found == wanted)
