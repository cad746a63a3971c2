"""What a release costs a data set, in a currency that adds up when later releases depend on earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from private_mcmc.accounting import Statement
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.rdp import delta_at_order
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.target import Target

FilterKind = Literal["gdp", "rdp", "basic"]
_ORDERS = tuple(1 + 2.0 ** (exponent / 8) for exponent in range(-24, 97))


@dataclass(frozen=True)
class Filter:
    """A privacy filter: releases are allowed while their costs add up to at most ``limit``.

    ==========  =====================================================  ==========================
    kind        cost of a release                                      limit
    ==========  =====================================================  ==========================
    ``gdp``     ``m²`` of its Gaussian statement                       largest ``m²`` within (ε, δ)
    ``rdp``     its Rényi divergence at one order fixed beforehand     largest such within (ε, δ)
    ``basic``   the largest share ``s`` of the budget, ``(sε, sδ)``    1
    ==========  =====================================================  ==========================

    **Guarantee**: everything released together is ``(ε, δ)``-DP, also when each release was chosen after
    seeing the earlier ones. **Assumptions**: every statement holds given the earlier outputs; kind,
    order and limit are fixed before the first release (they are, in the ledger). Costs are added and
    compared as exact fractions.

    ``basic`` takes every statement and adds up ``ε`` and ``δ``. In a ``gdp`` filter a pure ``ε``-DP
    release costs ``(2Φ^{-1}(e^ε/(1+e^ε)))²``, the least ``m²`` whose trade-off curve lies below randomised
    response.
    Source: Smith, Thakurta 2022 (``gdp``); Feldman, Zrnic 2021 (``rdp``); Rogers, Roth, Ullman,
    Vadhan 2016 (``basic``); Dong, Roth, Su 2022.

    Attributes:
        order: the Rényi order of an ``rdp`` filter, else 0.
    """

    kind: FilterKind
    epsilon: float
    delta: float
    limit: Fraction
    order: float = 0.0

    def cost(self, statement: Statement) -> Fraction:
        """What ``statement`` costs.

        Raises:
            ReleaseError: if the statement proves nothing in this filter's currency.
        """
        level = self._level(statement)
        if 0 <= level < math.inf:
            return self._exact(Fraction(level))
        if statement.argument.rule == "composition":
            return sum((self.cost(part) for part in statement.parts), Fraction(0))
        raise ReleaseError(
            f"the statement ({statement.argument.theorem}) has no cost under a {self.kind!r} filter. "
            + ("A data set with a 'basic' filter takes it." if self.kind != "basic" else "")
        )

    def _level(self, statement: Statement) -> float:
        """``m``, the Rényi divergence, the share or the ``ε`` of a statement, an upper bound."""
        if self.kind == "basic":
            return self._share(statement) if self.delta > 0 else statement.epsilon(0.0)
        if self.kind == "rdp":
            return statement.rdp(self.order)
        m = math.inf if statement.gdp is None else statement.gdp
        return min(m, _gdp_of_pure(statement.epsilon(0.0)))

    def _exact(self, level: Fraction) -> Fraction:
        if self.kind == "gdp":
            return level**2
        return level / Fraction(self.epsilon) if self.kind == "basic" and self.delta == 0 else level

    def _share(self, statement: Statement) -> float:
        """Least ``s`` found such that the statement gives ``(sε, sδ)``, ``δ > 0``."""
        low, high = 0.0, 1.0
        while not statement.delta(high * self.epsilon) <= high * self.delta:
            low, high = high, 2 * high
            if high > 1e6:
                return math.inf
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            fits = statement.delta(middle * self.epsilon) <= middle * self.delta
            low, high = (low, middle) if fits else (middle, high)
        return high

    def epsilon_of(self, amount: Fraction) -> float:
        """The ``ε`` at this filter's ``δ`` of costs that add up to ``amount``, rounded up."""
        spent = float(amount) * (1 + 2.0**-50)
        if self.kind == "basic":
            return spent * self.epsilon
        if self.kind == "gdp":
            return gdp.epsilon(math.sqrt(spent) * (1 + 2.0**-50), self.delta)
        if spent == 0:
            return 0.0
        low, high = 0.0, spent + 1.0
        while not delta_at_order(self.order, spent, high) <= self.delta:
            high *= 2
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            enough = delta_at_order(self.order, spent, middle) <= self.delta
            low, high = (low, middle) if enough else (middle, high)
        return high

    def describe(self, amount: Fraction) -> str:
        """An amount of this currency in words."""
        if self.kind == "gdp":
            return f"{math.sqrt(amount):.6g}-GDP"
        if self.kind == "rdp":
            return f"({self.order:.4g}, {float(amount):.6g})-RDP"
        shown = f"ε = {float(amount) * self.epsilon:.6g}"
        return shown if self.delta == 0 else f"({shown}, δ = {float(amount) * self.delta:.3g})"

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return {
            "kind": self.kind,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "limit": str(self.limit),
            "order": self.order,
        }


def filter_for(target: Target, kind: FilterKind | None = None) -> Filter:
    """The filter whose releases together meet ``target``; by default ``gdp``, and ``basic`` at ``δ = 0``.

    Raises:
        DeclarationError: for an unknown kind, or ``gdp`` and ``rdp`` at ``δ = 0``.
    """
    chosen = ("basic" if target.delta == 0 else "gdp") if kind is None else kind
    if chosen not in get_args(FilterKind):
        raise DeclarationError(f"filter {chosen!r}: one of {', '.join(get_args(FilterKind))}.")
    if chosen == "basic":
        return Filter("basic", target.epsilon, target.delta, Fraction(1))
    if not target.delta > 0:
        raise DeclarationError(f"a {chosen!r} filter never gives δ = 0: give the budget a δ > 0.")
    if chosen == "gdp":
        limit = Fraction(gdp.budget(target.epsilon, target.delta)) ** 2
        return Filter("gdp", target.epsilon, target.delta, limit)
    limits = {order: _largest_divergence(order, target) for order in _ORDERS}
    # The order at which Gaussian costs, proportional to it, get furthest.
    order = max(limits, key=lambda at: limits[at] / at)
    if not limits[order] > 0:
        raise DeclarationError("no Rényi order certifies this budget: raise ε or δ.")
    return Filter("rdp", target.epsilon, target.delta, Fraction(limits[order]), order)


def _gdp_of_pure(level: float) -> float:
    """Least ``m`` such that ``level``-DP implies ``m``-GDP, rounded up."""
    from scipy.special import ndtri

    if not level < math.inf:
        return math.inf
    # Φ^{-1} of 1/(1 + e^ε), the smaller error: no cancellation for large ε.
    return -2 * float(ndtri(math.exp(-level) / (1 + math.exp(-level)))) * (1 + 1e-12) + 1e-15


def _largest_divergence(order: float, target: Target) -> float:
    low, high = 0.0, target.epsilon + 1.0
    if delta_at_order(order, low, target.epsilon) > target.delta:
        return 0.0
    while delta_at_order(order, high, target.epsilon) <= target.delta:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if delta_at_order(order, middle, target.epsilon) <= target.delta:
            low = middle
        else:
            high = middle
    return low
