"""Clipped gradients of the data term: ``Σ_i clip_C(Aᵀ∇v(θ, d_i))``, one row at most ``C``.

Rows that enter through one affine predictor are clipped in closed form; all others, persons among them, by
their own gradients, formed in blocks by ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from private_mcmc.kernels.gradient.affine import (
    MANY,
    AffineBlocks,
    affine_blocks,
    affine_rows,
    weighted_blocks,
)
from private_mcmc.kernels.gradient.clipping import (
    Clip,
    ClippedGradient,
    Columns,
    WeightedGradient,
    Whitening,
    clipped_sum,
    widened,
)
from private_mcmc.potential.potential import SHARE, Potential
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.schedule import Schedule

# ``(gradients, present, weights) ↦ Σ_i w_i clip(g_i)`` of a block of rows.
BlockSum = Callable[[jax.Array, jax.Array, jax.Array | None], jax.Array]

# Elements of what a block of rows needs in between: on a CPU it should stay in cache.
_BLOCK_ELEMENTS = {"cpu": 2**18}
_BLOCK_ELEMENTS_ELSEWHERE = 2**24
# A clip of a coordinate, less the rounding of its product with the root of the metric.
_INSIDE = 1.0 - 2.0**-45


def clipped_gradient(
    model: Potential, whitening: Whitening, clip: Clip, states: int | None = None, sums: int = MANY
) -> ClippedGradient:
    """The clipped data gradient of ``model`` in whitened coordinates.

    ``states``: how many states share every sum over all rows, which are then stored in the layout that is
    fastest for them; ``None`` where rows are selected for each sum. ``sums``: how many are taken, which
    decides what pays.
    """
    if model.predictor is None:
        return general_rows(model, whitening, clip, states or 1)
    if states is None:
        return affine_rows(model.predictor, whitening, clip)
    return affine_blocks(model.predictor, whitening, clip, states, sums)


def schedule_gradient(
    model: Potential, whitening: Whitening, schedule: Schedule, states: int | None = None, sums: int = MANY
) -> ClippedGradient:
    """The clipped data gradient that a schedule declares: by the norm, or coordinate by coordinate."""
    if schedule.clips is not None:
        return boxed_gradient(model, whitening, schedule.clips, states or 1)
    return clipped_gradient(model, whitening, schedule.clip, states, sums)


class GeneralRows(NamedTuple):
    """The rows as they came, which of them are present, and the weights of synthetic ones."""

    columns: Columns
    present: Bool[Array, " rows"]
    weights: Float[Array, " rows"] | None = None


def general_rows(model: Potential, whitening: Whitening, clip: Clip, states: int = 1) -> ClippedGradient:
    """Rows of any model, selected or whole, for ``states`` states at a time, clipped by their norms."""
    return _by_blocks(
        model, whitening, lambda gradients, present, w: clipped_sum(gradients, present, clip, w), states
    )


def boxed_gradient(
    model: Potential, whitening: Whitening, clips: tuple[float, ...], states: int = 1
) -> ClippedGradient:
    """``Σ_i clip(Aᵀ∇v(θ, d_i))``, every coordinate apart, for a diagonal ``M``.

    **Guarantee**: coordinate ``j`` of a row's term is at most ``√M_jj C_j`` in size; a row whose gradient is
    not finite, or that is not present, contributes exactly zero.
    """

    def of_block(
        gradients: Float[Array, "rows p"],
        present: Bool[Array, " rows"],
        weights: Float[Array, " rows"] | None,
    ) -> Float[Array, " p"]:
        caps = whitening.pull_back(jnp.asarray(clips) * _INSIDE)
        usable = present & jnp.all(jnp.isfinite(gradients), axis=-1)
        kept = jnp.where(usable[:, None], jnp.clip(gradients, -caps, caps), 0.0)
        return kept.sum(axis=0) if weights is None else weights @ kept

    return _by_blocks(model, whitening, of_block, states)


def _row_gradient(model: Potential, whitening: Whitening) -> Callable[[jax.Array, Columns], jax.Array]:
    """``(u, row) ↦ Aᵀ∇v(Au, row)``, of that row alone whoever made ``v``."""
    loss = rowwise(model.row_loss)
    return rowwise(jax.grad(lambda u, row: loss(whitening.to_parameter(u), row)))


def _by_blocks(model: Potential, whitening: Whitening, of_block: BlockSum, states: int) -> ClippedGradient:
    """Sums over blocks of rows, whose gradients are formed one by one; the last block counts its own rows."""
    per_row = jax.vmap(_row_gradient(model, whitening), in_axes=(None, 0))
    most = _BLOCK_ELEMENTS.get(jax.default_backend(), _BLOCK_ELEMENTS_ELSEWHERE)
    fitting = max(1, most // ((model.elements or model.dim) * states))

    def total(u: Float[Array, " p"], rows: GeneralRows) -> Float[Array, " p"]:
        def of(block: GeneralRows, own: jax.Array | bool = True) -> jax.Array:
            return of_block(per_row(u, widened(block.columns)), block.present & own, block.weights)

        count = rows.present.shape[0]
        size = min(count, fitting)
        if size == count:
            return of(rows)

        def add(i: jax.Array, sum_before: jax.Array) -> jax.Array:
            first = jnp.minimum(i * size, count - size)
            block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows)
            return sum_before + of(block, first + jnp.arange(size) >= i * size)

        whole: jax.Array = jax.lax.fori_loop(0, -(-count // size), add, jnp.zeros_like(u))
        return whole

    def prepare(columns: Columns, present: Bool[Array, " rows"]) -> GeneralRows:
        """Rows with the weights of their terms, on which constants of hidden states rest."""
        if model.term.share is not None:
            share = rowwise(model.term.share)
            columns = {**columns, SHARE: jax.lax.map(share, widened(columns), batch_size=fitting)}
        return GeneralRows(columns, present)

    return ClippedGradient(prepare, total)


def weighted_gradient(model: Potential, whitening: Whitening, clip: Clip) -> WeightedGradient:
    """The same clipped sum over public synthetic rows, each counted as often as its weight says."""
    clipped = clipped_gradient(model, whitening, clip, states=1, sums=1)

    def prepare(columns: Columns, weights: jax.Array) -> AffineBlocks | GeneralRows:
        rows: AffineBlocks | GeneralRows = clipped.prepare(columns, jnp.ones(len(weights), dtype=bool))
        if isinstance(rows, AffineBlocks):
            return weighted_blocks(rows, weights)
        return rows._replace(weights=weights)

    return WeightedGradient(prepare, clipped.total)
