"""Rényi divergences in closed form, their conversion to ``δ(ε)``, and the pairs of subsampled Gaussian steps.

The pairs of one step, in units of the noise's sd, with ``r`` the shift of one present row:

- ``add_remove``: ``(1−q)N(0) + qN(r)`` against ``N(0)``, both orders (Poisson; also ``zero_out``);
- ``replace_one``: ``(1−q)N(0) + qN(r)`` against ``(1−q)N(0) + qN(−r)`` (Poisson);
- ``fixed``: ``δ(ε) = q δ_{2r}(log(1 + (e^ε − 1)/q))``, symmetrised (without replacement).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from private_mcmc.accounting.rounding import up_last
from private_mcmc.errors import DeclarationError

_LOG_GAPS = tuple(-7 + 0.25 * step for step in range(85))


def check_order(alpha: float) -> float:
    """Return ``alpha`` if it is a finite Rényi order above 1."""
    if not 1 < alpha < math.inf:
        raise DeclarationError(f"alpha={alpha}: a Rényi order is a finite number above 1.")
    return float(alpha)


def randomised_response(level: float, alpha: float) -> float:
    """Rényi divergence of losses ``±level``: what every ``level``-DP mechanism stays below."""
    if level in (0, math.inf):
        return level
    log_high = -math.log1p(math.exp(-level))
    log_low = log_high - level
    first = alpha * log_high + (1 - alpha) * log_low
    second = alpha * log_low + (1 - alpha) * log_high
    value = (max(first, second) + math.log1p(math.exp(-abs(first - second)))) / (alpha - 1)
    # Cancellation for tiny levels: the general bound α level²/2 holds as well.
    closed = max(0.0, value) * (1 + 1e-12) + 1e-15 * alpha / (alpha - 1)
    return min(level, up_last(alpha * level * level / 2), closed)


def laplace(level: float, alpha: float) -> float:
    """Rényi divergence of one Laplace draw whose shift is ``level`` scales (Mironov 2017, Prop. 6)."""
    if level == math.inf:
        return math.inf
    first = math.log(alpha / (2 * alpha - 1)) + (alpha - 1) * level
    second = math.log((alpha - 1) / (2 * alpha - 1)) - alpha * level
    value = (max(first, second) + math.log1p(math.exp(-abs(first - second)))) / (alpha - 1)
    bound = randomised_response(level, alpha)
    return min(bound, max(0.0, value) * (1 + 1e-12) + 1e-15 * alpha / (alpha - 1))


def delta_at_order(alpha: float, divergence: float, epsilon: float) -> float:
    """``δ`` at ``ε`` from one order: ``e^{(α−1)(D−ε)} (1 − 1/α)^{α} / (α−1)``.

    Source: Canonne, Kamath, Steinke 2020, Proposition 12 (the conversion dp_accounting uses).
    """
    if not divergence < math.inf:
        return 1.0
    log_delta = (alpha - 1) * (divergence - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)
    # Rounding of the exponent is a relative error of δ.
    log_delta += 2.0**-50 * ((alpha - 1) * (divergence + epsilon) + abs(math.log(alpha - 1)) + 2)
    if log_delta >= 0:
        return 1.0
    return min(1.0, math.exp(log_delta) * (1 + 1e-12) + math.ulp(0.0))


def to_delta(divergence: Callable[[float], float], epsilon: float) -> float:
    """The smallest ``δ`` over orders: a grid in ``log(α−1)``, then golden-section search."""
    if not epsilon >= 0:
        raise DeclarationError(f"epsilon={epsilon}: must be a number in [0, ∞].")
    if epsilon == math.inf:
        return 0.0

    def at(log_gap: float) -> float:
        alpha = 1 + math.exp(log_gap)
        return delta_at_order(alpha, divergence(alpha), epsilon)

    grid = _LOG_GAPS
    values = [at(point) for point in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    golden = (math.sqrt(5) - 1) / 2
    smallest = values[best]
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = at(left), at(right)
        smallest = min(smallest, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return smallest


Array = NDArray[np.float64]

PAIRS = ("add_remove", "replace_one", "fixed")


def check_pair(pair: str, rate: float, ratio: float) -> None:
    """Raise ``DeclarationError`` unless the pair is known, ``0 < q ≤ 1`` and ``r ≥ 0``."""
    if pair not in PAIRS:
        raise DeclarationError(f"pair={pair!r}: choose one of {', '.join(PAIRS)}.")
    if not (0 < rate <= 1 and 0 <= ratio < math.inf):
        raise DeclarationError(f"rate={rate}, ratio={ratio}: need 0 < q ≤ 1 and a finite r ≥ 0.")


def log_gaussian_profile(m: float, epsilon: Array) -> Array:
    """``log δ(ε)`` of ``m``-GDP for an array of ``ε ≥ 0``, without overflow."""
    low, high = epsilon / m - m / 2, epsilon / m + m / 2
    near, far = np.maximum(low, -1.0), np.minimum(low, -1.0)
    lower_tail = erfcx(high / math.sqrt(2))
    with np.errstate(divide="ignore"):
        scaled = np.log(np.maximum(erfcx(near / math.sqrt(2)) - lower_tail, 0.0) / 2) - near**2 / 2
        direct = np.log(np.maximum(ndtr(-far) - np.exp(-(far**2) / 2) * lower_tail / 2, 0.0))
    return np.asarray(np.where(low > -1, scaled, direct), dtype=np.float64)


def fixed_profile(rate: float, whole: float, epsilon: ArrayLike) -> Array:
    """``δ(ε)`` of one step without replacement at any real ``ε``; ``whole`` is ``2r/σ``.

    ``q δ_{whole}(log(1 + (e^ε − 1)/q))`` for ``ε ≥ 0`` and ``1 − e^{−ε} + e^{−ε}δ(ε)`` at ``−ε``.

    Source: Balle, Barthe, Gaboardi 2018 (subsampling without replacement, substitution).
    """
    at = np.abs(np.asarray(epsilon, dtype=np.float64))
    positive = np.exp(math.log(rate) + log_gaussian_profile(whole, _inner(rate, at)))
    negative = -np.expm1(-at) + np.exp(-at) * positive
    return np.minimum(1.0, np.where(np.asarray(epsilon) >= 0, positive, negative))


def _inner(rate: float, epsilon: Array) -> Array:
    """``log(1 + (e^ε − 1)/q)`` for ``ε ≥ 0``."""
    # Of a rate so small that the quotient overflows, a larger one's: δ grows as this gets smaller.
    odds = np.expm1(np.minimum(epsilon, 30.0)) / max(rate, 1e-290)
    return np.where(epsilon > 30, epsilon - math.log(rate), np.log1p(odds))
