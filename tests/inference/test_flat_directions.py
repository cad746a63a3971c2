"""Where columns may determine others, synthetic people leave it so: no information is made up along them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.posterior.covariates import Released, fitted
from private_mcmc.model import read
from private_mcmc.planning import MomentsStage
from private_mcmc.planning.simulate import second_moments
from private_mcmc.release import SecondMoments, plan_second_moments

N, GROUPS = 4000, 3


def groups(X, group, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    effect = numpyro.sample("effect", dist.Normal(0, 1).expand([GROUPS]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + effect[group]), obs=y)


def design(scale, row):
    return scale * jnp.concatenate([row["X"], jax.nn.one_hot(row["group"], GROUPS)]) / np.sqrt(N)


def people(second, scale):
    """Synthetic people that fit moments of an intercept, a column and groups, with noise of sd 0.05."""
    random, noise, vectors = np.random.default_rng(0), 0.05, partial(design, scale)
    X = np.column_stack([np.ones(N), second(random)]) / np.sqrt(2)
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), group=pmc.Categories(GROUPS), y=pmc.Binary())
    made = {"X": jnp.asarray(X), "group": jnp.asarray(random.choice(GROUPS, N)), "y": jnp.zeros(N, int)}
    with jax.enable_x64(True):
        matrix = np.asarray(second_moments(vectors, (), 2.0 * scale, made, jnp.ones(N)))
        drawn = np.triu(noise * random.standard_normal(matrix.shape) / np.sqrt(2), 1)
        noisy = matrix + drawn + drawn.T + np.diag(noise * random.standard_normal(len(matrix)))
        mechanism = plan_second_moments(
            1.0, radius=2.0 * scale, dim=2 + GROUPS, num_rows=N, adjacency="replace_one"
        )
        stage = MomentsStage("designs", mechanism, vectors)
        one = Released(stage, SecondMoments(noisy, noise, mechanism.statement))
        found = fitted(read(groups, rows, n=N), [one], N, np.zeros(2 + GROUPS))
        return found, one.predicted(found.rows, found.weights), matrix


@pytest.mark.slow
def test_an_intercept_beside_all_groups_is_constant():
    """Rows say nothing of its effect less the groups': noise alone would allow it to vary by a quarter."""
    found, _, exact = people(lambda random: random.beta(2, 4, N), 1.0)
    assert np.linalg.eigvalsh(exact)[0] == pytest.approx(0, abs=1e-9)
    assert np.ptp(np.asarray(found.rows["X"])[:, 0]) < 1e-9


@pytest.mark.slow
def test_columns_that_people_of_the_table_cannot_have_are_fitted_all_the_same():
    """Below zero, where people of the table have nothing: the smooth one is used beside them."""
    _, made, exact = people(lambda random: random.normal(-0.3, 0.1, N), 10.0)
    assert np.abs(made - exact).max() < 0.5
