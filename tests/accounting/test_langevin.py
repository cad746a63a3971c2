"""Statements of runs against exact Gaussian laws and one another, and plausible mistakes against both."""

import json
import math
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from private_mcmc import accounting as acc
from private_mcmc.accounting.curves import Gaussian, Sampled
from private_mcmc.accounting.steps import rounding_box
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import ROUNDING, Average
from tests.accounting import every_statement

CASES = Path(__file__).parent.parent / "cases"
TRAPS = json.loads((CASES / "traps.json").read_text())
QUADRATIC = json.loads((CASES / "ula_quadratic.json").read_text())["cases"]


schedule = partial(every_statement.schedule, num_rows=1, dim=1, num_steps=100, release="last")


def without_slack(statement: acc.Statement) -> float:
    """The bound itself: a run adds 1e-9 for the rounding of a step after the sum."""
    return statement.gdp / (1 + ROUNDING)


@pytest.mark.parametrize("case", QUADRATIC)
def test_quadratic_potentials_are_exact(case):
    run = schedule(step_size=case["gamma"], num_steps=case["n"], clip=case["grad_sensitivity"] / 2)
    statement = acc.langevin_statement(run, acc.Curvature(case["m"], case["m"]))
    assert without_slack(statement) == pytest.approx(case["mu_gdp"], rel=1e-12)
    assert statement.gdp**2 / 2 == pytest.approx(case["rdp_per_order"], rel=1e-8)
    assert statement.epsilon(1e-5) == pytest.approx(case["eps_at_delta_1e5"], rel=1e-7)
    assert statement.gdp <= case["composition_mu"] * (1 + 1e-8)


def exact_square(hessian, preconditioner, step, push, times):
    """``m²`` of the states at ``times`` of a quadratic chain against a pushed one, in 50 digits."""
    mpmath.mp.dps = 50
    dim = len(push)
    scale = mpmath.matrix(preconditioner.tolist())
    matrix = mpmath.eye(dim) - step * scale * mpmath.matrix(hessian.tolist())
    noise, shift = 2 * step * scale, -step * scale * mpmath.matrix(list(push))
    total = mpmath.mpf(0)
    mean, spread = mpmath.matrix(dim, 1), mpmath.matrix(dim, dim)
    for k in range(1, max(times) + 1):
        mean = matrix * mean + shift
        spread = matrix * spread * matrix.T + noise
        if k in times:
            total += (mean.T * mpmath.lu_solve(spread, mean))[0]
            mean, spread = mpmath.matrix(dim, 1), mpmath.matrix(dim, dim)
    return float(total)


