"""Reductions to two or three coordinates: rows that are proved to speak of no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.modeling import RowModel
from private_mcmc.preflight.active import active_coordinates, gradient_program
from private_mcmc.preflight.cells import (
    Array,
    CellViolation,
    Frame,
    Marginals,
    cell_masses,
    compare,
    framed,
    holds_the_mass,
    tabulate,
)
from private_mcmc.preflight.extremes import PublicRow, extreme_rows
from private_mcmc.preflight.lines import is_independent
from private_mcmc.preflight.search import Counts, adjacent_pairs, common_rows
from private_mcmc.target import Target

_MOST_COORDINATES = 3
_MOST_ROWS = 6
_MOST_PATCHES = 2
_MOST_CROWDS = 3
_CHUNK = 8192


@dataclass(frozen=True)
class Patch:
    """Coordinates whose joint posterior is known up to a constant for every data set made of ``rows``.

    ``terms`` maps points ``(k, d)`` to the prior's potential and the rows' losses, ``(1 + rows, k)``.
    """

    coordinates: tuple[str, ...]
    rows: tuple[PublicRow, ...]
    terms: Callable[[Array], Array]

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)


@dataclass(frozen=True)
class FoundOnPatch:
    """A violating pair on a patch, and the marginals in which its laws differ most."""

    patch: Patch
    first: Counts
    second: Counts
    violation: CellViolation
    marginals: Marginals


def patches(row_model: RowModel) -> Iterator[Patch]:
    """Sets of at most three coordinates, a priori independent of the others, and the rows that stay there."""
    rows = extreme_rows(row_model.rows)
    if row_model.dim <= _MOST_COORDINATES:
        yield _patch(row_model, tuple(range(row_model.dim)), rows)
        return
    program = gradient_program(row_model)
    active = [active_coordinates(program, row) for row in rows[:120]]
    sets = dict.fromkeys(s for s in active if 1 <= len(s) <= _MOST_COORDINATES)
    chosen = (s for s in sorted(sets, key=len, reverse=True) if _is_separate(row_model, s))
    for coordinates in islice(chosen, _MOST_PATCHES):
        inside = [row for row, own in zip(rows, active, strict=False) if own <= coordinates]
        yield _patch(row_model, tuple(sorted(coordinates)), inside)


def search_patch(patch: Patch, *, n: int, temper: float, target: Target) -> FoundOnPatch | None:
    """The pair with the largest excess in the first crowd of other rows that has one, or ``None``."""
    best: FoundOnPatch | None = None
    framed_crowds = 0
    by_crowd = groupby(
        adjacent_pairs(len(patch.rows), n, target.adjacency), key=lambda pair: common_rows(*pair)
    )
    for _, pairs in by_crowd:
        listed = list(pairs)
        entry = _frame(patch, listed[0][0], temper)
        if entry is None:
            continue
        laws = {
            counts: cell_masses(*entry, _weights(counts, temper))
            for counts in {counts for pair in listed for counts in pair}
        }
        for first, second in listed:
            p, q = laws[first], laws[second]
            if p is None or q is None or not (holds_the_mass(p) and holds_the_mass(q)):
                continue
            found = compare(entry[0], p, q, target.epsilon, target.delta, n=n)
            if found is not None and (best is None or found.excess > best.violation.excess):
                best = FoundOnPatch(patch, first, second, found, entry[0].marginals(p, q))
        framed_crowds += 1
        if best is not None or framed_crowds >= _MOST_CROWDS:
            break
    return best


def _weights(counts: Counts, temper: float) -> Array:
    return np.array([1.0, *(temper * count for count in counts)])


def _frame(
    patch: Patch, counts: Counts, temper: float
) -> tuple[Frame, tuple[tuple[Array, Array], ...]] | None:
    """A frame around the posterior's peak that holds its mass, and the terms at its nodes."""
    weights = _weights(counts, temper)
    peak = _peak(patch, weights)
    if peak is None:
        return None
    made: list[tuple[tuple[Array, Array], ...]] = []

    def fits(frame: Frame) -> bool:
        made.append(tabulate(frame, patch.terms))
        return holds_the_mass(cell_masses(frame, made[-1], weights))

    frame = framed(*peak, fits)
    return None if frame is None else (frame, made[-1])


