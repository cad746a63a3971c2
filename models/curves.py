"""Curves: a smooth function of one covariate, and a small neural network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Rows


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
