"""The stages of a policy: within its budget whatever is released, and sound in its parts.

Outcomes with long tails under a Normal law with an unknown sd: what the clip takes is given back.
"""

import functools
import math

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
from private_mcmc.accounting import gdp
from private_mcmc.inference.posterior import Chains, posterior_of
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, QueryStage
from private_mcmc.planning.estimates import Steps
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import RUN, Policy
from private_mcmc.planning.influence import (
    CELLS,
    MIDDLES,
    REACH,
    Reach,
    cell_of,
    reach_of,
    weighted_slopes,
)
from private_mcmc.planning.outcomes import likelihood_of
from private_mcmc.planning.policy import without_prediction
from private_mcmc.planning.simulate import simulate
from private_mcmc.planning.stages import named
from private_mcmc.release import Contribution, Family, SecondMoments, Sums, plan_sums
from tests.examples_of_models import logistic, observed
from tests.planning.exact import posterior_mode
from tests.schedules import schedule

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())


@functools.cache
def reading():
    return read(logistic, ROWS, n=5000)


def synthetic(stage, random, scale):
    """A release that the mechanism could have made, likely or not."""
    if isinstance(stage, QueryStage) and stage.name != REACH:
        half = random.normal(size=(3, 3)) * scale
        return SecondMoments(half + half.T, stage.mechanism.noise.sd, stage.statement)
    if isinstance(stage, QueryStage):
        return Sums(random.normal(size=(1, CELLS)) * scale, stage.mechanism.noise.sd)
    return np.cumsum(random.normal(size=(stage.schedule.num_steps, 3)), axis=0) * scale


@pytest.mark.long
@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.0, 1e-8, 1e-3, 1.0, 1e3, 1e8]),
    adjacency=st.sampled_from(["replace_one", "add_remove", "zero_out"]),
    budget=st.floats(0.01, 3.0),
)
def test_no_history_costs_more_than_the_budget(seed, scale, adjacency, budget):
    chosen = Policy(facts_of(reading(), 5000, adjacency, budget))
    random, history = np.random.default_rng(seed), ()
    while (stage := chosen.next(history)) is not None:
        history = (*history, CompletedStage(stage, synthetic(stage, random, scale)))
        assert len(history) < 30
    parts = tuple(completed.stage.statement for completed in history)
    assert accounting.adaptive(budget, adjacency, parts).gdp == budget
    assert math.fsum(part.gdp**2 for part in parts) >= 0.98 * budget**2
    assert all(part.verify() for part in parts[-1:])
    assert np.all(np.isfinite(chosen.conclude(history).draws))


def root(steps, curvature):
    """Newton's step to where the score vanishes, without a prior."""
    return steps.centre - np.linalg.solve(curvature, steps.score)


@pytest.mark.parametrize("weight", [0.05, 1.0, 7.0])
def test_the_mean_score_of_a_path_tells_the_mode_of_a_quadratic_whatever_the_start_and_the_prior(weight):
    """Steps without noise; the prior is as strong as the rows and centred elsewhere."""
    random = np.random.default_rng(0)
    half, other = random.normal(size=(2, 4, 4))
    curvature, precision = half @ half.T + np.eye(4), other @ other.T + np.eye(4)
    mode, centre, theta = random.normal(size=4), random.normal(size=4), np.full(4, 50.0)
    metric = np.linalg.inv(weight * curvature + precision)
    rows = tuple(map(tuple, ((metric + metric.T) / 2).tolist()))
    run = schedule(dim=4, step_size=0.3, num_steps=7, temper=weight, preconditioner=rows)
    states = [theta]
    for _ in range(run.num_steps):
        score = precision @ (theta - centre) + weight * curvature @ (theta - mode)
        theta = theta - run.step_size * metric @ score
        states.append(theta)
    at = np.array(states)
    steps = Steps.of(run, at, (at - centre) @ precision)
    np.testing.assert_allclose(root(steps, curvature), mode, atol=1e-9)
    assert np.abs(steps.centre - mode).max() > 3


def test_the_mean_score_of_a_path_has_the_noise_that_it_says():
    """400 paths of pure noise: their information is that of one Newton step of the same price."""
    random, metric, weight = np.random.default_rng(5), np.diag([0.5, 2.0]), 0.25
    run = schedule(step_size=0.2, num_steps=10, temper=weight, preconditioner=tuple(np.diag(metric).tolist()))
    scores = []
    for _ in range(400):
        moves = np.sqrt(2 * 0.2) * random.normal(size=(10, 2)) @ np.sqrt(metric)
        states = np.vstack([np.zeros(2), np.cumsum(moves, axis=0)])
        scores.append(Steps.of(run, states, np.zeros_like(states)))
    covariance = np.cov(np.array([each.score for each in scores]).T)
    np.testing.assert_allclose(covariance @ scores[0].precision, np.eye(2), atol=0.25)


