"""Composition of curves of different kinds, for mechanisms fixed in advance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from private_mcmc.accounting import gdp, rdp
from private_mcmc.accounting.curves import Concentrated, Curve, Gaussian, Laplace, Points, Pure
from private_mcmc.accounting.pld import Losses, Step, losses, worthwhile
from private_mcmc.accounting.sampled_pairs import Sampled

_MOST_PURE = 12


def combine(curves: tuple[Curve, ...]) -> Curve:
    """One curve for mechanisms with independent randomness, one curve of each.

    ``m²`` adds, zCDP adds, and what remains of different kinds becomes a ``Product``.
    """
    flat = tuple(
        part for curve in curves for part in (curve.parts if isinstance(curve, Product) else (curve,))
    )
    squares = [curve.m**2 for curve in flat if isinstance(curve, Gaussian)]
    rhos = [curve.rho for curve in flat if isinstance(curve, Concentrated)]
    merged: list[Curve] = []
    if squares:
        merged.append(
            Gaussian(squares[0] ** 0.5 if len(squares) == 1 else _up(math.sqrt(math.fsum(squares))))
        )
    if rhos:
        merged.append(Concentrated(rhos[0] if len(rhos) == 1 else _up(math.fsum(rhos))))
    merged += [curve for curve in flat if not isinstance(curve, (Gaussian, Concentrated))]
    merged = _merge_sampled(merged)
    return merged[0] if len(merged) == 1 else Product(tuple(merged))


def _merge_sampled(curves: list[Curve]) -> list[Curve]:
    """Steps with the same pair, rate and ratio counted together."""
    counts: dict[tuple[str, float, float], int] = {}
    for curve in curves:
        if isinstance(curve, Sampled):
            key = (curve.pair, curve.rate, curve.ratio)
            counts[key] = counts.get(key, 0) + curve.steps
    rest = [curve for curve in curves if not isinstance(curve, Sampled)]
    return rest + [Sampled(*key, count) for key, count in counts.items()]


def _up(value: float) -> float:
    return value * (1 + 4 * math.ulp(1.0))


@dataclass(frozen=True)
class Product(Curve):
    """All of ``parts`` released, with independent randomness; the least of the valid compositions."""

    parts: tuple[Curve, ...]
    kind = "product"

    def delta(self, epsilon: float) -> float:
        """The least of the compositions that apply to these kinds."""
        gdp.check_epsilon(epsilon)
        best = self._with_discrete_losses(epsilon)
        if self._losses is not None:
            best = min(best, self._losses.delta(epsilon))
            if self._losses.resolves(best):
                return best
        return min(best, self._by_renyi(epsilon))

    def epsilon(self, delta: float) -> float:
        """At ``δ = 0`` the sum of the pure levels."""
        gdp.check_delta(delta)
        pure = sum(part.epsilon(0.0) for part in self.parts)
        return min(pure, super().epsilon(delta)) if delta > 0 else pure

    def rdp(self, alpha: float) -> float:
        """Rényi divergences add."""
        return math.fsum(part.rdp(alpha) for part in self.parts)

    @property
    def zcdp(self) -> float:
        """They add."""
        return math.fsum(part.zcdp for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """``kind`` and the parts, in plain types."""
        return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}

    @cached_property
    def _losses(self) -> Losses | None:
        """The joint loss distribution, where a grid is needed and every part has a worst pair."""
        if not any(isinstance(part, (Sampled, Laplace)) for part in self.parts):
            return None
        steps = [_loss_steps(part) for part in self.parts]
        known = tuple(item for step in steps if step is not None for item in step)
        return None if any(step is None for step in steps) or not worthwhile(known) else losses(known)

    def _with_discrete_losses(self, epsilon: float) -> float:
        """Every pure or approximate part replaced by its worst pair, the rest kept as one curve.

        Losses of the worst pairs are ``±ε_i`` or ``+∞``; the rest is averaged over them.
        """
        discrete = [part for part in self.parts if isinstance(part, (Pure, Points))]
        rest = [part for part in self.parts if not isinstance(part, (Pure, Points))]
        if len(rest) > 1:
            return 1.0
        kept, missed = 1.0, 0.0
        losses = [(0.0, 1.0)]
        levels = []
        for part in discrete:
            level, miss = (part.level, 0.0) if isinstance(part, Pure) else _sharpest(part)
            missed += kept * miss
            kept *= 1 - miss
            levels.append(level)
        for level in levels[:_MOST_PURE]:
            up = 1 / (1 + math.exp(-level))
            losses = [
                (loss + sign * level, mass * share)
                for loss, mass in losses
                for sign, share in ((1.0, up), (-1.0, 1 - up))
            ]
        shift = math.fsum(levels[_MOST_PURE:])
        remaining = math.fsum(mass * _tail(rest, epsilon - shift - loss) for loss, mass in losses)
        return min(1.0, (missed + kept * remaining) * (1 + 1e-12))

    def _by_renyi(self, epsilon: float) -> float:
        if any(isinstance(part, Sampled) for part in self.parts):
            return rdp.table_to_delta(self._divergences, epsilon)
        if not self.rdp(2.0) < math.inf and not self.rdp(1.01) < math.inf:
            return 1.0
        return rdp.to_delta(self.rdp, epsilon)

    @cached_property
    def _divergences(self) -> tuple[float, ...]:
        """At ``rdp.ORDERS``: quadratures are worth keeping."""
        return tuple(self.rdp(alpha) for alpha in rdp.ORDERS)


def _sharpest(part: Points) -> tuple[float, float]:
    """The one point that stands for the part in a composition: the one with the least ``δ``."""
    return min(part.points, key=lambda point: (point[1], point[0]))


def _loss_steps(part: Curve) -> tuple[Step, ...] | None:
    if isinstance(part, Sampled):
        return part.loss_steps
    if isinstance(part, (Gaussian, Laplace, Pure)):
        size = part.m if isinstance(part, Gaussian) else part.level
        return (Step(part.kind, size),)
    if isinstance(part, Points):
        level, miss = _sharpest(part)
        return (Step("point", level, miss),)
    return None


def _tail(rest: list[Curve], epsilon: float) -> float:
    """Hockey-stick divergence of at most one curve at a real ``epsilon``."""
    if not rest:
        return max(0.0, -math.expm1(epsilon))
    (curve,) = rest
    if epsilon >= 0:
        return curve.delta(epsilon)
    # Both orders of the pair obey the curve, so δ(−ε) ≤ 1 − e^{−ε} + e^{−ε} δ(ε).
    return -math.expm1(epsilon) + math.exp(epsilon) * curve.delta(-epsilon)
