"""Second moments and curvature known up to noise, refined round by round in the last round's metric.

In the metric of an estimate every direction is as large as every other, so that the noise, whose size is
set by the longest row, no longer swamps the small ones (the idea of private preconditioning: Kamath, Li,
Singhal, Ullman 2019; Biswas, Dong, Kamath, Ullman 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.release import SecondMoments, SecondMomentsPlan, floored, plan_second_moments
from private_mcmc.target import Adjacency

Array = npt.NDArray[np.float64]

# Balls leave the noise, in spectral norm, a quarter of a typical eigenvalue; they are no smaller than this
# multiple of the rows' root mean square norm, since too tight a ball loses rare directions. Noise widens an
# sd by its square, a ball that is too tight by what it loses: chosen on synthetic rows with rare indicators.
NOISE = 0.25
LEAST_MULTIPLE = 1.5
_MOST_UNEQUAL = 1e-12
# An expansion to second order says nothing of corrections larger than this share.
_LARGEST_CORRECTION = 0.5
_ROUNDS = 20


def root_of(precision: Array) -> Array:
    """``A`` with ``AAᵀ = precision^{-1}``."""
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    # No release makes a metric that float64 cannot factor.
    return np.asarray(vectors / np.sqrt(np.maximum(values, _MOST_UNEQUAL * values[-1])))


def spectral(noise_sd: float, dim: int) -> float:
    """About the spectral norm of a symmetric noise matrix."""
    return noise_sd * math.sqrt(2.0 * dim)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A matrix, floored where noise hides it, and the share of noise in its least certain direction."""

    matrix: Array
    doubt: float


def first_estimate(released: SecondMoments, prior: Array) -> Estimate:
    """From moments in the parameter's own coordinates; ``prior`` is added for the doubt only."""
    noise = spectral(released.noise_sd, len(prior))
    matrix = floored(released.matrix, noise)
    return Estimate(matrix, noise / float(np.linalg.eigvalsh(matrix + prior)[0]))


def next_estimate(released: SecondMoments, root: Array, least: float) -> Estimate:
    """From moments in the coordinates ``Aᵀx``, where eigenvalues are floored at the noise or ``least``."""
    noise = spectral(released.noise_sd, len(root))
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
