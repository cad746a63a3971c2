"""Proportions and means: the smallest models there are, with exact certificates where they are conjugate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Binary, Box, Rows


def ab_test_rows() -> Rows:
    """Which of two variants a visitor saw, and whether they bought."""
    return Rows(variant=Binary(), y=Binary())


def ab_test(variant: jax.Array, y: jax.Array | None = None, sd: float = 1.0) -> None:
    """Two variants: a base rate and a lift, both on the log odds.

    A visitor's gradient is at most √2; the released ``lift`` answers which variant is better.
    """
    base = numpyro.sample("base", dist.Normal(0, sd))
    lift = numpyro.sample("lift", dist.Normal(0, sd))
    with numpyro.plate("rows", jnp.shape(variant)[0]):
        numpyro.sample("y", dist.Bernoulli(logits=base + lift * variant), obs=y)


def bounded_mean_rows(largest: float = 5.0) -> Rows:
    """One number within ``±largest``, after scaling by public constants."""
    return Rows(y=Box(-largest, largest))


def bounded_mean(y: jax.Array | None = None, rows: int = 0, sd: float = 1.0) -> None:
    """The mean of a bounded quantity: ``y_i ~ N(mean, 1)``, ``mean ~ N(0, sd²)``.

    Conjugate: preflight compares the exact posteriors of all adjacent data sets. ``rows`` is only needed
    to draw from the prior, where there is no ``y``.
    """
    mean = numpyro.sample("mean", dist.Normal(0, sd))
    with numpyro.plate("rows", rows if y is None else jnp.shape(y)[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def mixture(y: jax.Array | None = None, rows: int = 0) -> None:
    """Two groups of unknown means and known share: rows as for :func:`bounded_mean_rows`.

    Neither convex nor bounded: preflight refutes or cannot decide, and only ``guarantee="run"`` with a clip
    is private. Which component is which is settled by the priors.
    """
    low = numpyro.sample("low", dist.Normal(-1, 1))
    high = numpyro.sample("high", dist.Normal(1, 1))
    share = dist.Categorical(probs=jnp.array([0.5, 0.5]))
    with numpyro.plate("rows", rows if y is None else jnp.shape(y)[0]):
        parts = dist.Normal(jnp.stack([low, high]), 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(share, parts), obs=y)
