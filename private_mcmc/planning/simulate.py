"""Policies carried out on public synthetic rows, and the error to expect of one for an affine predictor.

Every stage is computed with its own noise on rows that each stand for many; paths are those of the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.kernels.synthetic import SyntheticChain
from private_mcmc.model import Predictor, RowModel
from private_mcmc.planning.affine import AffinePolicy
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    Conclusion,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Policy,
    Prediction,
)
from private_mcmc.planning.synthetic import Columns, SyntheticData, with_outcomes
from private_mcmc.release import Counts, SecondMoments

SYNTHETIC_ROWS, DATA_SETS = 1024, 4
_NEWTON_STEPS = 60


def simulate(
    policy: Policy,
    chain: Callable[[PathStage], SyntheticChain],
    rows: Columns,
    weights: Array,
    seed: int,
) -> History:
    """What the stages of ``policy`` would release of ``rows``, which stand for ``weights`` rows each.

    ``chain`` tells the compiled chain of a path.
    """
    random = np.random.default_rng(seed)
    history: History = ()
    with jax.enable_x64(True):
        while (stage := policy.next(history)) is not None:
            value: SecondMoments | Counts | Array
            if isinstance(stage, MomentsStage):
                value = _moments(stage, rows, weights, random)
            elif isinstance(stage, CountsStage):
                cells = np.asarray(jax.vmap(stage.cell)(rows))
                exact = np.bincount(cells, weights, minlength=stage.mechanism.cells)
                sd = stage.mechanism.noise.sd
                value = Counts(exact + sd * random.standard_normal(len(exact)), sd, stage.statement)
            else:
                given = rows if stage.derived is None else {**rows, **jax.vmap(stage.derived)(rows)}
                key = jax.random.key(len(history) + 64 * seed)
                value = chain(stage).path(stage.schedule, stage.start, given, weights, key)
            history = (*history, CompletedStage(stage, value))
    return history


def _moments(
    stage: MomentsStage, rows: Columns, weights: Array, random: np.random.Generator
) -> SecondMoments:
    vectors = stage.vectors
    function, given = vectors, ()
    if isinstance(vectors, partial) and all(isinstance(each, float | np.ndarray) for each in vectors.args):
        # What was released is an argument: all data sets and budgets share one compiled sum.
        function, given = vectors.func, vectors.args
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


def predict(policy: AffinePolicy) -> Prediction:
    """Root mean square error over simulations on synthetic data, and its parts as the policy reports them.

    Where the policy reports more than the simulations show, its parts shrink to what they show.
    """
    errors, parts = [], []
    for seed in range(DATA_SETS):
        data = synthetic_data(policy, seed)
        conclusion = simulate_affine(policy, data.rows, data.weights, seed)
        errors.append(np.mean(((conclusion.draws.mean(axis=0) - data.mean) / data.sd) ** 2))
        parts.append(conclusion.prediction)
    squares = np.square([(part.bias, part.monte_carlo, part.discretisation) for part in parts])
    bias, monte_carlo, discretisation = (float(part) for part in np.sqrt(np.mean(squares, axis=0)))
    rms = float(np.sqrt(np.mean(errors)))
    seen = min(1.0, rms / max(math.hypot(bias, monte_carlo), 1e-300))
    return Prediction(rms, seen * bias, seen * monte_carlo, discretisation)


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
    """Draw rows. Their predictors have a root mean square of 3, or of 1 where curvature has no bound.

    A mode at a distance from the start is the expensive case; under a log link 1 already triples rates.
    """
    predictor, domains = policy.predictor, policy.reading.rows
    effect = 3.0 if predictor.family.curvature_bound < np.inf else 1.0
    with jax.enable_x64(True):
        rows_key, theta_key, outcome_key = jax.random.split(jax.random.key(seed), 3)
        rows = domains.project(domains.synthetic(rows_key, SYNTHETIC_ROWS))
        design, offset = _designs(predictor, rows)
        normal = jax.random.normal(theta_key, (policy.dim,))
        theta = jnp.linalg.solve(jnp.linalg.cholesky(jnp.asarray(policy.precision)).T, normal)
        theta = theta * effect / jnp.maximum(jnp.sqrt(jnp.mean((design @ theta) ** 2)), 1e-300)
        choices = {name: jnp.asarray(values) for name, values in policy.influence.outcomes.items()}

        def log_weights(eta: jax.Array, row: Columns) -> jax.Array:
            return -jax.vmap(lambda choice: predictor.loss(eta, {**row, **choice}))(choices)

        logits = jax.vmap(log_weights)(design @ theta + offset, rows)
        rows, weights = with_outcomes(
            dict(rows), choices, logits, policy.num_rows / SYNTHETIC_ROWS, outcome_key
        )
        mean, sd = mode_and_sd(policy, rows, weights)
        return SyntheticData(rows, weights, mean, sd)


def mode_and_sd(policy: AffinePolicy, rows: Columns, weights: Array) -> tuple[Array, Array]:
    """The tempered posterior's mode and ``√diag H^{-1}`` there, ``H`` its Hessian; both ``(p,)``."""
    with jax.enable_x64(True):
        weighted = policy.temper * jnp.asarray(weights)
        mode, covariance = _mode(policy.predictor, policy.reading, rows, policy.precision, weighted)
        sd: Array = np.sqrt(np.diag(np.asarray(covariance)))
        return np.asarray(mode), sd


def _designs(predictor: Predictor, rows: Columns) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(predictor.design)(rows), jax.vmap(predictor.offset)(rows)


@partial(jax.jit, static_argnums=(0, 1))
def _mode(
    predictor: Predictor, reading: RowModel, rows: Columns, precision: Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Newton's method, whose steps move predictors by a root mean square of 1 at most."""
    design, offset = _designs(predictor, rows)
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
        return theta - move * jnp.minimum(1.0, 1.0 / jnp.maximum(longest, 1e-300)), None

    mode = jax.lax.scan(newton, jnp.zeros(design.shape[1]), None, length=_NEWTON_STEPS)[0]
    return mode, jnp.linalg.inv(hessian(mode))
