"""Times to an event, where for some people only an end is known: one hazard, Weibull, steps of hazard."""

from __future__ import annotations

from collections.abc import Sequence

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


def weibull_survival(
    X: jax.Array, time: jax.Array, event: jax.Array, shape: float = 1.5, sd: float = 1.0
) -> None:
    """Weibull times of known ``shape`` and scale ``e^{x_i·w}``; where ``event`` is 0 they were cut off.

    Rows as for :func:`survival`. Censored outcomes have no line in the table of likelihoods: nothing is
    proved of them, and a run is priced as a path.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        times = dist.Weibull(jnp.exp(X @ w), shape)
        numpyro.sample("time", dist.RightCensoredDistribution(times, 1 - event), obs=time)


def hazards_rows(dim: int, longest: float = 10.0, radius: float = 1.0) -> Rows:
    """As for :func:`survival`, and how late after its origin a person came under observation."""
    return Rows(X=Ball(radius, dim=dim), entry=Box(0.0, longest), time=Box(0.0, longest), event=Binary())


def hazards(
    X: jax.Array,
    entry: jax.Array,
    time: jax.Array,
    event: jax.Array,
    cuts: Sequence[float] = (1.0, 2.0, 4.0),
    sd: float = 1.0,
) -> None:
    """A hazard ``e^{a_k + x_i·w}`` constant between public ``cuts``: Cox-like, with delayed entry.

    A person is at risk from ``entry`` to ``entry + time``. The row's term, its log hazard where the event was
    seen less the cumulative hazard over that stretch, is a ``numpyro.factor`` in the plate of the rows. Its
    gradient grows with the hazard, so a clip is needed.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    start = jnp.array([0.0, *cuts])
    end = jnp.array([*cuts, jnp.inf])
    base = numpyro.sample("log_hazard", dist.Normal(-2.0, 1.5).expand([len(start)]).to_event(1))
    last = (entry + time)[:, None]
    at_risk = jnp.clip(jnp.minimum(last, end) - jnp.maximum(entry[:, None], start), 0.0)
    seen = event[:, None] * ((last > start) & (last <= end))
    eta = base + (X @ w)[:, None]
    with numpyro.plate("rows", X.shape[0]):
        numpyro.factor("survival", jnp.sum(seen * eta - at_risk * jnp.exp(eta), axis=-1))
