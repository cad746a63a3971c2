"""Rényi divergences: a few closed forms, and conversion to ``δ(ε)``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from private_mcmc.accounting.rounding import up_last
from private_mcmc.errors import DeclarationError

_LOG_GAPS = tuple(-7 + 0.25 * step for step in range(85))
ORDERS = tuple(1 + math.exp(gap) for gap in _LOG_GAPS)


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


def table_to_delta(divergences: Sequence[float], epsilon: float) -> float:
    """``to_delta`` for divergences known at ``ORDERS`` only."""
    if not epsilon >= 0:
        raise DeclarationError(f"epsilon={epsilon}: must be a number in [0, ∞].")
    if epsilon == math.inf:
        return 0.0
    return min(
        delta_at_order(alpha, divergence, epsilon)
        for alpha, divergence in zip(ORDERS, divergences, strict=True)
    )
