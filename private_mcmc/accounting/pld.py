"""Privacy loss distributions through dp_accounting: sampled steps, and compositions of different kinds.

They are built directly from pairs of distributions. The library's relation argument is never used to express
an adjacency: ``from_gaussian_mechanism`` and its kin stand for the pairs ``N(0)`` against ``N(1)``; the one
exception is the pair of Poisson sampling under ``replace_one``, which is what the library calls by that name.

The pairs of one sampled step, in units of the noise's sd, with ``r`` the shift of one present row:

- ``add_remove``: ``(1−q)N(0) + qN(r)`` against ``N(0)``, both orders (Poisson; also ``zero_out``);
- ``replace_one``: ``(1−q)N(0) + qN(r)`` against ``(1−q)N(0) + qN(−r)`` (Poisson).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from private_mcmc.accounting import gdp
from private_mcmc.accounting.curves import Curve, Gaussian, Laplace, Points, Pure
from private_mcmc.accounting.rounding import norm_up, product_up, root_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record

PAIRS = ("add_remove", "replace_one")
_MOST_LOSSES = 400_000
NOISE_PER_STEP = 1e-15


@dataclass(frozen=True)
class Step:
    """``count`` independent steps with the same dominating pair.

    ``pair`` is one of ``PAIRS`` with ``rate`` and ``size = r/σ``; or ``"gaussian"`` with ``size = m``,
    ``"laplace"`` and ``"pure"`` with ``size = ε``, ``"points"`` with ``size = ε`` and ``rate = δ``.
    """

    pair: str
    size: float
    rate: float = 1.0
    count: int = 1


@dataclass(frozen=True)
class Losses:
    """A composed privacy loss distribution, with an allowance for its floating-point noise."""

    distribution: Any
    allowance: float

    def delta(self, epsilon: float) -> float:
        """``δ(ε)``, rounded up by the allowance."""
        value = float(self.distribution.get_delta_for_epsilon(epsilon))
        return min(1.0, max(value, 0.0) + self.allowance)


def losses(steps: tuple[Step, ...]) -> Losses | None:
    """The privacy loss distribution of all ``steps`` composed, discretised pessimistically.

    Convolutions by FFT err by some units in the last place for each factor: an allowance of ``1e-15`` for
    each step is added to every ``δ``. ``None`` where no grid can resolve the steps: either all but free or
    hopelessly expensive.
    """
    # First, since squares of others may be beyond all floats.
    if not all(1e-6 <= step.size <= (200 if step.count == 1 else 30) for step in steps):
        return None
    if not sum(step.count * _deviation(step) ** 2 for step in steps) <= 100.0**2:
        return None
    grid = spacing(steps)
    total = None
    with np.errstate(over="ignore"):  # the library's tail bounds pass through inf, and drop it
        for step in steps:
            once = single(step, grid)
            composed = once.self_compose(step.count) if step.count > 1 else once
            total = composed if total is None else total.compose(composed)
    return Losses(total, NOISE_PER_STEP * (10 + sum(step.count for step in steps)))


def _deviation(step: Step) -> float:
    """Rough standard deviation of one step's loss; it guides the grid, no guarantee rests on it."""
    if step.pair in ("pure", "points"):
        return step.size / 10  # its two losses are rounded up to the grid
    if step.pair in ("gaussian", "laplace"):
        return step.size
    whole = step.size if step.pair == "add_remove" else 2 * step.size
    return min(whole, step.rate * math.sqrt(math.expm1(min(whole**2, 50.0))))


def spacing(steps: tuple[Step, ...]) -> float:
    """A grid fine against every step's loss, coarse enough for the whole range."""
    deviations = [max(_deviation(step), 1e-12) for step in steps]
    total = math.sqrt(sum(step.count * sd**2 for step, sd in zip(steps, deviations, strict=True)))
    alone = max(2 * step.size**2 + 20 * step.size for step in steps)
    span = 2 * (total**2 / 2 + 9 * total) + alone
    return max(0.02 * min(deviations), span / _MOST_LOSSES)


