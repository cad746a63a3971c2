"""Clipping in closed form, for rows that enter through one affine predictor ``η_i = x_i·θ + o_i``.

A row's gradient is ``ψ'(η_i)·Aᵀx_i``, its norm ``|ψ'(η_i)|·‖Aᵀx_i‖``: clipping holds the slope ``ψ'``
between caps that are known before the run, and no per-row gradient is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from private_mcmc.kernels.gradient.clipping import (
    UNDERFLOW,
    Clip,
    ClippedGradient,
    Columns,
    Whitening,
    held,
    inside,
    times,
)
from private_mcmc.potential.predictor import Predictor
from private_mcmc.potential.rowwise import rowwise

# A design that is longer than the radius (by more than rounding) is shortened to it.
_RADIUS_SLACK = 1.0 + 1e-9
# Slopes may be held this much below their proved bound, to leave room for the slack of the radius.
_IDLE_SLACK = 1.0 + 1e-8
# XLA's CPU runtime spreads independent operations over the cores where there are many of them: so many parts
# of the rows are summed side by side. Measured on 2 cores; 8 parts still run one after the other.
PARTS = 16
# With fewer rows, or fewer operations in a sum, handing parts to other cores costs more than it gains.
_FEWEST_ROWS, _WHOLE_WORK = 1_000, 400_000
# Parts take a second longer to compile: with fewer operations than this it does not pay.
_COMPILING_WORK = 2**34
# A sum that is taken very often.
MANY = 10**9
# What a state needs of a row besides its products, in multiplications: an exponential and a division.
_SLOPE_WORK = 32
# Predictors of several states at once that one part may hold: they should stay in cache.
_PART_ELEMENTS = 2**17
# Products of one state that are as large use all cores by themselves.
_LARGE_ELEMENTS = 2**22
# Up to so many columns a single state's predictors are fused with what follows them.
_FUSED_DIM = 64


class AffineRows(NamedTuple):
    """Rows one by one, to be selected from.

    ``table`` holds the whitened design, the cap of the slope and, where there are offsets, the offset of each
    row side by side, ``(N, p + 1)`` or ``(N, p + 2)``: what a row needs is fetched at once, and the product
    with ``(θ, 0, 1)`` is its predictor.
    """

    table: Float[Array, "rows width"]
    columns: Columns
    present: Bool[Array, " rows"]


class AffinePart(NamedTuple):
    """Some of the rows in groups, columnwise: designs ``(groups, p, rows)``, zero where no row is present.

    Caps are ``(groups, rows)``, or ``(groups, 1)`` where one cap holds every row; there are no offsets where
    all are zero. ``weights``, ``(groups, rows)``, are those of synthetic rows.
    """

    design: Float[Array, "groups p rows"]
    cap: Float[Array, "groups caps"]
    offset: Float[Array, "groups rows"] | None
    columns: Columns
    weights: jax.Array | None = None


class AffineBlocks(NamedTuple):
    """All rows, in parts of one shape that lie in arrays of their own: they need not be cut out again."""

    parts: tuple[AffinePart, ...]


def affine_rows(predictor: Predictor, whitening: Whitening, clip: Clip) -> ClippedGradient:
    """Rows that are selected anew for every sum."""
    score = jax.vmap(_slope(predictor))

    def prepare(columns: Columns, present: Bool[Array, " rows"]) -> AffineRows:
        design, cap, usable = _capped(predictor, whitening, clip, columns)
        offset = offsets(predictor, columns)
        parts = [design, cap[:, None]] if offset is None else [design, cap[:, None], offset[:, None]]
        return AffineRows(jnp.concatenate(parts, axis=1), read_by_slope(predictor, columns), present & usable)

    def total(u: Float[Array, " p"], rows: AffineRows) -> Float[Array, " p"]:
        # The table is multiplied as it lies: parts of it would have to be copied first.
        table, dim = rows.table, u.shape[0]
        others = [0.0] if predictor.centred else [0.0, 1.0]
        eta = table @ jnp.concatenate([u, jnp.asarray(others, u.dtype)])
        slope = held(score(eta, rows.columns), jnp.where(rows.present, table[:, dim], 0.0))
        return (slope @ table)[:dim]

    return ClippedGradient(prepare, total)


def affine_blocks(
    predictor: Predictor,
    whitening: Whitening,
    clip: Clip,
    states: int,
    sums: int = MANY,
) -> ClippedGradient:
    """All rows in each of so many sums, for ``states`` states at a time, laid out for what will be stored."""
    score = jax.vmap(_slope(predictor))
    limit = slope_limit(predictor, whitening, clip)

    def prepare(columns: Columns, present: Bool[Array, " rows"]) -> AffineBlocks:
        design, cap, usable = _capped(predictor, whitening, clip, columns)
        present = present & usable
        cut = _cut(design.shape[0], design.shape[1], states, sums)
        designs = jnp.swapaxes(cut(jnp.where(present[:, None], design, 0.0)), 2, 3)
        caps = cut(jnp.where(present, cap, 0.0))
        if limit is not None:
            caps = jnp.full((*caps.shape[:2], 1), limit)
        offset = offsets(predictor, columns)
        whole = AffinePart(
            designs,
            caps,
            None if offset is None else cut(offset),
            {name: cut(column) for name, column in read_by_slope(predictor, columns).items()},
        )
        return AffineBlocks(tuple(jax.tree.map(itemgetter(i), whole) for i in range(cut.parts)))

    def total(u: Float[Array, " p"], rows: AffineBlocks) -> Float[Array, " p"]:
        fused = states == 1 and len(rows.parts) > 1 and len(u) <= _FUSED_DIM

        def of_part(part: AffinePart) -> jax.Array:
            design = part.design
            eta = _by_columns(u, design) if fused else u @ design
            slope = score(eta if part.offset is None else eta + part.offset, part.columns)
            return design @ times(held(slope, part.cap), part.weights)

        def of_group(parts: tuple[AffinePart, ...]) -> jax.Array:
            return reduce(jnp.add, map(of_part, parts))

        if len(rows.parts[0].design) == 1:
            return of_group(jax.tree.map(itemgetter(0), rows.parts))

        def add(carry: jax.Array, parts: tuple[AffinePart, ...]) -> tuple[jax.Array, None]:
            return carry + of_group(parts), None

        return jax.lax.scan(add, jnp.zeros_like(u), rows.parts)[0]

    return ClippedGradient(prepare, total)


def weighted_blocks(rows: AffineBlocks, weights: jax.Array) -> AffineBlocks:
    """The same rows, each of which counts ``weights`` times after it was clipped; shape ``(N,)``."""
    groups, _, size = rows.parts[0].design.shape
    cut = _Cut(len(rows.parts), groups, size)(weights)
    return AffineBlocks(tuple(part._replace(weights=own) for part, own in zip(rows.parts, cut, strict=True)))


def _slope(predictor: Predictor) -> Callable[[jax.Array, Columns], jax.Array]:
    """``(η, row) ↦ ψ'``, of that row alone whoever made ``ψ``."""
    return rowwise(jax.grad(rowwise(predictor.loss)))


