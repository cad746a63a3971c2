"""What a release costs a data set, in a currency that adds up when later releases depend on earlier ones.

Of cohorts of persons: which releases one person can have been in, and what these cost together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal, get_args

from private_mcmc.accounting import Statement
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.rdp import check_order, delta_at_order
from private_mcmc.errors import DeclarationError, LedgerError, ReleaseError
from private_mcmc.report import rounded_down, rounded_up
from private_mcmc.target import Adjacency, Target

Membership = Literal["public", "exclusive"]
# Sets of cohorts that one person may be in, all of which are gone through at every charge.
_MOST_PATTERNS = 20_000


@dataclass(frozen=True)
class Cohorts:
    """Cohorts of a data set, a person in at most ``at_most`` of them; see ``Ledger.cohorts``."""

    names: tuple[str, ...]
    membership: Membership
    at_most: int = 1

    def joined(self, later: Cohorts) -> Cohorts:
        """With those that were declared later."""
        if (later.membership, later.at_most) != (self.membership, self.at_most):
            raise LedgerError(
                f"cohorts were declared with membership={self.membership!r}, at_most={self.at_most}, which "
                "is never changed."
            )
        if set(self.names) & set(later.names):
            raise LedgerError(f"cohorts {sorted(set(self.names) & set(later.names))} are declared already.")
        return Cohorts((*self.names, *later.names), self.membership, self.at_most)

    def patterns(self) -> Iterator[frozenset[str]]:
        """Every largest set of cohorts that one person may be in."""
        return map(frozenset, combinations(self.names, min(self.at_most, len(self.names))))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return vars(self) | {"names": list(self.names)}


def check_cohorts(found: Cohorts, adjacency: Adjacency, before: Cohorts | None) -> None:
    """Refuse assumptions that do not bound what a person is in.

    Under ``replace_one`` a person may be replaced by one in other cohorts, unless these are public and fixed:
    the releases of both would add up, and the public numbers of persons change.
    """
    names = found.names
    if not names or len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
        raise DeclarationError("cohorts: different names, at least one.")
    if found.membership not in get_args(Membership):
        raise DeclarationError(
            f"membership={found.membership!r}: 'public' or 'exclusive'. Where neither is known, declare no "
            "cohorts: releases then add up."
        )
    if found.membership == "exclusive" and adjacency == "replace_one":
        raise DeclarationError(
            "membership='exclusive' under 'replace_one': a person may be replaced by one of another cohort, "
            "who is in other releases. Costs are largest over cohorts only where membership is public and "
            "fixed, or under 'add_remove' and 'zero_out'."
        )
    if type(found.at_most) is not int or found.at_most < 1:
        raise DeclarationError(f"at_most={found.at_most!r}: a whole number, at least 1.")
    whole = found if before is None else before.joined(found)
    if math.comb(len(whole.names), min(whole.at_most, len(whole.names))) > _MOST_PATTERNS:
        raise DeclarationError(
            f"{len(whole.names)} cohorts of which a person may be in {whole.at_most}: more than "
            f"{_MOST_PATTERNS} possible sets. Declare fewer, wider cohorts."
        )


def dearest(
    cohorts: Cohorts, waves: Mapping[frozenset[str], Fraction], touching: frozenset[str] | None = None
) -> Fraction:
    """The most that one person, in one of ``touching`` if given, pays for what was charged to waves."""
    return max(
        (
            sum((cost for held, cost in waves.items() if held & pattern), Fraction(0))
            for pattern in cohorts.patterns()
            if touching is None or touching & pattern
        ),
        default=Fraction(0),
    )


FilterKind = Literal["gdp", "rdp", "basic"]
_ROUNDED = 1e-9
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

    def __post_init__(self) -> None:
        if self.kind not in get_args(FilterKind) or not (self.limit >= 0 and self._at_limit() <= self.delta):
            raise DeclarationError(f"filter {self.kind!r}: its limit is not within its budget.")

    def _at_limit(self) -> float:
        """``δ`` at ``ε`` of all that the limit admits, less what rounding on another machine may add."""
        target, all_of_it = Target(self.epsilon, self.delta), float(self.limit)
        if self.kind == "basic":
            return target.delta if all_of_it <= 1 else math.inf
        if self.kind == "gdp":
            return gdp.delta(math.sqrt(all_of_it), target.epsilon) * (1 - _ROUNDED)
        return delta_at_order(check_order(self.order), all_of_it, target.epsilon) * (1 - _ROUNDED)

    def cost(self, statement: Statement) -> Fraction:
        """What ``statement`` costs; ``ReleaseError`` if it proves nothing in this filter's currency."""
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
        return _threshold(lambda s: statement.delta(s * self.epsilon) <= s * self.delta, 1.0, 1e-9, 1e6)[1]

    def epsilon_of(self, amount: Fraction) -> float:
        """The ``ε`` at this filter's ``δ`` of costs that add up to ``amount``, rounded up."""
        spent = float(amount) * (1 + 2.0**-50)
        if self.kind == "basic":
            return spent * self.epsilon
        if self.kind == "gdp":
            return gdp.epsilon(math.sqrt(spent) * (1 + 2.0**-50), self.delta)
        if spent == 0:
            return 0.0

        def meets(epsilon: float) -> bool:
            return delta_at_order(self.order, spent, epsilon) <= self.delta

        return _threshold(meets, spent + 1.0, 1e-9)[1]

    def describe(self, amount: Fraction, left: bool = False) -> str:
        """An amount of this currency in words, rounded up, what is ``left`` down; below 0 as 0."""
        amount, rounded = max(amount, Fraction(0)), rounded_down if left else rounded_up
        if self.kind == "gdp":
            return f"{rounded(math.sqrt(amount), 6):.6g}-GDP"
        if self.kind == "rdp":
            return f"({self.order:.4g}, {rounded(float(amount), 6):.6g})-RDP"
        shown = f"ε = {rounded(float(amount) * self.epsilon, 6):.6g}"
        return shown if self.delta == 0 else f"({shown}, δ = {rounded(float(amount) * self.delta, 3):.3g})"

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return vars(self) | {"limit": str(self.limit)}


def filter_for(target: Target, kind: FilterKind | None = None) -> Filter:
    """The filter whose releases together meet ``target``; by default ``gdp``, and ``basic`` at ``δ = 0``."""
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
    def exceeds(divergence: float) -> bool:
        return not delta_at_order(order, divergence, target.epsilon) <= target.delta

    return 0.0 if exceeds(0.0) else _threshold(exceeds, target.epsilon + 1.0, 1e-12)[0]


def _threshold(
    holds: Callable[[float], bool], start: float, tolerance: float, most: float = math.inf
) -> tuple[float, float]:
    """Where a condition begins to hold: a number at which it does not, and one just above at which it does.

    ``start`` is doubled until it holds; beyond ``most`` both are ``inf``.
    """
    low, high = 0.0, start
    while not holds(high):
        high *= 2
        if high > most:
            return math.inf, math.inf
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high
