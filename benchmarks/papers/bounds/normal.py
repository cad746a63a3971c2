"""The posterior slope of a regression in one dimension, rows of bounded ratio: one row replaced.

The posteriors of adjacent data sets are ``N(m_1, 1/a_1)`` and ``N(m_2, 1/a_2)``; with ``N(m_2, 1/a_1)`` in
between, one leg is a shift of the mean and the other a change of scale about a common mean. Both divergences
are monotone, in the shift and in the ratio of precisions, and are taken at their largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import log_ndtr

from private_mcmc.accounting import gdp

_SPLITS = 64


@dataclass(frozen=True)
class Extremes:
    """The largest shift of the mean, in standard deviations, and the largest ratio of precisions."""

    shift: float
    ratio: float


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
    levels = [epsilon * share / _SPLITS for share in range(_SPLITS + 1)]
    shifts = [gdp.delta(found.shift, at) for at in levels]
    scales = [scale_divergence(found.ratio, at) for at in levels]
    offers = [
        min(one + math.exp(min(at, 700.0)) * late, other + math.exp(min(at, 700.0)) * early)
        for at, one, other, early, late in zip(
            levels, shifts, scales, shifts[::-1], scales[::-1], strict=True
        )
    ]
    return min(1.0, min(offers) * (1 + 1e-12))


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
