"""Composition of curves of different kinds, for mechanisms fixed in advance; any curve from its record."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from private_mcmc.accounting.curves import gdp, rdp
from private_mcmc.accounting.curves.curve import (
    Concentrated,
    Curve,
    Gaussian,
    Laplace,
    Points,
    Pure,
)
from private_mcmc.accounting.curves.pld import Losses, Sampled, Step, losses, worthwhile
from private_mcmc.accounting.rounding import TINY, norm_up, sum_up, up_last
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record, taken, unplain

_MOST_DISCRETE = 8


def combine(curves: tuple[Curve, ...]) -> Curve:
    """One curve for mechanisms with independent randomness, one curve of each.

    ``m²`` adds, zCDP adds, and what remains of different kinds becomes a ``Product``.
    """
    flat = tuple(
        part for curve in curves for part in (curve.parts if isinstance(curve, Product) else (curve,))
    )
    levels = [curve.m for curve in flat if isinstance(curve, Gaussian)]
    rhos = [curve.rho for curve in flat if isinstance(curve, Concentrated)]
    merged: list[Curve] = []
    if levels:
        merged.append(Gaussian(norm_up(levels)))
    if rhos:
        merged.append(Concentrated(sum_up(rhos)))
    merged += [curve for curve in flat if not isinstance(curve, (Gaussian, Concentrated, Sampled))]
    # Steps with the same pair, rate and ratio are counted together.
    counts: Counter[tuple[str, float, float]] = Counter()
    for curve in flat:
        if isinstance(curve, Sampled):
            counts[curve.pair, curve.rate, curve.ratio] += curve.steps
    merged += [Sampled(*key, count) for key, count in counts.items()]
    return merged[0] if len(merged) == 1 else Product(tuple(merged))


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
        known = self.rdp(2.0) < math.inf or self.rdp(1.01) < math.inf
        return min(best, rdp.to_delta(self.rdp, epsilon)) if known else best

    def epsilon(self, delta: float) -> float:
        """At ``δ = 0`` the sum of the pure levels."""
        gdp.check_delta(delta)
        pure = sum_up(part.epsilon(0.0) for part in self.parts)
        return min(pure, super().epsilon(delta)) if delta > 0 else pure

    def rdp(self, alpha: float) -> float:
        """Rényi divergences add."""
        return up_last(math.fsum(part.rdp(alpha) for part in self.parts))

    @property
    def zcdp(self) -> float:
        """They add."""
        return sum_up(part.zcdp for part in self.parts)

    def to_dict(self) -> Record:
        """``kind`` and the parts, in plain types."""
        return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}

    @cached_property
    def _losses(self) -> Losses | None:
        """The joint loss distribution, where a grid is needed and every part has a worst pair."""
        discrete = sum(isinstance(part, (Pure, Points)) for part in self.parts)
        gridded = any(isinstance(part, (Sampled, Laplace)) for part in self.parts)
        if not gridded and discrete <= _MOST_DISCRETE:
            return None
        steps = [_loss_steps(part) for part in self.parts]
        known = tuple(item for step in steps if step is not None for item in step)
        return None if any(step is None for step in steps) or not worthwhile(known) else losses(known)

    @cached_property
    def _rest(self) -> Curve | None:
        """All parts whose loss is not discrete, as one curve."""
        parts = tuple(part for part in self.parts if not isinstance(part, (Pure, Points)))
        return None if not parts else parts[0] if len(parts) == 1 else Product(parts)

    @cached_property
    def _discrete(self) -> tuple[float, tuple[tuple[tuple[float, ...], float], ...]]:
        """Worst pairs of the pure and approximate parts: ``P(loss = ∞)``, and ``(losses to add, mass)``.

        A part's worst loss is ``±ε_i``, or ``+∞`` with probability ``δ_i``; levels beyond the first few
        are added up.
        """
        kept, levels = 1.0, []
        for part in self.parts:
            if isinstance(part, (Pure, Points)):
                level, miss = (part.level, 0.0) if isinstance(part, Pure) else _sharpest(part)
                kept *= 1 - miss
                levels.append(level)
        levels.sort(reverse=True)
        most = 2 if isinstance(self._rest, (Sampled, Product)) else _MOST_DISCRETE
        found = [(tuple(levels[most:]), 1.0)]
        for level in levels[:most]:
            up = 1 / (1 + math.exp(-level))
            found = [
                ((*losses, sign * level), mass * share)
                for losses, mass in found
                for sign, share in ((1.0, up), (-1.0, 1 - up))
            ]
        return 1 - kept, tuple(found)

    def _with_discrete_losses(self, epsilon: float) -> float:
        """The rest, averaged over the losses of the worst pairs of the pure and approximate parts."""
        if not any(isinstance(part, (Pure, Points)) for part in self.parts):
            return 1.0
        missed, found = self._discrete
        tails = [mass * _tail(self._rest, _left(epsilon, losses)) for losses, mass in found]
        exact = missed + (1 - missed) * math.fsum(tails)
        certain = (
            missed == 0 and all(_left(epsilon, losses) >= 0 for losses, _ in found) and self._rest is None
        )
        return 0.0 if certain else min(1.0, exact * (1 + 1e-12) + TINY)


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


def _left(epsilon: float, losses: tuple[float, ...]) -> float:
    """``ε − Σ losses``, rounded down unless it is zero."""
    if math.inf in losses:
        return -math.inf
    rest = math.fsum((epsilon, *(-loss for loss in losses)))
    return rest if rest == 0 or math.isinf(rest) else math.nextafter(rest, -math.inf)


def _tail(curve: Curve | None, epsilon: float) -> float:
    """Hockey-stick divergence of one curve, or of nothing at all, at a real ``epsilon``."""
    if curve is None:
        return max(0.0, -math.expm1(epsilon))
    if epsilon >= 0:
        return curve.delta(epsilon)
    # Both orders of the pair obey the curve, so δ(−ε) ≤ 1 − e^{−ε} + e^{−ε} δ(ε).
    return -math.expm1(epsilon) + math.exp(epsilon) * curve.delta(-epsilon)


_SIMPLE: dict[str, type[Curve]] = {kind.kind: kind for kind in (Gaussian, Pure, Laplace, Concentrated)}


def curve_from_dict(record: Constants) -> Curve:
    """The curve a ``to_dict`` described.

    ``DeclarationError`` for an unknown kind, or fields that it does not have.
    """
    kind = taken(record, "kind", str)
    try:
        return _curve(kind, record)
    except RecursionError as error:
        raise DeclarationError("the record of a privacy curve is nested too deeply.") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, DeclarationError):
            raise
        raise DeclarationError(
            f"the record of a {kind!r} curve is incomplete or invalid ({error!r})."
        ) from error


def _curve(kind: str, record: Constants) -> Curve:
    values = {key: unplain(item) for key, item in record.items() if key != "kind"}
    if kind in _SIMPLE:
        return _SIMPLE[kind](**{key: float(item) for key, item in values.items()})  # type: ignore[call-arg]
    if kind == "points":
        return Points(tuple((float(level), float(miss)) for level, miss in values["points"]))
    if kind == "sampled":
        return Sampled(
            str(values["pair"]), float(values["rate"]), float(values["ratio"]), int(values["steps"])
        )
    if kind == "product":
        return Product(tuple(curve_from_dict(part) for part in record["parts"]))
    raise DeclarationError(f"unknown kind of privacy curve {kind!r}.")
