"""The policy of one affine predictor: within its budget whatever is released, and sound in its parts."""

import functools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, CountsStage, MomentsStage
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.affine_releases import RUN
from private_mcmc.planning.estimates import (
    estimate_of,
    query,
    root_of,
    score_average,
    settled_average,
    spectral_norm,
)
from private_mcmc.planning.influence import CELLS, InfluenceCounts, cell_of, counts_of_influence
from private_mcmc.planning.simulate import simulate, synthetic_table
from private_mcmc.planning.stages import named
from private_mcmc.release import Contribution, SecondMoments, Sums, plan_second_moments
from tests.examples_of_models import logistic
from tests.planning.exact import posterior_mode

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())


@functools.cache
def policy():
    return affine_policy(read(logistic, ROWS, n=5000), 5000, "replace_one", 0.2)


def synthetic(stage, random, scale):
    """A release that the mechanism could have made, likely or not."""
    if isinstance(stage, MomentsStage):
        half = random.normal(size=(3, 3)) * scale
        return SecondMoments(half + half.T, stage.mechanism.noise.sd, stage.statement)
    if isinstance(stage, CountsStage):
        return Sums(random.normal(size=(1, CELLS)) * scale, stage.mechanism.noise.sd)
    return np.cumsum(random.normal(size=(stage.schedule.num_steps, 3)), axis=0) * scale


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.0, 1e-8, 1e-3, 1.0, 1e3, 1e8]),
    adjacency=st.sampled_from(["replace_one", "add_remove", "zero_out"]),
    budget=st.floats(0.01, 3.0),
)
def test_no_history_costs_more_than_the_budget(seed, scale, adjacency, budget):
    chosen = replace(policy(), budget=budget, adjacency=adjacency)
    random, history = np.random.default_rng(seed), ()
    while (stage := chosen.next(history)) is not None:
        history = (*history, CompletedStage(stage, synthetic(stage, random, scale)))
        assert len(history) < 30
    parts = tuple(completed.stage.statement for completed in history)
    assert accounting.adaptive(budget, adjacency, parts).gdp == budget
    assert math.fsum(part.gdp**2 for part in parts) >= 0.98 * budget**2
    assert all(part.verify() for part in parts[-1:])
    assert np.all(np.isfinite(chosen.conclude(history).draws))


@pytest.mark.parametrize("weight", [0.05, 1.0, 7.0])
def test_the_mean_score_of_a_path_tells_the_mode_of_a_quadratic_whatever_the_start_and_the_prior(weight):
    """Steps without noise; the prior is as strong as the rows and centred elsewhere."""
    random = np.random.default_rng(0)
    half, other = random.normal(size=(2, 4, 4))
    curvature, precision = half @ half.T + np.eye(4), other @ other.T + np.eye(4)
    mode, centre, theta = random.normal(size=4), random.normal(size=4), np.full(4, 50.0)
    metric = np.linalg.inv(weight * curvature + precision)
    schedule = pmc.Schedule(
        adjacency="replace_one", num_rows=9, dim=4, step_size=0.3, num_steps=7, clip=1.0, temper=weight,
        preconditioner=tuple(map(tuple, ((metric + metric.T) / 2).tolist())),
    )  # fmt: skip
    states = [theta]
    for _ in range(schedule.num_steps):
        score = precision @ (theta - centre) + weight * curvature @ (theta - mode)
        theta = theta - schedule.step_size * metric @ score
        states.append(theta)
    at = np.array(states)
    average = score_average(at, schedule, 1.0, (at - centre) @ precision)
    np.testing.assert_allclose(average.root(curvature), mode, atol=1e-9)
    assert np.abs(average.centre - mode).max() > 3


