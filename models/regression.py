"""Regressions: binary, real, count and category outcomes on covariates; curves and a network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows


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


def softmax_rows(dim: int, classes: int, radius: float = 1.0) -> Rows:
    """``dim`` covariates of norm at most ``radius``, and one of ``classes`` categories."""
    return Rows(X=Ball(radius, dim=dim), y=Categories(classes))


def softmax(X: jax.Array, y: jax.Array | None = None, classes: int = 3, sd: float = 1.0) -> None:
    """Multinomial regression: ``P(y_i = k) ∝ e^{x_i·W_k}``, one weight vector a class, ``W ~ N(0, sd²I)``.

    One row's gradient is at most ``√2·radius`` and the potential is strongly convex.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1], classes]).to_event(2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=X @ w), obs=y)


def ordinal_rows(dim: int, classes: int = 3, radius: float = 1.0) -> Rows:
    """As :func:`softmax_rows`; the categories are numbered in their order."""
    return softmax_rows(dim, classes, radius)


def ordinal(X: jax.Array, y: jax.Array | None = None, sd: float = 1.0) -> None:
    """Ordered categories: a latent ``x_i·w`` with logistic error, cut at −1 and 1.

    Cut points are known here, which bounds one row's gradient and keeps the potential convex.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.OrderedLogistic(X @ w, jnp.array([-1.0, 1.0])), obs=y)


def spline_rows() -> Rows:
    """One covariate scaled to [−1, 1], and a binary outcome."""
    return Rows(x=Box(-1.0, 1.0), y=Binary())


def spline(x: jax.Array, y: jax.Array | None = None, functions: int = 6, sd: float = 1.0) -> None:
    """A smooth curve on the log odds: sines of growing frequency, whose weights shrink with it.

    The basis of a Hilbert-space approximation of a Gaussian process (Solin, Särkkä 2020) of known length
    scale; affine in the weights, so certificates are those of logistic regression.
    """
    frequency = jnp.pi * jnp.arange(1, functions + 1) / 4
    weight = numpyro.sample("weight", dist.Normal(0, sd / frequency).to_event(1))
    basis = jnp.sin(frequency * (x[:, None] + 2.0)) / jnp.sqrt(2.0)
    with numpyro.plate("rows", jnp.shape(x)[0]):
        numpyro.sample("y", dist.Bernoulli(logits=basis @ weight), obs=y)


def network_rows(dim: int, radius: float = 1.0) -> Rows:
    """``dim`` covariates of norm at most ``radius``, and a binary outcome."""
    return Rows(X=Ball(radius, dim=dim), y=Binary())


def network(X: jax.Array, y: jax.Array | None = None, hidden: int = 3) -> None:
    """One hidden layer of ``tanh`` units, logistic output.

    Its loss is neither convex nor bounded: no certificate for the posterior, a clip for the run.
    """
    first = numpyro.sample("first", dist.Normal(0, 1).expand([X.shape[1], hidden]).to_event(2))
    last = numpyro.sample("last", dist.Normal(0, 1).expand([hidden]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(X @ first) @ last), obs=y)
