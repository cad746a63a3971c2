"""What a release costs a data set, in a currency that adds up when later releases depend on earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from private_mcmc.accounting import Statement, gdp
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.report import at_least, at_most
from private_mcmc.target import Target

_ROUNDED = 1e-9


@dataclass(frozen=True)
class Filter:
    """A privacy filter: releases are allowed while their ``m²`` add up to at most ``limit``.

    ``limit`` is the largest ``m²`` of which ``m``-GDP gives ``(ε, δ)``. A release costs the ``m²`` of its
    Gaussian statement; a pure ``ε``-DP one ``(2Φ^{-1}(e^ε/(1+e^ε)))²``, the least ``m²`` whose trade-off
    curve lies below randomised response.

    **Guarantee**: everything released together is ``(ε, δ)``-DP, also when each release was chosen after
    seeing the earlier ones. **Assumptions**: every statement holds given the earlier outputs; the limit is
    fixed before the first release (it is, in the ledger). Costs are added and compared as exact fractions.
    Source: Smith, Thakurta 2022; Dong, Roth, Su 2022.
    """

    epsilon: float
    delta: float
    limit: Fraction

    def __post_init__(self) -> None:
        target = Target(self.epsilon, self.delta)
        # Less what rounding on another machine may add.
        sound = target.delta > 0 and self.limit >= 0
        if not sound or not gdp.delta(math.sqrt(self.limit), target.epsilon) * (1 - _ROUNDED) <= target.delta:
            raise DeclarationError("a ledger's budget: its limit is not within its ε and δ.")

    @classmethod
    def of(cls, target: Target) -> Filter:
        """The filter whose releases together meet ``target``."""
        if not target.delta > 0:
            raise DeclarationError(
                "a ledger adds up in Gaussian DP, which never gives δ = 0: declare a δ > 0."
            )
        limit = Fraction(gdp.budget(target.epsilon, target.delta)) ** 2
        return cls(target.epsilon, target.delta, limit)

    def cost(self, statement: Statement) -> Fraction:
        """The ``m²`` of ``statement``; ``ReleaseError`` if none is proved of it."""
        level = min(curve.gdp for curve in statement.curves)
        if 0 <= level < math.inf:
            return Fraction(level) ** 2
        raise ReleaseError(
            f"the statement ({statement.argument.theorem}) is neither Gaussian DP nor pure ε-DP, and a "
            "ledger adds up those alone."
        )

    def epsilon_of(self, amount: Fraction) -> float:
        """The ``ε`` at this filter's ``δ`` of costs that add up to ``amount``, rounded up."""
        spent = float(amount) * (1 + 2.0**-50)
        return gdp.epsilon(math.sqrt(spent) * (1 + 2.0**-50), self.delta)

    def describe(self, amount: Fraction, left: bool = False) -> str:
        """An amount as the ``m`` of one release, rounded up, what is ``left`` down; below 0 as 0."""
        shown = at_least if left else at_most
        return f"{shown(math.sqrt(max(amount, Fraction(0))), 6)}-GDP"

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return vars(self) | {"limit": str(self.limit)}
