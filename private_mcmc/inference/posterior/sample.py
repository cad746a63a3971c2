"""Draws of a density that is nearly Normal: its mode, its curvature there, and chains.

Of few dimensions, nearly elliptical and a millisecond to evaluate: independence Metropolis–Hastings, with a
proposal that adaptive importance sampling fits. One that is about right is worth a trajectory of NUTS, and
needs no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer import NUTS
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

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


def draws(
    log_density: LogDensity,
    data: Any,
    at: Array,
    root: Array,
    key: jax.Array,
    asked: Chains,
    proposal: Mixture | None = None,
) -> Array:
    """Chains of shape ``(chains, draws, dimensions)``, of a density with mode ``at`` and scale ``root``.

    Independent proposals where one is given or can be fitted to the density and chains move; NUTS elsewhere.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    pool, stopped = ThreadPoolExecutor(), Event()
    try:
        first = jnp.asarray(np.repeat(at[None], _TOGETHER, axis=0))
        # Compiled here: other threads do not know of 64 bits.
        compiled = _values.lower(log_density, data, first).compile()

        def evaluate(points: Array) -> Array:
            parts = np.array_split(points, -(-len(points) // _TOGETHER))
            full = [jnp.asarray(np.pad(part, ((0, _TOGETHER - len(part)), (0, 0)), "edge")) for part in parts]
            found = pool.map(lambda part: np.asarray(compiled(data, part)), full)
            values = np.concatenate([each[: len(part)] for each, part in zip(found, parts, strict=True)])
            return np.where(np.isfinite(values), values, -np.inf)

        proposal = proposal or fitted_proposal(evaluate, at, root, random)
        if proposal is not None:
            shape = asked.chains, asked.warm_up, asked.draws
            found = independent_draws(evaluate, proposal, shape, random)
            if places(found) >= _PLACES * asked.draws:
                return found
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


def places(draws: Array) -> int:
    """At how many places the chain has been that moves least; ``draws`` are ``(chains, draws, p)``."""
    return min(len(np.unique(chain, axis=0)) for chain in draws)


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


# Logarithms of the density at points ``(n, p)``, −∞ where there is none.
Evaluate: TypeAlias = Callable[[Array], Array]

_FREEDOM = 5.0
# Of a proposal: the fitted part, the one at the mode, a wide one.
_PARTS, _WIDE = (0.8, 0.1, 0.1), 2.5
_FITS, _POINTS, _POINTS_PER_DIMENSION = 16, 256, 12
# Weights are flattened until so many points count, and for every dimension.
_COUNT, _COUNT_PER_DIMENSION, _FLATTER = 60, 6, 0.8
# Effective share of a proposal's points: from the first on it is good, below the second of no use.
_GOOD, _LEAST, _LAST = 0.4, 0.08, 4
# After so many rounds weights flattened to this power are given up.
_PATIENCE, _HOPELESS = 6, 0.2
# Chains are made longer, and thinned, until so many points count for every draw.
_ENOUGH, _MOST_THINNING = 0.8, 3
# Chains at fewer places for every draw stand still in tails that the proposal lacks.
_PLACES = 0.2


@dataclass(frozen=True, eq=False)
class StudentT:
    """A multivariate t distribution of 5 degrees of freedom, ``mean + root z``."""

    mean: Array
    root: Array

    def sample(self, random: np.random.Generator, count: int) -> Array:
        """Points ``(count, p)``."""
        normal = random.standard_normal((count, len(self.mean)))
        scale = np.sqrt(_FREEDOM / random.chisquare(_FREEDOM, count))
        return np.asarray(self.mean + (normal * scale[:, None]) @ self.root.T)

    def log_density(self, points: Array) -> Array:
        """At points ``(n, p)``."""
        dim = len(self.mean)
        squares = np.square(np.linalg.solve(self.root, (points - self.mean).T)).sum(axis=0)
        constant = (
            gammaln((_FREEDOM + dim) / 2) - gammaln(_FREEDOM / 2) - dim / 2 * math.log(_FREEDOM * math.pi)
        )
        size = np.linalg.slogdet(self.root)[1]
        return np.asarray(constant - size - (_FREEDOM + dim) / 2 * np.log1p(squares / _FREEDOM))


class Mixture(NamedTuple):
    """Of t distributions, with ``shares`` that sum to 1."""

    parts: tuple[StudentT, ...]
    shares: Sequence[float] = _PARTS

    def sample(self, random: np.random.Generator, count: int) -> Array:
        """Points ``(count, p)``."""
        which = random.choice(len(self.shares), count, p=self.shares)
        points = np.empty((count, len(self.parts[0].mean)))
        for index, part in enumerate(self.parts):
            points[which == index] = part.sample(random, int((which == index).sum()))
        return points

    def log_density(self, points: Array) -> Array:
        """At points ``(n, p)``."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares)
        each = [log + part.log_density(points) for log, part in zip(logs, self.parts, strict=True)]
        return np.asarray(logsumexp(each, axis=0))


def fitted_proposal(
    evaluate: Evaluate, at: Array, root: Array, random: np.random.Generator
) -> Mixture | None:
    """A proposal; none where few of its points would count.

    Mean and covariance follow from all points so far, weighted by the density over the mixture of all
    proposals (Cornuet, Marin, Mira, Robert 2012), flattened while few points would have all the weight.
    """
    dim = len(at)
    count, wanted = max(_POINTS, _POINTS_PER_DIMENSION * dim), max(_COUNT, _COUNT_PER_DIMENSION * dim)
    mode = StudentT(at, root)
    proposal, tried = Mixture((mode, mode, StudentT(at, 3 * root))), []
    points, values, shares = np.zeros((0, dim)), np.zeros(0), []
    for made in range(_FITS):
        drawn = proposal.sample(random, count)
        found = evaluate(drawn)
        if not np.any(np.isfinite(found)):
            return None
        shares.append(_effective(found - proposal.log_density(drawn)) / count)
        if shares[-1] > _GOOD:
            return proposal
        points, values = np.concatenate([points, drawn]), np.concatenate([values, found])
        tried.append(proposal)
        mixed = logsumexp([one.log_density(points) for one in tried], axis=0)
        logs, power = values - mixed, 1.0
        while _effective(power * logs) < wanted and power > 1e-3:
            power *= _FLATTER
        if made >= _PATIENCE and power < _HOPELESS:
            return None
        weights = np.exp(power * (logs - logs.max()))
        mean, covariance = _moments(points, weights / weights.sum(), root, _effective(power * logs))
        proposal = Mixture((StudentT(mean, covariance), mode, StudentT(mean, _WIDE * covariance)))
    return proposal if np.mean(shares[-_LAST:]) > _LEAST else None


def _effective(logs: Array) -> float:
    """How many of points with these logarithms of weights count."""
    weights = np.exp(logs - logs.max())
    return float(weights.sum() ** 2 / np.square(weights).sum())


def _moments(points: Array, weights: Array, root: Array, count: float) -> tuple[Array, Array]:
    """The mean, and a root of the covariance, shrunk to its diagonal in the coordinates of ``root``."""
    mean = weights @ points
    white = np.linalg.solve(root, (points - mean).T)
    covariance = (white * weights) @ white.T
    share = len(mean) / (len(mean) + count)
    covariance = (1 - share) * covariance + share * np.diag(np.diag(covariance))
    return mean, np.asarray(root @ np.linalg.cholesky(covariance))


def independent_draws(
    evaluate: Evaluate, proposal: Mixture, shape: tuple[int, int, int], random: np.random.Generator
) -> Array:
    """Chains of ``shape = (chains, warm_up, draws)``, thinned the more the worse the proposal is."""
    chains, warm_up, draws = shape
    points, logs = np.zeros((chains, 0, len(proposal.parts[0].mean))), np.zeros((chains, 0))
    for thinning in range(1, _MOST_THINNING + 1):
        more = proposal.sample(random, chains * (warm_up + thinning * draws - logs.shape[1]))
        found = evaluate(more) - proposal.log_density(more)
        points = np.concatenate([points, more.reshape(chains, -1, points.shape[2])], axis=1)
        logs = np.concatenate([logs, found.reshape(chains, -1)], axis=1)
        if _effective(logs) >= _ENOUGH * chains * draws:
            break
    limits = np.log(random.random(logs.shape))
    every, at, kept = np.arange(chains), np.zeros(chains, dtype=int), np.zeros(logs.shape, dtype=int)
    for step in range(logs.shape[1]):
        at = np.where(limits[:, step] + logs[every, at] < logs[:, step], step, at)
        kept[:, step] = at
    chosen = kept[:, warm_up + thinning - 1 :: thinning]
    return np.take_along_axis(points, chosen[..., None], axis=1)
