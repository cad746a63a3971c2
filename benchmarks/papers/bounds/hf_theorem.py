"""Heller, Fetaya: Claim D.28 and the numbers of Theorem IV.1's proof, as printed; a certificate of ours."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.papers.bounds.normal import normal_regression, ratio_extremes
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class RatioDomain:
    """Rows ``x_l ≤ x ≤ x_h``, ``|y/x − c| ≤ n^{γ1}`` of ``y = θx + N(0, 1/β)``, ``θ ~ N(0, 1/α)``."""

    prior_precision: float
    noise_precision: float
    x_low: float
    x_high: float
    gamma1: float


def order(epsilon: float, delta: float) -> float:
    """``ν = 2 log(1/δ)/ε + 1``."""
    return 2 * math.log(1 / delta) / epsilon + 1


def claim_d28(domain: RatioDomain, gamma2: float, epsilon: float, delta: float) -> tuple[float, ...]:
    """Five lower bounds on ``n``, as printed: the posterior is ``(ε, δ)``-DP for ``c = n^{γ2}``."""
    a, b, low, high = domain.prior_precision, domain.noise_precision, domain.x_low, domain.x_high
    nu, g = order(epsilon, delta), domain.gamma1
    spread = high**2 / low**2
    near = 1 + (1 + 10 * spread * nu / b) ** (g - gamma2)
    fourth = 16 * nu / epsilon * high**4 * (a + high**2 * b) / (0.9 * low**4) * near
    fifth = 4 * nu / epsilon * (high**2 * a + high**4 * b) ** 2 / (0.9 * low**6 * b) * near**2
    return (
        1 + spread * 8 / epsilon,
        1 + nu * spread * (1 + 8 * (nu - 1) / epsilon),
        (16 * nu * b * high**4 / (0.9 * epsilon * low**2)) ** (1 / (1 - 2 * g)),
        fourth ** (1 / (2 - g - gamma2)),
        fifth ** (1 / (3 - 2 * gamma2)),
    )


def theorem_iv_1(
    domain: RatioDomain, gamma2: float, epsilon: float, epsilon_run: float, delta: float
) -> tuple[float, float]:
    """``n_p`` and ``c_p = n_p^{γ2}`` of the proof: the posterior is ``(ε, δ)``-DP, SGLD not ``(ε', δ)``-DP.

    Raises:
        DeclarationError: unless ``1 + γ1 < γ2 < 3/2``, ``x_h²β > 3`` and ``x_l = x_h/2``.
    """
    a, b, high = domain.prior_precision, domain.noise_precision, domain.x_high
    scale = high**2 * b
    if not (1 + domain.gamma1 < gamma2 < 1.5 and scale > 3 and domain.x_low == high / 2):
        raise DeclarationError("Theorem IV.1 takes 1 + γ1 < γ2 < 3/2, x_h²β > 3 and x_l = x_h/2.")
    nu, spread = order(epsilon, delta), 4.0
    first = 1 + max(
        0.5 / (a * scale) - 1 / scale, a / scale, a / scale * (math.exp(2 / scale) - 2) + 0.5 / scale
    )
    third = 1 + max(1 + 10 * spread * nu / b, 1 + nu * spread)
    v1 = max(6.0, 1 + 2 * math.exp(1 / scale))
    ratio = 2 * v1 / a * (32 * scale / 3) ** 2 * (epsilon_run - math.log(0.5 - delta)) * math.exp(2 / scale)
    rows = max(first, third, *claim_d28(domain, gamma2, epsilon, delta), ratio ** (1 / (2 * (gamma2 - 1))))
    return rows, rows**gamma2


def posterior_delta(domain: RatioDomain, rows: float, slope: float, epsilon: float) -> float:
    """A certified ``δ`` of the posterior at ``ε`` for ``c = slope``, over the whole domain, replace-one."""
    found = ratio_extremes(
        domain.prior_precision,
        domain.noise_precision,
        x_low=domain.x_low,
        x_high=domain.x_high,
        center=slope,
        width=rows**domain.gamma1,
        n=int(rows),
    )
    return normal_regression(found, epsilon)


def posterior_epsilon(domain: RatioDomain, rows: float, slope: float, delta: float) -> float:
    """The ``ε`` at which ``posterior_delta`` is ``delta``, by bisection."""
    down, up = 0.0, 1.0
    while posterior_delta(domain, rows, slope, up) > delta:
        up *= 2
        if up > 1e6:
            return math.inf
    for _ in range(40):
        middle = (down + up) / 2
        down, up = (down, middle) if posterior_delta(domain, rows, slope, middle) <= delta else (middle, up)
    return up


def largest_slope(domain: RatioDomain, rows: float, epsilon: float, delta: float) -> float:
    """The largest ``c`` with a certified ``(ε, δ)``; 0 where the domain's width alone costs more."""
    low, high = -20.0, 20.0
    if posterior_delta(domain, rows, 0.0, epsilon) > delta:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        fits = posterior_delta(domain, rows, 10**middle, epsilon) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return float(10**low)
