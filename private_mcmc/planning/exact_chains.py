"""Chains of a synthetic table's exact posterior, which plans compare private runs with."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic import Columns

CHAIN_STEPS = 2000
# Beside the number of parameters, how far above the others a chain's mean potential is on its way.
_ON_ITS_WAY = 10.0


@dataclass(frozen=True, eq=False)
class Moments:
    """Of what several chains say of one posterior, draws of all of them pooled.

    Attributes:
        mean: shape ``(q,)``.
        sd: shape ``(q,)``.
        between: root mean square over coordinates of the sd of chains' means, in pooled sds.
        standard_error: the same of the standard error of ``mean``.
    """

    mean: Array
    sd: Array
    between: float
    standard_error: float


def pooled(draws: Array) -> Moments:
    """Pool ``draws`` of shape ``(chains, draws, q)``; what is not finite is infinitely uncertain."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        shares = draws.mean(axis=1).std(axis=0, ddof=1) / np.maximum(sd, 1e-300)
        between = float(np.sqrt(np.mean(shares**2)))
    between = between if math.isfinite(between) else math.inf
    return Moments(mean, sd, between, between / math.sqrt(len(draws)))


def arrived(chains: Sequence[tuple[Array, float]]) -> Array:
    """Draws of the chains, ``(chains, draws, p)``, without those that are still on their way.

    Where a posterior has mass, potentials are within about ``p`` of each other; a chain whose mean is further
    up than that has not come there yet from a start in the prior's tail, and says nothing of the posterior.
    """
    levels = np.array([level if math.isfinite(level) else math.inf for _, level in chains])
    there = levels <= levels.min() + chains[0][0].shape[-1] + _ON_ITS_WAY
    kept = there if there.sum() > 1 else np.ones_like(there)
    return np.stack([draws for (draws, _), each in zip(chains, kept, strict=True) if each])


def mala(
    reading: RowModel,
    steps: int,
    root: jax.Array,
    start: jax.Array,
    rows: Columns,
    weights: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Second half of ``steps`` of a Metropolis-adjusted Langevin chain whose step adapts in the first half.

    The states ``(draws, p)`` and their potentials.
    """

    def potential(u: jax.Array) -> jax.Array:
        losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(root @ u, rows)
        return jnp.asarray(reading.neg_log_prior(root @ u) + jnp.sum(weights * losses))

    slope = jax.value_and_grad(potential)
    Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def step(carry: Carry, k: jax.Array) -> tuple[Carry, tuple[jax.Array, jax.Array]]:
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
        adapting = k < steps // 2
        log_step = log_step + jnp.where(adapting, (rate - 0.57) / jnp.sqrt(1.0 + k / 10), 0.0)
        return (u, value, gradient, log_step), (root @ u, value)

    u = jnp.linalg.inv(root) @ start
    carry = (u, *slope(u), jnp.log(0.1))
    states, values = jax.lax.scan(step, carry, jnp.arange(steps))[1]
    return states[steps // 2 :], values[steps // 2 :]
