"""Langevin dynamics with anisotropic noise ``dx = b(x) dt + Σ^{1/2} dW``: exact laws and entropy bounds.

All of this is for one given pair of data sets and constant noise. It becomes a privacy statement only
through a supremum over adjacent data sets; ``path_square`` is the one that needs no more than a
bound on the gradients' difference. Noise that depends on the state or on data has no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.papers.noise_metric import MatrixLike, covariance
from private_mcmc.accounting.rounding import FloatArray, product_up, sum_up
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class LinearDrift:
    """``b(x) = a − A x`` with symmetric positive definite ``A``: the drift of a quadratic potential.

    ``f(x) = ½‖Bx − y‖²`` has ``A = BᵀB`` and ``a = Bᵀy``.
    """

    matrix: FloatArray
    vector: FloatArray

    def __post_init__(self) -> None:
        covariance(self.matrix, "drift matrix")
        if np.shape(self.vector) != (len(self.matrix),) or not np.isfinite(self.vector).all():
            raise DeclarationError("drift vector: one finite entry for every row of the matrix.")

    @property
    def minimiser(self) -> FloatArray:
        """``A^{-1} a``."""
        return np.asarray(np.linalg.solve(self.matrix, self.vector), dtype=np.float64)


@dataclass(frozen=True)
class NormalLaw:
    """A normal distribution."""

    mean: FloatArray
    covariance: FloatArray


def law(drift: LinearDrift, noise: MatrixLike, start: FloatArray, time: float) -> NormalLaw:
    """Exact law of ``x_t`` from the point ``start``; ``time=inf`` gives the stationary law.

    In the eigenbasis of ``A``, ``m_t = x_* + e^{−At}(x_0 − x_*)`` and
    ``(V_t)_{ij} = Σ_{ij} (1 − e^{−(λ_i+λ_j)t})/(λ_i+λ_j)``; ``A`` and ``Σ`` need not commute.

    Source: BKPP Proposition 5 and Lemma B.1 (whose closed covariances need commuting matrices).
    """
    if not time >= 0:
        raise DeclarationError(f"time={time}: must be non-negative.")
    rates, basis = np.linalg.eigh(drift.matrix)
    sums = rates[:, None] + rates[None, :]
    rotated = basis.T @ covariance(noise) @ basis
    spread = basis @ (rotated * -np.expm1(-sums * time) / sums) @ basis.T
    offset = basis @ (np.exp(-rates * time) * (basis.T @ (np.asarray(start) - drift.minimiser)))
    return NormalLaw(drift.minimiser + offset, (spread + spread.T) / 2)


def kl(first: NormalLaw, second: NormalLaw) -> float:
    """``KL(first ‖ second)`` of two normal laws.

    Source: BKPP Lemma B.2 (textbook formula).
    """
    root = np.linalg.cholesky(second.covariance)
    whitened = np.linalg.solve(root, first.covariance)
    ratio = np.linalg.eigvalsh(np.linalg.solve(root, whitened.T))
    shift = np.linalg.solve(root, second.mean - first.mean)
    excess = ratio - 1
    # x − log(1+x) without cancellation near equal covariances
    return float(0.5 * (np.sum(excess - np.log1p(excess)) + shift @ shift))


def entropy_bound(
    drift: LinearDrift, other: LinearDrift, noise: MatrixLike, start: FloatArray, time: float
) -> float:
    """``½ ∫_0^t E_{p_s}‖Σ^{-1/2}(b − b')‖² ds ≥ KL(p_t ‖ p'_t)``, in closed form for two quadratics.

    ``b − b'`` is affine, so the integrand needs only the first two moments of ``p_s``, sums of
    exponentials in the eigenbasis of ``A``.

    Source: BKPP Corollary 2.3; with a common constant ``Σ`` it is Girsanov's theorem.
    """
    if not 0 <= time < math.inf:
        raise DeclarationError(f"time={time}: must be non-negative and finite.")
    rates, basis = np.linalg.eigh(drift.matrix)
    sigma = basis.T @ covariance(noise) @ basis
    tilt = basis.T @ (other.matrix - drift.matrix) @ basis
    push = basis.T @ (other.vector - drift.vector)
    rest = basis.T @ drift.minimiser
    gap = basis.T @ np.asarray(start) - rest
    sums = rates[:, None] + rates[None, :]

    def decay(rate: FloatArray) -> FloatArray:
        return -np.expm1(-rate * time) / rate  # ∫_0^t e^{−rate·s} ds

    mean = time * rest + decay(rates) * gap
    second = time * np.outer(rest, rest) + np.outer(rest, decay(rates) * gap)
    second += np.outer(decay(rates) * gap, rest) + decay(sums) * np.outer(gap, gap)
    second += sigma * (time - decay(sums)) / sums
    precision = np.linalg.inv(sigma)
    energy = float(np.sum((tilt.T @ precision @ tilt) * second))
    energy += -2 * float(push @ precision @ tilt @ mean) + time * float(push @ precision @ push)
    return max(0.0, energy / 2)


def advantage(divergence: float) -> float:
    """Upper bound on the membership advantage (total variation) from ``KL``.

    The smaller of ``√(KL/2)`` (Pinsker) and ``√(1 − e^{−KL})`` (Bretagnolle, Huber).

    Source: BKPP Section 3.1.
    """
    if not divergence >= 0:
        raise DeclarationError(f"divergence={divergence}: a Kullback–Leibler divergence is non-negative.")
    return min(1.0, math.sqrt(divergence / 2), math.sqrt(-math.expm1(-divergence)))


def mean_square_error(drift: LinearDrift, noise: MatrixLike, start: FloatArray, time: float) -> float:
    """``E‖x_t − x_*‖² = tr V_t + ‖m_t − x_*‖²``.

    Source: BKPP Lemma B.3, which leaves out the mean.
    """
    at = law(drift, noise, start, time)
    return float(np.trace(at.covariance) + np.sum((at.mean - drift.minimiser) ** 2))


def optimal_diagonal(bounds: Sequence[float], trace: float) -> FloatArray:
    """Diagonal ``Σ`` of the given trace with the least ``Σ_i S_i²/Σ_ii``: ``Σ_ii = ζ S_i/Σ_j S_j``.

    Assumptions:
        ``bounds`` are data-free and hold for each coordinate *separately* (per-coordinate clipping).
        Under a bound on the Euclidean norm alone the best diagonal is isotropic, ``ζ/d`` each.

    Raises:
        DeclarationError: unless all bounds and the trace are positive and finite.

    Source: BKPP Section 6.1.1, solved in closed form.
    """
    sizes = np.asarray(bounds, dtype=np.float64)
    if not ((sizes > 0).all() and np.isfinite(sizes).all() and 0 < trace < math.inf and sizes.size):
        raise DeclarationError("optimal_diagonal: positive finite bounds and trace are needed.")
    return trace * sizes / np.sum(sizes)


def path_square(step_sizes: Sequence[float], noise: Sequence[float], bounds: Sequence[float]) -> float:
    """``m²`` of releasing the path of ``x' = x − γ(∇U) + N(0, 2γ diag(noise))``, coordinates clipped apart.

    ``m² = Σ_k (γ_k/2) Σ_i S_i²/noise_i`` where one row changes coordinate ``i`` of the gradient by at
    most ``S_i``.

    Source: BJRD Theorem 5.4, one Gaussian mechanism for every step, in the metric of the noise.
    """
    sizes, spread = np.asarray(bounds, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    if not (sizes.shape == spread.shape and (sizes >= 0).all() and (spread > 0).all() and spread.size):
        raise DeclarationError("path_square: one positive noise and one non-negative bound per coordinate.")
    if not all(0 < step < math.inf for step in step_sizes):
        raise DeclarationError("path_square: step sizes must be positive and finite.")
    pairs = zip(sizes.tolist(), spread.tolist(), strict=True)
    rates = sum_up(product_up(size, size, over=(width,)) for size, width in pairs)
    return product_up(sum_up(step_sizes), 0.5, rates)
