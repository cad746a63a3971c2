"""Privacy curves: what is known of ``δ(ε)`` and of Gaussian DP, of single mechanisms and of several together.

A curve bounds the divergence of every adjacent pair in both orders. Sampled steps and compositions of
different kinds go through dp_accounting's privacy loss distributions, built directly from pairs of
distributions. The library's relation argument is never used to express an adjacency:
``from_gaussian_mechanism`` and its kin stand for the pairs ``N(0)`` against ``N(1)``; the one exception is
the pair of Poisson sampling under ``replace_one``, which is what the library calls by that name.

The pairs of one sampled step, in units of the noise's sd, with ``r`` the shift of one present row:

- ``add_remove``: ``(1−q)N(0) + qN(r)`` against ``N(0)``, both orders (also ``zero_out``);
- ``replace_one``: ``(1−q)N(0) + qN(r)`` against ``(1−q)N(0) + qN(−r)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from private_mcmc.accounting import gdp
from private_mcmc.accounting.rounding import TINY, norm_up, product_up, root_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record, plain


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
        """The smallest ``ε`` found with ``δ(ε) ≤ delta``, rounded up; ``inf`` if there is none."""
        target = gdp.checked("delta", delta, 1)
        if self.delta(0.0) <= target:
            return 0.0
        return gdp.crossing(lambda at: self.delta(at) <= target, apart=1e-10, most=1e9)[1]

    def to_dict(self) -> Record:
        """``kind`` and the fields, in plain types."""
        return {"kind": self.kind} | {one.name: plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Gaussian(Curve):
    """``m``-GDP."""

    m: float
    kind = "gaussian"

    def __post_init__(self) -> None:
        gdp.checked("m", self.m)

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
        gdp.checked("epsilon", self.level)

    @property
    def gdp(self) -> float:
        """That of randomised response."""
        return gdp.of_pure(self.level)

    def delta(self, epsilon: float) -> float:
        """``(e^level − e^ε)/(1 + e^level)``, that of randomised response."""
        gap = gdp.checked("epsilon", epsilon) - self.level
        if gap >= 0:
            return 0.0
        return min(1.0, -math.expm1(gap) / (1 + math.exp(-self.level)) * (1 + 1e-15) + TINY)

    def epsilon(self, delta: float) -> float:
        """``level``, or less where ``delta`` allows it."""
        return self.level if delta == 0 else min(self.level, super().epsilon(delta))


@dataclass(frozen=True)
class Points(Curve):
    """Approximate DP at finitely many points: ``(ε_i, δ_i)``-DP for every ``i``."""

    points: tuple[tuple[float, float], ...]
    kind = "points"

    def __post_init__(self) -> None:
        if not self.points:
            raise DeclarationError("points: at least one (epsilon, delta) is needed.")
        for level, miss in self.points:
            gdp.checked("epsilon", level)
            gdp.checked("delta", miss, 1)

    @property
    def gdp(self) -> float:
        """None is known."""
        return math.inf

    def delta(self, epsilon: float) -> float:
        """The least of ``δ_i + (1−δ_i)`` times randomised response at ``ε_i``."""
        kept = ((miss, sum_up((1.0, -miss)), Pure(level).delta(epsilon)) for level, miss in self.points)
        return min(min(1.0, sum_up((miss, product_up(rest, delta)))) for miss, rest, delta in kept)


_MOST_LOSSES = 400_000
NOISE_PER_STEP = 1e-15


class _Composed(Curve):
    """A curve of composed losses: the less of them and of Gaussian DP."""

    @cached_property
    def _losses(self) -> tuple[Any, float] | None:
        """The loss distribution of all steps composed, and what is added to every ``δ``.

        Discretised pessimistically. Convolutions by FFT err by some units in the last place for each factor:
        ``1e-15`` is allowed for each step. ``None`` where no grid can resolve the steps: either all but free
        or hopelessly expensive.
        """
        steps = [(getattr(one, "steps", 1), *_step(one)) for one in _singles(self)]
        # First, since squares of others may be beyond all floats.
        if not all(1e-6 <= size <= (200 if count == 1 else 30) for count, size, *_ in steps):
            return None
        if not sum(count * sd**2 for count, _, sd, _ in steps) <= 100.0**2:
            return None
        # A grid fine against every step's loss, coarse enough for the whole range.
        whole = math.sqrt(sum(count * max(sd, 1e-12) ** 2 for count, _, sd, _ in steps))
        alone = max(2 * size**2 + 20 * size for _, size, *_ in steps)
        span = 2 * (whole**2 / 2 + 9 * whole) + alone
        grid = max(0.02 * max(min(sd for _, _, sd, _ in steps), 1e-12), span / _MOST_LOSSES)
        total = None
        with np.errstate(over="ignore"):  # the library's tail bounds pass through inf, and drop it
            for count, _, _, losses in steps:
                once = losses(value_discretization_interval=grid)
                composed = once.self_compose(count) if count > 1 else once
                total = composed if total is None else total.compose(composed)
        return total, NOISE_PER_STEP * (10 + sum(count for count, *_ in steps))

    def delta(self, epsilon: float) -> float:
        """From the composed privacy loss distribution, where there is one; never above the Gaussian one."""
        best = gdp.delta(self.gdp, epsilon)
        if self._losses is None:
            return best
        distribution, allowance = self._losses
        return min(best, max(float(distribution.get_delta_for_epsilon(epsilon)), 0.0) + allowance)


@dataclass(frozen=True)
class Sampled(_Composed):
    """``steps`` subsampled Gaussian steps with one dominating pair; never above the un-amplified value.

    Attributes:
        pair: ``"add_remove"`` or ``"replace_one"``.
        rate: ``q``.
        ratio: ``r/σ``, the shift of one present row over the noise's standard deviation.
        steps: how many such steps.
    """

    pair: str
    rate: float
    ratio: float
    steps: int
    kind = "sampled"

    def __post_init__(self) -> None:
        if self.pair not in ("add_remove", "replace_one"):
            raise DeclarationError(f"pair={self.pair!r}: add_remove or replace_one.")
        if not (0 < self.rate <= 1 and 0 <= self.ratio < math.inf and self.steps >= 1):
            raise DeclarationError(
                f"rate={self.rate}, ratio={self.ratio}, steps={self.steps}: need 0 < q ≤ 1, a finite r ≥ 0 "
                "and at least one step."
            )

    @property
    def whole(self) -> float:
        """``m`` of one step if it were known which rows were drawn."""
        return self.ratio if self.pair == "add_remove" else product_up(2.0, self.ratio)

    @property
    def gdp(self) -> float:
        """What holds even if it were known which rows were drawn."""
        return product_up(self.whole, root_up(self.steps))


@dataclass(frozen=True)
class Product(_Composed):
    """All of ``parts`` released, with independent randomness: their joint losses, or Gaussian DP."""

    parts: tuple[Curve, ...]
    kind = "product"

    @property
    def gdp(self) -> float:
        """``m²`` adds."""
        return norm_up(part.gdp for part in self.parts)

    @property
    def _pure(self) -> float:
        return sum_up(part.level if isinstance(part, Pure) else math.inf for part in self.parts)

    def delta(self, epsilon: float) -> float:
        """The less of both; 0 from the sum of the pure levels on."""
        if gdp.checked("epsilon", epsilon) >= self._pure:
            return 0.0
        return super().delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """At ``δ = 0`` the sum of the pure levels."""
        return min(self._pure, super().epsilon(delta)) if gdp.checked("delta", delta, 1) > 0 else self._pure


def _singles(curve: Curve) -> list[Curve]:
    """What a curve composes, or itself."""
    return [one for part in curve.parts for one in _singles(part)] if isinstance(curve, Product) else [curve]


def _step(curve: Curve) -> tuple[float, float, Callable[..., Any]]:
    """Of one step's worst pair: its ``ε`` or ``m``, the rough sd of its loss, and its losses on a grid.

    The sd guides the grid, no guarantee rests on it; small where two losses are rounded up to the grid. Of
    points the one with the least ``δ`` stands for all.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    if isinstance(curve, Sampled):
        whole, kinds = curve.whole, NeighboringRelation
        relation = kinds.REPLACE_ONE if curve.pair == "replace_one" else kinds.ADD_OR_REMOVE_ONE
        drawn = {"sampling_prob": curve.rate, "neighboring_relation": relation}
        sd = min(whole, curve.rate * math.sqrt(math.expm1(min(whole * whole, 50.0))))
        return curve.ratio, sd, lambda **on: pld.from_gaussian_mechanism(1 / curve.ratio, **drawn, **on)
    if isinstance(curve, Gaussian):
        return curve.m, curve.m, lambda **on: pld.from_gaussian_mechanism(1 / curve.m, **on)
    if not isinstance(curve, (Pure, Points)):
        raise DeclarationError(f"no pair of a {curve.kind!r} curve is known.")
    points = ((curve.level, 0.0),) if isinstance(curve, Pure) else curve.points
    least = min(points, key=lambda point: point[::-1])
    point = common.DifferentialPrivacyParameters
    return least[0], least[0] / 10, lambda **on: pld.from_privacy_parameters(point(*least), **on)


