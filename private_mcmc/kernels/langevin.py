"""The Langevin step, and whole chains of it, read from a schedule and nothing else.

One step of every chain, in whitened coordinates (``M = AAᵀ``, ``θ = Au``):
``u' = u − γ_k (Aᵀ∇K(Au) + w f Σ_i clip_C(Aᵀ∇v_i(Au))) + √(2γ_k) ξ``, ``ξ ~ N(0, I)`` or another constant
covariance, then perhaps a projection. The sum is over all rows (``f = 1``) or over a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from private_mcmc.accounting import gradient_limit
from private_mcmc.kernels.batches import StepKeys, batch_sum
from private_mcmc.kernels.gradient import Columns, clipped_gradient
from private_mcmc.kernels.projection import projection
from private_mcmc.kernels.whitening import Whitening, noise_colour, whitening
from private_mcmc.modeling import RowModel
from private_mcmc.schedule import Schedule

Observable = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True, eq=False)
class LangevinProgram:
    """The pure functions of one run; the data are always arguments, never closed over.

    Attributes:
        prepare: ``(columns, present) -> rows``, once a run.
        step: ``(u, k, key, rows) -> u'`` for ``u`` of shape ``(chains, p)`` and step number ``k ≥ 0``;
            ``key`` is the key of the steps, or ``StepKeys`` where the schedule draws batches.
        whitening: the change of variables between ``u`` and the unconstrained parameter.
    """

    prepare: Callable[[Columns, jax.Array], Any]
    step: Callable[[jax.Array, jax.Array, jax.Array | StepKeys, Any], jax.Array]
    whitening: Whitening


def langevin_program(model: RowModel, schedule: Schedule) -> LangevinProgram:
    """Build the step of ``schedule`` for ``model``.

    Raises:
        DeclarationError: for a preconditioner, noise or projection that makes no sense.
    """
    change = whitening(schedule.preconditioner, model.dim)
    columnwise = schedule.batch is None and schedule.num_chains == 1
    data_gradient = batch_sum(clipped_gradient(model, change, schedule.clip, columnwise), schedule)
    prior_score: Observable = jax.grad(lambda u: model.neg_log_prior(change.to_parameter(u)))
    colour, project = noise_colour(schedule, change), projection(schedule)
    limit = gradient_limit(schedule)

    def drift(u: jax.Array, rows: Any, k: jax.Array, key: jax.Array | None) -> jax.Array:
        return prior_score(u) + schedule.temper * data_gradient.total(u, rows, k, key)

    def step(u: jax.Array, k: jax.Array, key: jax.Array | StepKeys, rows: Any) -> jax.Array:
        keys = key if isinstance(key, StepKeys) else StepKeys(key)
        gamma = _step_size(schedule, k)
        noise = colour(jax.random.normal(jax.random.fold_in(keys.steps, k), u.shape, u.dtype))
        draws = None if schedule.batch is None else keys.of_chains(k, u.shape[0])
        gradient = jax.vmap(drift, in_axes=(0, None, None, 0))(u, rows, k, draws)
        gradient = jnp.clip(gradient, -limit, limit)
        # The noise joins the gradient before the state does: what rounds from there on is post-processing.
        return project(u + (jnp.sqrt(2.0 * gamma) * noise - gamma * gradient))

    return LangevinProgram(data_gradient.prepare, step, change)


def _step_size(schedule: Schedule, k: jax.Array) -> jax.Array:
    if isinstance(schedule.step_size, tuple):
        return jnp.asarray(schedule.step_size)[k]
    return jnp.asarray(schedule.step_size)
