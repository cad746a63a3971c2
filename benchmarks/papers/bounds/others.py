"""Bounds of other authors that the papers compare themselves with."""

from __future__ import annotations

import math

from benchmarks.papers.bounds.printed import Printed
from private_mcmc.accounting import gdp


def chourasia(step: float, mu: float, sensitivity: float, steps: int) -> Printed:
    """Chourasia, Ye, Shokri 2021, Theorem 2, as a sum: ``ε_α = αΔ²/μ (1 − e^{−μγT/2})``, ``γ < 1/L``."""
    return Printed(
        "Chourasia et al., Theorem 2", "", sensitivity**2 / mu * -math.expm1(-mu * step * steps / 2)
    )


def altschuler_talwar(ratio: float, diameter: float, steps: int) -> float:
    """``m`` of the last state of projected convex noisy gradient descent, by equal shifts of ``τ`` steps.

    ``m² = min(T r², min_{τ ≤ T} (D + τr)²/τ)``, ``r`` a row's move and ``D`` the diameter in standard
    deviations of a step's noise: the argument of Altschuler, Talwar 2022, Theorem 3.1, at its best ``τ``.
    """
    best = max(1, min(steps, round(diameter / ratio)))
    return math.sqrt(min(steps * ratio**2, (diameter + best * ratio) ** 2 / best))


def kairouz(ratio: float, steps: int, delta: float) -> float:
    """ε of ``steps`` Gaussian steps by Kairouz, Oh, Viswanath 2015, Theorem 3.4; half of δ for each part."""
    one = gdp.epsilon(ratio, delta / (2 * steps))
    linear = steps * one * math.tanh(one / 2)
    size = math.sqrt(steps) * one
    spread = one * math.sqrt(2 * steps * math.log(min(math.e + 2 * size / delta, 2 / delta)))
    return min(steps * one, linear + spread)
