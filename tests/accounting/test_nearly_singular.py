"""Metrics and noises that are nearly singular: what is charged is what the kernel's own factors do."""

from __future__ import annotations

import jax
import mpmath
import numpy as np

from private_mcmc.accounting.steps import noise_ratio, whitened_noise
from private_mcmc.kernels.step import noise_colour
from private_mcmc.schedule import Matrix, Schedule, norm_of_clips


def rotated(random: np.random.Generator, dim: int, condition: float) -> tuple[np.ndarray, Matrix]:
    """An orthogonal matrix, and one with these directions and eigenvalues from 1 to ``condition``."""
    turned, _ = np.linalg.qr(random.normal(size=(dim, dim)))
    matrix = (turned * np.geomspace(1, condition, dim)) @ turned.T
    return turned, tuple(map(tuple, ((matrix + matrix.T) / 2).tolist()))


def schedule(dim: int, **fields: object) -> Schedule:
    return Schedule(
        adjacency="replace_one", num_rows=10, dim=dim, step_size=0.01, num_steps=3, clip=1.0, **fields
    )


def exact_ratio(mixed: np.ndarray) -> mpmath.mpf:
    with mpmath.workdps(60):
        exact = mpmath.matrix(mixed.tolist())
        return min(mpmath.eigsy(exact * exact.T, eigvals_only=True))


def test_the_quietest_direction_is_never_louder_than_what_runs() -> None:
    """Eigenvalues of ``M^{-1/2} S M^{-1/2}`` by a solver were up to a hundred thousand times too large."""
    random = np.random.default_rng(0)
    for condition in (1e2, 1e6, 1e10, 1e13):
        for other in (1e2, 1e10, 1e13):
            for dim in (2, 5):
                metric, noise = (rotated(random, dim, size)[1] for size in (condition, other))
                run = schedule(dim, preconditioner=metric, noise=noise)
                (ratio, proportional), mixed = noise_ratio(run), whitened_noise(run)
                exact = exact_ratio(mixed)
                assert not proportional
                assert 0 < ratio <= exact
                if condition * other <= 1e12:
                    assert ratio >= 0.99 * exact
                with jax.enable_x64(True):
                    np.testing.assert_array_equal(noise_colour(run)(np.eye(dim)), mixed.T)


def test_squares_that_underflow_are_not_lost() -> None:
    assert norm_of_clips((1e-170, 0.0), None) >= 1e-170
