"""Models that leak or cannot be read row by row: refused by name, with what to write instead."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from private_mcmc.domains import Ball, Binary, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Entry

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())
TARGET = Target(3.0, 1e-6)


def centred_column(X: Any, y: Any = None) -> None:
    """Centres the features by their mean: every row's term depends on all rows."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=(X - X.mean(0)) @ w), obs=y)


def outside_the_plate(X: Any, y: Any = None) -> None:
    """Observes the number of successes outside the plate."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)
    numpyro.sample("total", dist.Normal(w[0], 1.0), obs=jnp.sum(X))


def prior_from_data(X: Any, y: Any = None) -> None:
    """Scales the prior by the features' spread (empirical Bayes)."""
    w = numpyro.sample("w", dist.Normal(0, 0.1 + X.std()).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def factor(X: Any, y: Any = None) -> None:
    """Adds a term of its own to the log density."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    numpyro.factor("penalty", -jnp.sum((X @ w) ** 2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def latent_per_row(X: Any, y: Any = None) -> None:
    """Gives every row two effects of its own, as one vector."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        e = numpyro.sample("e", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + e.sum(-1)), obs=y)


def fixed_plate(X: Any, y: Any = None) -> None:
    """A plate whose size is written down: a row's term is counted as often as it says."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", 100):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def weights_from_all(X: Any, y: Any = None) -> None:
    """Weights each row by its share of the largest feature among all rows."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    share = jnp.abs(X[:, 0]) / (1e-3 + jnp.max(jnp.abs(X[:, 0])))
    with numpyro.plate("rows", X.shape[0]), handlers.scale(scale=share):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def branches_on_data(X: Any, y: Any = None) -> None:
    """Looks at its rows in Python."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    sign = 1.0 if float(X.sum()) > 0 else -1.0
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=sign * (X @ w)), obs=y)


def discrete_latent(X: Any, y: Any = None) -> None:
    """A discrete latent that is not summed out."""
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + z), obs=y)


def prior_from_count(X: Any, y: Any = None) -> None:
    """Scales the prior by the number of rows."""
    w = numpyro.sample("w", dist.Normal(0, X.shape[0] ** -0.5).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def _refused(model: Any, why: str, words: str) -> Entry:
    return Entry(model.__name__, model, ROWS, 100, TARGET, "refused", why, words)


ENTRIES = (
    _refused(centred_column, "rows are mixed", "mixes rows of column X"),
    _refused(outside_the_plate, "an observed site outside the plate depends on all rows", "'total'"),
    _refused(prior_from_data, "the prior depends on the rows", "prior of site 'w' depends on the rows"),
    _refused(factor, "a factor can hold any function of all rows", "numpyro.factor"),
    _refused(latent_per_row, "each row would have parameters of its own", "site 'e'"),
    _refused(fixed_plate, "the sum of single rows is not the model", "'rows'"),
    _refused(weights_from_all, "a row's weight depends on all rows", "mixes rows of column X"),
    _refused(branches_on_data, "the program depends on the values of rows", "in Python"),
    _refused(discrete_latent, "a discrete latent has no density on the line", "discrete latent"),
    _refused(prior_from_count, "the prior depends on the number of rows", "number of rows"),
)
