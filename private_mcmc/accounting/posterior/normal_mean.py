"""Normal mean with and without one row (``add_remove``, ``zero_out``): exact Gaussian divergences.

With ``m`` other rows the posterior of ``θ`` has precision ``a = α + κm``, and ``a + κ`` with the row. Its
residual ``|y − y_m|`` from their prediction is at most ``g``; then the means are ``κg/(|s|(a + κ))`` apart.
For given precisions the divergence grows with the distance of the means, because the overlap of two
unimodal symmetric laws falls with it (Anderson 1955): the largest distance is the worst.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import log_ndtr

from private_mcmc.accounting.assumptions import CONJUGATE, EXACT_DRAW, IN_DOMAIN, RELATION
from private_mcmc.accounting.composition.compose import capped
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Points
from private_mcmc.accounting.posterior.conjugate import Array, triangle_bound
from private_mcmc.accounting.posterior.normal_regression import scale_divergence
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency

_MOST_EXACT = 20_000
_UP = 1 + 1e-9


def posterior_normal_mean(
    precision: float,
    step: float,
    *,
    low: float,
    high: float,
    center: float,
    slope: float,
    n: int,
    epsilons: tuple[float, ...],
    adjacency: Adjacency,
) -> Statement:
    """The posterior of ``θ`` for rows ``y ~ N(sθ + o, ·)`` under a Normal prior, one row present or absent.

    **Guarantee**: one exact posterior draw satisfies every point of the curve under the adjacency.
    **Assumptions**: the model is this one, ``low ≤ y ≤ high`` for every row.

    Args:
        precision: ``α > 0`` of the prior.
        step: ``κ``, the precision that one row adds, temper included.
        low: smallest ``y``.
        high: largest ``y``.
        center: ``y`` predicted by the prior's mean.
        slope: ``s ≠ 0``.
        n: the largest number of rows.
        epsilons: where the curve is evaluated.
        adjacency: ``add_remove`` or ``zero_out``.

    Raises:
        DeclarationError: for constants that are not finite, or not positive where they must be.

    Source: Gaussian divergences; Anderson 1955.
    """
    if not (0 < precision < math.inf and 0 < step < math.inf and slope != 0 and n >= 1):
        raise DeclarationError(f"Normal mean: precision={precision}, step={step}, slope={slope}, n={n}.")
    if not (-math.inf < low <= high < math.inf and math.isfinite(center)):
        raise DeclarationError(f"Normal mean: low={low}, high={high}, center={center} must be finite.")
    if adjacency == "replace_one":
        raise DeclarationError("Normal mean: under replace_one the posterior is Gaussian DP; use that.")
    found = NormalMean(precision, step, low, high, center, slope, n)
    points = tuple((float(at), found.delta(at)) for at in epsilons)
    argument = Argument(
        "Normal mean: exact divergence of Gaussian posteriors with and without a row, maximised",
        (CONJUGATE, IN_DOMAIN, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {**asdict(found), "epsilons": tuple(float(at) for at in epsilons)},
        "posterior.normal_mean",
    )
    return capped(Statement(adjacency, (Points(points),), argument), n)


@dataclass(frozen=True)
class NormalMean:
    """The constants of ``posterior_normal_mean``."""

    precision: float
    step: float
    low: float
    high: float
    center: float
    slope: float
    n: int

    def delta(self, epsilon: float) -> float:
        """``δ(ε)`` of the worst number of other rows; many of them are bounded by a shift and a new scale."""
        others = np.arange(min(self.n, _MOST_EXACT), dtype=np.float64)
        least = self.precision + self.step * others
        shifts = self._shift(others, self._residual(others)) * np.sqrt(least)
        found = float(np.max(gaussian_pair(shifts, self.step / least, epsilon)))
        if self.n > len(others):
            found = max(found, self._with_more(len(others), epsilon))
        return min(1.0, found * _UP + 1e-13)

    def _shift(self, others: Array, residual: Array) -> Array:
        """How far a row moves the mean."""
        after = self.precision + self.step * (others + 1)
        return self.step * residual / (abs(self.slope) * after)

    def _residual(self, others: Array) -> Array:
        """The largest distance of a row from the mean that the others predict."""
        share = self.step * others / (self.precision + self.step * others)
        ends = [(1 - share) * self.center + share * end for end in (self.low, self.high)]
        gaps: Array = np.maximum.reduce([np.abs(y - at) for y in (self.low, self.high) for at in ends])
        return gaps

    def _with_more(self, others: int, epsilon: float) -> float:
        """A bound next to at least so many other rows: everything falls with them."""
        least = self.precision + self.step * others
        widest = max(self.high, self.center) - min(self.low, self.center)
        shift = float(self._shift(np.array(float(others)), np.array(widest))) * math.sqrt(least + self.step)
        return triangle_bound(
            lambda at: gdp.delta(shift, at), lambda at: scale_divergence(1 + self.step / least, at), epsilon
        )


def gaussian_pair(shift: Array, extra: Array, epsilon: float) -> Array:
    """``δ(ε)`` of ``N(shift, 1/(1 + extra))`` and ``N(0, 1)``, the larger of both orders.

    The log ratio is a parabola: the events are an interval and its complement.
    """
    ratio, gap = 1 + extra, np.log1p(extra)
    both = []
    for sign in (1.0, -1.0):
        square = ratio * (shift / extra) ** 2 + (gap - sign * 2 * epsilon) / extra
        half = np.sqrt(np.maximum(square, 0.0))
        # The lower end without the cancellation of a center far away.
        low = (ratio * shift**2 - gap + sign * 2 * epsilon) / np.maximum(ratio * shift + extra * half, 1e-300)
        high = ratio * shift / extra + half
        narrow = (low - shift) * np.sqrt(ratio), (high - shift) * np.sqrt(ratio)
        if sign > 0:
            value = _between(*narrow, 0.0) - _between(low, high, epsilon)
            both.append(np.where(square > 0, value, 0.0))
        else:
            both.append(_outside(low, high, 0.0) - _outside(*narrow, epsilon))
    worst: Array = np.clip(np.maximum(*both), 0.0, 1.0)
    return worst


def _between(low: Array, high: Array, log_factor: float) -> Array:
    """``e^log_factor·P[low < Z < high]``, from the tail that loses least."""
    flip = low + high < 0
    near, far = np.where(flip, -high, low), np.where(flip, -low, high)
    found: Array = np.exp(log_factor + log_ndtr(-near)) - np.exp(log_factor + log_ndtr(-far))
    return found


def _outside(low: Array, high: Array, log_factor: float) -> Array:
    """``e^log_factor·P[Z < low or Z > high]``."""
    found: Array = np.exp(log_factor + log_ndtr(low)) + np.exp(log_factor + log_ndtr(-high))
    return found