def combine(curves: tuple[Curve, ...]) -> Curve:
    """One curve for mechanisms with independent randomness, one curve of each.

    ``m²`` adds, steps with the same pair, rate and ratio are counted together, and what remains of different
    kinds becomes a ``Product``.
    """
    flat = [one for curve in curves for one in _singles(curve)]
    levels = [curve.m for curve in flat if isinstance(curve, Gaussian)]
    merged: list[Curve] = [Gaussian(norm_up(levels))] if levels else []
    merged += [curve for curve in flat if not isinstance(curve, (Gaussian, Sampled))]
    counts: Counter[tuple[str, float, float]] = Counter()
    for curve in flat:
        if isinstance(curve, Sampled):
            counts[curve.pair, curve.rate, curve.ratio] += curve.steps
    merged += [Sampled(*key, count) for key, count in counts.items()]
    return merged[0] if len(merged) == 1 else Product(tuple(merged))


_KINDS: dict[str, type[Curve]] = {one.kind: one for one in (Gaussian, Pure, Points, Sampled, Product)}


def curve_of(record: Constants) -> Curve:
    """The curve that ``to_dict`` described."""
    given = {name: value for name, value in record.items() if name != "kind"}
    if record["kind"] not in _KINDS:
        raise DeclarationError(f"the record of a curve: no kind {record['kind']!r} is known.")
    if record["kind"] == "product":
        given = {**given, "parts": tuple(map(curve_of, given["parts"]))}
    return _KINDS[record["kind"]](**given)
