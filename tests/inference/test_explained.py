"""Releases that the fit does not explain, and outcomes that a declared range cuts, are told."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from benchmarks.calibration_problems import simulated
from private_mcmc.inference.posterior.covariates import Fitted, conditioned
from private_mcmc.inference.posterior.given_releases import beyond_range, flat_directions, unexplained
from private_mcmc.inference.posterior.likelihood import Terms
from private_mcmc.inference.posterior.outcomes import Listed
from private_mcmc.inference.posterior.people import with_outcomes
from private_mcmc.model import read
from private_mcmc.release import SecondMoments, plan_second_moments


def line(x, y=None):
    b = numpyro.sample("b", dist.Normal(0, 4))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)


@functools.cache
def reading():
    return read(line, pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Box(-9.0, 9.0)), n=100)


def paths(seen):
    """A likelihood of one parameter whose every block is ``N(0, 1)``."""
    count = len(seen)
    one = {"x": jnp.ones(1), "y": jnp.zeros(1)}
    told = Listed(one, {"y": jnp.zeros((1, 1))}, jnp.zeros((1, 1)))
    return Terms(
        told=told,
        slopes=jnp.zeros((1, 1, count)),
        directions=jnp.ones((1, 1, 1)),
        score=jnp.asarray(seen)[:, None],
        fixed=jnp.eye(count),
        misfits=jnp.zeros((2, count, count)),
        sides=jnp.zeros((1, 0)),
    )


def test_what_chance_does_not_do_is_named_and_what_it_does_is_not():
    """200 right fits: more than three would be warned of with probability 5e-5."""
    random, at, warned = np.random.default_rng(0), np.array([0.0, -3.0, -1.6]), 0
    with jax.enable_x64(True):
        for _ in range(200):
            off = [random.standard_normal(45) for _ in range(3)]
            warned += bool(
                unexplained(reading(), ["one", "two", "three"], off, paths(random.standard_normal(5)), at)
            )
        assert warned <= 3
        moved = [np.zeros(45), np.full(45, 2.0)]
        (words,) = unexplained(reading(), ["moments", "curvature"], moved, paths(np.zeros(5)), at)
        assert "curvature (off by up to 2 sds)" in words
        assert "moments" not in words
        (words,) = unexplained(reading(), [], [], paths(np.full(5, 4.0)), at)
        assert "paths (off by up to 4 sds)" in words


@pytest.mark.parametrize(("dim", "noise", "told"), [(41, 0.11, True), (41, 0.05, False), (12, 0.08, False)])
def test_directions_that_noise_may_have_hidden_are_told(dim, noise, told):
    """One direction is empty; its eigenvalue is within noise of the others where that is told."""
    random = np.random.default_rng(0)
    statement = plan_second_moments(0.1, radius=1.0, dim=dim, num_rows=100, adjacency="replace_one").statement
    matrix = np.diag([0.0, *[1.0] * (dim - 1)])
    lower = np.tril(random.standard_normal((dim, dim)), -1) / np.sqrt(2)
    noisy = matrix + noise * (lower + lower.T + np.diag(random.standard_normal(dim)))
    assert bool(flat_directions(SecondMoments(noisy, noise, statement))) is told


@pytest.mark.parametrize(("effect", "told"), [(3.0, False), (8.0, True), (-12.0, True)])
def test_outcomes_that_a_range_cuts_are_told(effect, told):
    nothing, points = np.zeros((8, 0)), jnp.linspace(0.0, 1.0, 8)
    with jax.enable_x64(True):
        theta = np.array([effect])
        known = Fitted({"x": points, "y": jnp.zeros(8)}, np.full(8, 12.5), nothing, nothing)
        people = with_outcomes(reading(), known, theta)
        found = beyond_range(reading(), people, theta)
    assert bool(found) is told


def test_weights_follow_releases_as_far_as_they_go():
    """A mean at a third of the range, of rows all over it: weights stay positive, and have that mean.

    One linear step from equal weights is cut off at zero, and leaves the mean hundreds of sds off.
    """
    x = np.linspace(0.0, 1.0, 200)
    numbers = (x - x.mean()) / x.std()
    moving = np.column_stack([numbers, 0.7 * (numbers**2 - 1), 0.5 * numbers**3])
    people, sd = 40_000.0, 10.0
    seen = np.column_stack([np.ones(200), x, x**2]) / sd
    released = people * np.array([1.0, 0.06, 0.006]) / sd
    weights, deviations = conditioned(np.full(200, people / 200), moving, [seen], [released])
    assert np.all(weights > 0)
    assert weights.sum() == pytest.approx(people)
    assert np.abs(weights @ seen - released).max() < 10
    assert np.linalg.norm(deviations.T @ weights * x.mean() / sd) < 1


@pytest.mark.parametrize("name", ["line", "counts", "unknown_sd", "negative_binomial"])
def test_simulated_outcomes_are_those_of_their_parameter(name):
    """Cut at the declared range they tell of another one, by thirteen sds in one problem of twenty."""
    problem = simulated(name)
    for seed in range(3):
        people, _ = problem.outcomes(seed)
        assert len(people["y"]) == problem.n
    narrow = {"line": pmc.Box(-1.0, 1.0), "unknown_sd": pmc.Box(-1.0, 1.0)}.get(name, pmc.Counts(1))
    object.__setattr__(
        problem, "rows", pmc.Rows(X=pmc.Ball(1.0, dim=problem.columns["X"].shape[1]), y=narrow)
    )
    with pytest.raises(pmc.DeclarationError, match="beyond their declared range"):
        problem.outcomes(0)
