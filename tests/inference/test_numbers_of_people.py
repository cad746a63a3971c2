"""Covariates that are whole numbers of many values, such as marks, spread as what was released says."""

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

N = 200


def marks(read, y=None):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", read.shape[0]):
        numpyro.sample("y", dist.Normal(b[0] + b[1] * (read - 50.0) / 50.0, 0.16), obs=y)


def design(row):
    return jnp.stack([1.0, (row["read"] - 50.0) / 50.0])


@pytest.mark.long
@pytest.mark.parametrize(("mean", "sd"), [(52.0, 10.0), (20.0, 6.0), (50.0, 30.0)])
def test_a_mark_is_as_spread_as_was_released(mean, sd):
    """Evenly spread from 0 to 100 it would tell nine times as much of its effect as marks around 52 do."""
    rows = pmc.Rows(read=pmc.Counts(100), y=pmc.Box(-1.0, 1.0))
    drawn = np.clip(np.random.default_rng(0).normal(mean, sd, N).round(), 0, 100)
    made = {"read": jnp.asarray(drawn, int), "y": jnp.zeros(N)}
    with jax.enable_x64(True):
        exact = np.asarray(second_moments(design, (), 2.0, made, jnp.ones(N)))
        mechanism = plan_second_moments(1.0, radius=2.0, dim=2, num_rows=N, adjacency="replace_one")
        noise = 0.2
        one = Released(
            MomentsStage("designs", mechanism, design), SecondMoments(exact, noise, mechanism.statement)
        )
        found = fitted(read(marks, rows, n=N), [one], N, np.zeros(2))
        values = np.asarray(found.rows["read"], dtype=float)
    assert np.issubdtype(found.rows["read"].dtype, np.integer)
    centre = found.weights @ values / N
    assert centre == pytest.approx(drawn.mean(), abs=3)
    assert np.sqrt(found.weights @ (values - centre) ** 2 / N) == pytest.approx(drawn.std(), rel=0.15)
