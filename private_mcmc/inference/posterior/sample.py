"""Draws of a density that is nearly Normal: its mode, its curvature there, and NUTS in those coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize

Array: TypeAlias = npt.NDArray[np.float64]

CHAINS, DRAWS, _WARM_UP = 4, 400, 150
_DEEPEST = 7
_ROUNDS, _STEP, _FLATTEST = 8, 0.25, 0.25


def mode(log_density: Callable[[jax.Array], jax.Array], starts: list[Array], root: Array) -> Array:
    """Where the density is largest, from the best of the starts; steps are taken in the metric of ``root``."""

    @jax.jit
    def value_and_slope(x: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, slope = jax.value_and_grad(lambda x: -log_density(start + jnp.asarray(root) @ x))(x)
        return value, slope

    def evaluated(x: Array, start: Array) -> tuple[float, Array]:
        value, slope = value_and_slope(jnp.asarray(x), jnp.asarray(start))
        usable = bool(np.isfinite(value)) and bool(np.all(np.isfinite(slope)))
        return (float(value), np.asarray(slope)) if usable else (1e30, np.zeros(len(x)))

    best = min(starts, key=lambda start: evaluated(np.zeros(len(start)), start)[0])
    found = minimize(
        evaluated, np.zeros(len(best)), args=(best,), jac=True, method="BFGS", options={"maxiter": 300}
    )
    return np.asarray(best + root @ found.x)


def whitened(log_density: Callable[[jax.Array], jax.Array], at: Array, largest: Array) -> Array:
    """``L`` with ``LLᵀ`` about the covariance near ``at``: no wider than ``largest``, also a root of one."""
    slope = jax.jit(lambda z: jax.grad(log_density)(jnp.asarray(at) + z))
    root = largest
    # Differences of the slope, first over steps as long as the widest that is thinkable, then over typical ones.
    for _ in range(_ROUNDS):
        sides = np.stack([slope(_STEP * side) - slope(-_STEP * side) for side in root.T]) / (2 * _STEP)
        hessian = np.nan_to_num(-(sides @ root))
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        root = root @ (vectors / np.sqrt(np.maximum(np.abs(values), _FLATTEST)))
        root = root @ np.diag(np.minimum(1.0, 1 / np.linalg.norm(np.linalg.solve(largest, root), axis=0)))
    return np.asarray(root)


def draws(log_density: Callable[[jax.Array], jax.Array], at: Array, root: Array, key: jax.Array) -> Array:
    """NUTS from starts around ``at``, shape ``(chains, draws, dimensions)``."""
    centre, factor = jnp.asarray(at), jnp.asarray(root)

    def potential(z: jax.Array) -> jax.Array:
        value = -log_density(centre + factor @ z)
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    first, second = jax.random.split(key)
    kernel = NUTS(potential_fn=potential, max_tree_depth=_DEEPEST)
    chains = MCMC(
        kernel,
        num_warmup=_WARM_UP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(second, init_params=0.3 * jax.random.normal(first, (CHAINS, len(at))))
    found = chains.get_samples(group_by_chain=True)
    return np.asarray(centre + found @ factor.T)
