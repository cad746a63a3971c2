"""Counts far below the largest that was declared, and a budget that leaves their curvature in the noise."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import gdp
from private_mcmc.model import read
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.simulate import simulate, synthetic_table
from tests.planning.exact import posterior_mode

N, SHAPE, MOST = 660, 0.5, 100


def trips(x, cost, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        eta = jnp.stack([jnp.ones_like(x), x, cost], axis=1) @ w
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), SHAPE), obs=y)


@functools.cache
def policy(epsilon):
    rows = pmc.Rows(x=pmc.Box(-1.0, 1.0), cost=pmc.Box(-1.0, 1.0), y=pmc.Counts(MOST))
    return affine_policy(read(trips, rows, n=N), N, "replace_one", gdp.budget(epsilon, 1e-5))


def test_the_first_curvature_is_that_of_counts_as_the_model_has_them():
    """``E[ψ''] = kμ/(k + μ) < k``; of the largest count that was declared it is (k + 100)/4."""
    assert policy(1.0).predictor.family.curvature_bound > 25
    assert 0.8 * SHAPE < policy(1.0).curvature_bound <= SHAPE * (1 + 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_draws_of_a_path_are_narrower_than_without_privacy(seed):
    """They were a tenth as wide: a released curvature that was noise counted as information."""
    asked = policy(0.3)
    table = synthetic_table(asked, seed)
    draws = asked.conclude(simulate(asked, *table, seed)).draws
    assert np.all(draws.std(axis=0) > np.sqrt(np.diag(posterior_mode(asked, *table)[1])))
