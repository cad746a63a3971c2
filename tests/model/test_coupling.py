"""Rows that depend on one another are refused, however many of them are switched off."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from private_mcmc.domains import Binary, Box, Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model import read
from tests.examples_of_models import observed, outcomes_by


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
        observed(y, dist.Normal(jnp.broadcast_to(t, y.shape), 1.0), y)

    assert read(model, Rows(y=Box(-1, 1)), n=5).names == ("t",)


@pytest.mark.slow
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


def slope(predictor):
    return outcomes_by(lambda: dist.Normal(0, 1), lambda b, x: dist.Bernoulli(logits=predictor(b, x)))


FLAGS = Rows(x=Binary(), y=Binary())


@pytest.mark.parametrize("n", [50, 20_000])
def test_rows_whose_terms_change_with_the_public_number_of_rows_are_refused(n):
    def model(b, x):
        return b * x * (2.0 if len(x) >= n else 1.0)

    assert read(slope(model), FLAGS, n=n - 1).dim == 1
    with pytest.raises(DoThisInstead, match="number of rows"):
        read(slope(model), FLAGS, n=n)


def test_a_loop_without_a_fixed_end_is_refused_in_words():
    def model(b, x):
        return x * jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (1.5 * s[0], s[1] + 1), (b, 0))[0]

    with pytest.raises(NotYetSupported, match="scan"):
        read(slope(model), FLAGS, n=4)


def test_arithmetic_in_types_shorter_than_numpys_proves_nothing():
    found = read(slope(lambda b, x: (b * x).astype(jnp.bfloat16).astype(jnp.float32)), FLAGS, n=4)
    assert found.constants.gradient_bound == jnp.inf and not found.constants.convex
