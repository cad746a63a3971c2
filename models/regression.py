"""Regressions: binary, real and count outcomes on a vector of covariates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Counts, Rows


def logistic_rows(dim: int, radius: float = 1.0) -> Rows:
    """``dim`` covariates (the constant 1 among them) of norm at most ``radius``, and a binary outcome."""
    return Rows(X=Ball(radius, dim=dim), y=Binary())


def logistic(X: jax.Array, y: jax.Array | None = None, sd: float = 2.0) -> None:
    """Logistic regression: ``P(y_i = 1) = 1/(1 + e^{−x_i·w})``, ``w ~ N(0, sd²I)``.

    One row's gradient is at most ``radius`` and the potential is strongly convex, so its posterior is
    ``2·radius·sd``-GDP without any clip, for every number of rows.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def linear_rows(dim: int, radius: float = 1.0, largest: float = 3.0) -> Rows:
    """Covariates as for :func:`logistic_rows`, and an outcome scaled to lie within ``±largest``."""
    return Rows(X=Ball(radius, dim=dim), y=Box(-largest, largest))


def linear(X: jax.Array, y: jax.Array | None = None, sd: float = 1.0, scale: float = 1.0) -> None:
    """Linear regression with errors of known ``scale``: ``y_i ~ N(x_i·w, scale²)``, ``w ~ N(0, sd²I)``.

    The gradient of a row grows with its error, so a clip is needed; it leaves a Huberised loss.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, scale), obs=y)


def robust(X: jax.Array, y: jax.Array | None = None, sd: float = 1.0, df: float = 4.0) -> None:
    """Regression with Student errors, ``y_i ~ t_df(x_i·w, 1)``: outliers count for little.

    One row's gradient is bounded without a clip, but the posterior need not be log-concave.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.StudentT(df, X @ w, 1.0), obs=y)


def counts_rows(dim: int, radius: float = 1.0, largest: int = 50) -> Rows:
    """Covariates as for :func:`logistic_rows`, and a count of at most ``largest``."""
    return Rows(X=Ball(radius, dim=dim), y=Counts(largest))


def poisson(X: jax.Array, y: jax.Array | None = None, sd: float = 1.0) -> None:
    """Poisson regression with log link: ``y_i ~ Poisson(e^{x_i·w})``, ``w ~ N(0, sd²I)``.

    The gradient of a row grows with the rate it is predicted, so a clip is needed.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(X @ w)), obs=y)


def negative_binomial(
    X: jax.Array, y: jax.Array | None = None, sd: float = 1.0, concentration: float = 2.0
) -> None:
    """Counts that vary more than Poisson counts: mean ``e^{x_i·w}``, variance ``mean + mean²/concentration``.

    One row's gradient is bounded by its largest count; a clip below that costs less noise.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(X @ w), concentration), obs=y)
