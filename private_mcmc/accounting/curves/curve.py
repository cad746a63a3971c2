"""Privacy curves of single mechanisms: what is known of ``δ(ε)`` and of the Rényi divergences.

A curve bounds the divergence of every adjacent pair in both orders. Composition of several is in
``product``, subsampled pairs in ``sampled_pairs``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields

from private_mcmc.accounting.curves import gdp, rdp
from private_mcmc.accounting.rounding import TINY, product_up, sum_up, up_last
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record


class Curve(ABC):
    """An upper bound ``δ(ε)``, ``ε ≥ 0``, for every adjacent pair in both orders."""

    kind: str

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence at ``epsilon ≥ 0``."""

    def epsilon(self, delta: float) -> float:
        """The smallest ``ε`` found with ``δ(ε) ≤ delta``; ``inf`` if there is none."""
        return invert(self.delta, gdp.check_delta(delta))

    def rdp(self, alpha: float) -> float:
        """Rényi divergence bound of order ``alpha > 1``; ``inf`` where none is known."""
        rdp.check_order(alpha)
        return math.inf

    @property
    def zcdp(self) -> float:
        """Least known ``ρ`` with Rényi divergence ``≤ ρα`` at every order; ``inf`` if none is known."""
        return math.inf

    def beta(self, alpha: float) -> float:
        """Lower bound on the type II error at level ``alpha``: the best of the lines given by ``δ(ε)``."""
        if not 0 <= alpha <= 1:
            raise DeclarationError(f"alpha={alpha}: a level lies in [0, 1].")
        top = min(self.epsilon(1e-12), 700.0)
        best = 0.0
        for step in range(101):
            at = top * (step / 100) ** 2
            room = 1 - self.delta(at)
            best = max(best, room - math.exp(at) * alpha, math.exp(-at) * (room - alpha))
        return best

    def to_dict(self) -> Record:
        """``kind`` and the fields, in plain types."""
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


def invert(delta_at: Callable[[float], float], target: float) -> float:
    """Smallest ``ε ≥ 0`` (rounded up) with ``delta_at(ε) ≤ target`` for a non-increasing ``delta_at``."""
    if delta_at(0.0) <= target:
        return 0.0
    low, high = 0.0, 1.0
    while not delta_at(high) <= target:
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    while high - low > 1e-10 * high:
        middle = low + (high - low) / 2
        low, high = (low, middle) if delta_at(middle) <= target else (middle, high)
    return high


@dataclass(frozen=True)
class Gaussian(Curve):
    """``m``-GDP."""

    m: float
    kind = "gaussian"

    def __post_init__(self) -> None:
        gdp.check_gdp(self.m)

    def delta(self, epsilon: float) -> float:
        """``Φ(−ε/m + m/2) − e^ε Φ(−ε/m − m/2)``."""
        return gdp.delta(self.m, epsilon)

    def epsilon(self, delta: float) -> float:
        """Inverse of ``delta``, by bisection."""
        return gdp.epsilon(self.m, delta)

    def rdp(self, alpha: float) -> float:
        """``αm²/2``."""
        return up_last(rdp.check_order(alpha) * self.m * self.m / 2) if self.m > 0 else 0.0

    @property
    def zcdp(self) -> float:
        """``m²/2``."""
        return product_up(self.m, self.m, 0.5)

    def beta(self, alpha: float) -> float:
        """``Φ(Φ^{-1}(1−α) − m)``."""
        return gdp.beta(self.m, alpha)


@dataclass(frozen=True)
class Pure(Curve):
    """``(level, 0)``-DP. Its worst pair is randomised response: losses ``±level``."""

    level: float
    kind = "pure"

    def __post_init__(self) -> None:
        gdp.check_epsilon(self.level)

    def delta(self, epsilon: float) -> float:
        """``(e^level − e^ε)/(1 + e^level)``, that of randomised response."""
        gap = gdp.check_epsilon(epsilon) - self.level
        if gap >= 0:
            return 0.0
        return min(1.0, -math.expm1(gap) / (1 + math.exp(-self.level)) * (1 + 1e-15) + TINY)

    def epsilon(self, delta: float) -> float:
        """``level``, or less where ``delta`` allows it."""
        if gdp.check_delta(delta) == 0:
            return self.level
        return min(self.level, invert(self.delta, delta))

    def rdp(self, alpha: float) -> float:
        """That of randomised response."""
        return rdp.randomised_response(self.level, rdp.check_order(alpha))

    @property
    def zcdp(self) -> float:
        """``level²/2`` (Bun, Steinke 2016)."""
        return product_up(self.level, self.level, 0.5)


@dataclass(frozen=True)
class Laplace(Pure):
    """One continuous Laplace draw on one coordinate, scale ``sensitivity/level``."""

    kind = "laplace"

    def delta(self, epsilon: float) -> float:
        """``1 − e^{(ε − level)/2}``."""
        gap = gdp.check_epsilon(epsilon) - self.level
        return 0.0 if gap >= 0 else min(1.0, -math.expm1(gap / 2) * (1 + 1e-15) + TINY)

    def rdp(self, alpha: float) -> float:
        """That of two Laplace laws ``level`` scales apart."""
        return rdp.laplace(self.level, rdp.check_order(alpha))


@dataclass(frozen=True)
class Concentrated(Curve):
    """``rho``-zCDP: Rényi divergence at most ``rho·α`` for every order."""

    rho: float
    kind = "concentrated"

    def __post_init__(self) -> None:
        if not self.rho >= 0:
            raise DeclarationError(f"rho={self.rho}: a zCDP parameter is a number in [0, ∞].")

    def delta(self, epsilon: float) -> float:
        """The least over all Rényi orders."""
        return rdp.to_delta(self.rdp, epsilon)

    def rdp(self, alpha: float) -> float:
        """``rho·α``."""
        return up_last(self.rho * rdp.check_order(alpha)) if self.rho > 0 else 0.0

    @property
    def zcdp(self) -> float:
        """``rho``."""
        return self.rho


@dataclass(frozen=True)
class Points(Curve):
    """Approximate DP at finitely many points: ``(ε_i, δ_i)``-DP for every ``i``."""

    points: tuple[tuple[float, float], ...]
    kind = "points"

    def __post_init__(self) -> None:
        if not self.points:
            raise DeclarationError("points: at least one (epsilon, delta) is needed.")
        for level, miss in self.points:
            gdp.check_epsilon(level)
            gdp.check_delta(miss)

    def delta(self, epsilon: float) -> float:
        """The least of ``δ_i + (1−δ_i)`` times randomised response at ``ε_i``."""
        return min(
            min(1.0, sum_up((miss, product_up(sum_up((1.0, -miss)), Pure(level).delta(epsilon)))))
            for level, miss in self.points
        )

    def rdp(self, alpha: float) -> float:
        """That of the pure points; ``inf`` if there are none."""
        rdp.check_order(alpha)
        exact = [level for level, miss in self.points if miss == 0]
        return min((rdp.randomised_response(level, alpha) for level in exact), default=math.inf)
