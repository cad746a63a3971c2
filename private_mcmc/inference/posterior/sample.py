"""Draws of a density that is nearly Normal: its mode, its curvature there, and chains.

Of few dimensions, nearly elliptical and a millisecond to evaluate: independence Metropolis–Hastings, with a
proposal that adaptive importance sampling fits. One that is about right is worth a trajectory of NUTS, and
needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer import NUTS
from scipy.optimize import minimize

from private_mcmc.inference.posterior.funnel import funnel
from private_mcmc.inference.posterior.independent import (
    Mixture,
    fitted_proposal,
    independent_draws,
    places,
)
from private_mcmc.records import ON_FEW_ROWS

Array: TypeAlias = npt.NDArray[np.float64]
# ``(data, x) ↦ log p(x)``: what is compiled is shared by all data of one shape.
LogDensity: TypeAlias = Callable[[Any, jax.Array], jax.Array]

_DEEPEST = 7
# Steps of NUTS between two looks at whether they are still wanted.
_STEPS = 20
_TOGETHER = 64
_MODE_STEPS = 200
_ROUNDS, _STEP, _FLATTEST = 8, 0.25, 0.25
# Where a sd of the curvature is so little of a fall it is doubled, so often at most.
_LEAST_FALL, _DOUBLINGS = 0.05, 40
# Chains at fewer places for every draw stand still in tails that the proposal lacks.
_PLACES = 0.2
# Times that chains in a funnel's coordinates are thinned at most.
_MOST_THINNING = 10
# Next to the mode of a funnel there is no curvature that float64 holds.
_STEEPEST = 1e100


@dataclass(frozen=True)
class Chains:
    """How many chains, of how many steps each."""

    chains: int = 4
    warm_up: int = 100
    draws: int = 1000


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

    def value(x: Array) -> float:
        return float(_value_and_slope(log_density, data, jnp.asarray(x))[0])

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
    # Where slopes jump, as those of integrals by Laplace's method may, curvature is of the jump: a sd off the
    # density would be as high as here.
    height = value(at)
    for _ in range(_DOUBLINGS):
        falls = np.array([height - max(value(at + side), value(at - side)) for side in root.T])
        within = np.linalg.norm(np.linalg.solve(largest, root), axis=0) < 0.5
        narrow = (falls < _LEAST_FALL) & within
        if not np.any(narrow):
            break
        root = np.where(narrow, 2.0, 1.0) * root
    return np.asarray(root)


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _values(log_density: LogDensity, data: Any, points: jax.Array) -> jax.Array:
    return jnp.asarray(jax.lax.map(partial(log_density, data), points))


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _slopes(log_density: LogDensity, data: Any, points: jax.Array) -> jax.Array:
    return jnp.asarray(jax.lax.map(jax.grad(partial(log_density, data)), points))


def draws(
    log_density: LogDensity,
    data: Any,
    at: Array,
    root: Array,
    key: jax.Array,
    asked: Chains,
    proposal: Mixture | None = None,
    scales: Sequence[int] = (),
) -> Array:
    """Chains of shape ``(chains, draws, dimensions)``, of a density with mode ``at`` and scale ``root``.

    Independent proposals where one is given or can be fitted to the density and chains move; then in the
    coordinates of a funnel, if ``scales`` are what the width of other parameters depends on; NUTS elsewhere.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    pool, stopped = ThreadPoolExecutor(), Event()
    try:
        first = jnp.asarray(np.repeat(at[None], _TOGETHER, axis=0))

        def at_points(function: Any) -> Callable[[Array], Array]:
            # Compiled here: other threads do not know of 64 bits.
            compiled = function.lower(log_density, data, first).compile()

            def evaluate(points: Array) -> Array:
                parts = np.array_split(points, -(-len(points) // _TOGETHER))
                missing = [((0, _TOGETHER - len(part)), (0, 0)) for part in parts]
                full = [
                    jnp.asarray(np.pad(part, more, "edge")) for part, more in zip(parts, missing, strict=True)
                ]
                found = pool.map(lambda part: np.asarray(compiled(data, part)), full)
                values = [each[: len(part)] for each, part in zip(found, parts, strict=True)]
                whole = np.concatenate(values)
                return np.where(np.isfinite(whole), whole, -np.inf)

            return evaluate

        evaluate = at_points(_values)
        shape = asked.chains, asked.warm_up, asked.draws
        proposal = proposal or fitted_proposal(evaluate, at, root, random)
        if proposal is not None:
            found = independent_draws(evaluate, proposal, shape, random)
            if places(found) >= _PLACES * asked.draws:
                return found
        if scales:
            change = funnel(evaluate, at_points(_slopes), at, root, scales)
            there = change.density(evaluate)
            proposal = fitted_proposal(there, *change.start, random)
            if proposal is not None:
                found = independent_draws(there, proposal, shape, random, _MOST_THINNING)
                if places(found) >= _PLACES * asked.draws:
                    return change.points(found.reshape(-1, len(at)))[0].reshape(found.shape)
            at, root = change.near
        keys = jax.random.split(key, asked.chains)
        given = data, jnp.asarray(at), jnp.asarray(root)
        starts = [_start(log_density, asked.warm_up, *given, each) for each in keys]
        steps = _steps.lower(log_density, asked.warm_up, *given, starts[0]).compile()
        length = asked.warm_up + asked.draws

        def chain(state: Any) -> Array:
            made: list[Array] = []
            while len(made) * _STEPS < length and not stopped.is_set():
                state, states = steps(*given, state)
                made.append(np.asarray(states))
            return np.concatenate(made)[asked.warm_up : length]

        # One processor for each: factors of matrices in batches are slow on CPUs.
        return np.stack([at + made @ root.T for made in pool.map(chain, starts)])
    finally:
        # Nobody who interrupts waits for chains that nobody needs.
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _kernel(log_density: LogDensity, data: Any, at: jax.Array, root: jax.Array) -> NUTS:
    def potential(z: jax.Array) -> jax.Array:
        value = -log_density(data, at + root @ z)
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    return NUTS(potential_fn=potential, max_tree_depth=_DEEPEST)


@partial(jax.jit, static_argnums=(0, 1))
def _start(
    log_density: LogDensity, warm_up: int, data: Any, at: jax.Array, root: jax.Array, key: jax.Array
) -> Any:
    first, second = jax.random.split(key)
    kernel = _kernel(log_density, data, at, root)
    return kernel.init(second, warm_up, jax.random.normal(first, at.shape), (), {})


@partial(jax.jit, static_argnums=(0, 1))
def _steps(
    log_density: LogDensity, warm_up: int, data: Any, at: jax.Array, root: jax.Array, state: Any
) -> tuple[Any, jax.Array]:
    """The next states of a chain: so few that it can be ended between them."""
    kernel = _kernel(log_density, data, at, root)
    # A kernel steps once it was begun.
    kernel.init(state.rng_key, warm_up, state.z, (), {})

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        state = kernel.sample(state, (), {})
        return state, state.z

    last, made = jax.lax.scan(step, state, None, length=_STEPS)
    return last, made
