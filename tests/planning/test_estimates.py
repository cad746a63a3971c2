"""Matrices known up to noise: what their inverses say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.planning.estimates import root_of, without_inflation


def symmetric_noise(generator: np.random.Generator, dim: int) -> np.ndarray:
    upper = np.triu(generator.standard_normal((dim, dim)))
    return upper + np.triu(upper, 1).T


@pytest.mark.slow
@pytest.mark.parametrize("noise_sd", [0.03, 0.05])
def test_variances_of_a_noisy_precision_are_right_on_average(noise_sd: float) -> None:
    """Of 2,000 draws; uncorrected, the variances are too large by 5 % and more."""
    generator = np.random.default_rng(1)
    precision = np.diag(np.linspace(0.4, 1.2, 8))
    draws = [precision + noise_sd * symmetric_noise(generator, 8) for _ in range(2000)]
    exact = np.trace(np.linalg.inv(precision))
    corrected = [without_inflation(draw, noise_sd) for draw in draws]
    plain_error, error = (
        np.mean([np.trace(np.linalg.inv(each)) for each in seen]) / exact - 1 for seen in (draws, corrected)
    )
    assert abs(error) < 0.3 * plain_error


@given(st.integers(0, 10**6), st.floats(0, 100))
def test_no_direction_is_corrected_by_more_than_half(seed: int, noise_sd: float) -> None:
    generator = np.random.default_rng(seed)
    root = generator.standard_normal((4, 4)) + 3 * np.eye(4)
    precision = root @ root.T + 1e-3 * np.eye(4)
    change = root_of(precision)
    relative = np.linalg.eigvalsh(change.T @ without_inflation(precision, noise_sd) @ change)
    assert relative[0] >= 1 - 1e-6
    assert relative[-1] <= 1.5 * (1 + 1e-6)
