"""Clipping in closed form, for rows that enter through one affine predictor ``η_i = x_i·θ + o_i``.

A row's gradient is ``ψ'(η_i)·Aᵀx_i``, its norm ``|ψ'(η_i)|·‖Aᵀx_i‖``: clipping holds the slope ``ψ'``
between caps that are known before the run, and no per-row gradient is formed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from private_mcmc.kernels.clipping import UNDERFLOW, ClippedGradient, Columns, held, inside
from private_mcmc.kernels.whitening import Whitening
from private_mcmc.modeling import Predictor
from private_mcmc.modeling.program import abstract, trace

# A row whose design is longer than proved (by more than rounding) does not enter.
_RADIUS_SLACK = 1.0 + 1e-9
# Slopes may be held this much below their proved bound, to leave room for the slack of the radius.
_IDLE_SLACK = 1.0 + 1e-8
# On a CPU a block of so many rows stays in cache between its two products.
_BLOCK_ROWS = 256
# Designs of one state that fit in cache whole are faster in one block.
_CACHED_ELEMENTS = 2**18


class AffineRows(NamedTuple):
    """Rows one by one, to be selected from.

    ``table`` holds the whitened design, the cap of the slope and, where there are offsets, the offset of each
    row side by side, ``(N, p + 1)`` or ``(N, p + 2)``: what a row needs is fetched at once, and the product
    with ``(θ, 0, 1)`` is its predictor.
    """

    table: jax.Array
    columns: Columns
    present: jax.Array


class AffineBlocks(NamedTuple):
    """All rows in blocks, columnwise: designs ``(blocks, p, rows)``, zero where no row is present.

    Caps are ``(blocks, rows)``, or ``(blocks, 1)`` where one cap holds every row; there are no offsets where
    all are zero.
    """

    design: jax.Array
    cap: jax.Array
    offset: jax.Array | None
    columns: Columns


def affine_rows(predictor: Predictor, whitening: Whitening, clip: float) -> ClippedGradient:
    """Rows that are selected anew for every sum."""
    score = jax.vmap(jax.grad(predictor.loss))

    def prepare(columns: Columns, present: jax.Array) -> AffineRows:
        design, cap, usable = _capped(predictor, whitening, clip, columns)
        offset = _offset(predictor, columns)
        parts = [design, cap[:, None]] if offset is None else [design, cap[:, None], offset[:, None]]
        return AffineRows(jnp.concatenate(parts, axis=1), _read(predictor, columns), present & usable)

    def total(u: jax.Array, rows: AffineRows) -> jax.Array:
        # The table is multiplied as it lies: parts of it would have to be copied first.
        table, dim = rows.table.astype(u.dtype), u.shape[0]
        others = [0.0] if predictor.centred else [0.0, 1.0]
        eta = table @ jnp.concatenate([u, jnp.asarray(others, u.dtype)])
        slope = held(score(eta, rows.columns), jnp.where(rows.present, table[:, dim], 0.0))
        return (slope @ table)[:dim]

    return ClippedGradient(prepare, total)


def affine_blocks(predictor: Predictor, whitening: Whitening, clip: float, states: int) -> ClippedGradient:
    """All rows in every sum, for ``states`` states at a time."""
    score = jax.vmap(jax.grad(predictor.loss))
    limit = slope_limit(predictor, whitening, clip)

    def prepare(columns: Columns, present: jax.Array) -> AffineBlocks:
        design, cap, usable = _capped(predictor, whitening, clip, columns)
        present = present & usable
        design = jnp.where(present[:, None], design, 0.0)
        size = _block(design.shape[0], design.shape[1], states)
        blocks = jnp.swapaxes(_blocks(design, size), 1, 2)
        caps = _blocks(jnp.where(present, cap, 0.0), size)
        offset = _offset(predictor, columns)
        return AffineBlocks(
            blocks,
            caps if limit is None else jnp.full((blocks.shape[0], 1), limit),
            None if offset is None else _blocks(offset, size),
            {name: _blocks(column, size) for name, column in _read(predictor, columns).items()},
        )

    def of_block(u: jax.Array, block: AffineBlocks) -> jax.Array:
        eta = u @ block.design
        slope = score(eta if block.offset is None else eta + block.offset, block.columns)
        return block.design @ held(slope, block.cap)

    def total(u: jax.Array, rows: AffineBlocks) -> jax.Array:
        if rows.design.shape[0] == 1:
            return of_block(u, jax.tree.map(lambda leaf: leaf[0], rows))

        def add(carry: jax.Array, block: AffineBlocks) -> tuple[jax.Array, None]:
            return carry + of_block(u, block), None

        return jax.lax.scan(add, jnp.zeros_like(u), rows)[0]

    return ClippedGradient(prepare, total)


def slope_limit(predictor: Predictor, whitening: Whitening, clip: float) -> float | None:
    """A bound ``s ≥ |ψ'|``, proved but for rounding, with ``s·‖Aᵀx‖ ≤ C`` for every row that enters.

    Clipping is idle then: holding slopes at ``s`` changes rounding errors and what is not a number only.
    ``None`` where there is no such bound.
    """
    # The second slack is for the rounding of the norm that is compared with the radius.
    radius = predictor.radius * _RADIUS_SLACK**2 * whitening.largest
    slope = predictor.family.score_bound
    if not (0 < radius < math.inf and slope < math.inf):
        return None
    allowed = inside(clip, 1) / radius
    return min(slope, allowed) if slope <= allowed * _IDLE_SLACK else None


def _capped(
    predictor: Predictor, whitening: Whitening, clip: float, columns: Columns
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Designs ``(N, p)``, caps ``C/‖Aᵀx_i‖`` of slopes, and which rows may enter."""
    plain = jax.vmap(predictor.design)(columns)
    design = whitening.pull_back(plain)
    norm = jnp.linalg.norm(design, axis=-1) + UNDERFLOW
    proved = jnp.linalg.norm(plain, axis=-1) <= predictor.radius * _RADIUS_SLACK
    usable = jnp.isfinite(norm) & proved
    design = jnp.where(usable[:, None], design, 0.0)
    return design, jnp.where(usable, inside(clip, design.shape[1]) / norm, 0.0), usable


def _offset(predictor: Predictor, columns: Columns) -> jax.Array | None:
    return None if predictor.centred else jax.vmap(predictor.offset)(columns)


def _read(predictor: Predictor, columns: Columns) -> dict[str, jax.Array]:
    """The columns that the slope reads; the design, as a rule the widest, is seldom one of them."""

    def slope(**row: jax.Array) -> dict[str, jax.Array]:
        return {"slope": jax.grad(predictor.loss)(jnp.zeros(()), row)}

    program = trace(
        slope, **{name: abstract(column.shape[1:], column.dtype) for name, column in columns.items()}
    )
    names = program.reads([program.outputs["slope"]])
    return {name: column for name, column in columns.items() if name in names}


def _block(count: int, dim: int, states: int) -> int:
    """Rows of a block: a few hundred on a CPU, unless everything stays in cache or there is no need."""
    if jax.default_backend() != "cpu" or (states == 1 and count * dim <= _CACHED_ELEMENTS):
        return count
    return min(count, _BLOCK_ROWS)


def _blocks(leaf: jax.Array, size: int) -> jax.Array:
    """``(N, …)`` to ``(blocks, size, …)``; the last block is filled with copies, or with zeros for floats."""
    missing = -leaf.shape[0] % size
    filling = "constant" if jnp.issubdtype(leaf.dtype, jnp.floating) else "edge"
    filled = jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1), mode=filling)
    return filled.reshape(-1, size, *leaf.shape[1:])
