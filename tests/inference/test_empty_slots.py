"""Where the adjacency hides how many slots are empty, synthetic people are as many as was released.

With a person in every slot a level of 41 people would be taken for one of hundreds, whose mean is known.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.posterior.covariates import Released, fitted
from private_mcmc.inference.posterior.given_releases import posterior_given
from private_mcmc.inference.posterior.sample import Chains
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, MomentsStage, PathStage
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.influence import CELLS
from private_mcmc.release import Counts, SecondMoments, plan_second_moments
from private_mcmc.schedule import Schedule

SLOTS, LEVELS = 60_000, np.array([20_000, 16_959, 41])


def incomes(level, x, y=None):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([4]).to_event(1))
    with numpyro.plate("rows", level.shape[0]):
        numpyro.sample("y", dist.Normal(b[level] + b[3] * x, 1.0), obs=y)


def design(root, row):
    parts = [1.0 * (row["level"] == level) for level in range(len(LEVELS))]
    return jnp.stack([*parts, row["x"]]) @ root


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_synthetic_people_are_as_many_as_was_released(adjacency):
    """All, and those of a rare level, within four of the sds that are said, which are small."""
    people = int(LEVELS.sum())
    slots = people if adjacency == "replace_one" else SLOTS
    rows = pmc.Rows(level=pmc.Categories(3), x=pmc.Box(0.0, 1.0), y=pmc.Box(-9.0, 9.0))
    made = {"level": np.repeat(np.arange(3), LEVELS), "x": np.random.default_rng(0).beta(2, 3, people)}
    vectors = np.column_stack([made["level"][:, None] == np.arange(3), made["x"]])
    exact = vectors.T @ vectors
    # In the metric that rounds of moments arrive at every direction is as long.
    root = np.linalg.inv(np.linalg.cholesky(exact)).T
    mechanism = plan_second_moments(1.0, radius=9.0, dim=4, num_rows=slots, adjacency=adjacency)
    random = np.random.default_rng(1).standard_normal((4, 4))
    below = np.tril(random, -1) / np.sqrt(2)
    noised = np.eye(4) + 0.03 * (below + below.T + np.diag(np.diag(random)))
    released = SecondMoments(noised, 0.03, mechanism.statement)
    with jax.enable_x64(True):
        one = Released(MomentsStage("designs", mechanism, partial(design, jnp.asarray(root))), released)
        found = fitted(read(incomes, rows, n=slots), [one], slots, np.zeros(4), adjacency)
    rare = found.weights * (np.asarray(found.rows["level"]) == 2)
    for weights, truth, share in ((found.weights, people, 0.1), (rare, 41, 0.5)):
        sd = np.linalg.norm(found.deviations.T @ weights)
        assert abs(weights.sum() - truth) < max(4 * sd, 1e-6 * truth)
        assert sd < share * truth


def mean_of_people(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.5, 1.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 2.0), obs=y)


@pytest.mark.long
def test_a_posterior_is_as_wide_as_people_are_few():
    """A quarter of the slots are full: the sd that everybody would leave is half of theirs."""
    slots, people, time, steps = 1600, 400, 80.0, 160
    metric, step = 1 / (1 + people / 4), time / steps
    random, states = np.random.default_rng(0), [0.3]
    for _ in range(steps):
        slope = states[-1] - 0.5 + people / 4 * (states[-1] - 0.3)
        states.append(states[-1] - step * metric * slope + np.sqrt(2 * step * metric) * random.normal())
    schedule = Schedule(
        adjacency="zero_out", num_rows=slots, dim=1, step_size=step, num_steps=steps, clip=100.0,
        preconditioner=((metric,),), release="path",
    )  # fmt: skip
    mechanism = plan_second_moments(1.0, radius=1.0, dim=1, num_rows=slots, adjacency="zero_out")
    curvature = MomentsStage("curvature", mechanism, lambda row: 0.5 + 0.0 * row["y"][None])
    history = (
        CompletedStage(curvature, SecondMoments(np.array([[people / 4]]), 1.0, mechanism.statement)),
        CompletedStage(PathStage("run", schedule, np.array(states[:1])), np.array(states[1:])[:, None]),
    )
    reading = read(mean_of_people, pmc.Rows(y=pmc.Box(-12.0, 12.0)), n=slots)
    found = posterior_given(reading, [history], slots, jax.random.key(0), Chains(2, 100, 500)).draws
    own = 4 / people * (1 + 2 / time)
    assert found.std() == pytest.approx((1 + 1 / own) ** -0.5, rel=0.15)


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_counts_of_people_are_not_hidden_by_empty_slots(adjacency):
    """A third of the slots are full: noise hides nobody, and synthetic people in their place are as many."""
    slots, people = 6000, 2000
    reading = read(mean_of_people, pmc.Rows(y=pmc.Box(-12.0, 12.0)), n=slots)
    policy, cells = affine_policy(reading, slots, adjacency, 1.0), np.zeros(CELLS)
    cells[10:15] = people / 5

    def read_off(noise_sd):
        with jax.enable_x64(True):
            root = np.array([[2 / people**0.5]])
            stages = [policy._count(np.array([0.5]), root, bound) for bound in policy.influence.bounds]
            counts = Counts(cells, noise_sd, stages[0].statement)
            return policy.influence_on(tuple(CompletedStage(stage, counts) for stage in stages), "clip")

    if adjacency == "replace_one":
        assert read_off(5.0).counts.noise_sd == 0
        return
    assert read_off(5.0).counts.noise_sd > 0
    # With so much noise it does, and then at most two of its sds more people are assumed than were counted.
    hides = read_off(200.0)
    assert hides.counts.noise_sd == 0
    assert hides.counts.values.sum() == pytest.approx(people + 2 * 200 * CELLS**0.5, rel=0.01)