def single(step: Step, grid: float) -> Any:
    """The loss distribution of one step (its count aside) on a grid of that spacing."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    if step.pair == "laplace":
        return pld.from_laplace_mechanism(1 / step.size, value_discretization_interval=grid)
    if step.pair in ("pure", "points"):
        miss = step.rate if step.pair == "points" else 0.0
        point = common.DifferentialPrivacyParameters(step.size, miss)
        return pld.from_privacy_parameters(point, value_discretization_interval=grid)
    kinds = NeighboringRelation
    return pld.from_gaussian_mechanism(
        1 / step.size,
        value_discretization_interval=grid,
        sampling_prob=step.rate,
        neighboring_relation=kinds.REPLACE_ONE if step.pair == "replace_one" else kinds.ADD_OR_REMOVE_ONE,
    )


class _Composed(Curve):
    """A curve of composed losses: the less of them and of Gaussian DP."""

    @cached_property
    def _losses(self) -> Losses | None:
        return losses(_loss_steps(self))

    def delta(self, epsilon: float) -> float:
        """From the composed privacy loss distribution, where there is one; never above the Gaussian one."""
        best = gdp.delta(self.gdp, epsilon)
        return best if self._losses is None else min(best, self._losses.delta(epsilon))


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
        if self.pair not in PAIRS:
            raise DeclarationError(f"pair={self.pair!r}: choose one of {', '.join(PAIRS)}.")
        if not (0 < self.rate <= 1 and 0 <= self.ratio < math.inf and self.steps >= 1):
            raise DeclarationError(
                f"rate={self.rate}, ratio={self.ratio}, steps={self.steps}: need 0 < q ≤ 1, a finite r ≥ 0 "
                "and at least one step."
            )

    @property
    def gdp(self) -> float:
        """What holds even if it were known which rows were drawn."""
        whole = self.ratio if self.pair == "add_remove" else product_up(2.0, self.ratio)
        return product_up(whole, root_up(self.steps))


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
        if gdp.check_epsilon(epsilon) >= self._pure:
            return 0.0
        return super().delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """At ``δ = 0`` the sum of the pure levels."""
        return min(self._pure, super().epsilon(delta)) if gdp.check_delta(delta) > 0 else self._pure

    def to_dict(self) -> Record:
        """``kind`` and the parts, in plain types."""
        return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}


def _loss_steps(curve: Curve) -> tuple[Step, ...]:
    """The worst pairs of a curve; of points the one with the least ``δ`` stands for it."""
    if isinstance(curve, Product):
        return tuple(step for part in curve.parts for step in _loss_steps(part))
    if isinstance(curve, Sampled):
        return (Step(curve.pair, curve.ratio, curve.rate, curve.steps),)
    if isinstance(curve, Points):
        level, miss = min(curve.points, key=lambda point: (point[1], point[0]))
        return (Step("points", level, miss),)
    if isinstance(curve, (Gaussian, Pure, Laplace)):
        return (Step(curve.kind, curve.m if isinstance(curve, Gaussian) else curve.level),)
    raise DeclarationError(f"no pair of a {curve.kind!r} curve is known.")


def combine(curves: tuple[Curve, ...]) -> Curve:
    """One curve for mechanisms with independent randomness, one curve of each.

    ``m²`` adds, steps with the same pair, rate and ratio are counted together, and what remains of different
    kinds becomes a ``Product``.
    """
    flat = [part for curve in curves for part in (curve.parts if isinstance(curve, Product) else (curve,))]
    levels = [curve.m for curve in flat if isinstance(curve, Gaussian)]
    merged: list[Curve] = [Gaussian(norm_up(levels))] if levels else []
    merged += [curve for curve in flat if not isinstance(curve, (Gaussian, Sampled))]
    counts: Counter[tuple[str, float, float]] = Counter()
    for curve in flat:
        if isinstance(curve, Sampled):
            counts[curve.pair, curve.rate, curve.ratio] += curve.steps
    merged += [Sampled(*key, count) for key, count in counts.items()]
    return merged[0] if len(merged) == 1 else Product(tuple(merged))


_KINDS: dict[str, type[Curve]] = {kind.kind: kind for kind in (Gaussian, Pure, Laplace, Points, Sampled)}


def curve_of(record: Constants) -> Curve:
    """The curve that ``to_dict`` described."""
    fields = {name: value for name, value in record.items() if name != "kind"}
    if record["kind"] == "product":
        return Product(tuple(map(curve_of, fields["parts"])))
    if record["kind"] not in _KINDS:
        raise DeclarationError(f"the record of a curve: no kind {record['kind']!r} is known.")
    return _KINDS[record["kind"]](**fields)
