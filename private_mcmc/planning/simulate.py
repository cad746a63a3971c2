"""Policies carried out on synthetic rows, and tables that those for an affine predictor are tried on.

Every stage is computed with its own noise on rows that each stand for many; paths are those of the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from private_mcmc.kernels.synthetic import synthetic_path
from private_mcmc.model import Predictor
from private_mcmc.model.synthetic import people
from private_mcmc.planning.affine import AffinePolicy
from private_mcmc.planning.influence import laid_out, losses
from private_mcmc.planning.outcomes import Columns, with_outcomes
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
from private_mcmc.records import RUN_ONCE, blas_of_one_thread
from private_mcmc.release import SecondMoments, Sums

SYNTHETIC_ROWS = 1024
# Of the range of outcomes: a common one, and one of three people in a hundred; counts are mostly small.
_MEAN_OUTCOMES, _MEAN_COUNTS = (0.3, 0.12, 0.5, 0.03), (0.3, 0.12, 0.05, 0.03)
# Predictors vary by this over the root of the curvature, which counts as no less than the other.
_EFFECT, _FLATTEST = 0.6, 0.1
# People's outcomes scatter more than models say, where they have the room.
_FLATTER = 0.5


def simulate(policy: Policy, rows: Columns, weights: Array, seed: int) -> History:
    """What the stages of ``policy`` would release of ``rows``, which stand for ``weights`` rows each."""
    random = np.random.default_rng(seed)
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
    return history


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
        return with_outcomes(rows, choices, logits, each, seed)


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _curvature(predictor: Predictor, rows: Columns, eta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(jax.grad(predictor.loss)))(eta, rows))
