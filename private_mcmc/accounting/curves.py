"""Privacy curves of single mechanisms: what is known of ``δ(ε)``, of Gaussian DP and of Rényi divergences.

A curve bounds the divergence of every adjacent pair in both orders. Sampled steps and compositions are in
``pld``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields

from private_mcmc.accounting import gdp
from private_mcmc.accounting.rounding import TINY, product_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record


class Curve(ABC):
    """An upper bound ``δ(ε)``, ``ε ≥ 0``, for every adjacent pair in both orders."""

    kind: str

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence at ``epsilon ≥ 0``."""

    @property
    @abstractmethod
    def gdp(self) -> float:
        """Least known ``m`` of which this is ``m``-GDP; ``inf`` if none is."""

    def epsilon(self, delta: float) -> float:
        """The smallest ``ε`` found with ``δ(ε) ≤ delta``; ``inf`` if there is none."""
        return invert(self.delta, gdp.check_delta(delta))

    def to_dict(self) -> Record:
        """``kind`` and the fields, in plain types."""
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


def invert(delta_at: Callable[[float], float], target: float) -> float:
    """Smallest ``ε ≥ 0`` (rounded up) with ``delta_at(ε) ≤ target`` for a non-increasing ``delta_at``."""
    if delta_at(0.0) <= target:
        return 0.0
    return gdp.crossing(lambda at: delta_at(at) <= target, apart=1e-10, most=1e9)[1]


@dataclass(frozen=True)
class Gaussian(Curve):
    """``m``-GDP."""

    m: float
    kind = "gaussian"

    def __post_init__(self) -> None:
        gdp.check_gdp(self.m)

    @property
    def gdp(self) -> float:
        """``m``."""
        return self.m

    def delta(self, epsilon: float) -> float:
        """``Φ(−ε/m + m/2) − e^ε Φ(−ε/m − m/2)``."""
        return gdp.delta(self.m, epsilon)

    def epsilon(self, delta: float) -> float:
        """Inverse of ``delta``, by bisection."""
        return gdp.epsilon(self.m, delta)


@dataclass(frozen=True)
class Pure(Curve):
    """``(level, 0)``-DP. Its worst pair is randomised response: losses ``±level``."""

    level: float
    kind = "pure"

    def __post_init__(self) -> None:
        gdp.check_epsilon(self.level)

    @property
    def gdp(self) -> float:
        """That of randomised response."""
        return gdp.of_pure(self.level)

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


@dataclass(frozen=True)
class Laplace(Pure):
    """One continuous Laplace draw on one coordinate, scale ``sensitivity/level``."""

    kind = "laplace"

    def delta(self, epsilon: float) -> float:
        """``1 − e^{(ε − level)/2}``."""
        gap = gdp.check_epsilon(epsilon) - self.level
        return 0.0 if gap >= 0 else min(1.0, -math.expm1(gap / 2) * (1 + 1e-15) + TINY)


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

    @property
    def gdp(self) -> float:
        """None is known."""
        return math.inf

    def delta(self, epsilon: float) -> float:
        """The least of ``δ_i + (1−δ_i)`` times randomised response at ``ε_i``."""
        return min(
            min(1.0, sum_up((miss, product_up(sum_up((1.0, -miss)), Pure(level).delta(epsilon)))))
            for level, miss in self.points
        )
