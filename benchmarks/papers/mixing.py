"""How fast a chain forgets its start, how far its own law is from the posterior, how averages concentrate.

Distances here are to the chain's **own** stationary law, or in Wasserstein metric: none of them may
stand in for a total variation to the posterior (see ``transfer``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.accounting import Curvature, gdp
from private_mcmc.accounting.rounding import TINY, product_up, root_up, sum_up, up
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class OwnLawDistance:
    """Total variation to the chain's own stationary law, for every data set."""

    total_variation: float


def step_threshold(exponent: float, constant: float, diameter: float) -> float:
    """``Θ``: Theorem 4.2 needs ``1/η ≥ Θ``.

    ``Θ = (M/2)^{2/(1+p)} [ (1−p)/(1+p) · max(16 log(D (M/2)^{1/(1+p)} e), 27) ]^{(1−p)/(1+p)}``.

    Source: BFG Lemma 4.1, (10).
    """
    if not (0 <= exponent <= 1 and 0 < constant < math.inf and 0 < diameter < math.inf):
        raise DeclarationError("step_threshold: 0 ≤ p ≤ 1 and positive finite M, D are needed.")
    half, share = constant / 2, (1 - exponent) / (1 + exponent)
    inner = max(16 * (math.log(diameter * half ** (1 / (1 + exponent))) + 1), 27.0)
    bracket = (share * inner) ** share if share > 0 else 1.0
    return float(up(half ** (2 / (1 + exponent)) * bracket))


def mixing_time(
    accuracy: float, step_size: float, exponent: float, constant: float, diameter: float
) -> tuple[int, OwnLawDistance]:
    """``⌈D²/η⌉ ⌈log2(1/ε)⌉`` steps bring the projected chain within ``ε`` of its own stationary law.

    Assumptions:
        ``U_D`` convex with ``|∇U(x) − ∇U(y)| ≤ M|x − y|^p`` on a convex set of diameter ``D``
        (``G``-Lipschitz: ``p = 0``, ``M = 2G``), projected after every step; noise variance ``2η``.

    Raises:
        DeclarationError: unless ``0 < ε < 1``, and ``1/η ≥ Θ``.

    Source: BFG Theorem 4.2.
    """
    if not 0 < accuracy < 1:
        raise DeclarationError(f"accuracy={accuracy}: must lie in (0, 1).")
    threshold = step_threshold(exponent, constant, diameter)
    if not (step_size > 0 and step_size * threshold <= 1):
        raise DeclarationError(
            f"step_size={step_size}: Theorem 4.2 needs 1/η ≥ {threshold:.6g}: at most {1 / threshold:.6g}."
        )
    # Lemma 4.1 puts 2D²/η for T = ⌈D²/η⌉, which needs η ≤ D².
    if not step_size <= diameter**2:
        raise DeclarationError(
            f"step_size={step_size}: the proof of Theorem 4.2 needs η ≤ D² = {diameter**2:.6g}."
        )
    steps = math.ceil(up(diameter**2 / step_size)) * math.ceil(math.log2(1 / accuracy))
    return steps, OwnLawDistance(accuracy)


def forgotten(
    step_size: float, strong_convexity: float, smoothness: float, steps: int, distance: float
) -> float:
    """``ρ^n W_q(ν_0, π_γ)``: Wasserstein distance (any order ``q``) to the chain's own law after ``steps``.

    Raises:
        DeclarationError: unless the step contracts, ``0 < μ`` and ``γ < 2/L``.
    """
    gap = Curvature(strong_convexity, smoothness).gap(step_size)
    if not (gap > 0 and distance >= 0 and steps >= 0):
        raise DeclarationError("forgotten: needs μ > 0, γ < 2/L and a non-negative distance.")
    return product_up(distance, _power(gap, steps))


def _power(gap: float, steps: int) -> float:
    """``(1 − gap)^steps``, rounded up: the error of an exponential grows with its argument."""
    if gap == 1:
        return float(steps == 0)
    exponent = steps * math.log1p(-gap)
    return up(math.exp(exponent) * (1 - exponent * 2.0**-51)) + TINY


def bias(step_size: float, strong_convexity: float, smoothness: float, dim: int) -> float:
    """``W_2(π_γ, π_D) ≤ 1.65 (L/μ) √(γp)`` for ``γ ≤ 2/(μ + L)``.

    Source: Dalalyan, Karagulyan 2019, Theorem 1.

    Raises:
        DeclarationError: for larger steps.
    """
    if not (0 < strong_convexity <= smoothness < math.inf and dim >= 1):
        raise DeclarationError("bias: 0 < μ ≤ L < ∞ and a dimension of at least 1 are needed.")
    largest = 2 / (strong_convexity + smoothness)
    if not 0 < step_size <= largest:
        raise DeclarationError(f"step_size={step_size}: the bound needs at most 2/(μ+L) = {largest:.6g}.")
    root = root_up(product_up(step_size, float(dim)))
    return product_up(1.65, smoothness, root, over=(strong_convexity,))