def slope_limit(predictor: Predictor, whitening: Whitening, clip: Clip) -> float | None:
    """A bound ``s ≥ |ψ'|``, proved but for rounding, with ``s·‖Aᵀx‖ ≤ C`` for every row that enters.

    Clipping is idle then: holding slopes at ``s`` changes rounding errors and what is not a number only.
    ``None`` where there is no such bound, or the clip is not known yet when the sum is compiled.
    """
    if isinstance(clip, jax.Array):
        return None
    # The second slack is for the rounding of the norm that is compared with the radius, and of shortening.
    radius = predictor.radius * _RADIUS_SLACK**2 * whitening.largest
    slope = predictor.family.score_bound
    if not (0 < radius < math.inf and slope < math.inf):
        return None
    allowed = float(inside(clip, 1)) / radius
    return min(slope, allowed) if slope <= allowed * _IDLE_SLACK else None


def _capped(
    predictor: Predictor, whitening: Whitening, clip: Clip, columns: Columns
) -> tuple[Float[Array, "rows p"], Float[Array, " rows"], Bool[Array, " rows"]]:
    """Designs, caps ``C/‖Aᵀx_i‖`` of slopes, and which rows may enter."""
    design, usable = usable_designs(predictor, whitening, columns)
    norm = jnp.linalg.norm(design, axis=-1) + UNDERFLOW
    return design, jnp.where(usable, inside(clip, design.shape[1]) / norm, 0.0), usable


