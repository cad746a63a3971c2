"""Clipped gradients of the data term: ``Σ_i clip_C(Aᵀ∇v(θ, d_i))``, one row at most ``C``.

Rows that enter through one affine predictor are clipped in closed form; other models by the layers of a
row's program where their gradients factor, and by per-row gradients in blocks otherwise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from private_mcmc.kernels.gradient.affine import (
    MANY,
    AffineBlocks,
    AffineRows,
    affine_blocks,
    affine_rows,
    weighted_blocks,
)
from private_mcmc.kernels.gradient.clipping import Clip, ClippedGradient, Columns, WeightedGradient
from private_mcmc.kernels.gradient.general import GeneralRows, Route, general_rows
from private_mcmc.kernels.whitening import Whitening, whitening
from private_mcmc.model import RowModel
from private_mcmc.schedule import Schedule, Storage

__all__ = [
    "AffineBlocks",
    "AffineRows",
    "ClippedGradient",
    "Columns",
    "GeneralRows",
    "Route",
    "WeightedGradient",
    "clipped_gradient",
    "weighted_gradient",
]


def clipped_gradient(
    model: RowModel,
    whitening: Whitening,
    clip: Clip,
    states: int | None = None,
    route: Route | None = None,
    storage: Storage = "float64",
    sums: int = MANY,
) -> ClippedGradient:
    """The clipped data gradient of ``model`` in whitened coordinates.

    ``states``: how many states share every sum over all rows, which are then stored in the layout that is
    fastest for them; ``None`` where rows are selected for each sum. ``route``: how rows are clipped that do
    not enter through one affine predictor; the fastest that is exact if left out. ``storage``: what the rows
    are held in between sums, by ``stored``. ``sums``: how many are taken, which decides what pays.
    """
    if model.predictor is not None and route is None:
        if states is None:
            return affine_rows(model.predictor, whitening, clip)
        return affine_blocks(model.predictor, whitening, clip, states, storage, sums)
    return general_rows(model, whitening, clip, states or 1, route)


def weighted_gradient(model: RowModel, whitening: Whitening, clip: Clip) -> WeightedGradient:
    """The same clipped sum over public synthetic rows, each counted as often as its weight says."""
    clipped = clipped_gradient(model, whitening, clip, states=1, sums=1)

    def prepare(columns: Columns, weights: jax.Array) -> AffineBlocks | GeneralRows:
        rows: AffineBlocks | GeneralRows = clipped.prepare(columns, jnp.ones(len(weights), dtype=bool))
        if isinstance(rows, AffineBlocks):
            return weighted_blocks(rows, weights)
        return rows._replace(weights=weights)

    return WeightedGradient(prepare, clipped.total)


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
