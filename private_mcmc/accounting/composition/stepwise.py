"""Statements of procedures made of several ``(ε_i, δ_i)`` steps, each chosen from the ones before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from private_mcmc.accounting.assumptions import RELATION, STEPS_HOLD
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Curve, Points, Pure
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency


def stepwise(
    steps: Mapping[str, tuple[float, float]],
    *,
    adjacency: Adjacency,
    theorem: str,
    assumptions: tuple[str, ...] = (),
) -> Statement:
    """``(Σ ε_i, Σ δ_i)``-DP for named steps, each ``(ε_i, δ_i)``-DP given the outputs of the earlier ones.

    Source: basic composition (Dwork, Kenthapadi, McSherry, Mironov, Naor 2006), valid for adaptively
    chosen steps.

    Raises:
        DeclarationError: without steps, or for values out of range.
    """
    if not steps:
        raise DeclarationError("stepwise: at least one step is needed.")
    for level, miss in steps.values():
        gdp.check_epsilon(level)
        gdp.check_delta(miss)
    total = _sum_up([level for level, _ in steps.values()])
    miss = min(1.0, _sum_up([miss for _, miss in steps.values()]))
    curve: Curve = Pure(total) if miss == 0 else Points(((total, miss),))
    constants = {"steps": {name: (float(level), float(part)) for name, (level, part) in steps.items()}}
    quoted = (*assumptions, STEPS_HOLD, RELATION[check_adjacency(adjacency)])
    return Statement(adjacency, (curve,), Argument(theorem, quoted, constants, "stepwise"))


def _sum_up(values: list[float]) -> float:
    """The sum, rounded up only where it is not exact: one step costs what it says."""
    total = math.fsum(values)
    if total < math.inf and Fraction(total) < sum(map(Fraction, values), Fraction(0)):
        return math.nextafter(total, math.inf)
    return total