def usable_designs(
    predictor: Predictor, whitening: Whitening, columns: Columns
) -> tuple[Float[Array, "rows p"], Bool[Array, " rows"]]:
    """Whitened designs, none longer than the radius before, and which rows may enter; the others' are zero.

    **Guarantee**: what hidden states cost rests on ``‖x‖ ≤ R (1 + 2e-9)`` of the designs that run, which
    holds here of every row, whatever was proved, or proposed, of the declared domain.
    """
    plain = jax.vmap(rowwise(predictor.design))(columns)
    length = jnp.linalg.norm(plain, axis=-1, keepdims=True)
    longer = length > predictor.radius * _RADIUS_SLACK
    design = whitening.pull_back(jnp.where(longer, plain * (predictor.radius / length), plain))
    usable = jnp.isfinite(jnp.linalg.norm(design, axis=-1)) & jnp.isfinite(length[:, 0])
    return jnp.where(usable[:, None], design, 0.0), usable


def offsets(predictor: Predictor, columns: Columns) -> jax.Array | None:
    """Those of the rows, ``None`` where all are zero."""
    return None if predictor.centred else jax.vmap(rowwise(predictor.offset))(columns)


def read_by_slope(predictor: Predictor, columns: Columns) -> dict[str, jax.Array]:
    """The columns that the slope reads."""
    return {name: column for name, column in columns.items() if name in predictor.reads}


def _by_columns(u: jax.Array, design: jax.Array) -> jax.Array:
    """``u @ design``, written so that XLA fuses it with what follows: predictors stay in registers."""
    return reduce(jnp.add, [u[j] * design[j] for j in range(len(u))])


class _Cut(NamedTuple):
    """How rows are cut: ``(N, …)`` to ``(parts, groups, size, …)``."""

    parts: int
    groups: int
    size: int

    def __call__(self, leaf: jax.Array) -> jax.Array:
        """The leaf, filled up with copies of its last row, or with zeros for floats."""
        missing = self.parts * self.groups * self.size - leaf.shape[0]
        filling = "constant" if jnp.issubdtype(leaf.dtype, jnp.floating) else "edge"
        filled = jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1), mode=filling)
        return filled.reshape(*self, *leaf.shape[1:])


def _cut(count: int, dim: int, states: int, sums: int) -> _Cut:
    """One part where there is little to do, or elsewhere than on a CPU; else several parts for its cores.

    Groups of parts come one after the other: predictors of many states would not stay in cache.
    """
    if jax.default_backend() != "cpu":
        return _Cut(1, 1, count)
    work = count * states * (dim + _SLOPE_WORK)
    little = count < _FEWEST_ROWS or work < _WHOLE_WORK or sums * work < _COMPILING_WORK
    large = states == 1 and dim > _FUSED_DIM and count * dim >= _LARGE_ELEMENTS
    parts = 1 if little or large else PARTS
    groups = 1 if states == 1 else math.ceil(count * states / (PARTS * _PART_ELEMENTS))
    return _Cut(parts, groups, math.ceil(count / (parts * groups)))
