"""Composition of statements with independent randomness, candidate by candidate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product

from private_mcmc.accounting.assumptions import no_more_rows, of_persons
from private_mcmc.accounting.curves.curve import Concentrated, Curve, Gaussian, Laplace, Pure
from private_mcmc.accounting.curves.product import Product, combine
from private_mcmc.accounting.rounding import norm_up, product_up
from private_mcmc.accounting.statement import Argument, Statement, common_unit
from private_mcmc.errors import DeclarationError, NotPrivate, NotYetSupported
from private_mcmc.records import Constants
from private_mcmc.target import Adjacency, Unit, check_adjacency


def capped(statement: Statement, num_rows: int) -> Statement:
    """``statement``; under ``add_remove`` it quotes the public ``n_max`` that its constants call ``n``."""
    return quoting(statement, no_more_rows(num_rows)) if statement.adjacency == "add_remove" else statement


def quoting(statement: Statement, line: str) -> Statement:
    """``statement``, with one more assumption."""
    argument = statement.argument
    if line in argument.assumptions:
        return statement
    return replace(statement, argument=replace(argument, assumptions=(*argument.assumptions, line)))


def group(statement: Statement, rows: int) -> Statement:
    """The statement for data sets that differ in up to ``rows`` rows: ``k·m``-GDP, ``k·ε``, ``k²ρ``-zCDP.

    Products scale part by part; curves of other kinds are left out. ``DeclarationError`` where none is left.

    Source: Dong, Roth, Su 2022, Theorem 2.14; Bun, Steinke 2016, Proposition 27.
    """
    if not rows >= 1:
        raise DeclarationError(f"rows={rows}: at least 1.")
    if statement.unit is not None:
        raise NotYetSupported(
            "group privacy of persons: the statement covers all rows of one identifier already."
        )
    curves = group_curves({"rows": int(rows)}, (statement,))
    argument = Argument.of("group", statement.adjacency, {"rows": int(rows)}, parts=1)
    return Statement(statement.adjacency, curves, argument, parts=(statement,))


def group_curves(c: Constants, parts: tuple[Statement, ...]) -> tuple[Curve, ...]:
    """The curves of the one part that extend to groups of rows."""
    (part,) = parts
    curves = tuple(scaled for curve in part.curves if (scaled := _scaled(curve, c["rows"])) is not None)
    if not curves:
        raise DeclarationError(
            "none of the statement's curves (Gaussian, pure, zCDP) extends to groups of rows: "
            "state the mechanism with a sensitivity for all of a person's rows instead."
        )
    return curves


def _scaled(curve: Curve, rows: int) -> Curve | None:
    if isinstance(curve, Gaussian):
        return Gaussian(product_up(curve.m, rows))
    if isinstance(curve, Laplace):
        return Laplace(product_up(curve.level, rows))
    if isinstance(curve, Pure):
        return Pure(product_up(curve.level, rows))
    if isinstance(curve, Concentrated):
        return Concentrated(product_up(curve.rho, rows, rows))
    if isinstance(curve, Product):
        parts = [_scaled(part, rows) for part in curve.parts]
        known = tuple(part for part in parts if part is not None)
        return Product(known) if len(known) == len(parts) else None
    return None


def adaptive(
    budget: float, adjacency: Adjacency, stages: tuple[Statement, ...], unit: Unit | None = None
) -> Statement:
    """``B``-GDP for stages ``m_1, m_2, …`` with ``Σ m_j² ≤ B²``, each chosen from what was released before.

    **Guarantee**: ``budget``-GDP, the declared budget and never the realised sum. **Assumptions**: the budget
    was fixed before the first stage; every stage's ``m_j`` holds given the earlier outputs. ``NotPrivate``
    if they cost more. Source: Smith, Thakurta 2022 (fully adaptive composition of Gaussian DP).
    """
    for stage in stages:
        if stage.adjacency != adjacency:
            raise DeclarationError(
                f"a stage is stated under {stage.adjacency!r}, the budget under {adjacency!r}."
            )
    constants = {"budget": float(budget)}
    curves = adaptive_curves(constants, stages)
    argument = Argument.of("adaptive", check_adjacency(adjacency), constants, len(stages))
    return _of_parts(adjacency, curves, argument, stages, unit)


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


def _of_parts(
    adjacency: Adjacency,
    curves: tuple[Curve, ...],
    argument: Argument,
    parts: tuple[Statement, ...],
    unit: Unit | None,
) -> Statement:
    """A statement about ``parts``, of the unit that all of them protect."""
    if unit is not None:
        argument = replace(argument, assumptions=(of_persons(unit), *argument.assumptions))
    return Statement(adjacency, curves, argument, parts=parts, unit=unit)


_MOST_CANDIDATES = 64

Choice = tuple[int, ...]


def compose(*statements: Statement) -> Statement:
    """The statement of releasing everything that ``statements`` speak of, the minimum over curves taken last.

    **Assumptions**: independent randomness; mechanisms fixed in advance, or post-processing that was. Two
    statements of one run are refused (one chain is one mechanism: what is computed from its released states
    is free, more of it is not), as are different adjacencies or units.
    """
    if not statements:
        raise DeclarationError("compose needs at least one statement.")
    first = statements[0]
    for other in statements[1:]:
        if other.adjacency != first.adjacency:
            raise DeclarationError(
                f"statements under {first.adjacency!r} and {other.adjacency!r} do not compose: "
                "state both under one adjacency."
            )
    unit = common_unit(statements)
    names = [name for statement in statements for name in statement.mechanisms]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DeclarationError(
            f"mechanism {repeated[0]!r} appears twice: one chain is one mechanism, "
            "its releases share randomness and their statements do not compose."
        )
    if len(statements) == 1:
        return first
    chosen: dict[Curve, Choice] = {}
    for choice in _choices(statements):
        picked = tuple(statement.curves[index] for statement, index in zip(statements, choice, strict=True))
        chosen.setdefault(combine(picked), choice)
    constants = {"choices": tuple(chosen.values())}
    argument = Argument.of("composition", first.adjacency, constants, len(statements))
    curves = composition_curves(constants, statements)
    return _of_parts(first.adjacency, curves, argument, tuple(statements), unit)


def composition_curves(c: Constants, parts: tuple[Statement, ...]) -> tuple[Curve, ...]:
    """For every choice of one curve of each part, these curves together."""
    for choice in c["choices"]:
        if len(choice) != len(parts) or not all(
            index < len(part.curves) for index, part in zip(choice, parts, strict=True)
        ):
            raise DeclarationError("a choice is of one curve that each part has.")
    return tuple(
        combine(tuple(part.curves[index] for index, part in zip(choice, parts, strict=True)))
        for choice in c["choices"]
    )


def _choices(statements: tuple[Statement, ...]) -> list[Choice]:
    """Which curve of each statement: every choice, or a few telling ones where these are too many."""
    counts = [len(statement.curves) for statement in statements]
    if math.prod(counts) <= _MOST_CANDIDATES:
        return list(product(*map(range, counts)))
    keys: tuple[Callable[[Curve], float], ...] = (
        lambda curve: 0.0,
        lambda curve: curve.zcdp,
        lambda curve: curve.epsilon(0.0),
        lambda curve: curve.m if isinstance(curve, Gaussian) else math.inf,
    )
    best = [tuple(_least(statement.curves, key) for statement in statements) for key in keys]
    kept = max(1, math.floor(_MOST_CANDIDATES ** (1 / len(statements)) + 1e-9))
    return best + list(product(*(range(min(kept, count)) for count in counts)))


def _least(curves: tuple[Curve, ...], key: Callable[[Curve], float]) -> int:
    return min(range(len(curves)), key=lambda index: key(curves[index]))
