"""The Langevin step, and whole chains of it, read from a schedule and nothing else.

One step of every chain, in whitened coordinates (``M = AAᵀ``, ``θ = Au``):
``u' = u − γ_k (Aᵀ∇K(Au) + w Σ_i clip_C(Aᵀ∇v_i(Au))) + √(2γ_k) ξ``, ``ξ ~ N(0, I)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from private_mcmc.errors import NotYetSupported
from private_mcmc.kernels.gradient import Columns, clipped_gradient
from private_mcmc.kernels.whitening import Whitening, whitening
from private_mcmc.modeling import RowModel
from private_mcmc.schedule import Schedule

Observable = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True, eq=False)
class LangevinProgram:
    """The pure functions of one run; the data are always arguments, never closed over.

    Attributes:
        prepare: ``(columns, present) -> rows``, once a run.
        step: ``(u, k, key, rows) -> u'`` for ``u`` of shape ``(chains, p)`` and step number ``k ≥ 0``.
        whitening: the change of variables between ``u`` and the unconstrained parameter.
    """

    prepare: Callable[[Columns, jax.Array], Any]
    step: Callable[[jax.Array, jax.Array, jax.Array, Any], jax.Array]
    whitening: Whitening


def langevin_program(model: RowModel, schedule: Schedule) -> LangevinProgram:
    """Build the step of ``schedule`` for ``model``.

    Raises:
        NotYetSupported: for batches, projections or noise that this step does not implement.
    """
    if schedule.batch is not None or schedule.noise is not None or schedule.diameter < float("inf"):
        raise NotYetSupported("this kernel uses every row at every step, noise 2γM and no projection.")
    change = whitening(schedule.preconditioner, model.dim)
    data_gradient = clipped_gradient(model, change, schedule.clip)
    prior_score: Observable = jax.grad(lambda u: model.neg_log_prior(change.to_parameter(u)))

    def drift(u: jax.Array, rows: Any) -> jax.Array:
        return prior_score(u) + schedule.temper * data_gradient.total(u, rows)

    def step(u: jax.Array, k: jax.Array, key: jax.Array, rows: Any) -> jax.Array:
        gamma = _step_size(schedule, k)
        noise = jax.random.normal(jax.random.fold_in(key, k), u.shape, u.dtype)
        # The noise joins the drift before the state does: what rounds after it is post-processing.
        return u + (jnp.sqrt(2.0 * gamma) * noise - gamma * jax.vmap(drift, in_axes=(0, None))(u, rows))

    return LangevinProgram(data_gradient.prepare, step, change)


def _step_size(schedule: Schedule, k: jax.Array) -> jax.Array:
    if isinstance(schedule.step_size, tuple):
        return jnp.asarray(schedule.step_size)[k]
    return jnp.asarray(schedule.step_size)
