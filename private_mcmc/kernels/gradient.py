"""The clipped gradient of the data term, ``Σ_i clip_C(Aᵀ∇v(θ, d_i))``, one row at most ``C``, by two routes.

Rows that enter through one affine predictor ``η_i = x_i·θ + o_i`` have gradients ``ψ'(η_i)·Aᵀx_i`` of norm
``|ψ'(η_i)|·‖Aᵀx_i‖``: clipping holds the slope ``ψ'`` between caps that are known before the run, and no
per-row gradient is formed. All others, persons among them, are clipped by their own gradients, formed in
blocks by ``vmap``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from private_mcmc.kernels.clipping import (
    UNDERFLOW,
    Clip,
    ClippedGradient,
    Columns,
    Whitening,
    clipped_sum,
    held,
    inside,
    times,
    widened,
)
from private_mcmc.potential.potential import SHARE, Potential
from private_mcmc.potential.predictor import Predictor
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.schedule import Schedule

# ``(gradients, present, weights) ↦ Σ_i w_i clip(g_i)`` of a block of rows.
BlockSum = Callable[..., jax.Array]

# Elements of what a block of rows needs in between: on a CPU it should stay in cache.
_BLOCK_ELEMENTS = {"cpu": 2**18}
_BLOCK_ELEMENTS_ELSEWHERE = 2**24
# A clip of a coordinate, less the rounding of its product with the root of the metric.
_INSIDE = 1.0 - 2.0**-45


def schedule_gradient(
    model: Potential,
    whitening: Whitening,
    schedule: Schedule,
    states: int | None = None,
    clip: Clip | None = None,
) -> ClippedGradient:
    """The clipped data gradient that a schedule declares: by the norm, or coordinate by coordinate.

    A ``clip`` of the norm takes the place of the schedule's: one that is known when the program runs.
    """
    if schedule.within < math.inf:
        # What rounds off is charged.
        model = replace(model, term=model.term.written_out)
    if schedule.clips is not None:
        return boxed_gradient(model, whitening, schedule.clips, states or 1)
    return clipped_gradient(model, whitening, schedule.clip if clip is None else clip, states)


def clipped_gradient(
    model: Potential, whitening: Whitening, clip: Clip, states: int | None = None
) -> ClippedGradient:
    """The clipped data gradient of ``model`` in whitened coordinates.

    ``states``: how many states share every sum over all rows; ``None`` where rows are selected for each sum.
    """
    if model.predictor is None:
        return general_rows(model, whitening, clip, states or 1)
    return affine_rows(model.predictor, whitening, clip, whole=states is not None)


class AffineRows(NamedTuple):
    """Rows of one affine predictor.

    ``design``: whitened, zero where a row cannot be used; ``(rows, p)`` of rows to select from, and by
    columns, ``(p, rows)``, where all are in each sum, which takes half the time. ``cap``: of the slope.
    ``weights``: of synthetic rows.
    """

    design: jax.Array
    cap: Float[Array, " rows"]
    offset: Float[Array, " rows"] | None
    columns: Columns
    present: Bool[Array, " rows"]
    weights: Float[Array, " rows"] | None = None


def affine_rows(predictor: Predictor, whitening: Whitening, clip: Clip, whole: bool) -> ClippedGradient:
    """Rows whose slopes are held at their caps: no gradient of a row is formed."""
    score = jax.vmap(_slope(predictor))

    def prepare(columns: Columns, present: Bool[Array, " rows"]) -> AffineRows:
        design, cap, usable = _capped(predictor, whitening, clip, columns)
        design = design.T if whole else design
        offset = offsets(predictor, columns)
        return AffineRows(design, cap, offset, read_by_slope(predictor, columns), present & usable)

    def total(u: Float[Array, " p"], rows: AffineRows) -> Float[Array, " p"]:
        eta = u @ rows.design if whole else rows.design @ u
        slope = score(eta if rows.offset is None else eta + rows.offset, rows.columns)
        slope = times(held(slope, jnp.where(rows.present, rows.cap, 0.0)), rows.weights)
        return rows.design @ slope if whole else slope @ rows.design

    return ClippedGradient(prepare, total)


def _slope(predictor: Predictor) -> Callable[[jax.Array, Columns], jax.Array]:
    """``(η, row) ↦ ψ'``, of that row alone whoever made ``ψ``."""
    return rowwise(jax.grad(rowwise(predictor.loss)))


def _capped(
    predictor: Predictor, whitening: Whitening, clip: Clip, columns: Columns
) -> tuple[Float[Array, "rows p"], Float[Array, " rows"], Bool[Array, " rows"]]:
    """Whitened designs, caps ``C/‖Aᵀx_i‖`` of slopes, and which rows may enter; those of others are zero.

    **Guarantee**: what hidden states cost rests on ``‖x‖ ≤ R`` of the designs that run, before whitening,
    which holds here of every row but for rounding, whatever was proved, or proposed, of the declared domain.
    """
    plain = jax.vmap(rowwise(predictor.design))(columns)
    length = jnp.linalg.norm(plain, axis=-1, keepdims=True)
    shorter = plain * (predictor.radius / length)
    design = whitening.pull_back(jnp.where(length > predictor.radius, shorter, plain))
    usable = jnp.isfinite(jnp.linalg.norm(design, axis=-1)) & jnp.isfinite(length[:, 0])
    design = jnp.where(usable[:, None], design, 0.0)
    norm = jnp.linalg.norm(design, axis=-1) + UNDERFLOW
    return design, jnp.where(usable, inside(clip, design.shape[1]) / norm, 0.0), usable


def offsets(predictor: Predictor, columns: Columns) -> jax.Array | None:
    """Those of the rows, ``None`` where all are zero."""
    return None if predictor.centred else jax.vmap(rowwise(predictor.offset))(columns)


def read_by_slope(predictor: Predictor, columns: Columns) -> dict[str, jax.Array]:
    """The columns that the slope reads."""
    return {name: column for name, column in columns.items() if name in predictor.reads}


class GeneralRows(NamedTuple):
    """The rows as they came, which of them are present, and the weights of synthetic ones."""

    columns: Columns
    present: Bool[Array, " rows"]
    weights: Float[Array, " rows"] | None = None


def general_rows(model: Potential, whitening: Whitening, clip: Clip, states: int = 1) -> ClippedGradient:
    """Rows of any model, selected or whole, for ``states`` states at a time, clipped by their norms."""
    return _by_blocks(model, whitening, partial(clipped_sum, clip=clip), states)


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
            gradients = per_row(u, widened(block.columns))
            return of_block(gradients, present=block.present & own, weights=block.weights)

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


def with_weights(rows: AffineRows | GeneralRows, weights: jax.Array) -> AffineRows | GeneralRows:
    """Public synthetic rows, each of which counts ``weights ≥ 0`` times after it was clipped, ``(N,)``.

    What one of them adds is bounded by ``w_i C`` only: no program of a schedule calls this.
    """
    return rows._replace(weights=weights)