def concentration(step_size: float, gap: float, lipschitz: float, kept: int, failure: float) -> float:
    """``t`` with ``P(|average − its mean| > t) ≤ failure``, from a deterministic start.

    The average of ``kept`` states is ``σℓ/((1−ρ)√N)``-Lipschitz in the Gaussian noises (``σ² = 2γ``).
    """
    if not (step_size > 0 and 0 < gap <= 1 and lipschitz >= 0 and kept >= 1 and 0 < failure < 1):
        raise DeclarationError("concentration: needs a contracting step, N ≥ 1 and 0 < failure < 1.")
    unlikely = root_up(up(2 * (math.log(2) - math.log(failure))))
    noise = root_up(product_up(2.0, step_size, over=(float(kept),)))
    return product_up(noise, lipschitz, unlikely, over=(gap,))


@dataclass(frozen=True)
class AverageByConvergence:
    """What BJRD Proposition 3.10 needs, supplied by the user and quoted in the statement.

    Attributes:
        accuracy: ``C``: the average is within ``C`` of ``π_D(f)`` with probability ``1 − failure``,
            for every ``D`` (Assumption 3.8).
        failure: ``δ̃``.
        posterior_change: ``γ_f ≥ |π_D(f) − π_{D'}(f)|`` for adjacent ``D, D'`` (Assumption 3.9).
    """

    accuracy: float
    failure: float
    posterior_change: float

    def __post_init__(self) -> None:
        for name in ("accuracy", "posterior_change"):
            if not 0 <= getattr(self, name) < math.inf:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be non-negative and finite.")
        gdp.checked("delta", self.failure, 1)

    @property
    def sensitivity(self) -> float:
        """``η = 2C + γ_f``: what the noise must be fit for."""
        return sum_up((self.accuracy, self.accuracy, self.posterior_change))


def by_convergence(
    *,
    step_size: float,
    strong_convexity: float,
    smoothness: float,
    dim: int,
    lipschitz: float,
    kept: int,
    burn_in: int,
    start_distance: float,
    sensitivity: float,
    failure: float,
) -> AverageByConvergence:
    """Constants of BJRD Assumptions 3.8 and 3.9 for a full-batch, strongly convex run.

    ``C`` is concentration, plus what remains of the start, ``(ℓ/N) Σ ρ^n W_1(ν_0, π_γ)`` over the kept
    steps, plus ``ℓ`` times the bias; ``γ_f = ℓΔ/μ``.

    Args:
        step_size: ``γ ≤ 2/(μ + L)``.
        strong_convexity: ``μ`` of every ``U_D``.
        smoothness: ``L`` of every ``U_D``.
        dim: ``p``.
        lipschitz: ``ℓ`` of ``f``, in the norm ``‖M^{-1/2}·‖`` on the unconstrained space.
        kept: ``N``, the number of averaged states.
        burn_in: states before the first kept one.
        start_distance: ``W_1`` from the deterministic start to the chain's own law, for every ``D``.
        sensitivity: ``Δ``.
        failure: ``δ̃``.
    """
    gap = Curvature(strong_convexity, smoothness).gap(step_size)
    spread = concentration(step_size, gap, lipschitz, kept, failure)
    rate = math.inf if gap == 1 else -math.log1p(-gap)
    share = up(-math.expm1(-rate * kept))
    left = product_up(_power(gap, burn_in + 1), share, start_distance, over=(gap, float(kept)))
    away = sum_up((left, bias(step_size, strong_convexity, smoothness, dim)))
    accuracy = sum_up((spread, product_up(lipschitz, away)))
    return AverageByConvergence(accuracy, failure, posterior_change(lipschitz, sensitivity, strong_convexity))


def posterior_change(lipschitz: float, sensitivity: float, strong_convexity: float) -> float:
    """``γ_f = ℓΔ/μ`` for ``μ``-strongly convex potentials.

    For a data term with bounded gradient only (BJRD Assumption 5.1): ``Δ = 2B`` and ``μ = μ_K``.
    ``W_1(π_D, π_{D'}) ≤ Δ/μ`` by the synchronous coupling of the two diffusions, where the drifts
    differ by at most ``Δ`` and one of them (with ``2B``: the prior's part) contracts at rate ``μ``.
    """
    if not (lipschitz >= 0 and sensitivity >= 0 and strong_convexity > 0):
        raise DeclarationError("posterior_change: ℓ, Δ ≥ 0 and μ > 0 are needed.")
    return product_up(lipschitz, sensitivity, over=(strong_convexity,))
