"""Rows that depend on one another are refused, however many of them are switched off."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from private_mcmc.domains import Binary, Box, Rows
from private_mcmc.errors import DoThisInstead
from private_mcmc.model import read


@pytest.mark.parametrize("weights", [1, 3])
def test_masks_and_weights_do_not_hide_that_rows_are_coupled(weights):
    flags = {f"seen{index}": Binary() for index in range(weights)}

    def model(x, y, **seen):
        b = numpyro.sample("b", dist.Normal(0, 1))
        shown = jnp.prod(jnp.stack(list(seen.values())), axis=0)
        with numpyro.plate("rows", x.shape[0]), handlers.mask(mask=shown == 1):
            numpyro.sample("y", dist.Normal(b * jax.nn.softmax(x), 1.0), obs=y)

    with pytest.raises(DoThisInstead, match="differs from that of the whole model"):
        read(model, Rows(x=Box(-1, 1), y=Box(-1, 1), **flags), n=4)


@pytest.mark.slow
def test_a_latent_repeated_for_every_row_leaves_its_prior_free_of_their_number():
    def model(y):
        means = jnp.array([-1.0, 1.0])
        halves = dist.Categorical(probs=jnp.array([0.5, 0.5]))
        t = numpyro.sample("t", dist.MixtureSameFamily(halves, dist.Normal(means, 1.0)))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.broadcast_to(t, y.shape), 1.0), obs=y)

    assert read(model, Rows(y=Box(-1, 1)), n=5).names == ("t",)


def test_what_a_few_rows_refuse_is_never_run_on_all_of_them():
    """The covariance of all rows of a Gaussian process would not fit into memory."""
    counts = []

    def process(x, y):
        counts.append(x.shape[0])
        scale = numpyro.sample("scale", dist.LogNormal(0, 1))
        near = jnp.exp(-((x[:, None] - x[None, :]) ** 2) / scale) + jnp.eye(x.shape[0])
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), near), obs=y)

    with pytest.raises(DoThisInstead, match="differs from that of the whole model"):
        read(process, Rows(x=Box(0, 1), y=Box(-1, 1)), n=1_000_000)
    assert max(counts) < 100
