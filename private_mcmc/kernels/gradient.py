"""Clipped gradients of the data term: ``Σ_i clip_C(Aᵀ∇v(θ, d_i))``, one row at most ``C``.

Rows that enter through one affine predictor ``η_i = x_i·θ + o_i`` are clipped in closed form: the norm
of a row's gradient is ``|ψ'(η_i)|·‖Aᵀx_i‖``, so no per-row gradient is formed. Other models take
per-row gradients in blocks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from private_mcmc.kernels.whitening import Whitening
from private_mcmc.modeling import Predictor, RowModel

Columns = Mapping[str, jax.Array]

# Squares of smaller entries underflow: added to a norm, this keeps it an upper bound of the true one.
_UNDERFLOW = 1e-140
# A row whose design is longer than proved (by more than rounding) does not enter.
_RADIUS_SLACK = 1.0 + 1e-9
# A row's gradient is kept this much inside the clip, so that rounding cannot push it past C.
_SAFETY = 1.0 - 2.0**-40
_BLOCK_ELEMENTS = 2**22


class AffineRows(NamedTuple):
    """Prepared rows of a one-predictor model: whitened designs ``Aᵀx_i``, caps of slopes, offsets, columns.

    ``design`` is ``(N, p)``, or ``(p, N)`` where the gradient is columnwise.
    """

    design: jax.Array
    cap: jax.Array
    offset: jax.Array
    columns: Columns
    present: jax.Array


class GeneralRows(NamedTuple):
    """Prepared rows of a general model, filled up to whole blocks with rows that are absent."""

    columns: Columns
    present: jax.Array


PreparedRows = AffineRows | GeneralRows


@dataclass(frozen=True, eq=False)
class ClippedGradient:
    """``prepare(columns, present)`` once a run, then ``total(u, prepared)`` at every step.

    **Guarantee**: for every ``u`` (NaN included) and every row, present or not, that row's term in
    ``total`` has Euclidean norm at most ``C`` in the whitened coordinates, i.e. dual norm at most ``C``.
    A row that is not present contributes exactly zero.
    """

    prepare: Callable[[Columns, jax.Array], Any]
    total: Callable[[jax.Array, Any], jax.Array]


def clipped_gradient(
    model: RowModel, whitening: Whitening, clip: float, columnwise: bool = False
) -> ClippedGradient:
    """The clipped data gradient of ``model`` in whitened coordinates; the faster exact route is chosen.

    ``columnwise`` stores designs as ``(p, N)``, several times faster for one state at a time and slower
    for a few of them; rows cannot be selected then.
    """
    if model.predictor is not None:
        return _affine(model.predictor, whitening, clip, columnwise)
    return _general(model, whitening, clip)


def _affine(predictor: Predictor, whitening: Whitening, clip: float, columnwise: bool) -> ClippedGradient:
    score = jax.vmap(jax.grad(predictor.loss))

    def prepare(columns: Columns, present: jax.Array) -> AffineRows:
        plain = jax.vmap(predictor.design)(columns)
        design = whitening.pull_back(plain)
        norm = jnp.linalg.norm(design, axis=-1) + _UNDERFLOW
        proved = jnp.linalg.norm(plain, axis=-1) <= predictor.radius * _RADIUS_SLACK
        usable = jnp.isfinite(norm) & proved
        design = jnp.where(usable[:, None], design, 0.0)
        cap = jnp.where(usable & (norm > 0), _SAFETY * clip / norm, 0.0)
        offset = jax.vmap(predictor.offset)(columns)
        return AffineRows(design.T if columnwise else design, cap, offset, columns, present & usable)

    def total(u: jax.Array, rows: AffineRows) -> jax.Array:
        shift = u @ rows.design if columnwise else rows.design @ u
        slope = score(shift + rows.offset, rows.columns)
        cap = jnp.where(rows.present, rows.cap, 0.0)
        slope = jnp.clip(jnp.where(jnp.isnan(slope), 0.0, slope), -cap, cap)
        return rows.design @ slope if columnwise else slope @ rows.design

    return ClippedGradient(prepare, total)


def _general(model: RowModel, whitening: Whitening, clip: float) -> ClippedGradient:
    def loss(u: jax.Array, row: Columns) -> jax.Array:
        return model.row_loss(whitening.to_parameter(u), row)

    per_row = jax.vmap(jax.grad(loss), in_axes=(None, 0))

    def prepare(columns: Columns, present: jax.Array) -> GeneralRows:
        return _whole_blocks(GeneralRows(columns, present), _block(present.shape[0], model.dim))

    def total(u: jax.Array, rows: GeneralRows) -> jax.Array:
        def add_block(carry: jax.Array, block: GeneralRows) -> tuple[jax.Array, None]:
            gradients = per_row(u, block.columns)
            norm = jnp.linalg.norm(gradients, axis=-1)
            usable = block.present & jnp.isfinite(norm)
            scale = jnp.where(usable, jnp.minimum(1.0, _SAFETY * clip / jnp.maximum(norm, 1e-300)), 0.0)
            return carry + scale @ jnp.where(usable[:, None], gradients, 0.0), None

        size = _block(rows.present.shape[0], model.dim)
        whole = _whole_blocks(rows, size)
        blocks = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), whole)
        return jax.lax.scan(add_block, jnp.zeros_like(u), blocks)[0]

    return ClippedGradient(prepare, total)


def _block(size: int, dim: int) -> int:
    return max(1, min(size, _BLOCK_ELEMENTS // dim))


def _whole_blocks(rows: GeneralRows, block: int) -> GeneralRows:
    """Fill the last block with copies of the last row, marked absent."""
    size = rows.present.shape[0]
    missing = -size % block
    if missing == 0:
        return rows
    index = jnp.minimum(jnp.arange(size + missing), size - 1)
    present = rows.present[index] & (jnp.arange(size + missing) < size)
    return GeneralRows({name: column[index] for name, column in rows.columns.items()}, present)
