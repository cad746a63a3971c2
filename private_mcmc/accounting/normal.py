"""Posteriors that are Normal: regression in one dimension, and a mean with and without one row.

**Regression.** Rows ``|x| ≤ R``, ``|y| ≤ Y``, noise precision ``β`` (temper included), prior ``N(0, 1/α)``.
The posteriors of adjacent data sets are ``N(m_1, 1/a_1)`` and ``N(m_2, 1/a_2)``; with ``N(m_2, 1/a_1)``
in between, one leg is a shift of the mean and the other a change of scale about a common mean. Both
divergences are monotone, in the shift and in the ratio of precisions, and are taken at their largest.

**Mean**, under ``add_remove`` and ``zero_out``. With ``m`` other rows the posterior of ``θ`` has precision
``a = α + κm``, and ``a + κ`` with the row. Its residual ``|y − y_m|`` from their prediction is at most ``g``;
then the means are ``κg/(|s|(a + κ))`` apart. For given precisions the divergence grows with the distance of
the means, because the overlap of two unimodal symmetric laws falls with it (Anderson 1955).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import log_ndtr

from private_mcmc.accounting.assumptions import (
    BOUNDED_PAIRS,
    CONJUGATE,
    EXACT_DRAW,
    IN_DOMAIN,
    RATIO_PAIRS,
    RELATION,
)
from private_mcmc.accounting.composition import capped
from private_mcmc.accounting.conjugate import Array, triangle_bound
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Points
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency

_CELLS = 4000
_UP = 1 + 1e-12


@dataclass(frozen=True)
class Extremes:
    """The largest shift of the mean, in standard deviations, and the largest ratio of precisions."""

    shift: float
    ratio: float


def extremes(
    precision: float, noise: float, *, radius: float, response: float, n: int, adjacency: Adjacency
) -> Extremes:
    """Largest shift ``|m_1−m_2|√a_1`` and ratio ``a_1/a_2`` over all data sets of at most ``n`` rows.

    With ``A = α + βs``, ``s`` the other rows' ``Σx² ≤ (n−1)R²``: ``|m_i − m_0| ≤ βR(Y + R|m_0|)/A`` and
    ``|m_0| ≤ βY min(√(s(n−1)), (n−1)R)/A``. A replaced row moves twice, one that is absent in one of the
    data sets once. The maximum over ``s`` is bounded cell by cell.
    """
    top = (n - 1) * radius**2
    edges = np.concatenate([[0.0], np.geomspace(top * 1e-12, top, _CELLS)]) if top > 0 else np.zeros(2)
    low, high = edges[:-1], edges[1:]
    others = np.minimum(np.sqrt(high * (n - 1)), (n - 1) * radius)
    center = noise * response * others / (precision + noise * low)
    move = noise * radius * (response + radius * center) / (precision + noise * low)
    moves = 2 if adjacency == "replace_one" else 1
    shift = moves * move * np.sqrt(precision + noise * (high + radius**2))
    return Extremes(float(np.max(shift)) * _UP, (1 + noise * radius**2 / precision) * _UP)


def scale_divergence(ratio: float, epsilon: float) -> float:
    """``δ(ε)`` in the worse order of two centred normals with this ratio ``≥ 1`` of precisions."""
    if not ratio > 1:
        return 0.0
    gap = 0.5 * math.log(ratio)
    # The wider law against the narrower one: its tails, |x| > c, c in sds of the wider one.
    wide = math.sqrt(2 * (epsilon + gap) / (ratio - 1))
    best = 2 * math.exp(log_ndtr(-wide)) - 2 * math.exp(epsilon + log_ndtr(-wide * math.sqrt(ratio)))
    if gap > epsilon:
        narrow = math.sqrt(2 * (gap - epsilon) / (ratio - 1))
        tails, scaled = 2 * math.exp(log_ndtr(-narrow)), 2 * math.exp(log_ndtr(-narrow * math.sqrt(ratio)))
        inside = (1 - scaled) - math.exp(epsilon) * (1 - tails)
        best = max(best, inside)
    return min(1.0, max(0.0, best) + 1e-13)


def normal_regression(found: Extremes, epsilon: float) -> float:
    """``δ(ε)`` of the two parts together; the law in between may have the mean of either end."""
    return triangle_bound(
        lambda at: gdp.delta(found.shift, at), lambda at: scale_divergence(found.ratio, at), epsilon
    )


def posterior_normal_regression(
    precision: float,
    noise: float,
    *,
    radius: float,
    response: float,
    n: int,
    epsilons: tuple[float, ...],
    adjacency: Adjacency = "replace_one",
) -> Statement:
    """The posterior slope of ``y = θx + N(0, 1/β)`` under ``θ ~ N(0, 1/α)``, at most ``n`` rows.

    **Guarantee**: one exact posterior draw satisfies every point of the curve under the adjacency.
    **Assumptions**: the model is this regression, ``|x| ≤ R``, ``|y| ≤ Y`` for every row.

    ``precision``: ``α``. ``noise``: ``β``, times the temper. ``radius``: ``R``. ``response``: ``Y``.
    ``epsilons``: where the curve is evaluated.

    Source: Gaussian divergences and the triangle inequality of hockey-stick divergences.
    """
    held = {"precision": precision, "noise": noise, "radius": radius, "response": response}
    for name, value in held.items():
        if not 0 < value < math.inf:
            raise DeclarationError(f"Normal regression: {name}={value} must be positive and finite.")
    found = extremes(precision, noise, radius=radius, response=response, n=n, adjacency=adjacency)
    points = tuple((float(at), normal_regression(found, at)) for at in epsilons)
    argument = Argument(
        "Normal regression in one dimension: a shift and a change of scale of Gaussian posteriors",
        (BOUNDED_PAIRS, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {**held, "n": n, "epsilons": tuple(float(at) for at in epsilons)},
        "posterior.normal_regression",
    )
    return capped(Statement(adjacency, (Points(points),), argument), n)


_MOST_EXACT = 20_000
_MEAN_UP = 1 + 1e-9


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

    ``precision``: ``α`` of the prior. ``step``: ``κ``, the precision that one row adds, temper included.
    ``center``: ``y`` predicted by the prior's mean. ``slope``: ``s``. ``n``: the largest number of rows.

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
        return min(1.0, found * _MEAN_UP + 1e-13)

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


def ratio_extremes(
    precision: float, noise: float, *, x_low: float, x_high: float, center: float, width: float, n: int
) -> Extremes:
    """Largest shift of the mean in standard deviations and largest ratio of precisions, one row replaced.

    Prior ``N(0, 1/α)``, noise precision ``β``, rows ``x_l ≤ x ≤ x_h``, ``|y/x − c| ≤ g``. With ``z`` the
    other rows' ``Σx²``, ``a = α + βz``, and ``r_0`` their mean ratio, weighted by ``x²`` (any ratio of the
    domain without others), a row puts the posterior's mean at ``r_0 + p(r − r_0) − αr_0/(a + βx²)``,
    ``p = βx²/(a + βx²)``. Of two rows the ``p(r − r_0)`` differ by at most ``2gp_h``: ratios on both sides of
    ``r_0`` are at most ``2g`` apart, and on one side the larger term counts. The last terms differ by at most
    ``αβ(|c| + g)(x_h² − x_l²)/((a + βx_l²)(a + βx_h²))``. Times the root of a precision these fall with
    ``z``, as does the ratio of the precisions; ``z ≥ (n−1)x_l²``.
    """
    low, high = x_low * x_low, x_high * x_high
    least = (precision + noise * (n - 1) * low) * (1 - 1e-12)
    shortest, longest = least + noise * low, least + noise * high
    pulled = 2 * noise * high * width / longest
    shrunk = precision * (abs(center) + width) * noise * (high - low) / shortest / longest
    moved = (pulled + shrunk) * math.sqrt(longest)
    ratio = 1 + noise * (high - low) / shortest
    return Extremes(moved * (1 + 1e-11), ratio * (1 + 1e-11))


def posterior_normal_ratio(
    precision: float,
    noise: float,
    *,
    x_low: float,
    x_high: float,
    center: float,
    width: float,
    n: int,
    epsilons: tuple[float, ...],
) -> Statement:
    """The posterior slope of ``y = θx + N(0, 1/β)`` under ``θ ~ N(0, 1/α)``, one of ``n`` rows replaced.

    **Guarantee**: one exact posterior draw satisfies every point of the curve under ``replace_one``.
    **Assumptions**: the model is this regression, every row lies in the domain.

    ``precision``: ``α``. ``noise``: ``β``, times the temper. ``0 < x_low ≤ x ≤ x_high``, ``|y/x − center| ≤
    width``. ``epsilons``: where the curve is evaluated.

    Source: Gaussian divergences; the domain of Heller, Fetaya 2023, (5).
    """
    held = {"precision": precision, "noise": noise, "x_low": x_low, "x_high": x_high, "width": width}
    if not (all(0 < value < math.inf for value in held.values()) and math.isfinite(center)):
        raise DeclarationError(f"Normal regression of bounded ratio: {held} must be positive and finite.")
    if not (x_low <= x_high and n >= 1):
        raise DeclarationError(f"Normal regression of bounded ratio: x_low={x_low}, x_high={x_high}, n={n}.")
    found = ratio_extremes(precision, noise, x_low=x_low, x_high=x_high, center=center, width=width, n=n)
    points = tuple((float(at), normal_regression(found, at)) for at in epsilons)
    argument = Argument(
        "Normal regression of bounded ratio: a shift and a change of scale of Gaussian posteriors",
        (RATIO_PAIRS, EXACT_DRAW, RELATION["replace_one"]),
        {**held, "center": center, "n": n, "epsilons": tuple(float(at) for at in epsilons)},
        "posterior.normal_ratio",
    )
    return capped(Statement("replace_one", (Points(points),), argument), n)