def test_the_mean_score_of_a_path_has_the_noise_that_it_says():
    """400 paths of pure noise: their information is that of one Newton step of the same price."""
    random, metric, weight = np.random.default_rng(5), np.diag([0.5, 2.0]), 0.25
    schedule = pmc.Schedule(
        adjacency="replace_one", num_rows=9, dim=2, step_size=0.2, num_steps=10, clip=1.0, temper=weight,
        preconditioner=tuple(map(tuple, metric.tolist())),
    )  # fmt: skip
    scores = []
    for _ in range(400):
        moves = np.sqrt(2 * 0.2) * random.normal(size=(10, 2)) @ np.sqrt(metric)
        states = np.vstack([np.zeros(2), np.cumsum(moves, axis=0)])
        scores.append(score_average(states, schedule, 1.0, np.zeros_like(states)))
    covariance = np.cov(np.array([each.score for each in scores]).T)
    np.testing.assert_allclose(covariance @ scores[0].precision, np.eye(2), atol=0.25)


def test_what_a_path_shows_to_be_burn_in_is_left_out():
    """A path whose first tenth is on its way is as good as one that starts at the mode."""
    random, steps = np.random.default_rng(7), 400
    schedule = pmc.Schedule(
        adjacency="replace_one", num_rows=9, dim=1, step_size=0.5, num_steps=steps, clip=1.0,
        preconditioner=((1.0,),),
    )  # fmt: skip
    states = [np.array([60.0])]
    for _ in range(steps):
        # The score saturates, as a clipped one does: no straight line from the start leads to the mode.
        score = 5 * np.tanh(states[-1] / 5)
        states.append(states[-1] - 0.5 * score + random.standard_normal(1))
    given = np.array(states), schedule, 1.0, np.zeros((len(states), 1))
    settled, every = settled_average(*given, np.eye(1)).root(np.eye(1)), score_average(*given).root(np.eye(1))
    assert abs(float(settled[0])) < 0.4 < abs(float(every[0]))


def test_a_second_round_sees_directions_that_the_first_one_loses():
    """Small eigenvalues a hundred times below the first round's noise: errors of the log determinant."""
    n, gdp, prior = 50_000, 0.05, np.eye(4)
    X = np.random.default_rng(2).normal(size=(n, 4)) * np.array([0.4, 0.02, 0.01, 0.005])
    exact = np.linalg.slogdet(X.T @ X + prior)[1]
    plain = plan_second_moments(gdp, radius=1.0, dim=4, num_rows=n, adjacency="replace_one").release(X)
    first = estimate_of(plain, np.eye(4), spectral_norm(plain.noise_sd, 4))
    root = root_of(first.matrix + prior)
    second = estimate_of(query(gdp, dim=4, num_rows=n, adjacency="replace_one").release(X @ root), root)
    one, two = (abs(np.linalg.slogdet(e.matrix + prior)[1] - exact) for e in (first, second))
    assert two < 0.6 * one


@pytest.mark.long
@pytest.mark.parametrize("eta", [-4.0, -0.5, 0.0, 2.0])
def test_weighted_slopes_are_bounded_and_unbiased_under_the_model(eta):
    loss = policy().influence.weighted.predictor.loss
    for cap in (0.05, 0.3, 0.8, 3.0):
        with jax.enable_x64(True):
            row = {"X": jnp.zeros(3), "_slope_cap": jnp.asarray(cap)}
            slopes = [float(jax.grad(loss)(jnp.asarray(eta), {**row, "y": jnp.asarray(y)})) for y in (0, 1)]
        success = 1 / (1 + math.exp(-eta))
        assert max(map(abs, slopes)) <= cap * (1 + 1e-12)
        assert (1 - success) * slopes[0] + success * slopes[1] == pytest.approx(0, abs=1e-12)
        if cap >= 1:
            assert slopes == pytest.approx([success, success - 1])


@pytest.mark.slow
@pytest.mark.parametrize(("intercept", "warm_ups"), [(0.0, 1), (-9.0, 2)])
def test_another_warm_up_follows_where_the_first_was_slow(intercept, warm_ups):
    """Of outcomes one in two the first metric has the right curvature, of rare ones many times too much."""
    n, random = 20_000, np.random.default_rng(3)
    rich = replace(policy(), num_rows=n, budget=1.0)
    X = np.column_stack([np.ones(n), random.uniform(-1, 1, (n, 2))]) / np.sqrt(3)
    y = (random.random(n) < 1 / (1 + np.exp(-X @ np.array([intercept, 1.0, -1.0])))).astype(int)
    history = simulate(rich, {"X": X, "y": y}, np.ones(n), 0)
    assert [completed.stage.name for completed in history].count("warm-up") == warm_ups


