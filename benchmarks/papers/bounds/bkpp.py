"""Borovykh, Kantas, Parpas, Pavliotis: what is printed, for comparison only; none of it is a bound here.

For ``dx = −∇f dt + σ dW`` the Gibbs law is ``exp(−2f/σ²)``; the paper writes ``exp(−f/(2σ²))``, so the
constants of Propositions 1, 2 and Remark 2.5 are wrong.
"""

from __future__ import annotations

import math

import numpy as np

from private_mcmc.accounting.rounding import FloatArray


def proposition_1(
    *,
    convexity: tuple[float, float],
    lipschitz: tuple[float, float],
    noise: tuple[float, float],
    start_constant: float,
    minimisers_apart: float,
) -> float:
    """Printed bound on ``KL(p_t ‖ p'_t)``, uniform in time; pairs are for ``f`` and ``f'``.

    Slip: rests on the wrong Gibbs law; Lemma A.3 leaves out ``V_0``.
    """
    (kappa, kappa_), (smooth, smooth_), (sigma, sigma_) = convexity, lipschitz, noise
    inner = 2 * ((smooth / smooth_) ** 2 + 2) * (sigma**2 / (2 * kappa) + 1) + minimisers_apart**2
    last = (4 + start_constant * sigma_**2 * kappa_) / (sigma**2 * sigma_**2 * kappa_)
    return 8 * smooth_**2 / sigma**2 * inner * last


def proposition_2(
    *,
    convexity: tuple[float, float],
    lipschitz: tuple[float, float],
    noise: tuple[float, float],
    minimisers_apart: float,
) -> float:
    """Printed bound on ``KL(p_∞ ‖ p'_∞)`` of the stationary laws.

    Slip: rests on the wrong Gibbs law; the appendix prints it without the first factor 2.
    """
    (kappa, kappa_), (smooth, smooth_), (sigma, sigma_) = convexity, lipschitz, noise
    ratio = (sigma_ * smooth / (sigma * smooth_)) ** 2
    inner = 2 * (ratio + 2) * sigma**2 / (2 * kappa) + minimisers_apart**2
    return smooth_**2 / (2 * kappa_ * sigma_**6) * inner


def lemma_4_1(convexity: float, trace: float, time: float) -> float:
    """Printed bound on ``½E‖x_t − x_*‖²``: ``e^{−2κt} + tr(Σ)/(4κ)``.

    Slip: the first term lacks the factor ``V_0 = ½‖x_0 − x_*‖²``.
    """
    return math.exp(-2 * convexity * time) + trace / (4 * convexity)


def lemma_b_3(matrix: FloatArray, noise: FloatArray, time: float) -> float:
    """Printed ``E‖x_t − x_*‖²`` for a quadratic: the trace of the covariance alone.

    Slip: leaves out ``‖m_t − x_*‖²``.
    """
    rates, basis = np.linalg.eigh(matrix)
    diagonal = np.diag(basis.T @ noise @ basis)
    return float(np.sum(diagonal * -np.expm1(-2 * rates * time) / (2 * rates)))


def algorithm_1(log_ratios: FloatArray, epsilon: float) -> float:
    """Appendix C's estimate of ``δ``: the largest share, over repetitions, of log ratios above ``ε``.

    ``log_ratios`` has one row for each repetition.

    Slip: a heuristic, not an estimate of ``δ``: it compares outputs of two trained models and is
    positive even for ``D = D'``. Never to be set against a bound.
    """
    return float(np.max(np.mean(np.asarray(log_ratios) > epsilon, axis=1)))
