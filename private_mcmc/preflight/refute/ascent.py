"""Sharper rows: gradient ascent, inside the row domain, on how far apart two posteriors are.

The rows of a promising pair (those that the data sets share, in two halves, and the one that differs) move
along the gradient of the log hockey-stick divergence on a fixed grid. What comes out is a proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Domain
from private_mcmc.model import RowModel
from private_mcmc.preflight.refute.pairs import Multiplicities, PublicRow
from private_mcmc.preflight.refute.peaks import Array
from private_mcmc.preflight.refute.search import Candidate, Grid

Columns: TypeAlias = dict[str, jax.Array]
# What moves, how far apart the posteriors are there, the direction of ascent and its step.
State: TypeAlias = tuple[Columns, jax.Array, Columns, jax.Array]

_STEPS = 40
_FIRST = 0.05
_FLOOR = -700.0
_SLOTS = 4


def sharper(
    row_model: RowModel,
    rows: Sequence[PublicRow],
    candidates: Sequence[Candidate],
    embed: Array,
    *,
    temper: float,
    epsilon: float,
    along: bool,
) -> list[Sharper]:
    """Pairs like the candidates, whose rows have moved, the worst first; empty without real columns.

    Args:
        row_model: the model.
        rows: the rows that the candidates count.
        candidates: where to start, all on grids of one size.
        embed: ``(dim of the grid, dim of the model)``: the coordinates as directions of ``θ``.
        temper: ``w``.
        epsilon: at which divergence.
        along: vectors may change their length only, not their direction.
    """
    real = [name for name, domain in row_model.rows.items if domain.dtype.kind == "f"]
    starts = [entry for candidate in candidates for entry in _slots(candidate)]
    if not real or not starts:
        return []
    columns = {
        name: np.stack([[np.asarray(rows[index][name]) for index in slots] for slots, _, _, _ in starts])
        for name, _ in row_model.rows.items
    }
    grids = np.stack([grid.points @ embed for *_, grid in starts])
    weights = np.stack([grid.log_weight for *_, grid in starts])
    ones, others = (np.array([entry[at] for entry in starts], dtype=np.float64) for at in (1, 2))
    with jax.enable_x64(True):
        climb = jax.jit(jax.vmap(_climber(row_model, real, temper, epsilon, along)))
        reached, heights = climb(columns, grids, weights, ones, others)
        moved = {name: np.asarray(value) for name, value in reached.items()}
    found = [
        Sharper(
            [{name: value[place, slot] for name, value in moved.items()} for slot in range(_SLOTS)],
            first,
            second,
            float(np.exp(heights[place])),
        )
        for place, (_, first, second, _) in enumerate(starts)
    ]
    return sorted(found, key=lambda pair: -pair.divergence)


@dataclass(frozen=True)
class Sharper:
    """Rows, the counts of two adjacent data sets, and about their ``δ(ε)``."""

    rows: list[PublicRow]
    first: Multiplicities
    second: Multiplicities
    divergence: float


def _slots(candidate: Candidate) -> list[tuple[list[int], Multiplicities, Multiplicities, Grid]]:
    """Two halves of the shared rows, the row of the first data set and that of the second."""
    first, second = candidate.first, candidate.second
    common = [min(a, b) for a, b in zip(first, second, strict=True)]
    kinds = [index for index, count in enumerate(common) if count]
    own = [index for index, count in enumerate(first) if count > common[index]]
    other = [index for index, count in enumerate(second) if count > common[index]]
    if len(kinds) > 2:
        return []
    any_row = (own or other)[0]
    shared = [kinds[0], kinds[-1]] if kinds else [any_row, any_row]
    total = sum(common)
    halves = [common[kinds[0]], common[kinds[1]]] if len(kinds) == 2 else [total - total // 2, total // 2]
    slots = [*shared, own[0] if own else any_row, other[0] if other else any_row]
    both = (*halves, int(bool(own)), 0), (*halves, 0, int(bool(other)))
    return [(slots, both[0], both[1], candidate.grid)]


def _climber(
    row_model: RowModel, real: list[str], temper: float, epsilon: float, along: bool
) -> Callable[..., tuple[Columns, jax.Array]]:
    domains = dict(row_model.rows.items)
    losses = jax.vmap(jax.vmap(row_model.row_loss, in_axes=(0, None)), in_axes=(None, 0))

    def climb(
        columns: Columns, thetas: jax.Array, log_weight: jax.Array, ones: jax.Array, others: jax.Array
    ) -> tuple[Columns, jax.Array]:
        base = log_weight - jax.vmap(row_model.neg_log_prior)(thetas)

        def height(moving: Columns) -> jax.Array:
            table = losses(thetas, {**columns, **moving})

            def law(counts: jax.Array) -> jax.Array:
                used = jnp.where(counts[:, None] > 0, counts[:, None] * table, 0.0)
                logs = base - temper * used.sum(axis=0)
                return jnp.maximum(
                    jax.nn.log_softmax(jnp.where(jnp.isfinite(logs), logs, 2 * _FLOOR)), _FLOOR
                )

            p, q = law(ones), law(others)
            over = -jnp.expm1(jnp.minimum(epsilon + q - p, 0.0))
            return jnp.log(jnp.maximum(jnp.sum(jnp.exp(p) * over), 1e-300))

        def step(state: State, _: None) -> tuple[State, None]:
            moving, top, slope, size = state
            moved = {name: _moved(domains[name], moving[name], size * slope[name], along) for name in real}
            value, new = jax.value_and_grad(height)(moved)
            better = value > top
            kept = jax.tree.map(lambda one, other: jnp.where(better, one, other), moved, moving)
            slope = jax.tree.map(lambda one, other: jnp.where(better, one, other), steepest(kept, new), slope)
            return (kept, jnp.where(better, value, top), slope, jnp.where(better, 1.5, 0.4) * size), None

        def steepest(moving: Columns, slope: Columns) -> Columns:
            """The slope in units of each domain's width, its largest entry 1."""
            scaled = {name: _finite(slope[name]) * _width(domains[name], moving[name]) for name in real}
            largest = jnp.max(jnp.stack([jnp.max(jnp.abs(value)) for value in scaled.values()]))
            return {name: value / jnp.maximum(largest, 1e-300) for name, value in scaled.items()}

        start = {name: columns[name] for name in real}
        value, slope = jax.value_and_grad(height)(start)
        first = (start, value, steepest(start, slope), jnp.asarray(_FIRST))
        (best, top, _, _), _ = jax.lax.scan(step, first, length=_STEPS)
        return {**columns, **{name: domains[name].project(best[name]) for name in real}}, top

    return climb


def _finite(slope: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(slope), slope, 0.0)


def _width(domain: Domain, value: jax.Array) -> jax.Array:
    """The width of the domain in every entry, or the value's own size where there is none."""
    lo, hi = domain.interval()
    width = np.where(np.isfinite(hi - lo), hi - lo, 0.0)
    return jnp.where(width > 0, width, 1.0 + jnp.abs(value))


def _moved(domain: Domain, value: jax.Array, shift: jax.Array, along: bool) -> jax.Array:
    """A step of this share of the domain's width, back into the domain; vectors only ``along`` themselves."""
    step = shift * _width(domain, value)
    if along and value.ndim > 1:
        length = jnp.sum(value * value, axis=-1, keepdims=True)
        pull = jnp.sum(value * step, axis=-1, keepdims=True)
        step = value * jnp.where(length > 0, pull / jnp.where(length > 0, length, 1.0), 0.0)
    return domain.project(value + step)
