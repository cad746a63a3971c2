"""Composition of statements with independent randomness, candidate by candidate, and under a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product

from private_mcmc.accounting.assumptions import no_more_rows
from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.pld import combine
from private_mcmc.accounting.rounding import norm_up
from private_mcmc.accounting.statement import Argument, Statement, common_unit
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.records import Constants
from private_mcmc.target import Adjacency, Unit, check_adjacency


def capped(statement: Statement, num_rows: int) -> Statement:
    """``statement``; under ``add_remove`` it quotes the public ``n_max`` that its constants call ``n``."""
    argument, line = statement.argument, no_more_rows(num_rows)
    if statement.adjacency != "add_remove" or line in argument.assumptions:
        return statement
    return replace(statement, argument=replace(argument, assumptions=(*argument.assumptions, line)))


def adaptive(
    budget: float, adjacency: Adjacency, stages: tuple[Statement, ...], unit: Unit | None = None
) -> Statement:
    """``B``-GDP for stages ``m_1, m_2, …`` with ``Σ m_j² ≤ B²``, each chosen from what was released before.

    **Guarantee**: ``budget``-GDP, the declared budget and never the realised sum. **Assumptions**: the budget
    was fixed before the first stage; every stage's ``m_j`` holds given the earlier outputs. ``NotPrivate``
    if they cost more. Source: Smith, Thakurta 2022 (fully adaptive composition of Gaussian DP).
    """
    constants = {"budget": float(budget)}
    curves = adaptive_curves(constants, stages)
    argument = Argument.of("adaptive", check_adjacency(adjacency), constants, len(stages), unit)
    return Statement(adjacency, curves, argument, parts=stages, unit=unit)


def adaptive_curves(c: Constants, parts: tuple[Statement, ...]) -> tuple[Curve, ...]:
    """The budget, if the parts' ``Σ m²`` is within its square, in exact fractions."""
    budget, spent = c["budget"], Fraction(0)
    if not 0 < budget < math.inf:
        raise DeclarationError(f"budget={budget}: must be positive and finite.")
    for stage in parts:
        if stage.gdp is None or stage.gdp == math.inf:
            raise NotPrivate(f"the stage {stage.argument.theorem!r} has no finite Gaussian DP statement.")
        spent += Fraction(stage.gdp) ** 2
    if not spent <= Fraction(budget) ** 2:
        cost = norm_up(stage.gdp for stage in parts if stage.gdp is not None)
        from private_mcmc.report import at_least, at_most

        raise NotPrivate(
            f"the stages cost {at_most(cost, 12)}-GDP, more than the budget {at_least(budget, 12)}."
        )
    return (Gaussian(float(budget)),)


_MOST_CANDIDATES = 64


def compose(*statements: Statement) -> Statement:
    """The statement of releasing everything that ``statements`` speak of, the minimum over curves taken last.

    **Assumptions**: independent randomness; mechanisms fixed in advance, or post-processing that was. Two
    statements of one run are refused (one chain is one mechanism: what is computed from its released states
    is free, more of it is not), as are different adjacencies or units.
    """
    if not statements:
        raise DeclarationError("compose needs at least one statement.")
    if len(statements) == 1:
        return statements[0]
    adjacency, unit = statements[0].adjacency, common_unit(statements)
    argument = Argument.of("composition", adjacency, {}, len(statements), unit)
    return Statement(adjacency, composition_curves(statements), argument, parts=statements, unit=unit)


def composition_curves(parts: tuple[Statement, ...]) -> tuple[Curve, ...]:
    """One curve of each part together: every choice, or two telling ones where these are too many."""
    options = [part.curves for part in parts]
    if math.prod(map(len, options)) <= _MOST_CANDIDATES:
        return tuple(dict.fromkeys(map(combine, product(*options))))
    keys: tuple[Callable[[Curve], float], ...] = (lambda curve: curve.gdp, lambda curve: curve.epsilon(0.0))
    best = (tuple(min(curves, key=key) for curves in options) for key in keys)
    return tuple(dict.fromkeys(map(combine, best)))