def test_what_a_path_shows_to_be_burn_in_is_left_out():
    """A path whose first tenth is on its way is as good as one that starts at the mode."""
    random, steps = np.random.default_rng(7), 400
    run = schedule(dim=1, step_size=0.5, num_steps=steps)
    states = [np.array([60.0])]
    for _ in range(steps):
        # The score saturates, as a clipped one does: no straight line from the start leads to the mode.
        score = 5 * np.tanh(states[-1] / 5)
        states.append(states[-1] - 0.5 * score + random.standard_normal(1))
    steps = Steps.of(run, np.array(states), np.zeros((len(states), 1)))
    settled, every = root(steps.settled(np.eye(1)), np.eye(1)), root(steps, np.eye(1))
    assert abs(float(settled[0])) < 0.4 < abs(float(every[0]))


@pytest.mark.parametrize("eta", [-4.0, -0.5, 0.0, 2.0])
def test_weighted_slopes_are_bounded_and_unbiased_under_the_model(eta):
    loss = weighted_slopes(likelihood_of(reading(), 1.0))[0].predictor.loss
    for cap in (0.05, 0.3, 0.8, 3.0):
        with jax.enable_x64(True):
            row = {"X": jnp.zeros(3), "_slope_cap": jnp.asarray(cap)}
            slopes = [float(jax.grad(loss)(jnp.asarray(eta), {**row, "y": jnp.asarray(y)})) for y in (0, 1)]
        success = 1 / (1 + math.exp(-eta))
        assert max(map(abs, slopes)) <= cap * (1 + 1e-12)
        assert (1 - success) * slopes[0] + success * slopes[1] == pytest.approx(0, abs=1e-12)
        if cap >= 1:
            assert slopes == pytest.approx([success, success - 1])


def test_weights_cost_what_they_cost_an_efficient_estimate():
    """Least squares with weights ``ω`` has variance ``Σω²x²/(Σωx²)²``, and without them ``1/Σx²``."""
    cells = np.repeat([6, 13], [900, 200])
    # Rows in the middle of their cells.
    x = 0.25 * 64 ** ((cells - 0.5) / 18)
    mechanism = plan_sums(1e4, (Family("", CELLS),), num_rows=10_000, adjacency="replace_one")
    noised = mechanism.noised(mechanism.sums((Contribution(cells),), np.ones(len(cells))))
    influence = Reach(mechanism.released(noised)[0], len(cells))
    assert int(cell_of(jnp.asarray(x))[-1]) == 13
    for clip in (0.3, 1.0, 2.0, 9.0):
        weights = np.minimum(1, clip / x)
        kept = np.sum(weights * x**2) / np.sum(x**2)
        excess = np.sum(weights**2 * x**2) * np.sum(x**2) / np.sum(weights * x**2) ** 2 - 1
        assert influence.curvature_share(clip) == pytest.approx(kept, rel=0.01)
        misfit = 2 + len(x) / 50_000
        assert influence.bias(clip) == pytest.approx(math.sqrt(excess * misfit), rel=0.01, abs=1e-6)


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_counts_of_people_are_not_hidden_by_empty_slots(adjacency):
    """A third of the slots are full: noise hides nobody but where all slots count as people."""
    slots, people, cells = 6000, 2000, np.zeros(CELLS)
    cells[10:15] = people / 5

    def hidden(noise_sd):
        return Reach(Sums(cells[None], noise_sd), slots, adjacency).hidden

    assert hidden(200.0)
    assert hidden(5.0) == (adjacency == "replace_one")