@pytest.mark.long
def test_a_clip_costs_what_its_weights_cost_an_efficient_estimate():
    """Least squares with weights ``ω`` has variance ``Σω²x²/(Σωx²)²``, and without them ``1/Σx²``."""
    cells = np.repeat([6, 13], [900, 200])
    # Rows in the middle of their cells.
    x = 0.25 * 64 ** ((cells - 0.5) / 18)
    mechanism = counts_of_influence(1e4, 10_000, "replace_one")
    influence = InfluenceCounts(
        mechanism.release((Contribution(cells),), np.ones(len(cells)))[0], len(cells), 0.0
    )
    assert int(cell_of(jnp.asarray(x))[-1]) == 13
    for clip in (0.3, 1.0, 2.0, 9.0):
        weights = np.minimum(1, clip / x)
        kept = np.sum(weights * x**2) / np.sum(x**2)
        excess = np.sum(weights**2 * x**2) * np.sum(x**2) / np.sum(weights * x**2) ** 2 - 1
        assert influence.curvature_share(clip) == pytest.approx(kept, rel=0.01)
        misfit = 2 + len(x) / 50_000
        assert influence.bias(clip) == pytest.approx(math.sqrt(excess * misfit), rel=0.01, abs=1e-6)


@pytest.mark.long
def test_more_budget_than_steps_can_use_leaves_the_run_stable():
    rich = replace(policy(), num_rows=200_000, budget=20.0)
    table = synthetic_table(rich, 0)
    draws, (mode, covariance) = rich.conclude(simulate(rich, *table, 0)).draws, posterior_mode(rich, *table)
    error = (draws.mean(axis=0) - mode) / np.sqrt(np.diag(covariance))
    assert np.sqrt(np.mean(error**2)) < 0.3


@pytest.mark.slow
def test_a_posterior_without_information_is_the_prior():
    """Its mean too: a prior that is not centred at zero is simulated as the run samples it."""

    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(3.0, 0.5).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    chosen = affine_policy(read(model, ROWS, n=2), 2, "replace_one", 0.2)
    rows = {"X": jnp.zeros((2, 3)), "y": jnp.asarray([0, 1])}
    mode, covariance = posterior_mode(chosen, rows, np.ones(2))
    np.testing.assert_allclose(mode, 3.0, rtol=1e-9)
    np.testing.assert_allclose(covariance, np.eye(3) / 4, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_noise_that_hides_counts_is_not_read_as_rows_without_influence():
    """Of two hundred people a run that weights rows by the worst declared outcome errs far more."""

    def marks(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ w, 0.08), obs=y)

    reading = read(marks, pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Box(0.0, 1.0)), n=200)
    few = affine_policy(reading, 200, "replace_one", 0.65)
    history = simulate(few, *synthetic_table(few, 0), 0)
    counts = few.influence_on(history, "clip")
    assert counts.counts.noise_sd == 0 and counts.counts.values.sum() == pytest.approx(200)
    assert few.influence_on(history, "weights").mean_square > 3 * counts.mean_square
    assert named(history, RUN)[0].stage.reading is None


def test_a_plan_keeps_its_own_copy_of_public_arguments():
    """What is written into the caller's array later is neither run nor stated."""

    def model(X, scale, y=None):
        w = numpyro.sample("w", dist.Normal(0, scale).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    scale = np.full(3, 2.0)
    made = pmc.plan(model, ROWS, pmc.Target(3.0, 1e-6), n=5000, guarantee="run", model_args={"scale": scale})
    scale[:] = 50.0
    assert list(made.model_args["scale"]) == [2.0, 2.0, 2.0]
