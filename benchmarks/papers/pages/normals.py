"""Two normal laws in one dimension: total variation, Rényi divergence and exact δ(ε)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

Array = npt.NDArray[np.float64]
Normal = tuple[float, float]


def masses(laws: tuple[Normal, Normal], cells: int = 200_000) -> tuple[Array, Array]:
    """Both laws, as (mean, standard deviation), as masses on one grid over 12 standard deviations."""
    low = min(mean - 12 * sd for mean, sd in laws)
    high = max(mean + 12 * sd for mean, sd in laws)
    at = np.linspace(low, high, cells)
    width = at[1] - at[0]
    first, second = (
        np.exp(-0.5 * ((at - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi)) * width for mean, sd in laws
    )
    return first, second


def total_variation(first: Normal, second: Normal) -> float:
    """Exact up to the grid: some six digits."""
    one, two = masses((first, second))
    return float(np.abs(one - two).sum() / 2)


def renyi(first: Normal, second: Normal, order: float) -> float:
    """``log(s₂/s₁) + log(s₂²/s²)/(2(α−1)) + α(m₁−m₂)²/(2s²)``, ``s² = αs₂² + (1−α)s₁²``; textbook."""
    (m1, s1), (m2, s2) = first, second
    mixed = order * s2**2 + (1 - order) * s1**2
    if not mixed > 0:
        return math.inf
    shift = order * (m1 - m2) ** 2 / (2 * mixed)
    return math.log(s2 / s1) + math.log(s2**2 / mixed) / (2 * (order - 1)) + shift


def log_density(x: float, mean: float, sd: float, scale: float) -> float:
    """Log density at ``x`` of a normal plus an independent Laplace variable of this scale."""
    z, ratio = (x - mean) / sd, sd / scale
    left = z * ratio + log_ndtr(-z - ratio)
    right = -z * ratio + log_ndtr(z - ratio)
    return float(ratio**2 / 2 - math.log(2 * scale) + np.logaddexp(left, right))
