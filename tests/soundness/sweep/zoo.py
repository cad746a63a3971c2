"""Small models on small domains that the soundness sweep runs: each stresses another part of the library."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Counts, Person, Rows
from tests.examples_of_models import logistic, observed
from tests.examples_of_models import normal_mean as mean


@dataclass(frozen=True)
class ZooModel:
    """A model, its rows, and numbers at which a chain of it moves and clips."""

    model: Callable[..., Any]
    rows: Rows
    site: str
    dim: int
    step_size: float
    clip: float


def poisson(X: Any, y: Any = None) -> None:
    """A Poisson regression: no curvature bound until its rows are clipped."""
    w = numpyro.sample("w", dist.Normal(0, 0.7).expand([X.shape[1]]).to_event(1))
    observed(X, dist.Poisson(jnp.exp(X @ w)), y)


def bent(x: Any, y: Any = None) -> None:
    """A regression through tanh: not convex, rows without an affine predictor."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    observed(x, dist.Normal(jnp.tanh(x * w) * b, 0.5), y)


def intercept(x: Any, who: Any, y: Any = None) -> None:
    """Answers of three persons, each with an intercept of her own that is integrated out."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    spread = numpyro.sample("spread", dist.LogNormal(0, 0.5))
    with numpyro.plate("persons", 3):
        u = numpyro.sample("u", dist.Normal(0, spread))
    observed(x, dist.Bernoulli(logits=3 * (w * x + u[who])), y)


def inflated(x: Any, y: Any = None) -> None:
    """Counts that are zero for one row in three whatever its covariate: a latent of the row, summed out."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        never = numpyro.sample("never", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Poisson(jnp.exp(w * x) * (1 - never) + 1e-9), obs=y)


ZOO = {
    "mean": ZooModel(mean, Rows(y=Box(-5.0, 5.0)), "mu", 1, 0.08, 1.5),
    "logistic": ZooModel(logistic, Rows(X=Ball(1.0, dim=2), y=Binary()), "w", 2, 0.6, 0.5),
    "poisson": ZooModel(poisson, Rows(X=Ball(1.0, dim=2), y=Counts(4)), "w", 2, 0.1, 1.0),
    "bent": ZooModel(bent, Rows(x=Box(-1.0, 1.0), y=Box(-3.0, 3.0)), "b", 2, 0.05, 2.0),
}

# Several rows of one person, all of them replaced, present or absent together.
PERSONS = {
    "poisson of persons": ZooModel(
        poisson, Rows(X=Ball(1.0, dim=2), y=Counts(4), who=Person(2)), "w", 2, 0.1, 1.0
    ),
    "zero inflation of persons": ZooModel(
        inflated, Rows(x=Box(-1.0, 1.0), y=Counts(4), who=Person(2)), "w", 1, 0.1, 1.0
    ),
    "intercepts of persons": ZooModel(
        intercept, Rows(x=Box(-1.0, 1.0), y=Binary(), who=Person(2)), "w", 2, 0.2, 1.0
    ),
}

# Rows that move the chain much further than its own noise does: what only noise on averages can hide.
LOUD = ZooModel(mean, Rows(y=Box(-1e3, 1e3)), "mu", 1, 0.05, 300.0)
