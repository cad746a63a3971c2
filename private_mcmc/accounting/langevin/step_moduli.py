"""Cross moduli of the Langevin step from proved constants; every condition is checked, none assumed.

Everything is in the units of the schedule's ``M``: points in ``‖M^{-1/2}·‖``, gradients in
``‖M^{1/2}·‖``, ``μ`` and ``L`` the extreme eigenvalues of ``M^{1/2}∇²U M^{1/2}``, noise variance ``2γ``.
"""

from __future__ import annotations

import math

import numpy as np

from private_mcmc.accounting.langevin.modulus_shapes import Affine, Minimum, Modulus, Point, Root
from private_mcmc.accounting.rounding import TINY, product_down, product_up, sum_up
from private_mcmc.errors import DeclarationError


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise DeclarationError(f"{name}={value}: must be positive and finite.")


def _non_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise DeclarationError(f"{name}={value}: must be non-negative.")


def contraction_gap(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """``1 − ρ``, ``ρ = max(|1 − γμ|, |1 − γL|)``: Lipschitz constant of a convex gradient step.

    Positive exactly for ``μ > 0`` and ``γ < 2/L``; negative (an expanding step) for ``γ > 2/L``.
    Rounded down.

    Raises:
        DeclarationError: unless ``0 ≤ μ ≤ L < ∞`` and ``γ > 0``.
    """
    _positive(step_size=step_size)
    if not 0 <= strong_convexity <= smoothness < math.inf:
        raise DeclarationError(
            f"strong_convexity={strong_convexity}, smoothness={smoothness}: need 0 ≤ μ ≤ L < ∞."
        )
    fast = product_up(step_size, smoothness)
    return min(product_down(step_size, strong_convexity), 2.0 - fast - 2.0**-51 * max(1.0, fast))


def langevin(
    step_size: float,
    sensitivity: float,
    *,
    strong_convexity: float = 0.0,
    smoothness: float = math.inf,
    convex: bool = False,
    prior_strong_convexity: float = 0.0,
    prior_smoothness: float = math.inf,
    prior_convex: bool = False,
    gradient_bound: float = math.inf,
) -> Modulus:
    """The least modulus that the constants prove for ``Φ_D(x) = x − γM∇U_D(x)``, all adjacent ``D, D'``.

    ======================================================  ==================================
    known of ``U_D = K + V_D`` for every ``D``              ``φ(z)``
    ======================================================  ==================================
    convex, ``L``-smooth, ``μ``-strongly convex             ``max(|1−γμ|, |1−γL|) z + γΔ``
    ``L``-smooth                                            ``(1+γL) z + γΔ``
    ``K`` convex, ``L_K``-smooth, ``|∇V_D|_* ≤ B``          ``max(|1−γμ_K|, |1−γL_K|) z + 2γB``
    ``K`` ``L_K``-smooth, ``|∇V_D|_* ≤ B``                  ``(1+γL_K) z + 2γB``
    nothing                                                 ``φ(0) = γΔ`` only
    ======================================================  ==================================

    The pointwise minimum of all rows that apply is returned. ``L``-smooth means that the gradient is
    ``L``-Lipschitz: without convexity the Hessian lies between ``−L`` and ``L``. A potential is taken to be
    convex only where that is said, or where its strong convexity is positive.

    Assumptions:
        the constants are proved for every data set of the domain, in the metric of ``M``.

    Raises:
        DeclarationError: for negative constants, ``μ > L``, ``μ_K > L_K`` or a non-positive step.

    Source: BJRD Assumption 5.1 and proof of Theorem 5.2; BFG Section 2.
    """
    _positive(step_size=step_size)
    _non_negative(sensitivity=sensitivity, strong_convexity=strong_convexity, smoothness=smoothness)
    _non_negative(prior_strong_convexity=prior_strong_convexity, gradient_bound=gradient_bound)
    if not prior_strong_convexity <= prior_smoothness:
        raise DeclarationError(
            f"prior_strong_convexity={prior_strong_convexity} exceeds prior_smoothness={prior_smoothness}."
        )
    if not strong_convexity <= smoothness:
        raise DeclarationError(f"strong_convexity={strong_convexity} exceeds smoothness={smoothness}.")
    push = product_up(step_size, sensitivity)
    parts: list[Modulus] = [Point(push)]
    if math.isfinite(smoothness):
        parts.append(Affine(_gap(step_size, strong_convexity, smoothness, convex), push))
    if math.isfinite(gradient_bound) and math.isfinite(prior_smoothness):
        gap = _gap(step_size, prior_strong_convexity, prior_smoothness, prior_convex)
        parts.append(Affine(gap, product_up(2.0, step_size, gradient_bound)))
    return _simplest(parts)


def _gap(step_size: float, strong_convexity: float, smoothness: float, convex: bool) -> float:
    """``1 − ρ`` of the gradient step of a function, rounded down: ``−γL`` where it may bend both ways."""
    if convex or strong_convexity > 0:
        return contraction_gap(step_size, strong_convexity, smoothness)
    return -product_up(step_size, smoothness)


def _simplest(parts: list[Modulus]) -> Modulus:
    point, *others = parts
    push = point.value(np.zeros(1))[0]
    if any(part.value(np.zeros(1))[0] <= push for part in others):
        parts = others
    return parts[0] if len(parts) == 1 else Minimum(tuple(parts))


def convex_lipschitz(step_size: float, lipschitz: float, sensitivity: float = 0.0) -> Root:
    """``sqrt(z² + (2ηG)²) + ηΔ``: ``U_D`` convex and ``G``-Lipschitz, possibly not differentiable.

    Source: BFG, Section 2 (1), from Bassily et al. 2020.
    """
    return weakly_smooth(step_size, 0.0, 2 * lipschitz, sensitivity)


def weakly_smooth(step_size: float, exponent: float, constant: float, sensitivity: float = 0.0) -> Root:
    """``sqrt(z² + h) + ηΔ`` for convex ``U_D`` with ``|∇U(x) − ∇U(y)| ≤ M|x − y|^p``, ``0 ≤ p ≤ 1``.

    ``h = 4 η^{2/(1−p)} (1−p)/(1+p) (M/2)^{2/(1−p)}``; at ``p = 1`` the step must satisfy ``ηM ≤ 2``
    and ``h = 0``.

    Source: BFG, Section 2 (2) and (4), from Lei, Ying 2020.
    """
    _positive(step_size=step_size)
    _non_negative(constant=constant, sensitivity=sensitivity)
    if not 0 <= exponent <= 1:
        raise DeclarationError(f"exponent={exponent}: a Hölder exponent lies in [0, 1].")
    half = product_up(step_size, constant, 0.5)
    if exponent == 1:
        if not half <= 1 + 2.0**-51:
            raise DeclarationError(f"step_size={step_size}: needs ηM ≤ 2, that is at most {2 / constant}.")
        return Root(1.0 if half <= 1 else 1.0 + 2.0**-48, 0.0, product_up(step_size, sensitivity))
    power = 2 / (1 - exponent)
    log_h = math.log(4 * (1 - exponent) / (1 + exponent)) + power * math.log(half) if half > 0 else -math.inf
    if not log_h < 700:
        raise DeclarationError("weakly_smooth: the modulus overflows; take a smaller step.")
    h = math.exp(log_h) * (1 + 2.0**-50 * (8 + power * abs(math.log(half)))) + TINY if half > 0 else 0.0
    return Root(1.0, h, product_up(step_size, sensitivity))


def strongly_dissipative(
    step_size: float, dissipativity: float, rate: float, smoothness: float, sensitivity: float = 0.0
) -> Root:
    """``sqrt(cz² + h) + ηΔ``, ``c = 1 − 2ηκ + η²β²``, ``h = 2ηλ``.

    For ``⟨∇U(x) − ∇U(y), x − y⟩ ≥ κ|x − y|² − λ`` and ``β``-smooth ``U``; ``λ = 0`` is strong convexity.

    Source: BFG, Section 2 (3) and (6).
    """
    _positive(step_size=step_size)
    _non_negative(dissipativity=dissipativity, rate=rate, smoothness=smoothness, sensitivity=sensitivity)
    if not smoothness < math.inf:
        raise DeclarationError("smoothness: must be finite.")
    drift, bend = 2 * step_size * rate, product_up(step_size, step_size, smoothness, smoothness)
    c = 1 - drift + bend + 2.0**-50 * (1 + drift + bend)
    if not c > 0:
        raise DeclarationError(f"1 − 2ηκ + η²β² = {c}: κ ≤ β is needed.")
    return Root(c, product_up(2.0, step_size, dissipativity), product_up(step_size, sensitivity))


def batch_smoothness(
    prior_smoothness: float, row_smoothness: float, *, temper: float, factor: float, largest_batch: int
) -> float:
    """``L_batch = L_K + factor·w·(largest batch)·L_row``: valid for every batch that can be drawn.

    ``factor`` is the public ``n/b`` or ``1/q``; a Poisson batch can hold all ``n`` rows.
    """
    _non_negative(prior_smoothness=prior_smoothness, row_smoothness=row_smoothness)
    _positive(temper=temper, factor=factor)
    if not largest_batch >= 1:
        raise DeclarationError(f"largest_batch={largest_batch}: at least one row.")
    rows = product_up(factor, temper, float(largest_batch), row_smoothness)
    return sum_up((prior_smoothness, rows))
