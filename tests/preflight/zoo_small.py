"""A few small models for the tests of preflight."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Counts, Real, Rows
from tests.examples_of_models import observed


def linear(x, y=None):
    b = numpyro.sample("b", dist.Normal(0, 1))
    observed(x, dist.Normal(b * x, 1.0), y)


def poisson(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    observed(x, dist.Poisson(jnp.exp(a + b * x)), y)


LOGISTIC_ROWS = Rows(X=Ball(1.0, dim=3), y=Binary())
ADULT_ROWS = Rows(X=Ball(1.0, dim=9), y=Binary())
UNBOUNDED_ROWS = Rows(X=Real(dim=9), y=Binary())
LINEAR_ROWS = Rows(x=Box(-1, 1), y=Box(-1, 1))
POISSON_ROWS = Rows(x=Box(-1, 1), y=Counts(10))
