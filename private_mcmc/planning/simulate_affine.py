"""Simulating an affine policy on synthetic people: the error to expect of it, from public facts alone.

Made-up rows come from the declared domain, a parameter from the prior, outcomes from the model; every
stage is played on them with its own noise, each synthetic row standing for many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.planning.affine import MOST_STEPS, AffinePolicy
from private_mcmc.planning.stages import (
    CompletedStage,
    Conclusion,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Prediction,
)
from private_mcmc.planning.synthetic import with_outcomes
from private_mcmc.release import Counts, SecondMoments

Array = npt.NDArray[np.float64]
Columns = Mapping[str, jax.Array]
Loss = Callable[[jax.Array, Columns], jax.Array]

PEOPLE, DATA_SETS = 1024, 4
_NEWTON_STEPS = 60


@dataclass(frozen=True, eq=False)
class MadeUp:
    """A synthetic data set, how many people its rows stand for, and its posterior's mode and sds."""

    columns: Columns
    weights: Array
    mode: Array
    sd: Array


def predict(policy: AffinePolicy) -> Prediction:
    """Root mean square error over simulations on synthetic data, and its parts as the policy reports them.

    Where the policy reports more than the simulations show, its parts shrink to what they show.
    """
    errors, parts = [], []
    for seed in range(DATA_SETS):
        data = make_up(policy, seed)
        concluded = rehearse(policy, data.columns, data.weights, seed)
        errors.append(np.mean(((concluded.draws.mean(axis=0) - data.mode) / data.sd) ** 2))
        parts.append(concluded.prediction)
    squares = np.square([(part.bias, part.monte_carlo, part.discretisation) for part in parts])
    bias, monte_carlo, discretisation = (float(part) for part in np.sqrt(np.mean(squares, axis=0)))
    rms = float(np.sqrt(np.mean(errors)))
    seen = min(1.0, rms / max(math.hypot(bias, monte_carlo), 1e-300))
    return Prediction(rms, seen * bias, seen * monte_carlo, discretisation)


def make_up(policy: AffinePolicy, seed: int) -> MadeUp:
    """Draw people. Their predictors have a root mean square of 3, or of 1 where curvature has no bound.

    A mode far from the start is the expensive case; under a log link 1 already multiplies rates by 3.
    """
    predictor, rows = policy.predictor, policy.reading.rows
    effect = 3.0 if predictor.family.curvature_bound < np.inf else 1.0
    with jax.enable_x64(True):
        rows_key, theta_key, outcome_key = jax.random.split(jax.random.key(seed), 3)
        columns = rows.project(rows.synthetic(rows_key, PEOPLE))
        design = jax.vmap(predictor.design)(columns)
        normal = jax.random.normal(theta_key, (policy.dim,))
        theta = jnp.linalg.solve(jnp.linalg.cholesky(jnp.asarray(policy.precision)).T, normal)
        eta = design @ theta
        theta = theta * effect / jnp.maximum(jnp.sqrt(jnp.mean(eta**2)), 1e-300)
        eta = design @ theta + jax.vmap(predictor.offset)(columns)
        choices = {name: jnp.asarray(values) for name, values in policy.influence.outcomes.items()}

        def log_weights(one: jax.Array, row: Columns) -> jax.Array:
            return -jax.vmap(lambda choice: predictor.loss(one, {**row, **choice}))(choices)

        logits = jax.vmap(log_weights)(eta, columns)
        each = policy.num_rows / PEOPLE
        columns, weights = with_outcomes(dict(columns), choices, logits, each, outcome_key)
        design, offset = jax.vmap(predictor.design)(columns), jax.vmap(predictor.offset)(columns)
        held = policy.temper * weights
        mode, covariance = _mode(predictor.loss, design, offset, columns, policy.precision, held)
        return MadeUp(columns, weights, np.asarray(mode), np.sqrt(np.diag(np.asarray(covariance))))


def rehearse(policy: AffinePolicy, columns: Columns, weights: Array, seed: int) -> Conclusion:
    """Play every stage on ``columns``, whose rows stand for ``weights`` people each."""
    random = np.random.default_rng(seed)
    history: History = ()
    with jax.enable_x64(True):
        plain = jax.vmap(policy.predictor.design)(columns), jax.vmap(policy.predictor.offset)(columns)
        while (stage := policy.next(history)) is not None:
            value: SecondMoments | Counts | Array
            if isinstance(stage, MomentsStage):
                value = _moments(stage, columns, weights, random)
            elif isinstance(stage, CountsStage):
                cells = np.asarray(jax.vmap(stage.cell)(columns))
                exact = np.bincount(cells, weights, minlength=stage.mechanism.cells)
                sd = stage.mechanism.noise.sd
                value = Counts(exact + sd * random.standard_normal(len(exact)), sd, stage.statement)
            else:
                value = _path(policy, stage, columns, plain, weights, len(history) + 64 * seed)
            history = (*history, CompletedStage(stage, value))
        return policy.conclude(history)