@pytest.mark.parametrize("times", [(1,), (2,), (37,), (1, 2, 3), (5, 20, 21), (40,)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bound_is_exact_at_every_step_subset_and_preconditioner(times, seed):
    """Adjacent data push along the least curved direction of ``M^{1/2}HM^{1/2}``: the bound is attained."""
    random = np.random.default_rng(seed)
    dim = 3
    root = random.normal(size=(dim, dim)) + 2 * np.eye(dim)
    scale = root @ root.T
    scale = (scale + scale.T) / 2
    values, vectors = np.linalg.eigh(scale)
    half = (vectors * np.sqrt(values)) @ vectors.T
    other = np.linalg.qr(random.normal(size=(dim, dim)))[0]
    spectrum = np.array([0.7, 1.9, 6.0])
    inverse = np.linalg.inv(half)
    hessian = inverse @ (other * spectrum) @ other.T @ inverse
    hessian = (hessian + hessian.T) / 2
    low, high = np.linalg.eigvalsh(half @ hessian @ half)[[0, -1]]
    size = 1.3
    push = inverse @ other[:, 0] * size
    step = 0.2
    exact = exact_square(hessian, scale, step, push, times)
    given = {"dim": dim, "step_size": step, "num_steps": 50, "clip": size / 2, "release": times}
    run = schedule(**given, preconditioner=tuple(map(tuple, scale.tolist())))
    statement = acc.langevin_statement(run, acc.Curvature(0.7, 6.0))
    assert (low, high) == (pytest.approx(0.7, rel=1e-12), pytest.approx(6.0, rel=1e-12))
    assert without_slack(statement) ** 2 == pytest.approx(exact, rel=1e-11)


def test_beyond_the_exact_regime_it_is_only_an_upper_bound():
    case = TRAPS["not_exact"]
    step = case["gamma_mu"] / case["mu"]
    run = schedule(step_size=step, num_steps=case["T"], clip=case["sensitivity"] / 2)
    statement = acc.langevin_statement(run, acc.Curvature(case["mu"], case["mu"]))
    assert without_slack(statement) == pytest.approx(case["bound_m"], rel=1e-6)
    assert case["exact_m"] < statement.gdp


def test_the_rounding_assumption_names_the_box_in_which_it_holds():
    item = schedule(num_rows=1000, dim=4, step_size=1e-4)
    box = rounding_box(item)
    assert 2 * 2.0**-53 * 2 * box == pytest.approx(9e-10 * 1e-4 * acc.sensitivity(item), rel=1e-9, abs=0)
    assert box == pytest.approx(4.05e6 * 1e-4 * acc.sensitivity(item) / 2, rel=1e-3)
    assert any("4.05e6 γΔ/√p" in line for line in acc.langevin_statement(item).argument.assumptions)


def test_an_average_needs_noise():
    with pytest.raises(DeclarationError, match="noise"):
        acc.langevin_statement(schedule(release=Average(1)))
    with pytest.raises(DeclarationError, match="average"):
        acc.average_sensitivity(schedule(), acc.Curvature(1.0, 2.0))


@pytest.mark.parametrize(
    "changes",
    [
        *({"strong_convexity": one} for one in (-1.0, math.nan, math.inf)),
        {"strong_convexity": 3.0, "smoothness": 2.0},
        *({name: math.nan} for name in ("prior_smoothness", "smoothness")),
    ],
)
def test_contradictory_curvature_is_refused(changes):
    with pytest.raises(DeclarationError):
        acc.Curvature(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"preconditioner": (1.0, -1.0)},
        {"preconditioner": ((1.0, 2.0), (2.0, 1.0))},
        {"preconditioner": ((1.0, 0.5), (0.0, 1.0))},
        {"preconditioner": (1.0, math.nan)},
        {"noise": (1.0, 0.0)},
        {"noise": (1.0, 1.0, 1.0)},
    ],
)
def test_matrices_that_are_no_covariances_are_refused(changes):
    with pytest.raises(DeclarationError):
        acc.langevin_statement(schedule(dim=2, **changes))


def test_float64_rounding_of_the_sums_is_part_of_the_sensitivity(rng):
    """Two orders of summing the same clipped rows differ by less than the allowance; Δ contains it."""
    rows = 200_000
    values = np.where(rng.random(rows) < 0.5, 1.0, -1.0) * rng.random(rows)
    item = schedule(num_rows=rows)
    allowance = acc.sensitivity(item) - 2.0
    forward, backward = 0.0, 0.0
    for value in values.tolist():
        forward += value
    for value in values[::-1].tolist():
        backward += value
    assert 0 < abs(forward - backward) < allowance < 1e-4
    scaled = acc.sensitivity(schedule(num_rows=rows, dim=2, preconditioner=(1.0, 100.0)))
    assert scaled - 2.0 == pytest.approx(10 * allowance, rel=1e-6)
    with pytest.raises(DeclarationError):
        acc.sensitivity(schedule(num_rows=2**53))


one_row = partial(every_statement.schedule, num_rows=1, step_size=0.5, num_steps=40, release="last")


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
    item = partial(one_row, noise=tuple(case["S_diag"]), clip=10.0, num_steps=case["T"])
    statement = acc.langevin_statement(item(), acc.Curvature(strong_convexity=1.0, smoothness=3.0))
    path = acc.langevin_statement(item(release="path"))
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
