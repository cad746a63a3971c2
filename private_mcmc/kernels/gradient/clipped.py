"""Clipped gradients of the data term: ``Σ_i clip_C(Aᵀ∇v(θ, d_i))``, one row at most ``C``.

Rows that enter through one affine predictor are clipped in closed form; other models by the layers of a
row's program where their gradients factor, and by per-row gradients in blocks otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.kernels.gradient.affine import (
    MANY,
    PARTS,
    AffineBlocks,
    affine_blocks,
    affine_persons,
    affine_rows,
    person_columns,
    weighted_blocks,
)
from private_mcmc.kernels.gradient.clipping import (
    Clip,
    ClippedGradient,
    Columns,
    WeightedGradient,
    Whitening,
    around,
    times,
    weight,
    whitening,
    widened,
)
from private_mcmc.kernels.gradient.layered import find_layers, layered
from private_mcmc.model import Predictor, RowModel
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.program import Program
from private_mcmc.schedule import Schedule, Storage

Route = Literal["layers", "rows"]
BlockSum = Callable[[jax.Array, Columns, jax.Array, jax.Array | None], jax.Array]

# Elements of what a block of rows needs in between: on a CPU it should stay in cache.
_BLOCK_ELEMENTS = {"cpu": 2**18}
_BLOCK_ELEMENTS_ELSEWHERE = 2**24
# A clip of a coordinate, less the rounding of its product with the root of the metric.
_INSIDE = 1.0 - 2.0**-45
# Rows whose gradients are looked at together for the share of them that is clipped.
_BLOCK = 4096
# Parts of persons take longer to compile, which pays from so many persons' terms on.
_FEWEST_SUMS = 2**22


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
    each = None if model.each is None else model.each.predictor
    if each is not None and route is None and storage == "float64":
        return _persons(each, whitening, clip, model.dim, states, sums)
    return general_rows(model, whitening, clip, states or 1, route)


def schedule_gradient(
    model: RowModel, whitening: Whitening, schedule: Schedule, states: int | None = None, sums: int = MANY
) -> ClippedGradient:
    """The clipped data gradient that a schedule declares: by the norm, or coordinate by coordinate."""
    if schedule.clips is not None:
        return boxed_gradient(model, whitening, schedule.clips, states or 1)
    return clipped_gradient(model, whitening, schedule.clip, states, storage=schedule.storage, sums=sums)


def boxed_gradient(
    model: RowModel, whitening: Whitening, clips: tuple[float, ...], states: int = 1
) -> ClippedGradient:
    """``Σ_i clip(Aᵀ∇v(θ, d_i))``, every coordinate apart, for a diagonal ``M``.

    **Guarantee**: coordinate ``j`` of a row's term is at most ``√M_jj C_j`` in size; a row whose gradient is
    not finite, or that is not present, contributes exactly zero.
    """
    per_row = jax.vmap(_row_gradient(model, whitening), in_axes=(None, 0))

    def of_block(
        u: Float[Array, " p"],
        columns: Columns,
        present: Bool[Array, " rows"],
        weights: Float[Array, " rows"] | None,
    ) -> Float[Array, " p"]:
        gradients = per_row(u, columns)
        caps = whitening.pull_back(jnp.asarray(clips) * _INSIDE)
        usable = present & jnp.all(jnp.isfinite(gradients), axis=-1)
        kept = jnp.where(usable[:, None], jnp.clip(gradients, -caps, caps), 0.0)
        return kept.sum(axis=0) if weights is None else weights @ kept

    return ClippedGradient(
        lambda columns, present: GeneralRows(columns, present),
        lambda u, rows: _in_blocks(of_block, u, rows, model.dim * states),
    )


class GeneralRows(NamedTuple):
    """The rows as they came, which of them are present, and the weights of synthetic ones."""

    columns: Columns
    present: Bool[Array, " rows"]
    weights: Float[Array, " rows"] | None = None


def general_rows(
    model: RowModel, whitening: Whitening, clip: Clip, states: int = 1, route: Route | None = None
) -> ClippedGradient:
    """Rows of any model, selected or whole, for ``states`` states at a time; ``route`` forces a way."""

    def total(u: Float[Array, " p"], rows: GeneralRows) -> Float[Array, " p"]:
        of_block, each = _per_row(model, whitening, clip), _elements(model)
        dense = whitening.root is not None and whitening.root.ndim == 2
        if route != "rows" and not dense:
            program = _program(model)
            layers = find_layers(program)
            if layers is not None:
                of_block = layered(program, layers, whitening, clip)
                each = sum(program.size(output) for eq in program.equations for output in eq.outputs)
        return _in_blocks(of_block, u, rows, each * states)

    return ClippedGradient(lambda columns, present: GeneralRows(columns, present), total)


# Arrays of a person's terms that are alive together.
_OF_TERMS = 4


def _elements(model: RowModel) -> int:
    """What the gradient of one row needs; that of a person with latents, its rows' terms at every point."""
    if model.own is None or model.unit is None:
        return model.dim
    kinds = model.own.kinds
    terms = model.unit.rows if kinds is None else len(next(iter(kinds.values())))
    return max(model.dim, _OF_TERMS * model.own.atoms_of() * terms)


class PersonParts(NamedTuple):
    """All persons, in parts that lie in arrays of their own: they need not be cut out again."""

    parts: tuple[GeneralRows, ...]


