"""How often clipping binds: for the curator, since it is computed from private rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from private_mcmc.kernels.gradient.clipped import Columns
from private_mcmc.kernels.whitening import whitening
from private_mcmc.model import RowModel
from private_mcmc.schedule import Schedule

_BLOCK = 4096


def clipped_share(
    model: RowModel, schedule: Schedule, theta: jax.Array, columns: Columns, present: jax.Array
) -> float:
    """Share of the present rows whose gradient at ``θ`` is longer than the clip, in the schedule's metric.

    **No privacy statement covers it.** ``theta`` has shape ``(p,)``; columns are in their domains.
    """
    change = whitening(schedule.preconditioner, model.dim)

    def loss(u: jax.Array, row: Columns) -> jax.Array:
        return model.row_loss(change.to_parameter(u), row)

    @jax.jit
    def share(theta: jax.Array, columns: Columns, present: jax.Array) -> jax.Array:
        u = change.from_parameter(theta)

        def binds(row: Columns) -> jax.Array:
            return jnp.asarray(jnp.linalg.norm(jax.grad(loss)(u, row)) > schedule.clip)

        bound = jax.lax.map(binds, columns, batch_size=_BLOCK)
        return jnp.sum(bound & present) / jnp.maximum(jnp.sum(present), 1)

    with jax.enable_x64(True):
        return float(share(jnp.asarray(theta), columns, present))