def _peak(patch: Patch, weights: Array) -> tuple[Array, Array] | None:
    """Mean and spread of the law, by repeated sums over a grid that follows the mass."""
    center, scale = np.zeros(patch.dim), np.full(patch.dim, 3.0)
    side = {1: 401, 2: 61, 3: 21}[patch.dim]
    t = np.linspace(-3.0, 3.0, side)
    grids = np.stack([g.ravel() for g in np.meshgrid(*([t] * patch.dim), indexing="ij")], axis=1)
    for _ in range(40):
        points = center + scale * np.sinh(grids)
        with np.errstate(invalid="ignore", over="ignore"):
            logs = -(weights @ patch.terms(points)) + np.log(np.cosh(grids)).sum(axis=1)
        logs = np.where(np.isnan(logs), -np.inf, logs)
        if not np.isfinite(logs.max()):
            return None
        mass = np.exp(logs - logs.max())
        mass /= mass.sum()
        mean = mass @ points
        spread = np.sqrt(np.maximum(mass @ (points - mean) ** 2, (0.02 * scale) ** 2))
        settled = np.all(np.abs(mean - center) < 0.05 * scale) and np.all(np.abs(spread / scale - 1) < 0.05)
        center, scale = mean, spread
        if settled:
            return center, scale
    return None


def _is_separate(row_model: RowModel, coordinates: frozenset[int]) -> bool:
    """The prior is a product of a factor in these coordinates and one in all the others."""
    if not row_model.prior.factorised:
        return False
    for site in row_model.sites:
        own = set(range(site.slice.start, site.slice.stop))
        split = bool(own & coordinates) and not own <= coordinates
        if split and not all(is_independent(row_model, index) for index in own & coordinates):
            return False
    return True


def _patch(row_model: RowModel, coordinates: tuple[int, ...], rows: list[PublicRow]) -> Patch:
    kept = _distinct(row_model, coordinates, rows)
    return Patch(
        tuple(row_model.names[i] for i in coordinates), tuple(kept), _terms(row_model, coordinates, kept)
    )


def _terms(
    row_model: RowModel, coordinates: tuple[int, ...], rows: list[PublicRow]
) -> Callable[[Array], Array]:
    columns = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    index = np.asarray(coordinates)

    @jax.jit
    def chunk(points: jax.Array) -> jax.Array:
        thetas = jnp.zeros((points.shape[0], row_model.dim)).at[:, index].set(points)
        prior = jax.vmap(row_model.neg_log_prior)(thetas)
        losses = jax.vmap(lambda row: jax.vmap(lambda theta: row_model.row_loss(theta, row))(thetas))(columns)
        return jnp.concatenate([prior[None], losses])

    def terms(points: Array) -> Array:
        count = -(-len(points) // _CHUNK)
        padded = np.concatenate([points, np.repeat(points[-1:], count * _CHUNK - len(points), axis=0)])
        with jax.enable_x64(True):
            parts = [np.asarray(chunk(part)) for part in np.split(padded, count)]
        return np.concatenate(parts, axis=1)[:, : len(points)]

    return terms


def _distinct(row_model: RowModel, coordinates: tuple[int, ...], rows: list[PublicRow]) -> list[PublicRow]:
    """Few rows: the flattest first, then those whose loss varies most; each kind once."""
    probe = np.random.default_rng(0).normal(size=(16, len(coordinates))) * np.geomspace(0.05, 2, 16)[:, None]
    values = _terms(row_model, coordinates, rows)(np.concatenate([np.zeros((1, len(coordinates))), probe]))[
        1:
    ]
    shape = np.where(np.isfinite(values), values, 1e300)[:, 1:] - values[:, :1]
    size = np.max(np.abs(shape), axis=1)
    order = [int(np.argmin(size)), *map(int, np.argsort(-size, kind="stable"))]
    kept: list[int] = []
    for place in order:
        fresh = all(not np.allclose(shape[place], shape[other], rtol=1e-9, atol=1e-12) for other in kept)
        if fresh and len(kept) < _MOST_ROWS:
            kept.append(place)
    return [rows[place] for place in kept]
