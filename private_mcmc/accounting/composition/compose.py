"""Composition of statements with independent randomness, candidate by candidate."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

from private_mcmc.accounting.assumptions import INDEPENDENT
from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.product import combine
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError

_MOST_CANDIDATES = 64

Choice = tuple[int, ...]


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
    chosen: dict[Curve, Choice] = {}
    for choice in _choices(statements):
        picked = tuple(statement.curves[index] for statement, index in zip(statements, choice, strict=True))
        chosen.setdefault(combine(picked), choice)
    argument = Argument(
        f"composition of {len(statements)} independent mechanisms (Dong, Roth, Su 2022)",
        (INDEPENDENT,),
        {"choices": tuple(chosen.values())},
        "composition",
    )
    return Statement(first.adjacency, tuple(chosen), argument, parts=tuple(statements))


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
