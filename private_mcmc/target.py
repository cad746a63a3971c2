"""The privacy target: what must hold, and for which pairs of data sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from private_mcmc.errors import DeclarationError

Adjacency = Literal["replace_one", "add_remove", "zero_out"]


def check_adjacency(adjacency: str) -> Adjacency:
    """Return ``adjacency`` if it is a known relation; raise ``DeclarationError`` otherwise."""
    if adjacency not in get_args(Adjacency):
        raise DeclarationError(f"adjacency={adjacency!r}: choose one of {', '.join(get_args(Adjacency))}.")
    return adjacency  # type: ignore[return-value]


@dataclass(frozen=True)
class Target:
    """(ε, δ) under an adjacency: ``P[A|D] ≤ e^ε P[A|D'] + δ`` for all adjacent ``D, D'`` and events ``A``.

    ``replace_one``: one row changed, the number of rows is public. ``add_remove``: one row more or
    less, the number of rows is private. ``zero_out``: one of a public number of slots is emptied.

    Raises:
        DeclarationError: unless ``0 < epsilon < ∞``, ``0 ≤ delta < 1`` and the adjacency is known.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace_one"

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise DeclarationError(f"epsilon={self.epsilon}: must be positive and finite.")
        if not 0 <= self.delta < 1:
            raise DeclarationError(f"delta={self.delta}: must lie in [0, 1).")
        check_adjacency(self.adjacency)
