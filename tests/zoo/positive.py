"""Positive outcomes with log links: the score grows with the surprise, so rows are clipped."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Box, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Array, Entry, Pair, normal

WAITS = Rows(X=Ball(1.0, dim=2), y=Box(0.1, 5.0))
TARGET = Target(1.0, 1e-6)


def exponential(X: Any, y: Any = None) -> None:
    """Waiting times with log-linear mean."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Exponential(jnp.exp(-(X @ w))), obs=y)


def gamma(X: Any, y: Any = None) -> None:
    """Gamma regression of shape 2 with log-linear rate."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Gamma(2.0, jnp.exp(X @ w)), obs=y)


def _loss(shape: float, sign: float, y: float, clip: float | None) -> Any:
    """``y e^{s t} − shape·s·t`` along one weight, its slope clipped at ``±clip``."""

    def value(t: Array) -> Array:
        u = sign * t
        if clip is None:
            return y * np.exp(np.minimum(u, 600.0)) - shape * u
        low = np.log((shape - clip) / y) if shape > clip else -np.inf
        high = np.log((shape + clip) / y)
        inner = np.clip(u, low, high)
        return y * np.exp(inner) - shape * inner + clip * np.abs(u - inner)

    return value


def _pair(shape: float, sign: float, clip: float | None) -> Pair:
    long, short = _loss(shape, sign, 5.0, clip), _loss(shape, sign, 0.1, clip)
    return Pair(lambda t: normal(t, 1.0) - long(t), lambda t: normal(t, 1.0) - short(t), -12.0, 12.0)


ENTRIES = (
    # A long wait pulls a weight without bound.
    Entry("exponential", exponential, WAITS, "not private", _pair(1.0, -1.0, None)),
    # Clipped at 0.1 the rows are convex with gradient at most 0.1: 0.2-GDP.
    Entry("exponential_clipped", exponential, WAITS, "private", _pair(1.0, -1.0, 0.1), clip=0.1),
    # A Gamma score grows without bound with the weights.
    Entry("gamma_regression", gamma, WAITS, "not private", _pair(2.0, 1.0, None)),
    # Clipped at 0.1 the rows are convex with gradient at most 0.1: 0.2-GDP.
    Entry("gamma_regression_clipped", gamma, WAITS, "private", _pair(2.0, 1.0, 0.1), clip=0.1),
)
