"""Draws of a density that is nearly Normal: its mode, its curvature there, and chains."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer import NUTS
from scipy.optimize import minimize

from private_mcmc.inference.posterior.independent import fitted_proposal, independent_draws
from private_mcmc.records import ON_FEW_ROWS

Array: TypeAlias = npt.NDArray[np.float64]
# ``(data, x) ↦ log p(x)``: what is compiled is shared by all data of one shape.
LogDensity: TypeAlias = Callable[[Any, jax.Array], jax.Array]

_DEEPEST = 7
_TOGETHER = 64
_MODE_STEPS = 200
_ROUNDS, _STEP, _FLATTEST = 8, 0.25, 0.25
# Next to the mode of a funnel there is no curvature that float64 holds.
_STEEPEST = 1e100


@dataclass(frozen=True)
class Chains:
    """How many chains, of how many steps each."""

    chains: int = 4
    warm_up: int = 100
    draws: int = 300


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _value_and_slope(log_density: LogDensity, data: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(lambda x: log_density(data, x))(x)


def mode(log_density: LogDensity, data: Any, start: Array, root: Array) -> Array:
    """Where the density is largest, from ``start``; steps are taken in the metric of ``root``."""

    def evaluated(z: Array) -> tuple[float, Array]:
        value, slope = _value_and_slope(log_density, data, jnp.asarray(start + root @ z))
        usable = bool(np.isfinite(value)) and bool(np.all(np.isfinite(slope)))
        return (-float(value), -root.T @ np.asarray(slope)) if usable else (1e30, np.zeros(len(z)))

    found = minimize(
        evaluated,
        np.zeros(len(start)),
        jac=True,
        method="BFGS",
        options={"maxiter": _MODE_STEPS, "gtol": 1e-2},
    )
    return np.asarray(start + root @ found.x)


def whitened(log_density: LogDensity, data: Any, at: Array, largest: Array) -> Array:
    """``L`` with ``LLᵀ`` about the covariance near ``at``; ``largest`` is a root of a larger one."""

    def slope(x: Array) -> Array:
        return np.asarray(_value_and_slope(log_density, data, jnp.asarray(x))[1])

    root = largest
    # Differences over steps as long as what the prior thinks of, then over ever more typical ones.
    for _ in range(_ROUNDS):
        sides = np.stack([slope(at + _STEP * side) - slope(at - _STEP * side) for side in root.T])
        with np.errstate(invalid="ignore", over="ignore"):
            hessian = np.clip(np.nan_to_num(-(sides @ root) / (2 * _STEP)), -_STEEPEST, _STEEPEST)
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        root = root @ (vectors / np.sqrt(np.maximum(np.abs(values), _FLATTEST)))
        root = root / np.maximum(1.0, np.linalg.norm(np.linalg.solve(largest, root), axis=0))
        if np.all(np.abs(np.log(np.maximum(np.abs(values), _FLATTEST))) < 0.2):
            break
    return np.asarray(root)


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _values(log_density: LogDensity, data: Any, points: jax.Array) -> jax.Array:
    return jnp.asarray(jax.lax.map(partial(log_density, data), points))


def draws(log_density: LogDensity, data: Any, at: Array, root: Array, key: jax.Array, asked: Chains) -> Array:
    """Chains of shape ``(chains, draws, dimensions)``, of a density with mode ``at`` and scale ``root``.

    Independent proposals where these can be fitted to the density, and NUTS elsewhere.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    with ThreadPoolExecutor() as pool:
        first = jnp.asarray(np.repeat(at[None], _TOGETHER, axis=0))
        # Compiled here: other threads do not know of 64 bits.
        compiled = _values.lower(log_density, data, first).compile()

        def evaluate(points: Array) -> Array:
            parts = np.array_split(points, -(-len(points) // _TOGETHER))
            full = [jnp.asarray(np.pad(part, ((0, _TOGETHER - len(part)), (0, 0)), "edge")) for part in parts]
            found = pool.map(lambda part: np.asarray(compiled(data, part)), full)
            values = np.concatenate([each[: len(part)] for each, part in zip(found, parts, strict=True)])
            return np.where(np.isfinite(values), values, -np.inf)

        proposal = fitted_proposal(evaluate, at, root, random)
        if proposal is not None:
            shape = asked.chains, asked.warm_up, asked.draws
            return independent_draws(evaluate, proposal, shape, random)
        keys = jax.random.split(key, asked.chains)
        given = data, jnp.asarray(at), jnp.asarray(root)
        chain = _chain.lower(log_density, asked, *given, keys[0]).compile()
        # One processor for each: factors of matrices in batches are slow on CPUs.
        return np.stack(list(pool.map(lambda key: np.asarray(chain(*given, key)), keys)))


@partial(jax.jit, static_argnums=(0, 1))
def _chain(
    log_density: LogDensity, asked: Chains, data: Any, at: jax.Array, root: jax.Array, key: jax.Array
) -> jax.Array:
    def potential(z: jax.Array) -> jax.Array:
        value = -log_density(data, at + root @ z)
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    first, second = jax.random.split(key)
    kernel = NUTS(potential_fn=potential, max_tree_depth=_DEEPEST)
    start = kernel.init(second, asked.warm_up, jax.random.normal(first, at.shape), (), {})

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        state = kernel.sample(state, (), {})
        return state, state.z

    length = asked.warm_up + asked.draws
    made: jax.Array = jax.lax.scan(step, start, None, length=length)[1][asked.warm_up :]
    return at + made @ root.T
