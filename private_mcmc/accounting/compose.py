"""Composition of statements with independent randomness, candidate by candidate."""

from __future__ import annotations

import math
from itertools import product

from private_mcmc.accounting.curves import Curve, Gaussian
from private_mcmc.accounting.product import combine
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError

_MOST_CANDIDATES = 64


def compose(*statements: Statement) -> Statement:
    """The statement of releasing everything that ``statements`` speak of.

    Every choice of one curve from each statement is composed; the minimum is taken last.

    **Assumptions**: the mechanisms use independent randomness and were fixed in advance (later ones
    do not depend on earlier outputs except by post-processing that was itself fixed).

    Raises:
        DeclarationError: for different adjacencies, or two statements of the same run (one chain is
            one mechanism: what is computed from its released states is free, more of it is not).
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
    names = [name for statement in statements for name in statement.mechanisms]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DeclarationError(
            f"mechanism {repeated[0]!r} appears twice: one chain is one mechanism, "
            "its releases share randomness and their statements do not compose."
        )
    if len(statements) == 1:
        return first
    curves = dict.fromkeys(combine(choice) for choice in product(*_options(statements)))
    levels = [statement.gdp for statement in statements]
    if None not in levels:
        curves[combine(tuple(Gaussian(m) for m in levels if m is not None))] = None
    argument = Argument(
        f"composition of {len(statements)} independent mechanisms (Dong, Roth, Su 2022)",
        ("the mechanisms use independent randomness and were fixed in advance",),
        {},
        "composition",
    )
    return Statement(first.adjacency, tuple(curves), argument, parts=tuple(statements))


def _options(statements: tuple[Statement, ...]) -> list[tuple[Curve, ...]]:
    """The curves to choose from: all of them, or the first few of each where the choices are too many."""
    options = [statement.curves for statement in statements]
    if math.prod(map(len, options)) <= _MOST_CANDIDATES:
        return options
    kept = max(1, math.floor(_MOST_CANDIDATES ** (1 / len(statements)) + 1e-9))
    return [curves[:kept] for curves in options]
