"""What a path's released states say of the posterior's mean, and draws that say how far to trust it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Fewer relaxation times of the path than this and its shape is chance: Normal draws take its place.
ENOUGH_RELAXATIONS = 20.0
_DRAWS = 2000


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
