"""Outcomes with several categories, unordered and ordered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Categories, Rows


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