def _moments(
    stage: MomentsStage, columns: Columns, weights: Array, random: np.random.Generator
) -> SecondMoments:
    vectors = np.asarray(jax.vmap(stage.vectors)(columns))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors * np.minimum(1.0, stage.mechanism.radius / np.maximum(length, 1e-300))
    sd = stage.mechanism.noise.sd
    noise = np.tril(random.standard_normal((stage.mechanism.dim,) * 2)) * sd
    lower = np.tril(noise, -1) / np.sqrt(2.0)
    matrix = (vectors.T * weights) @ vectors + lower + lower.T + np.diag(np.diag(noise))
    return SecondMoments(matrix, sd, stage.statement)


def _path(
    policy: AffinePolicy,
    stage: PathStage,
    columns: Columns,
    plain: tuple[jax.Array, jax.Array],
    weights: Array,
    seed: int,
) -> Array:
    """A path on synthetic rows whose designs and offsets are ``plain``."""
    schedule = stage.schedule
    predictor = policy.predictor if stage.reading is None else stage.reading.predictor
    if predictor is None:
        raise TypeError("the path of an affine policy has one predictor")
    if stage.derived is not None:
        columns = {**columns, **jax.vmap(stage.derived)(columns)}
    root = jnp.linalg.cholesky(jnp.asarray(schedule.preconditioner))
    design = plain[0] @ root
    states = _follow(
        predictor.loss,
        design,
        plain[1],
        columns,
        schedule.clip / jnp.maximum(jnp.linalg.norm(design, axis=1), 1e-300),
        root.T @ policy.precision @ root,
        jnp.linalg.solve(root, jnp.asarray(stage.start)),
        max(schedule.step_sizes),
        schedule.temper * weights,
        jax.random.key(seed),
        schedule.num_steps,
    )
    return np.asarray(states[: schedule.num_steps] @ root.T)


@partial(jax.jit, static_argnums=0)
def _follow(
    loss: Loss,
    design: jax.Array,
    offset: jax.Array,
    columns: Columns,
    cap: jax.Array,
    precision: jax.Array,
    start: jax.Array,
    step: jax.Array,
    weights: jax.Array,
    key: jax.Array,
    num_steps: jax.Array,
) -> jax.Array:
    """The clipped path in whitened coordinates, in a buffer that fits every path."""
    score = jax.vmap(jax.grad(loss))

    def body(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        u, states = carry
        slope = jnp.clip(score(design @ u + offset, columns), -cap, cap)
        gradient = precision @ u + (weights * slope) @ design
        noise = jax.random.normal(jax.random.fold_in(key, k), u.shape)
        u = u - step * gradient + jnp.sqrt(2.0 * step) * noise
        return u, states.at[k].set(u)

    states = jnp.zeros((MOST_STEPS, len(start)))
    done: tuple[jax.Array, jax.Array] = jax.lax.fori_loop(0, num_steps, body, (start, states))
    return done[1]


@partial(jax.jit, static_argnums=0)
def _mode(
    loss: Loss,
    design: jax.Array,
    offset: jax.Array,
    columns: Columns,
    precision: jax.Array,
    weights: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    slope, curvature = jax.vmap(jax.grad(loss)), jax.vmap(jax.grad(jax.grad(loss)))

    def hessian(theta: jax.Array) -> jax.Array:
        bend = weights * jnp.maximum(curvature(design @ theta + offset, columns), 0.0)
        return precision + (design.T * bend) @ design

    def newton(theta: jax.Array, _: None) -> tuple[jax.Array, None]:
        gradient = precision @ theta + (weights * slope(design @ theta + offset, columns)) @ design
        move = jnp.linalg.solve(hessian(theta), gradient)
        longest = jnp.sqrt(jnp.mean((design @ move) ** 2))
        return theta - move * jnp.minimum(1.0, 1.0 / jnp.maximum(longest, 1e-300)), None

    mode = jax.lax.scan(newton, jnp.zeros(design.shape[1]), None, length=_NEWTON_STEPS)[0]
    return mode, jnp.linalg.inv(hessian(mode))
