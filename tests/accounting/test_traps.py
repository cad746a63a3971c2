"""Plausible mistakes: each is refused, or the number it would give is below what the library states."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from private_mcmc import accounting as acc
from private_mcmc.accounting.curves import Gaussian, Sampled
from private_mcmc.errors import DeclarationError
from tests.accounting import every_statement

TRAPS = json.loads((Path(__file__).parent.parent / "cases" / "traps.json").read_text())


schedule = partial(every_statement.schedule, num_rows=1, step_size=0.5, num_steps=40, release="last")


def test_anisotropic_noise_does_not_use_the_euclidean_contraction():
    """A map that contracts by ½ in the Euclidean norm and expands in the noise's: only the path is stated."""
    case = TRAPS["anisotropic_needs_true_modulus"]
    matrix, shift = np.array(case["A"]), np.array(case["shift"], dtype=float)
    covariance = np.diag(np.array(case["S_diag"], dtype=float))
    mean, spread = np.zeros(2), np.zeros((2, 2))
    for _ in range(case["T"]):
        mean, spread = matrix @ mean + shift, matrix @ spread @ matrix.T + covariance
    exact = float(mean @ np.linalg.solve(spread, mean))
    assert exact == pytest.approx(case["exact_m_squared"], rel=1e-5) and exact > case["wrong_formula"]
    # U = ½θᵀ(I−A)θ/γ with γ = ½, noise S = 2γN, a gradient shift of norm 10/γ in the loud direction.
    item = schedule(noise=tuple(case["S_diag"]), clip=10.0, num_steps=case["T"])
    statement = acc.langevin_statement(item, acc.Curvature(strong_convexity=1.0, smoothness=3.0))
    path = acc.langevin_statement(
        schedule(noise=tuple(case["S_diag"]), clip=10.0, num_steps=case["T"], release="path")
    )
    assert statement.gdp == path.gdp
    assert statement.gdp**2 >= exact


def test_two_releases_of_one_chain_exceed_their_composition():
    """X_2 and X_1 + Laplace of one chain: the exact joint divergence is above the composed one."""
    case = TRAPS["one_chain_one_mechanism"]
    slope, push, sd, scale = case["map_slope"], case["s"], case["sigma"], case["laplace_scale"]
    epsilon = case["epsilon"]
    states = pld.from_gaussian_mechanism(1 / case["gdp_X2"])
    noised = pld.from_laplace_mechanism(1 / case["laplace_epsilon"])
    composed = states.compose(noised).get_delta_for_epsilon(epsilon)
    assert composed == pytest.approx(case["composed_delta"], rel=2e-3)

    grid = np.linspace(-3.5, 4.5, 401)
    noisy = np.linspace(-34.0, 35.0, 1401)
    kernel = np.exp(-np.abs(noisy[:, None] - grid[None]) / scale) / (2 * scale)

    def joint(shift):
        """Density of (X_1 + Laplace, X_2) on the grids, X_1 = s + noise, X_2 = aX_1 + s + noise."""
        weight = norm.pdf(grid, shift, sd) * (grid[1] - grid[0])
        ends = np.linspace(-4, 5, 301)
        second = norm.pdf(ends[None, :], slope * grid[:, None] + shift, sd)
        return kernel @ (weight[:, None] * second), ends

    (one, ends), (other, _) = joint(push), joint(0.0)
    cell = (noisy[1] - noisy[0]) * (ends[1] - ends[0])
    true = max(
        float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0)) * cell)
        for a, b in ((one, other), (other, one))
    )
    assert true == pytest.approx(case["true_delta"], rel=0.01)
    assert true > composed
    first = acc.posterior_strongly_log_concave(case["gdp_X2"], 1.0, "replace_one").of("chain 1")
    second = acc.laplace(0.5, adjacency="replace_one", sensitivity=1.0, scale=scale).of("chain 1")
    with pytest.raises(DeclarationError, match="one chain"):
        acc.compose(first, second)


@pytest.mark.slow
def test_float_noise_in_the_composed_losses_is_rounded_up():
    """Far in the tail a Fourier transform returns rounding noise; the stated δ stays above the exact one."""
    for ratio, steps in ((0.01, 1_000_000), (0.1, 10_000), (1.0, 50)):
        curve = Sampled("add_remove", 1.0, ratio, steps)
        exact = Gaussian(ratio * math.sqrt(steps))
        for delta in (1e-3, 1e-6, 1e-9, 1e-12, 1e-20):
            epsilon = exact.epsilon(delta)
            composed, allowance = curve._losses
            assert composed.get_delta_for_epsilon(epsilon) + allowance >= exact.delta(epsilon) * (1 - 1e-12)
