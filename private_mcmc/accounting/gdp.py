"""Gaussian differential privacy: ``δ(ε)`` of telling ``N(0,1)`` from ``N(m,1)``, and its inverses.

Upper bounds are rounded outward: ``delta`` and ``epsilon`` are never below the exact value and
``budget`` never above it. Stable for ``ε`` in the thousands and ``δ`` down to the smallest double.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erf, erfcx, ndtr, ndtri

from private_mcmc.errors import DeclarationError

_UNIT = 2.0**-53
_TINY = math.ulp(0.0)
_NODES, _WEIGHTS = (array / 2 for array in np.polynomial.legendre.leggauss(8))
_NODES = _NODES + 0.5


def checked(name: str, value: float, most: float = math.inf) -> float:
    """``value`` if it lies in ``[0, most]``; NaN does not."""
    if not 0 <= value <= most:
        raise DeclarationError(f"{name}={value}: must be a number in [0, {most:g}].")
    return float(value)


def delta(m: float, epsilon: float) -> float:
    """``δ(ε) = Φ(−ε/m + m/2) − e^ε Φ(−ε/m − m/2)`` of an ``m``-GDP mechanism, rounded up.

    ``DeclarationError`` unless ``m ≥ 0`` and ``ε ≥ 0``.
    Source: Dong, Roth, Su 2022, Corollary 2.13.
    """
    m, epsilon = checked("m", m), checked("epsilon", epsilon)
    if m == 0 or epsilon == math.inf:
        return 0.0
    if m == math.inf:
        return 1.0
    if epsilon == 0:
        return min(1.0, float(erf(m / math.sqrt(8.0))) * (1 + 16 * _UNIT) + _TINY)
    ratio = epsilon / m
    low, high = ratio - m / 2, ratio + m / 2
    if not low < 39:  # Φ(−39) is below the smallest double
        return _TINY
    # With low = ε/m − m/2 and high = ε/m + m/2 one has e^ε φ(high) = φ(low): no factor overflows.
    # The difference low loses what ratio rounds: a part of Φ(−low) in proportion to high.
    exponent_error = 4 * _UNIT * (abs(low) * high + max(16.0, high))
    scale = 0.5 * math.exp(-0.5 * low * low)
    if m < 0.5:
        return min(1.0, scale * _mills_difference(low, m) * (1 + exponent_error) + _TINY)
    lower_tail = float(erfcx(high / math.sqrt(2.0)))
    if low > -1:
        upper_tail = float(erfcx(low / math.sqrt(2.0)))
        value = scale * ((upper_tail - lower_tail) + 8 * _UNIT * (upper_tail + lower_tail))
        return min(1.0, value * (1 + exponent_error) + _TINY)
    value = float(ndtr(-low)) - scale * lower_tail * (1 - min(1.0, exponent_error))
    return min(1.0, value + max(16.0, 8 + 2 * high) * _UNIT)


# Beside arguments of that name.
_delta = delta


def _mills_difference(low: float, m: float) -> float:
    """``erfcx(low/√2) − erfcx((low+m)/√2)`` without cancellation, rounded up.

    With the Mills ratio ``R(x) = √(π/2) erfcx(x/√2)``, ``−R' = 1 − xR``, integrated by 8 Gauss nodes.
    """
    x = low + m * _NODES
    slopes = 1 - math.sqrt(math.pi / 2) * x * erfcx(x / math.sqrt(2.0))
    total = math.sqrt(2 / math.pi) * m * float(np.dot(_WEIGHTS, slopes))
    return total * (1 + 16 * _UNIT * (4 + (low + m) ** 2))


def epsilon(m: float, delta: float) -> float:
    """The smallest ``ε ≥ 0`` at which an ``m``-GDP mechanism is certified ``(ε, δ)``-DP, rounded up.

    ``inf`` for ``δ = 0`` and ``m > 0``.
    """
    m, target = checked("m", m), checked("delta", delta, 1)
    if m == 0 or _delta(m, 0.0) <= target:
        return 0.0
    if target == 0 or m == math.inf:
        return math.inf
    return crossing(lambda at: _delta(m, at) <= target, 1.0 + m * m)[1]


def budget(epsilon: float, delta: float) -> float:
    """The largest ``m`` (rounded down) such that ``m``-GDP implies ``(ε, δ)``-DP; 0 if only 0 does."""
    at, target = checked("epsilon", epsilon), checked("delta", delta, 1)
    if target >= 1 or at == math.inf:
        return math.inf
    if target == 0:
        return 0.0
    return crossing(lambda m: not _delta(m, at) <= target)[0]


def crossing(
    holds: Callable[[float], bool], high: float = 1.0, apart: float = 4 * _UNIT, most: float = 1e308
) -> tuple[float, float]:
    """Neighbours around the least number of which, and of all above it, ``holds``; of the first it does not.

    ``high`` is tried first; they are ``apart`` of themselves; the second is ``inf`` where none up to ``most``
    was found.
    """
    low = 0.0
    while not holds(high):
        low, high = high, 2 * high
        if high > most:
            return low, math.inf
    # Between neighbouring floats, of which the smallest are further apart than that, nothing lies.
    while high - low > max(apart * high, _TINY):
        middle = low + (high - low) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def of_pure(level: float) -> float:
    """The least ``m`` such that ``level``-DP implies ``m``-GDP, rounded up: ``2Φ^{-1}(e^ε/(1 + e^ε))``.

    Its trade-off curve touches that of randomised response. Source: Dong, Roth, Su 2022.
    """
    if not checked("epsilon", level) < math.inf:
        return math.inf
    # Φ^{-1} of 1/(1 + e^ε), the smaller error: no cancellation for large ε.
    return -2 * float(ndtri(math.exp(-level) / (1 + math.exp(-level)))) * (1 + 1e-12) + 1e-15
