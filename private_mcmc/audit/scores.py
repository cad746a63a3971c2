"""Scores that know the mechanism: the likelihood ratio of a whole path, and the loss of the differing row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting.sensitivity import batch_factor
from private_mcmc.audit.confidence import FloatArray
from private_mcmc.audit.mechanism import DataSet, Pair, Score
from private_mcmc.inference.columns import on_device
from private_mcmc.kernels.gradient import ClippedGradient, clipped_gradient
from private_mcmc.kernels.whitening import whitening
from private_mcmc.modeling import RowModel
from private_mcmc.schedule import Schedule


def chain_scores(model: RowModel, schedule: Schedule, start: FloatArray, pair: Pair) -> Mapping[str, Score]:
    """Attacks on the released states of ``schedule``, whose chains start at ``start``, shape ``(p,)``."""
    scores: dict[str, Score] = {"loss of the row": loss_of_the_row(model, schedule, pair)}
    if schedule.release == "path":
        scores["likelihood ratio"] = path_likelihood_ratio(model, schedule, start, pair)
    return scores


def path_likelihood_ratio(model: RowModel, schedule: Schedule, start: FloatArray, pair: Pair) -> Score:
    """``Σ_k log p'(x_{k+1} | x_k) − log p(x_{k+1} | x_k)``, each step Gaussian given the last and the batch.

    With every row at every step and noise ``2γM`` this is the likelihood ratio, which no test of the path
    can beat (Neyman, Pearson). With batches the differing row is in with probability ``q`` and out
    otherwise, all others in with weight ``q``; other noise and projections are left out of the formula.
    """
    change = whitening(schedule.preconditioner, model.dim)
    gradient = clipped_gradient(model, change, schedule.clip)
    prior = jax.grad(lambda u: model.neg_log_prior(change.to_parameter(u)))
    share, factor = _share(schedule), batch_factor(schedule)
    sides = [_with_and_without(gradient, model, schedule, data) for data in (pair.first, pair.second)]
    gammas = np.asarray(schedule.step_sizes)

    def log_density(u: jax.Array, after: jax.Array, gamma: jax.Array, side: tuple[Any, Any]) -> jax.Array:
        everyone, others = (gradient.total(u, rows) for rows in side)
        crowd = prior(u) + schedule.temper * share * factor * others
        row = schedule.temper * factor * (everyone - others)
        steps = jnp.stack([crowd, crowd + row])
        distance = jnp.sum((after - u + gamma * steps) ** 2, axis=-1)
        weights = jnp.log(jnp.asarray([max(1 - share, 0.0), share]))
        return jax.scipy.special.logsumexp(weights - distance / (4 * gamma))

    def of_step(before: jax.Array, after: jax.Array, gamma: jax.Array) -> jax.Array:
        one, two = (log_density(before, after, gamma, side) for side in sides)
        return two - one

    @jax.jit
    def of_runs(theta: jax.Array) -> jax.Array:
        u = change.from_parameter(theta)
        origin = jnp.broadcast_to(change.from_parameter(jnp.asarray(start)), u[..., :1, :].shape)
        before = jnp.concatenate([origin, u[..., :-1, :]], axis=-2)
        of_path = jax.vmap(of_step)
        totals = jax.vmap(jax.vmap(lambda b, a: of_path(b, a, jnp.asarray(gammas)).sum()))(before, u)
        return totals.sum(axis=-1)

    shape = schedule.num_chains, schedule.num_steps, model.dim
    return _on_states(of_runs, shape)


def _share(schedule: Schedule) -> float:
    """Probability that a row is in a step's batch."""
    batch = schedule.batch
    if batch is None:
        return 1.0
    return batch.rate if batch.rate is not None else (batch.size or 0) / schedule.num_rows


def _with_and_without(
    gradient: ClippedGradient, model: RowModel, schedule: Schedule, data: DataSet
) -> tuple[Any, Any]:
    """Prepared rows of ``data``, and those without its differing row, the last one of the longer data set."""
    with jax.enable_x64(True):
        columns, present = on_device(model.rows, dict(data), schedule.num_rows)
        others = present & (jnp.arange(len(present)) < schedule.num_rows - 1)
        return gradient.prepare(columns, present), gradient.prepare(columns, others)


def loss_of_the_row(model: RowModel, schedule: Schedule, pair: Pair) -> Score:
    """``v(θ, d) − v(θ, d')`` summed over released states: membership inference by the row's own loss."""
    first, second = pair.last_rows()

    def loss(theta: jax.Array, row: DataSet | None) -> jax.Array:
        if row is None:
            return jnp.zeros(())
        projected = model.rows.project({name: jnp.asarray(value)[None] for name, value in row.items()})
        return model.row_loss(theta, {name: value[0] for name, value in projected.items()})

    @jax.jit
    def of_runs(theta: jax.Array) -> jax.Array:
        states = theta.reshape(theta.shape[0], -1, model.dim)
        return jax.vmap(jax.vmap(lambda t: loss(t, first) - loss(t, second)))(states).sum(axis=-1)

    return _on_states(of_runs, (-1, model.dim))


def _on_states(of_runs: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]) -> Score:
    """A score of flat outputs from a function of states; what is not finite becomes finite."""

    def score(outputs: FloatArray) -> FloatArray:
        with jax.enable_x64(True):
            values = of_runs(jnp.asarray(outputs.reshape(len(outputs), *shape)))
        return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -1e30, 1e30)

    return score
