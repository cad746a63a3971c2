"""Released counts of slopes tell how much more people vary than the model says."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.posterior.covariates import Fitted
from private_mcmc.inference.posterior.people import dispersion, with_outcomes
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, of_rows
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.influence import CELLS
from private_mcmc.release import Counts

N, THETA = 20_000, np.array([1.0, 0.5])


def visits(x, y=None):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(b[0] + b[1] * x)), obs=y)


def told(times, noise_sd, n=N):
    """The dispersion that is read off people whose counts have ``times`` the variance of the model's."""
    known = read(visits, pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Counts(60)), n=n)
    random = np.random.default_rng(0)
    x = random.beta(2, 3, size=n)
    mean = np.exp(THETA[0] + THETA[1] * x)
    y = random.poisson(mean) if times == 1 else random.negative_binomial(mean / (times - 1), 1 / times)
    with jax.enable_x64(True):
        policy = affine_policy(known, n, "replace_one", 1.0)
        hessian = np.einsum("n,ni,nj->ij", mean, *2 * [np.stack([np.ones(n), x], axis=1)])
        root = np.linalg.inv(np.linalg.cholesky(hessian)).T
        stage = policy._count(THETA, root, "clip")
        cells = np.asarray(of_rows(stage.cell, {"x": jnp.asarray(x), "y": jnp.asarray(np.minimum(y, 60))}))
        counted = np.bincount(cells, minlength=CELLS) + noise_sd * random.standard_normal(CELLS)
        done = CompletedStage(stage, Counts(counted, noise_sd, stage.statement))
        points = (np.arange(64) + 0.5) / 64
        shares = points * (1 - points) ** 2
        rows = {"x": jnp.asarray(points), "y": jnp.zeros(64, int)}
        nothing = np.zeros((64, 0))
        people = with_outcomes(known, Fitted(rows, n * shares / shares.sum(), nothing, nothing), THETA)
        return dispersion(known, [(done,)], people, THETA, n)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 5])
def test_the_dispersion_of_counts_is_read_off_within_a_fifth(times):
    """20,000 people and noise of 22 rows in every cell; seeds are fixed."""
    assert told(times, 22.0) == pytest.approx(times, rel=0.2)


@pytest.mark.slow
def test_counts_that_noise_hides_say_nothing():
    assert told(5, 22.0, n=100) == 1.0
