"""What is proved of a prior is proved of what runs."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.model import read


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_a_log_normal_whose_scale_was_changed_has_the_curvature_that_is_claimed(scale):
    def model(y):
        prior = dist.LogNormal(0.0, 1.0)
        prior.scale = scale
        s = numpyro.sample("s", prior)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.log(s)), obs=y)

    reading = read(model, pmc.Rows(y=pmc.Binary()), n=10)
    with jax.enable_x64(True):
        own = float(jax.hessian(reading.neg_log_prior)(jnp.zeros(1))[0, 0])
    assert reading.prior.lower[0] <= own * (1 + 1e-9) and own <= reading.prior.upper[0] * (1 + 1e-9)
