"""Chains of the exact posterior of synthetic rows: what a simulation's errors are measured against."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.planning.synthetic import Array

STEPS = 2000


@dataclass(frozen=True, eq=False)
class Moments:
    """Of what several chains say of one posterior, draws of all of them pooled.

    Attributes:
        mean: shape ``(q,)``.
        sd: shape ``(q,)``.
        apart: root mean square over coordinates of the sd of chains' means, in pooled sds.
        doubt: the same of the standard error of ``mean``.
    """

    mean: Array
    sd: Array
    apart: float
    doubt: float


def moments(draws: Array) -> Moments:
    """Pool ``draws`` of shape ``(chains, draws, q)``; what is not finite is infinitely far apart."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        between = draws.mean(axis=1).std(axis=0, ddof=1) / np.maximum(sd, 1e-300)
        apart = float(np.sqrt(np.mean(between**2)))
    apart = apart if math.isfinite(apart) else math.inf
    return Moments(mean, sd, apart, apart / math.sqrt(len(draws)))


def mala(reading: RowModel, root, start, rows, weights, key):  # type: ignore[no-untyped-def]
    """Second half of a Metropolis-adjusted Langevin chain whose step adapts in the first half."""

    def potential(u: jax.Array) -> jax.Array:
        losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(root @ u, rows)
        total: jax.Array = reading.neg_log_prior(root @ u) + jnp.sum(weights * losses)
        return total

    slope = jax.value_and_grad(potential)

    def step(carry, k):  # type: ignore[no-untyped-def]
        u, value, gradient, log_step = carry
        noise_key, accept_key = jax.random.split(jax.random.fold_in(key, k))
        size = jnp.exp(log_step)
        noise = jax.random.normal(noise_key, u.shape)
        proposal = u - size * gradient + jnp.sqrt(2.0 * size) * noise
        new_value, new_gradient = slope(proposal)
        back = u - proposal + size * new_gradient
        log_ratio = value - new_value + jnp.sum(noise**2) / 2 - jnp.sum(back**2) / (4 * size)
        rate = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accept = jax.random.uniform(accept_key) < rate
        u, value, gradient = jax.tree.map(
            functools.partial(jnp.where, accept), (proposal, new_value, new_gradient), (u, value, gradient)
        )
        adapting = k < STEPS // 2
        log_step = log_step + jnp.where(adapting, (rate - 0.57) / jnp.sqrt(1.0 + k / 10), 0.0)
        return (u, value, gradient, log_step), root @ u

    u = jnp.linalg.inv(root) @ start
    carry = (u, *slope(u), jnp.log(0.1))
    states = jax.lax.scan(step, carry, jnp.arange(STEPS))[1]
    return states[STEPS // 2 :]
