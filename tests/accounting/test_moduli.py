"""Moduli from constants: they hold for real potentials, their conditions are checked, the traps refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import moduli as papers
from benchmarks.papers import noise_metric
from benchmarks.papers.shift_search import last_state
from private_mcmc.accounting import Curvature
from private_mcmc.accounting.langevin import moduli
from private_mcmc.accounting.langevin.moduli import Affine, Minimum, Point
from private_mcmc.errors import DeclarationError

VECTORS = json.loads((Path(__file__).parent.parent / "cases" / "shifts.json").read_text())


def at(phi, distance):
    return float(phi.value(np.array([distance]))[0])


def test_strongly_convex_step_contracts_exactly_below_two_over_l():
    for step in (0.01, 0.5, 0.9, 0.99):
        phi = moduli.langevin(step, 0.3, Curvature(strong_convexity=0.5, smoothness=2.0))
        rho = max(abs(1 - step * 0.5), abs(1 - step * 2.0))
        assert isinstance(phi, Affine)
        assert 1 - phi.gap == pytest.approx(rho, rel=1e-12)
        assert phi.gap > 0
        assert at(phi, 0.0) == pytest.approx(step * 0.3)
    beyond = moduli.langevin(1.2, 0.3, Curvature(strong_convexity=0.5, smoothness=2.0))
    assert beyond.gap < 0


def test_the_gap_of_a_small_step_keeps_its_digits_and_is_rounded_down():
    gap = moduli.contraction_gap(1e-9, 0.3, 5.0)
    assert gap <= 1e-9 * 0.3
    assert gap == pytest.approx(3e-10, rel=1e-14)


def test_convex_smooth_does_not_expand_up_to_two_over_l_only():
    assert moduli.langevin(1.0, 0.3, Curvature(convex=True, smoothness=1.9)).gap == pytest.approx(
        0.0, abs=1e-14
    )
    assert moduli.langevin(1.1, 0.3, Curvature(convex=True, smoothness=2.0)).gap == pytest.approx(-0.2)


def test_without_convexity_the_step_expands():
    assert moduli.langevin(0.1, 0.3, Curvature(smoothness=2.0)).gap == pytest.approx(-0.2)


def test_nothing_known_gives_the_path_bound():
    phi = moduli.langevin(0.1, 0.3)
    assert phi == Point(phi.offset)
    assert last_state(phi, 0.5, 20).m_squared == pytest.approx(20 * (0.03 / 0.5) ** 2)


def test_bounded_data_gradient_uses_the_prior_and_keeps_the_path_at_zero():
    phi = moduli.langevin(
        0.1, 0.3, Curvature(prior_strong_convexity=0.5, prior_smoothness=0.5, gradient_bound=4.0)
    )
    assert isinstance(phi, Minimum)
    assert at(phi, 0.0) == pytest.approx(0.03)
    assert at(phi, 1.0) == pytest.approx(0.95 + 0.8)


def test_a_prior_that_is_not_smooth_proves_nothing():
    phi = moduli.langevin(0.1, 0.3, Curvature(prior_strong_convexity=0.5, gradient_bound=4.0))
    assert isinstance(phi, Point)


@pytest.mark.parametrize(
    "constants",
    [
        {"strong_convexity": 2.0, "smoothness": 1.0},
        {"smoothness": -1.0},
        {"smoothness": math.nan},
        {"prior_strong_convexity": 2.0, "prior_smoothness": 1.0, "gradient_bound": 1.0},
        {"gradient_bound": math.nan},
    ],
)
def test_contradictory_constants_are_refused(constants):
    with pytest.raises(DeclarationError):
        moduli.langevin(0.1, 0.3, Curvature(**constants))


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf])
def test_step_sizes_are_checked(step):
    with pytest.raises(DeclarationError):
        moduli.langevin(step, 0.3, Curvature(smoothness=1.0))


def logistic_map(x, rows, step, mu):
    """Step on ``μx²/2 + Σ log(1 + exp(row·x))``, one dimension."""
    return x - step * (mu * x + np.sum(rows / (1 + np.exp(-rows * x))))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=6),
    st.floats(-1, 1),
    st.floats(-4, 4),
    st.floats(-4, 4),
    st.floats(0.01, 3.0),
)
def test_every_row_of_the_table_holds_on_logistic_regression(rows, other, x, y, step):
    mu, n = 0.4, len(rows)
    here, there = np.array(rows), np.array([other, *rows[1:]])
    smooth, bound = mu + n / 4, float(n)
    moved = abs(logistic_map(x, here, step, mu) - logistic_map(y, there, step, mu))
    for constants in (
        {"strong_convexity": mu, "smoothness": smooth},
        {"convex": True, "smoothness": smooth},
        {"smoothness": smooth},
        {"prior_strong_convexity": mu, "prior_smoothness": mu, "gradient_bound": bound},
    ):
        phi = moduli.langevin(step, 2.0, Curvature(**constants))
        assert moved <= at(phi, abs(x - y)) + 1e-12


@settings(max_examples=150, deadline=None)
@given(st.floats(0.0, 0.95), st.floats(-3, 3), st.floats(-3, 3), st.floats(0.05, 1.5))
def test_weakly_smooth_modulus_holds_for_powers(exponent, x, y, step):
    # |x|^{1+p}/(1+p) has gradient sign(x)|x|^p, with Hölder constant 2^{1−p}
    def gradient(z):
        return math.copysign(abs(z) ** exponent, z) if z else 0.0

    phi = papers.weakly_smooth(step, exponent, 2 ** (1 - exponent))
    assert abs((x - step * gradient(x)) - (y - step * gradient(y))) <= at(phi, abs(x - y)) + 1e-12


def test_lipschitz_is_the_weakly_smooth_case_at_zero_and_smooth_the_one_at_one():
    assert papers.convex_lipschitz(0.3, 1.5).h == pytest.approx((2 * 0.3 * 1.5) ** 2)
    assert papers.weakly_smooth(0.3, 1.0, 6.0).h == 0
    with pytest.raises(DeclarationError, match="ηM ≤ 2"):
        papers.weakly_smooth(0.3, 1.0, 7.0)


@settings(max_examples=100, deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.01, 1.0))
def test_strongly_dissipative_modulus_holds_for_a_double_well(x, y, step):
    # U' = κx − a sin(x): monotone up to λ where (a sin x − a sin y)(x − y) ≤ λ + …; take a crude λ
    kappa, a = 1.0, 1.5

    def gradient(z):
        return kappa * z - a * math.sin(z)

    rate, smooth = 0.5, kappa + a
    grid = np.linspace(0, 60, 60_001)
    dissipativity = float(np.max(2 * a * np.minimum(grid / 2, 1.0) * grid - (kappa - rate) * grid**2))
    phi = papers.strongly_dissipative(step, dissipativity, rate, smooth)
    assert abs((x - step * gradient(x)) - (y - step * gradient(y))) <= at(phi, abs(x - y)) + 1e-9


def test_a_poisson_batch_can_hold_every_row():
    full = papers.batch_smoothness(1.0, 0.25, temper=0.5, factor=10.0, largest_batch=100)
    assert full == pytest.approx(1.0 + 10 * 0.5 * 100 * 0.25)
    fixed = papers.batch_smoothness(1.0, 0.25, temper=0.5, factor=10.0, largest_batch=10)
    assert fixed == pytest.approx(1.0 + 0.5 * 100 * 0.25)


def exact_affine_square(matrix, push, noise, steps):
    mean, spread = np.zeros(len(push)), np.zeros_like(noise)
    for _ in range(steps):
        mean, spread = matrix @ mean + push, matrix @ spread @ matrix.T + noise
    return float(mean @ np.linalg.solve(spread, mean))


def test_anisotropic_noise_needs_the_modulus_in_its_own_metric():
    case = VECTORS["anisotropic_needs_true_modulus"]
    matrix, spread = np.array(case["A"]), np.array(case["S_diag"], dtype=float)
    push = np.array(case["shift"], dtype=float)
    exact = exact_affine_square(matrix, push, np.diag(spread), case["T"])
    assert exact == pytest.approx(case["exact_m_squared"], abs=1e-5)
    # the norm of A without the metric gives a number below the exact one
    plain = last_state(Affine(1 - np.linalg.norm(matrix, 2), 1.0), 1.0, case["T"]).m_squared
    assert plain == pytest.approx(case["wrong_formula"], abs=1e-5)
    assert plain < exact
    phi = noise_metric.linear_step(matrix, case["shift"], spread)
    assert 1 - phi.gap == pytest.approx(5.0)
    assert last_state(phi, 1.0, case["T"]).m_squared >= exact
    with pytest.raises(DeclarationError, match="multiple of the preconditioner"):
        noise_metric.check_same_metric([1.0, 1.0], spread)


def test_projection_in_the_wrong_metric_is_refused():
    case = VECTORS["projection_in_wrong_metric"]
    spread = np.diag(np.array(case["S_diag"], dtype=float))
    project = np.array([[0.5, -0.5], [-0.5, 0.5]])  # Euclidean projection on x1 + x2 = 0
    first, second = (np.array(case[name], dtype=float) for name in ("d1", "d2"))
    # one projected step, then one that is released as it is
    mean = case["rho"] * project @ first + second
    covariance = case["rho"] ** 2 * project @ spread @ project.T + spread
    exact = float(mean @ np.linalg.solve(covariance, mean))
    assert exact == pytest.approx(case["exact_m_squared"], abs=1e-5)
    wrong = last_state([Affine(1 - case["rho"], 1.0)] * 2, 1.0, 2).m_squared  # both pushes have norm 1
    assert wrong == pytest.approx(case["wrong_bound"], abs=1e-5)
    assert exact > wrong
    assert noise_metric.operator_norm(project, spread) > 1
    with pytest.raises(DeclarationError, match="projection"):
        noise_metric.check_projection("euclidean", spread)
    noise_metric.check_projection("metric", spread)
    noise_metric.check_projection("box", spread)
    noise_metric.check_projection("euclidean", 3 * np.eye(2))
    with pytest.raises(DeclarationError, match="projection"):
        noise_metric.check_projection("box", [[2.0, 1.0], [1.0, 2.0]])


def test_all_diagonal_steps_have_the_euclidean_contraction_in_any_diagonal_metric():
    gap = noise_metric.diagonal_step_gap(0.1, [1.0, 2.0], [1.0, 100.0], [0.5, 0.5], [1.0, 4.0])
    assert gap == pytest.approx(0.05, rel=1e-12)
    for curvature in ([0.5, 0.5], [1.0, 4.0], [0.7, 3.0]):
        step = np.eye(2) - 0.1 * np.diag([1.0, 2.0]) @ np.diag(curvature)
        assert noise_metric.operator_norm(step, [1.0, 100.0]) <= (1 - gap) * (1 + 1e-9)
    with pytest.raises(DeclarationError, match="not diagonal"):
        noise_metric.diagonal_step_gap(0.1, [1.0, 2.0], [[2.0, 0.1], [0.1, 1.0]], [0.5, 0.5], [1.0, 4.0])


@pytest.mark.parametrize(
    "bad", [[1.0, -1.0], [[1.0, 0.5], [0.4, 1.0]], [1.0, math.nan], [[1.0, 2.0], [2.0, 1.0]]]
)
def test_covariances_are_checked(bad):
    with pytest.raises(DeclarationError):
        noise_metric.covariance(bad)
