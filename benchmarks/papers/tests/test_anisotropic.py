"""Anisotropic dynamics: exact laws against integration, bounds above the exact divergences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad_vec
from scipy.linalg import expm
from scipy.special import ndtr

from benchmarks.papers import anisotropic
from benchmarks.papers.bounds import bkpp


def problem(seed, dim=3):
    rng = np.random.default_rng(seed)
    root, other, noise = (rng.normal(size=(dim, dim)) for _ in range(3))
    first = anisotropic.LinearDrift(root @ root.T + 0.3 * np.eye(dim), rng.normal(size=dim))
    second = anisotropic.LinearDrift(other @ other.T + 0.3 * np.eye(dim), rng.normal(size=dim))
    return first, second, noise @ noise.T + 0.2 * np.eye(dim), rng.normal(size=dim)


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("time", [0.05, 0.7, 4.0])
def test_law_solves_the_linear_equation_with_noise_that_does_not_commute(seed, time):
    drift, _, noise, start = problem(seed)
    at = anisotropic.law(drift, noise, start, time)
    spread = quad_vec(lambda s: expm(-drift.matrix * s) @ noise @ expm(-drift.matrix * s).T, 0, time)[0]
    push = quad_vec(lambda s: expm(-drift.matrix * s) @ drift.vector, 0, time)[0]
    np.testing.assert_allclose(at.covariance, spread, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(at.mean, expm(-drift.matrix * time) @ start + push, rtol=1e-8)


def test_stationary_law_solves_the_lyapunov_equation():
    drift, _, noise, start = problem(5)
    at = anisotropic.law(drift, noise, start, math.inf)
    np.testing.assert_allclose(drift.matrix @ at.covariance + at.covariance @ drift.matrix, noise, atol=1e-10)
    np.testing.assert_allclose(at.mean, drift.minimiser)


def test_with_commuting_noise_the_papers_closed_covariance_holds_and_otherwise_not():
    drift, _, noise, start = problem(2)
    commuting = drift.matrix @ drift.matrix + np.eye(3)
    at = anisotropic.law(drift, commuting, start, 0.4)
    printed = 0.5 * (np.eye(3) - expm(-2 * drift.matrix * 0.4)) @ np.linalg.inv(drift.matrix) @ commuting
    np.testing.assert_allclose(at.covariance, printed, rtol=1e-9)
    wrong = 0.5 * (np.eye(3) - expm(-2 * drift.matrix * 0.4)) @ np.linalg.inv(drift.matrix) @ noise
    assert np.abs(anisotropic.law(drift, noise, start, 0.4).covariance - wrong).max() > 0.01


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("time", [0.1, 1.0, 6.0])
def test_entropy_bound_is_above_the_exact_divergence_and_equals_its_integral(seed, time):
    drift, other, noise, start = problem(seed)
    bound = anisotropic.entropy_bound(drift, other, noise, start, time)
    here, there = (anisotropic.law(d, noise, start, time) for d in (drift, other))
    assert bound >= anisotropic.kl(here, there)
    precision = np.linalg.inv(noise)

    def integrand(s):
        at = anisotropic.law(drift, noise, start, s)
        tilt = other.matrix - drift.matrix
        gap = tilt @ at.mean - (other.vector - drift.vector)
        return 0.5 * (gap @ precision @ gap + np.trace(precision @ tilt @ at.covariance @ tilt.T))

    assert bound == pytest.approx(quad_vec(integrand, 0, time)[0], rel=1e-7)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.floats(0, 30))
def test_advantage_bound_is_above_the_exact_one_of_two_normals(shift):
    exact = 2 * ndtr(shift / 2) - 1
    assert anisotropic.advantage(shift * shift / 2) >= exact * (1 - 1e-12)


def test_error_has_the_mean_that_the_paper_leaves_out():
    drift, _, noise, start = problem(4)
    ours = anisotropic.mean_square_error(drift, noise, start, 0.3)
    printed = bkpp.lemma_b_3(drift.matrix, noise, 0.3)
    at = anisotropic.law(drift, noise, start, 0.3)
    assert printed == pytest.approx(float(np.trace(at.covariance)), rel=1e-9)
    assert ours - printed == pytest.approx(float(np.sum((at.mean - drift.minimiser) ** 2)), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=6), st.floats(0.1, 10), st.integers(0, 2**32 - 1))
def test_optimal_diagonal_beats_every_other_diagonal_of_the_same_trace(bounds, trace, seed):
    best = anisotropic.optimal_diagonal(bounds, trace)
    assert best.sum() == pytest.approx(trace)
    price = anisotropic.path_square([1.0], best, bounds)
    other = np.random.default_rng(seed).dirichlet(np.ones(len(bounds))) * trace + 1e-12
    assert anisotropic.path_square([1.0], other, bounds) >= price * (1 - 1e-9)


def test_printed_propositions_are_not_bounds():
    # dx = −κx dt + σ dW against dx = −κ(x − s) dt + σ dW: stationary KL is κ s²/σ²
    kappa, sigma, shift = 1.0, 4.0, 1.0
    exact = kappa * shift**2 / sigma**2
    printed = bkpp.proposition_2(
        convexity=(kappa, kappa), lipschitz=(kappa, kappa), noise=(sigma, sigma), minimisers_apart=shift
    )
    small = bkpp.proposition_2(
        convexity=(100.0, 1.0), lipschitz=(100.0, 1.0), noise=(40.0, 40.0), minimisers_apart=1.0
    )
    assert printed != pytest.approx(exact)
    first = anisotropic.LinearDrift(np.array([[100.0]]), np.array([0.0]))
    second = anisotropic.LinearDrift(np.array([[1.0]]), np.array([1.0]))
    laws = [anisotropic.law(d, [1600.0], np.zeros(1), math.inf) for d in (first, second)]
    assert small < anisotropic.kl(*laws)


def test_the_papers_algorithm_1_is_positive_for_equal_data():
    rng = np.random.default_rng(0)
    assert bkpp.algorithm_1(rng.normal(0, 1, (10, 50)), 0.5) > 0.1
