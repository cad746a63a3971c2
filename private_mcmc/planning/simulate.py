"""Policies carried out on public synthetic rows, and the error to expect of one for an affine predictor.

Every stage is computed with its own noise on rows that each stand for many; paths are those of the kernels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from private_mcmc.kernels.synthetic import SyntheticChain
from private_mcmc.model import Predictor, RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.affine import AffinePolicy
from private_mcmc.planning.coefficients import Coefficients
from private_mcmc.planning.conclusion import Conclusion, Policy, Prediction
from private_mcmc.planning.influence import laid_out, losses
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    of_rows,
    partial_parts,
)
from private_mcmc.planning.synthetic import Columns, SyntheticData, with_outcomes
from private_mcmc.records import RUN_ONCE
from private_mcmc.release import SecondMoments, Sums
from private_mcmc.report.document import say

T = TypeVar("T")
U = TypeVar("U")

SYNTHETIC_ROWS, DATA_SETS = 1024, 12
_DRAWS = 500
_LOW, CAREFUL = 0.1, 1.2
# Of the range of outcomes: a common one, and one of three people in a hundred; counts are mostly small.
_MEAN_OUTCOMES, _MEAN_COUNTS = (0.3, 0.12, 0.5, 0.03), (0.3, 0.12, 0.05, 0.03)
# Predictors vary by this over the root of the curvature, which counts as no less than the other.
_EFFECT, _FLATTEST = 0.6, 0.1
# People's outcomes scatter more than models say, where they have the room, and heap at the ends; less so
# where an sd was declared, and the range is whatever is possible at all.
_FLATTER, _FLATTER_AROUND = 0.4, 0.7
_HEAP = 0.3
_NEWTON_STEPS = 60


def in_parallel(function: Callable[[T], U], items: Sequence[T], at_once: bool = True) -> list[U]:
    """``function`` of every item, on all processors; the first one alone, which compiles what they share.

    One after the other where not ``at_once``: see ``simulate_general.calls_lapack``.
    """

    def one(item: T) -> U:
        with jax.enable_x64(True):
            return function(item)

    if not at_once:
        return [one(item) for item in items]
    first = one(items[0])
    # What is said goes to the line of whoever asked.
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(copy_context().run, one, item) for item in items[1:]]
    return [first, *(other.result() for other in others)]


def simulate(
    policy: Policy, chain: Callable[[PathStage], SyntheticChain], rows: Columns, weights: Array, seed: int
) -> History:
    """What the stages of ``policy`` would release of ``rows``, which stand for ``weights`` rows each.

    ``chain`` tells the compiled chain of a path.
    """
    began, random = time.perf_counter(), np.random.default_rng(seed)
    history: History = ()
    with jax.enable_x64(True):
        while (stage := policy.next(history)) is not None:
            value: SecondMoments | Sums | Array
            if isinstance(stage, MomentsStage):
                value = _moments(stage, rows, weights, random)
            elif isinstance(stage, CountsStage):
                cells = np.asarray(of_rows(stage.cell, rows))
                exact = np.bincount(cells, weights, minlength=stage.mechanism.families[0].cells)
                sd = stage.mechanism.noise.sd
                value = stage.released(exact + sd * random.standard_normal(len(exact)))
            else:
                given = rows if stage.derived is None else {**rows, **of_rows(stage.derived, rows)}
                key = jax.random.key(len(history) + 64 * seed)
                value = chain(stage).path(stage.schedule, stage.start, given, weights, key)
            history = (*history, CompletedStage(stage, value))
    if (paces := _PACES.get()) is not None:
        paces.append((time.perf_counter() - began) / len(weights))
    return history


_PACES: ContextVar[list[float] | None] = ContextVar("paces", default=None)


@contextmanager
def measured() -> Iterator[Callable[[int], float]]:
    """What is simulated meanwhile is timed: yields how many seconds the same for ``n`` rows will take, about.

    All that is compiled is compiled again for them; each row takes what a synthetic one took at the quickest.
    """
    began, paces = time.perf_counter(), list[float]()
    before = _PACES.set(paces)
    try:
        yield lambda n: time.perf_counter() - began + n * min(paces, default=0.0)
    finally:
        _PACES.reset(before)


def _moments(
    stage: MomentsStage, rows: Columns, weights: Array, random: np.random.Generator
) -> SecondMoments:
    function, given = partial_parts(stage.vectors)
    exact = np.asarray(second_moments(function, given, stage.mechanism.radius, rows, weights))
    sd = stage.mechanism.noise.sd
    noise = np.tril(random.standard_normal(exact.shape)) * sd
    lower = np.tril(noise, -1) / np.sqrt(2.0)
    return SecondMoments(exact + lower + lower.T + np.diag(np.diag(noise)), sd, stage.statement)


@partial(jax.jit, static_argnums=0)
def second_moments(
    function: Callable[..., jax.Array], given: tuple[Any, ...], radius: float, rows: Columns, weights: Array
) -> jax.Array:
    """``Σ_i w_i V_iᵀV_i`` with ``V_i = function(*given, row_i)``, scaled to norm ``radius`` at most."""
    vectors = jax.vmap(partial(function, *given))(rows)
    vectors = vectors.reshape(len(vectors), -1, vectors.shape[-1])
    norm = jnp.sqrt(jnp.sum(vectors**2, axis=(1, 2)))
    vectors = vectors * jnp.minimum(1.0, radius / jnp.maximum(norm, 1e-300))[:, None, None]
    return jnp.einsum("n,nki,nkj->ij", weights, vectors, vectors)


def predict(
    policy: AffinePolicy, read: Coefficients, table: Callable[[int], SyntheticData] | None = None
) -> Prediction:
    """The typical error on synthetic tables, a fifth added, its range, and its parts as the policy says.

    Whether outcomes or indicators are rare is for the releases to say, and errors differ threefold with it:
    who confirms a run on one number is better served by a careful one.
    """
    errors, parts, compared = [], [], []
    for seed in range(DATA_SETS):
        say(f"planning: the stages are tried on synthetic table {seed + 1} of {DATA_SETS}")
        data = synthetic_data(policy, seed) if table is None else table(seed)
        conclusion = simulate_affine(policy, data.rows, data.weights, seed)
        errors.append(math.sqrt(np.mean(((conclusion.draws.mean(axis=0) - data.mean) / data.sd) ** 2)))
        parts.append(conclusion.prediction)
        compared += [read.compared(conclusion.draws, data.draws)] if read.names else []
    low, high = (float(each) for each in np.quantile(errors, [_LOW, 1 - _LOW]))
    rms, (*known, step) = CAREFUL * float(typical(errors)), typical([part[1:4] for part in parts])
    bias, monte_carlo = (float(part) * rms / max(math.hypot(*known), 1e-300) for part in known)
    of_each = read.expected(compared, errors, rms)
    return Prediction(rms, bias, monte_carlo, float(step), low=low, high=high, coefficients=of_each)


def typical(values: Any) -> Array:
    """The geometric mean over the first axis."""
    return np.asarray(np.exp(np.mean(np.log(np.maximum(values, 1e-300)), axis=0)))


def simulate_affine(policy: AffinePolicy, rows: Columns, weights: Array, seed: int) -> Conclusion:
    """What a run of the policy would conclude from ``rows`` of these weights."""

    def chain(stage: PathStage) -> SyntheticChain:
        return _chain(stage.reading or policy.reading)

    return policy.conclude(simulate(policy, chain, rows, weights, seed))


@lru_cache(maxsize=8)
def _chain(reading: RowModel) -> SyntheticChain:
    """The same for every stage and budget: its programs are compiled once."""
    return SyntheticChain(lambda root, clip: reading)


def synthetic_data(policy: AffinePolicy, seed: int) -> SyntheticData:
    """Synthetic people with outcomes of the model, from common ones to rare ones as ``seed`` goes on.

    Mean outcomes are at a share of their range; predictors vary so that covariates matter.
    """
    predictor, reading = policy.predictor, policy.reading
    random = np.random.default_rng(seed)
    choices = dict(policy.influence.outcomes)
    (values,) = choices.values()
    levels = np.concatenate([np.linspace(-8.0, 8.0, 65), np.linspace(values[0], values[-1], 33)])
    with jax.enable_x64(True):
        drawn = people(reading.rows, SYNTHETIC_ROWS, seed)
        rows, design, offset = laid_out(predictor, reading.rows, drawn)
        design, offset = np.asarray(design), np.asarray(offset)
        # One row at every level.
        first = {name: np.repeat(column[:1], len(levels), axis=0) for name, column in rows.items()}
        at_levels, curvature = losses(predictor, choices, first, levels), _curvature(predictor, first, levels)
        shares = softmax(-np.nan_to_num(np.asarray(at_levels), nan=1e30, posinf=1e30), axis=1)
        many = len(values) > 2
        means = _MEAN_COUNTS if many and np.issubdtype(values.dtype, np.integer) else _MEAN_OUTCOMES
        wanted = values[0] + means[seed % len(means)] * (values[-1] - values[0])
        level = int(np.argmin(np.abs(shares @ values - wanted)))
        effect = _EFFECT / math.sqrt(max(float(np.nan_to_num(np.asarray(curvature))[level]), _FLATTEST))
        scores = design @ random.standard_normal(policy.dim)
        spread = float(np.std(scores)) or 1.0
        target = levels[level] + effect * (scores - scores.mean()) / spread - offset
        gram = design.T @ design + 1e-6 * policy.precision
        theta = np.linalg.solve(gram, design.T @ target)
        logits = -np.asarray(losses(predictor, choices, rows, design @ theta + offset))
        if many and policy.influence.symmetric:
            logits = logits * _FLATTER_AROUND
        elif many:
            logits = _scattered(logits * _FLATTER)
        each = policy.num_rows / SYNTHETIC_ROWS
        rows, weights = with_outcomes(rows, choices, logits, each, jax.random.key(seed))
        return with_posterior(policy, rows, weights)


def _scattered(logits: Array) -> Array:
    """A share of the outcomes moved to the two ends of their range; their mean stays about."""
    shares = softmax(logits, axis=1)
    position = shares @ np.linspace(0.0, 1.0, shares.shape[1])
    shares *= 1 - _HEAP
    shares[:, 0] += _HEAP * (1 - position)
    shares[:, -1] += _HEAP * position
    return np.asarray(np.log(np.maximum(shares, 1e-300)))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _curvature(predictor: Predictor, rows: Columns, eta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(jax.grad(predictor.loss)))(eta, rows))


def with_posterior(policy: AffinePolicy, rows: Columns, weights: Array) -> SyntheticData:
    """The rows with their tempered posterior: its mode and ``H^{-1}`` there, ``H`` its Hessian."""
    with jax.enable_x64(True):
        weighted = policy.temper * jnp.asarray(weights)
        found = _mode(policy.predictor, policy.reading, rows, policy.precision, weighted)
    mode, covariance = (np.asarray(each) for each in found)
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(mode)))
    draws = mode + (normal - normal.mean(axis=0)) @ np.linalg.cholesky(covariance).T
    return SyntheticData(rows, weights, mode, np.sqrt(np.diag(covariance)), draws)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def _mode(
    predictor: Predictor, reading: RowModel, rows: Columns, precision: Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Newton's method. Where curvature varies, steps move predictors by a root mean square of 1 at most, in
    units in which curvature is at most ¼: an outcome may be in any units."""
    bound = predictor.family.curvature_bound
    unit = 0.5 / math.sqrt(bound) if 0 < bound < math.inf else 1.0
    design, offset = jax.vmap(predictor.design)(rows), jax.vmap(predictor.offset)(rows)
    slope = jax.vmap(jax.grad(predictor.loss))
    curvature = jax.vmap(jax.grad(jax.grad(predictor.loss)))
    prior_score = jax.grad(reading.neg_log_prior)

    def hessian(theta: jax.Array) -> jax.Array:
        weighted = weights * jnp.maximum(curvature(design @ theta + offset, rows), 0.0)
        return jnp.asarray(precision) + (design.T * weighted) @ design

    def newton(theta: jax.Array, _: None) -> tuple[jax.Array, None]:
        gradient = prior_score(theta) + (weights * slope(design @ theta + offset, rows)) @ design
        move = jnp.linalg.solve(hessian(theta), gradient)
        longest = jnp.sqrt(jnp.mean((design @ move) ** 2))
        varies = jnp.min(curvature(design @ theta + offset, rows)) < (1 - 1e-6) * bound
        share = jnp.where(varies, jnp.minimum(1.0, unit / jnp.maximum(longest, 1e-300)), 1.0)
        return theta - move * share, None

    mode = jax.lax.scan(newton, jnp.zeros(design.shape[1]), None, length=_NEWTON_STEPS)[0]
    return mode, jnp.linalg.inv(hessian(mode))
