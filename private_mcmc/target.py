"""The privacy target: what must hold, and for which pairs of data sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args

from private_mcmc.arguments import construction_checked
from private_mcmc.errors import DeclarationError

Adjacency = Literal["replace_one", "add_remove", "zero_out"]


def check_adjacency(adjacency: str) -> Adjacency:
    """Return ``adjacency`` if it is a known relation; raise ``DeclarationError`` otherwise."""
    if adjacency not in get_args(Adjacency):
        raise DeclarationError(f"adjacency={adjacency!r}: choose one of {', '.join(get_args(Adjacency))}.")
    return adjacency  # type: ignore[return-value]


def is_number(value: object) -> bool:
    """Whether ``value`` is a real number, NumPy's included, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_positive(name: str, value: object) -> None:
    """Raise ``DeclarationError`` unless ``value`` is a positive, finite number."""
    if not (is_number(value) and 0 < value < math.inf):  # type: ignore[operator]
        raise DeclarationError(f"{name}={value!r}: must be a positive, finite number.")


def check_count(name: str, value: object) -> None:
    """Raise ``DeclarationError`` unless ``value`` is a whole number and at least 1."""
    if not (isinstance(value, Integral) and not isinstance(value, bool) and value >= 1):  # type: ignore[operator]
        raise DeclarationError(f"{name}={value!r}: must be a whole number, at least 1.")


@dataclass(frozen=True)
class Unit:
    """What is protected as one row where several rows share an identifier: all of them together.

    Attributes:
        name: of the column of identifiers.
        rows: the most rows of one identifier that enter.
    """

    name: str
    rows: int

    def __post_init__(self) -> None:
        check_count("rows", self.rows)

    def __str__(self) -> str:
        return f"one person, with all of up to {self.rows} rows (equal {self.name!r})"


@construction_checked
@dataclass(frozen=True)
class Target:
    """(ε, δ) under an adjacency: ``P[A|D] ≤ e^ε P[A|D'] + δ`` for all adjacent ``D, D'`` and events ``A``.

    ``replace_one``: one row changed, the number of rows is public. ``add_remove``: one row more or
    less, the number of rows is private. ``zero_out``: one of a public number of slots is emptied, a hole
    where its row was: no other row moves.

    Raises:
        DeclarationError: unless ``0 < epsilon < ∞``, ``0 ≤ delta < 1`` and the adjacency is known.

    Example:
        >>> pmc.Target(epsilon=1.0, delta=1e-6)
        Target(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace_one"

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if not (is_number(self.delta) and 0 <= self.delta < 1):
            raise DeclarationError(f"delta={self.delta!r}: must be a number in [0, 1).")
        check_adjacency(self.adjacency)
