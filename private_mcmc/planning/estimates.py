"""Estimates from releases: second moments and curvature known up to noise, means and draws from paths.

Moments are refined round by round in the metric of the last round.

In the metric of an estimate every direction is as large as every other, so that the noise, whose size is
set by the longest row, no longer swamps the small ones (the idea of private preconditioning: Kamath, Li,
Singhal, Ullman 2019; Biswas, Dong, Kamath, Ullman 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from private_mcmc.planning.stages import Array
from private_mcmc.release import SecondMoments, SecondMomentsPlan, floored, plan_second_moments
from private_mcmc.target import Adjacency

# Balls leave the noise, in spectral norm, a quarter of a typical eigenvalue; they are no smaller than this
# multiple of the rows' root mean square norm, since too tight a ball loses rare directions. Noise widens an
# sd by its square, a ball that is too tight by what it loses: chosen on synthetic rows with rare indicators.
NOISE = 0.25
LEAST_MULTIPLE = 1.5
_MOST_UNEQUAL = 1e-12
# An expansion to second order says nothing of corrections larger than this share.
_LARGEST_CORRECTION = 0.5
_ROUNDS = 20
# Fewer relaxation times of the path than this and its shape is chance: Normal draws take its place.
ENOUGH_RELAXATIONS = 20.0
_DRAWS = 2000


def root_of(precision: Array) -> Array:
    """``A`` with ``AAᵀ = precision^{-1}``."""
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    # No release makes a metric that float64 cannot factor.
    return np.asarray(vectors / np.sqrt(np.maximum(values, _MOST_UNEQUAL * values[-1])))


def spectral_norm(noise_sd: float, dim: int) -> float:
    """About the spectral norm of a symmetric noise matrix."""
    return noise_sd * math.sqrt(2.0 * dim)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A matrix, floored where noise hides it, and the share of noise in its least certain direction."""

    matrix: Array
    noise_share: float


def first_estimate(released: SecondMoments, prior: Array) -> Estimate:
    """From moments in the parameter's own coordinates; ``prior`` is added for the noise's share only."""
    noise = spectral_norm(released.noise_sd, len(prior))
    matrix = floored(released.matrix, noise)
    return Estimate(matrix, noise / float(np.linalg.eigvalsh(matrix + prior)[0]))


def next_estimate(released: SecondMoments, root: Array, least: float) -> Estimate:
    """From moments in the coordinates ``Aᵀx``, where eigenvalues are floored at the noise or ``least``."""
    noise = spectral_norm(released.noise_sd, len(root))
    whitened = floored(released.matrix, min(noise, least))
    back = np.linalg.inv(root)
    matrix = back.T @ whitened @ back
    return Estimate((matrix + matrix.T) / 2, noise / float(np.linalg.eigvalsh(whitened)[0]))


def without_inflation(precision: Array, noise_sd: float) -> Array:
    """``H`` such that ``H^{-1}`` is about right on average, where ``precision`` is ``H`` plus noise.

    For symmetric noise ``N`` of sd ``s``, with ``G = H^{-1}``: ``E[(H + N)^{-1}] ≈ G + s²G(tr(G)I + G)G``, so
    that inverses are too large. ``s²(tr(G)I + G)`` is added, up to a half of every eigenvalue.
    """
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    corrected = values
    for _ in range(_ROUNDS):
        inverse = 1 / corrected
        corrected = np.minimum(
            values + noise_sd**2 * (inverse.sum() + inverse), (1 + _LARGEST_CORRECTION) * values
        )
    return np.asarray((vectors * corrected) @ vectors.T)


def query(gdp: float, *, dim: int, num_rows: int, adjacency: Adjacency) -> SecondMomentsPlan:
    """Moments in a metric in which rows have root mean square norm ``√(p/n)``."""
    factor = math.sqrt(2.0) if adjacency == "replace_one" and dim >= 2 else 1.0
    multiple = math.sqrt(NOISE * gdp * num_rows / (factor * dim * math.sqrt(2.0 * dim)))
    radius = max(multiple, LEAST_MULTIPLE) * math.sqrt(dim / num_rows)
    return plan_second_moments(gdp, radius=radius, dim=dim, num_rows=num_rows, adjacency=adjacency)


def drift_corrected_mean(states: Array, step_size: float, curvature: Array) -> Array:
    """``mean(u_0 … u_{T−1}) + H^{-1}(u_T − u_0)/(γT)``: where a Langevin path of a quadratic is heading.

    Summing ``u_{k+1} − u_k = −γH(u_k − u*) + √(2γ)ξ_k`` shows the error to be ``N(0, 2H^{-2}/(γT))``
    whatever the start: burn-in leaves no bias. ``states`` is ``(T + 1, p)``.
    """
    time = step_size * (len(states) - 1)
    corrected: Array = states[:-1].mean(axis=0) + np.linalg.solve(curvature, states[-1] - states[0]) / time
    return corrected


def calibrated_draws(states: Array, mean: Array, covariance: Array, relaxations: float) -> Array:
    """Draws with exactly this mean and covariance: the path's, mapped, or Normal ones if it is short.

    ``states`` is ``(T, p)``, the path after burn-in. Post-processing of what was released.
    """
    dim = len(mean)
    shapeless = len(states) < 10 * dim or np.linalg.matrix_rank(states - states.mean(axis=0)) < dim
    if relaxations < ENOUGH_RELAXATIONS or shapeless:
        states = np.random.default_rng(0).standard_normal((max(_DRAWS, 10 * dim), dim))
    centred = states - states.mean(axis=0)
    own = np.linalg.cholesky(centred.T @ centred / len(states))
    mapped: Array = mean + np.linalg.solve(own, centred.T).T @ np.linalg.cholesky(covariance).T
    return mapped
