"""Policies carried out on synthetic rows, and tables that those for an affine predictor are tried on.

Every stage is computed with its own noise on rows that each stand for many; paths are those of the kernels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from private_mcmc.kernels.synthetic import synthetic_path
from private_mcmc.model import Predictor, RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.affine import AffinePolicy
from private_mcmc.planning.influence import laid_out, losses
from private_mcmc.planning.prediction import Policy
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    CountsStage,
    History,
    MomentsStage,
    of_rows,
    partial_parts,
)
from private_mcmc.planning.synthetic import Columns, with_outcomes
from private_mcmc.records import RUN_ONCE, blas_of_one_thread
from private_mcmc.release import SecondMoments, Sums

SYNTHETIC_ROWS = 1024
# Of the range of outcomes: a common one, and one of three people in a hundred; counts are mostly small.
_MEAN_OUTCOMES, _MEAN_COUNTS = (0.3, 0.12, 0.5, 0.03), (0.3, 0.12, 0.05, 0.03)
# Predictors vary by this over the root of the curvature, which counts as no less than the other.
_EFFECT, _FLATTEST = 0.6, 0.1
# People's outcomes scatter more than models say, where they have the room.
_FLATTER = 0.5
_NEWTON_STEPS = 60


def simulate(policy: Policy, rows: Columns, weights: Array, seed: int) -> History:
    """What the stages of ``policy`` would release of ``rows``, which stand for ``weights`` rows each."""
    began, random = time.perf_counter(), np.random.default_rng(seed)
    history: History = ()
    with blas_of_one_thread(), jax.enable_x64(True):
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
                followed = policy.followed(stage)
                value = synthetic_path(followed, stage.schedule, stage.start, given, weights, key)
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


def synthetic_table(policy: AffinePolicy, seed: int) -> tuple[Columns, Array]:
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
        logits = logits * (_FLATTER if many else 1.0)
        each = policy.num_rows / SYNTHETIC_ROWS
        return with_outcomes(rows, choices, logits, each, jax.random.key(seed))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _curvature(predictor: Predictor, rows: Columns, eta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(jax.grad(predictor.loss)))(eta, rows))


def posterior_mode(policy: AffinePolicy, rows: Columns, weights: Array) -> tuple[Array, Array]:
    """The mode of the tempered posterior of weighted rows, and ``H^{-1}`` there, ``H`` its Hessian."""
    with jax.enable_x64(True):
        weighted = policy.temper * jnp.asarray(weights)
        mode, covariance = _mode(policy.predictor, policy.reading, rows, policy.precision, weighted)
    return np.asarray(mode), np.asarray(covariance)


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
