"""Privacy loss distributions through dp_accounting, built directly from pairs of distributions.

The library's relation argument is never used to express an adjacency: ``from_gaussian_mechanism``
and its kin stand for the pairs ``N(0)`` against ``N(1)``; the one exception is the pair of Poisson
sampling under ``replace_one``, which is what the library calls by that name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.rdp import check_pair, fixed_profile
from private_mcmc.accounting.rounding import product_up, root_up
from private_mcmc.errors import DeclarationError

_MOST_LOSSES = 400_000
NOISE_PER_STEP = 1e-15


@dataclass(frozen=True)
class Step:
    """``count`` independent steps with the same dominating pair.

    ``pair`` is one of ``rdp.PAIRS`` with ``rate`` and ``size = r/σ``; or ``"gaussian"`` with
    ``size = m``, ``"laplace"`` and ``"pure"`` with ``size = ε``, ``"point"`` with ``size = ε`` and
    ``rate = δ``.
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


def losses(steps: tuple[Step, ...]) -> Losses:
    """The privacy loss distribution of all ``steps`` composed, discretised pessimistically.

    Convolutions by FFT err by some units in the last place for each factor: an allowance of
    ``1e-15`` for each step is added to every ``δ``.
    """
    grid = spacing(steps)
    total = None
    with np.errstate(over="ignore"):  # the library's tail bounds pass through inf, and drop it
        for step in steps:
            once = single(step, grid)
            composed = once.self_compose(step.count) if step.count > 1 else once
            total = composed if total is None else total.compose(composed)
    return Losses(total, NOISE_PER_STEP * (10 + sum(step.count for step in steps)))


def worthwhile(steps: tuple[Step, ...]) -> bool:
    """Whether a grid of losses can resolve these steps: neither all but free nor hopelessly expensive."""
    # First, since squares of others may be beyond all floats.
    if not all(1e-6 <= step.size <= (200 if step.count == 1 else 30) for step in steps):
        return False
    return sum(step.count * _deviation(step) ** 2 for step in steps) <= 100.0**2


def _deviation(step: Step) -> float:
    """Rough standard deviation of one step's loss; it guides the grid, no guarantee rests on it."""
    if step.pair in ("pure", "point"):
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

    if step.pair == "gaussian":
        return pld.from_gaussian_mechanism(1 / step.size, value_discretization_interval=grid)
    if step.pair == "laplace":
        return pld.from_laplace_mechanism(1 / step.size, value_discretization_interval=grid)
    if step.pair in ("pure", "point"):
        miss = step.rate if step.pair == "point" else 0.0
        point = common.DifferentialPrivacyParameters(step.size, miss)
        return pld.from_privacy_parameters(point, value_discretization_interval=grid)
    check_pair(step.pair, step.rate, step.size)
    if step.pair == "fixed":
        return _from_fixed_profile(step, grid)
    relation = {
        "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }[step.pair]
    return pld.from_gaussian_mechanism(
        1 / step.size,
        value_discretization_interval=grid,
        sampling_prob=step.rate,
        neighboring_relation=relation,
    )


def _from_fixed_profile(step: Step, grid: float) -> Any:
    """One symmetrised step without replacement: the profile is symmetrised first, then composed."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    whole = 2 * step.size
    top = math.ceil((whole**2 / 2 + 9 * whole) / grid)
    at = np.arange(-top, top + 1) * grid
    deltas = np.minimum(1.0, fixed_profile(step.rate, whole, at) * (1 + 1e-13))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, -top, top, deltas)
    return pld.PrivacyLossDistribution(pmf)


@dataclass(frozen=True)
class Sampled(Curve):
    """``steps`` subsampled Gaussian steps with one dominating pair (see ``rdp``).

    Attributes:
        pair: ``"add_remove"``, ``"replace_one"`` (Poisson) or ``"fixed"`` (without replacement).
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
        check_pair(self.pair, self.rate, self.ratio)
        if not self.steps >= 1:
            raise DeclarationError(f"steps={self.steps}: must be at least 1.")

    @property
    def unamplified(self) -> Gaussian:
        """What holds even if it were known which rows were drawn."""
        whole = self.ratio if self.pair == "add_remove" else 2 * self.ratio
        return Gaussian(product_up(whole, root_up(self.steps)))

    @property
    def zcdp(self) -> float:
        """That of the un-amplified Gaussian: no smaller constant holds at every order."""
        return self.unamplified.zcdp

    @cached_property
    def _losses(self) -> Losses:
        return losses(self.loss_steps)

    @property
    def loss_steps(self) -> tuple[Step, ...]:
        """Input of ``pld.losses``."""
        return (Step(self.pair, self.ratio, self.rate, self.steps),)

    def delta(self, epsilon: float) -> float:
        """From the composed privacy loss distribution; never above the un-amplified value."""
        best = self.unamplified.delta(gdp.check_epsilon(epsilon))
        return min(best, self._losses.delta(epsilon)) if worthwhile(self.loss_steps) else best

    def rdp(self, alpha: float) -> float:
        """That of the un-amplified Gaussian."""
        return self.unamplified.rdp(alpha)