def _persons(
    each: Predictor, whitening: Whitening, clip: Clip, dim: int, states: int | None, sums: int
) -> ClippedGradient:
    """Persons whose rows enter through one affine predictor each, for gradients of ``dim`` entries."""
    of_block = affine_persons(each, clip)

    def prepare(columns: Columns, present: jax.Array) -> GeneralRows | PersonParts:
        whole = GeneralRows(person_columns(each, whitening, columns), present)
        if states is None or len(present) * sums < _FEWEST_SUMS:
            return whole
        elements = len(present) * (columns[OWN_ROWS].shape[1] + dim) * states
        count = max(1, min(PARTS, -(-elements // _most_elements())))
        ends = [len(present) * part // count for part in range(count + 1)]
        parts = [jax.tree.map(itemgetter(slice(*pair)), whole) for pair in pairwise(ends)]
        return PersonParts(tuple(parts))

    def total(u: Float[Array, " p"], rows: GeneralRows | PersonParts) -> Float[Array, " p"]:
        if isinstance(rows, PersonParts):
            return reduce(jnp.add, [total(u, part) for part in rows.parts])
        return _in_blocks(of_block, u, rows, (rows.columns[OWN_ROWS].shape[1] + dim) * (states or 1))

    return ClippedGradient(prepare, total)


def _program(model: RowModel) -> Program:
    """One row's loss in the precision in force."""
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in model.rows.items}
    return trace(
        lambda theta, **row: {"loss": model.row_loss(theta, row)},
        theta=abstract((model.dim,), np.float64),
        **shapes,
    )


def _row_gradient(model: RowModel, whitening: Whitening) -> Callable[[jax.Array, Columns], jax.Array]:
    """``(u, row) ↦ Aᵀ∇v(Au, row)``."""
    return jax.grad(lambda u, row: model.row_loss(whitening.to_parameter(u), row))


def _per_row(model: RowModel, whitening: Whitening, clip: Clip) -> BlockSum:
    """The gradients of a block's rows, formed one by one."""
    per_row = jax.vmap(_row_gradient(model, whitening), in_axes=(None, 0))
    limit = around(clip, model.dim)

    def of_block(
        u: Float[Array, " p"],
        columns: Columns,
        present: Bool[Array, " rows"],
        weights: Float[Array, " rows"] | None,
    ) -> Float[Array, " p"]:
        gradients = per_row(u, columns)
        norm = jnp.linalg.norm(gradients, axis=-1)
        usable = present & jnp.isfinite(norm)
        factors = times(weight(norm, limit, usable), weights)
        return factors @ jnp.where(usable[:, None], gradients, 0.0)

    return of_block


def _in_blocks(of_block: BlockSum, u: Float[Array, " p"], rows: GeneralRows, each: int) -> Float[Array, " p"]:
    """Add blocks of rows; the last block begins early enough to be whole and counts its own rows only."""
    count = rows.present.shape[0]
    size = max(1, min(count, _most_elements() // max(each, 1)))
    if size == count:
        return of_block(u, widened(rows.columns), rows.present, rows.weights)

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        first = jnp.minimum(i * size, count - size)
        block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows)
        own = first + jnp.arange(size) >= i * size
        return total + of_block(u, widened(block.columns), block.present & own, block.weights)

    whole: jax.Array = jax.lax.fori_loop(0, -(-count // size), add, jnp.zeros_like(u))
    return whole


def _most_elements() -> int:
    return _BLOCK_ELEMENTS.get(jax.default_backend(), _BLOCK_ELEMENTS_ELSEWHERE)


def weighted_gradient(model: RowModel, whitening: Whitening, clip: Clip) -> WeightedGradient:
    """The same clipped sum over public synthetic rows, each counted as often as its weight says."""
    clipped = clipped_gradient(model, whitening, clip, states=1, sums=1)

    def prepare(columns: Columns, weights: jax.Array) -> AffineBlocks | GeneralRows:
        rows: AffineBlocks | GeneralRows = clipped.prepare(columns, jnp.ones(len(weights), dtype=bool))
        if isinstance(rows, AffineBlocks):
            return weighted_blocks(rows, weights)
        return rows._replace(weights=weights)

    return WeightedGradient(prepare, clipped.total)


def clipped_share(
    model: RowModel, schedule: Schedule, theta: ArrayLike, columns: Columns, present: ArrayLike
) -> float:
    """Share of the present rows whose gradient at ``θ`` is clipped.

    **No privacy statement covers it.** ``theta`` has shape ``(p,)``; columns are in their domains.
    """
    change = whitening(schedule.preconditioner, model.dim)
    of_row = _row_gradient(model, change)

    @jax.jit
    def share(theta: jax.Array, columns: Columns, present: jax.Array) -> jax.Array:
        u = change.from_parameter(theta)

        def binds(row: Columns) -> jax.Array:
            gradient = of_row(u, row)
            if schedule.clips is not None:
                return jnp.any(jnp.abs(gradient) > change.pull_back(jnp.asarray(schedule.clips)))
            return jnp.asarray(jnp.linalg.norm(gradient) > schedule.clip)

        bound = jax.lax.map(binds, columns, batch_size=_BLOCK)
        return jnp.sum(bound & present) / jnp.maximum(jnp.sum(present), 1)

    with jax.enable_x64(True):
        return float(share(jnp.asarray(theta), columns, jnp.asarray(present)))
