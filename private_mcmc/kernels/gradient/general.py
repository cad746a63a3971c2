"""Clipping rows of any model: by the layers of a row's program, or by per-row gradients, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.kernels.gradient.clipping import (
    Clip,
    ClippedGradient,
    Columns,
    around,
    times,
    weight,
    widened,
)
from private_mcmc.kernels.gradient.layered import find_layers, layered
from private_mcmc.kernels.whitening import Whitening
from private_mcmc.model import RowModel
from private_mcmc.model.ir.program import Program, abstract, trace

Route = Literal["layers", "rows"]
BlockSum = Callable[[jax.Array, Columns, jax.Array, jax.Array | None], jax.Array]

# Elements of what a block of rows needs in between: on a CPU it should stay in cache.
_BLOCK_ELEMENTS = {"cpu": 2**18}
_BLOCK_ELEMENTS_ELSEWHERE = 2**24


class GeneralRows(NamedTuple):
    """The rows as they came, which of them are present, and the weights of synthetic ones."""

    columns: Columns
    present: jax.Array
    weights: jax.Array | None = None


def general_rows(
    model: RowModel, whitening: Whitening, clip: Clip, states: int = 1, route: Route | None = None
) -> ClippedGradient:
    """Rows of any model, selected or whole, for ``states`` states at a time; ``route`` forces a way."""

    def total(u: jax.Array, rows: GeneralRows) -> jax.Array:
        of_block, each = _per_row(model, whitening, clip), model.dim
        if route != "rows" and not _is_dense(whitening):
            program = _program(model)
            layers = find_layers(program)
            if layers is not None:
                of_block = layered(program, layers, whitening, clip)
                each = sum(program.size(output) for eq in program.equations for output in eq.outputs)
        return _in_blocks(of_block, u, rows, each * states)

    return ClippedGradient(lambda columns, present: GeneralRows(columns, present), total)


def _program(model: RowModel) -> Program:
    """One row's loss in the precision in force."""
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in model.rows.items}
    theta = abstract((model.dim,), np.float64)

    def loss(given: dict[str, jax.Array]) -> jax.Array:
        return model.row_loss(given["theta"], {name: given[name] for name in shapes})

    return trace(lambda **given: {"loss": loss(given)}, theta=theta, **shapes)


def _is_dense(whitening: Whitening) -> bool:
    return whitening.root is not None and whitening.root.ndim == 2


def _per_row(model: RowModel, whitening: Whitening, clip: Clip) -> BlockSum:
    """The gradients of a block's rows, formed one by one."""

    def loss(u: jax.Array, row: Columns) -> jax.Array:
        return model.row_loss(whitening.to_parameter(u), row)

    per_row = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    limit = around(clip, model.dim)

    def of_block(u: jax.Array, columns: Columns, present: jax.Array, weights: jax.Array | None) -> jax.Array:
        gradients = per_row(u, columns)
        norm = jnp.linalg.norm(gradients, axis=-1)
        usable = present & jnp.isfinite(norm)
        factors = times(weight(norm, limit, usable), weights)
        return factors @ jnp.where(usable[:, None], gradients, 0.0)

    return of_block


def _in_blocks(of_block: BlockSum, u: jax.Array, rows: GeneralRows, each: int) -> jax.Array:
    """Add blocks of rows; the last block begins early enough to be whole and counts its own rows only."""
    count = rows.present.shape[0]
    elements = _BLOCK_ELEMENTS.get(jax.default_backend(), _BLOCK_ELEMENTS_ELSEWHERE)
    size = max(1, min(count, elements // max(each, 1)))
    if size == count:
        return of_block(u, widened(rows.columns), rows.present, rows.weights)

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        first = jnp.minimum(i * size, count - size)
        block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows)
        own = first + jnp.arange(size) >= i * size
        return total + of_block(u, widened(block.columns), block.present & own, block.weights)

    whole: jax.Array = jax.lax.fori_loop(0, -(-count // size), add, jnp.zeros_like(u))
    return whole