def fewest(x, cost, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    eta = jnp.stack([jnp.ones_like(x), x, cost], axis=1) @ w
    observed(x, dist.NegativeBinomial2(jnp.exp(eta), 0.5), y)


def overdispersed(x, cost, y=None):
    w = numpyro.sample("w", dist.Normal(0, 10).expand([3]).to_event(1))
    observed(x, dist.Poisson(jnp.exp(jnp.stack([jnp.ones_like(x), x, cost], 1) @ w)), y)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "epsilon", "n", "most"), [(fewest, 0.3, 660, 100), (overdispersed, 3.0, 20_000, 20)]
)
def test_intervals_of_counts_hold_and_are_no_narrower_than_without_privacy(model, epsilon, n, most):
    """Far below the largest that was declared, at a budget that hides them; or more varied than the model."""
    random = np.random.default_rng(3)
    x, cost = random.uniform(-1, 1, (2, n))
    means = np.exp(1.0 + 0.3 * x - 0.2 * cost)
    y = np.minimum(random.poisson(means * random.gamma(0.8, 1 / 0.8, size=n)), most)
    rows = pmc.Rows(x=pmc.Box(-1.0, 1.0), cost=pmc.Box(-1.0, 1.0), y=pmc.Counts(most))
    made = read(model, rows, n=n)
    policy = Policy(facts_of(made, n, "replace_one", accounting.gdp.budget(epsilon, 1e-6)))
    columns = {"x": jnp.asarray(x), "cost": jnp.asarray(cost), "y": jnp.asarray(y)}
    mode, covariance = posterior_mode(policy.facts.reading, columns, np.ones(n))
    history = simulate(policy, columns, np.ones(n), 0)
    given = posterior_of(policy.facts.reading, history, policy.conclude(history), None, Chains(2, 200, 300))
    draws = given.draws.reshape(-1, 3)
    assert np.all(np.abs(draws.mean(axis=0) - mode) < 3 * draws.std(axis=0))
    assert np.all(draws.std(axis=0) > 0.95 * np.sqrt(np.diag(covariance)))


def test_a_plan_keeps_its_own_copy_of_public_arguments():
    """What is written into the caller's array later is neither run nor stated."""

    def model(X, scale, y=None):
        w = numpyro.sample("w", dist.Normal(0, scale).to_event(1))
        observed(X, dist.Bernoulli(logits=X @ w), y)

    scale = np.full(3, 2.0)
    made = without_prediction(model, ROWS, pmc.Target(3.0, 1e-6), 5000, "run", {"scale": scale})
    scale[:] = 50.0
    assert list(made.model_args["scale"]) == [2.0, 2.0, 2.0]


N = 6000


def incomes(X, y):
    w = numpyro.sample("w", dist.Normal(0, 0.3).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    observed(X, dist.Normal(X @ w, sigma), y)


@functools.cache
def policy_of_incomes():
    """Of one reading, so that both tables share its programs."""
    reading = read(incomes, pmc.Rows(X=pmc.Ball(2**0.5, dim=2), y=pmc.Box(-1.0, 1.0)), n=N)
    return Policy(facts_of(reading, N, "replace_one", gdp.budget(3.0, 1e-6)))


@functools.cache
def released(tailed):
    """The mode without privacy, ``(w, log sigma)``, and what a simulated plan releases at ε = 3."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.ones(N), random.uniform(-1, 1, N)])
    noise = random.standard_t(3, N) if tailed else random.standard_normal(N)
    y = np.clip(X @ np.array([0.1, 0.05]) + 0.03 * noise, -1, 1)
    policy, columns = policy_of_incomes(), {"X": jnp.asarray(X), "y": jnp.asarray(y)}
    history = simulate(policy, columns, np.ones(N), 1)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    return policy, history, np.append(w, np.log(np.std(y - X @ w)))


@pytest.mark.long
@pytest.mark.parametrize("tailed", [True, False])
def test_intervals_hold_the_sd_of_outcomes_whatever_their_tails(tailed):
    """With the clip that outcomes of the model want, and nothing given back, it was 20 sds off."""
    policy, history, mode = released(tailed)
    found = posterior_of(policy.facts.reading, history, policy.conclude(history), None, Chains(2, 200, 300))
    draws = found.draws.reshape(-1, 3)
    assert np.all(np.abs(draws.mean(axis=0) - mode) < 3 * draws.std(axis=0))
    assert np.all(draws.std(axis=0)[:2] > 0.95 * np.exp(mode[2]) / np.sqrt(N) * np.array([1.0, 1.7]))
    assert draws[:, 2].std() > 0.95 / np.sqrt(2 * N)


@pytest.mark.long
def test_the_clip_follows_the_tail_that_was_counted():
    clips, shares = [], []
    for tailed in (False, True):
        policy, history, _ = released(tailed)
        (run,) = named(history, RUN)
        reach = reach_of(policy.facts, named(history, REACH)[0])
        clips.append(policy._clip(history, run.path))
        shares.append(float(reach.tail @ np.maximum(MIDDLES - 3.2, 0)))
    assert clips[1] > 1.3 * clips[0] and shares[1] > 2 * shares[0]
