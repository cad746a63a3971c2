"""Times until an event, some of them cut off before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Rows


def survival_rows(dim: int, longest: float = 10.0, radius: float = 1.0) -> Rows:
    """Covariates of norm at most ``radius``, time under observation, and whether the event was seen."""
    return Rows(X=Ball(radius, dim=dim), time=Box(0.01, longest), event=Binary())


def survival(X: jax.Array, time: jax.Array, event: jax.Array | None = None, sd: float = 1.0) -> None:
    """Exponential survival with censoring: hazard ``e^{x_i·w}``, constant in time.

    ``event_i ~ Poisson(time_i·e^{x_i·w})`` has the likelihood of a censored exponential time. The gradient
    grows with the hazard, so a clip is needed.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("event", dist.Poisson(time * jnp.exp(X @ w)), obs=event)
