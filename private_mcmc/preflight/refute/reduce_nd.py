"""Reductions to two or three coordinates: rows that are proved to speak of no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.model.ir.interval import between
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Program, abstract, trace
from private_mcmc.preflight.refute.pairs import Multiplicities, PublicRow, extreme_rows
from private_mcmc.preflight.refute.quadrature_nd import (
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
from private_mcmc.preflight.refute.reduce_1d import coordinate_name, is_independent
from private_mcmc.preflight.refute.scan import Candidate, by_common_rows, law_weights, where
from private_mcmc.target import Target

_FAR, _FAR_EXPONENT = 1e30, 300.0


def activity(row_model: RowModel) -> Callable[[PublicRow], frozenset[int]]:
    """Coordinates of ``θ`` on which the loss of a row may depend; on all others it does not.

    A loss of affine predictors depends on what their design at this row does not annul. Otherwise the
    gradient is bounded by interval arithmetic over all ``θ`` whose constrained values floats can hold.
    """
    predictors = row_model.predictors
    if predictors is None:
        program, reach = gradient_program(row_model), _reach(row_model)
        return lambda row: _from_gradient(program, reach, row)
    compiled = jax.jit(predictors.design)

    def from_design(row: PublicRow) -> frozenset[int]:
        with jax.enable_x64(True):
            design = np.asarray(compiled({name: np.asarray(value) for name, value in row.items()}))
        return frozenset(int(index) for index in np.flatnonzero(np.any(design != 0, axis=0)))

    return from_design


def gradient_program(row_model: RowModel) -> Program:
    """The gradient of one row's loss, as a program of ``theta`` and the row's columns, in float64."""
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        return trace(
            lambda theta, **row: {"gradient": jax.grad(row_model.row_loss)(theta, row)},
            theta=abstract((row_model.dim,), np.float64),
            **shapes,
        )


def _reach(row_model: RowModel) -> np.ndarray:
    """How far each coordinate goes: sites that are not real are exponentials of theirs, or logistic."""
    reach = np.full(row_model.dim, _FAR)
    for site in row_model.sites:
        if site.support != "real":
            reach[site.slice] = _FAR_EXPONENT
    return reach


def _from_gradient(program: Program, reach: np.ndarray, row: PublicRow) -> frozenset[int]:
    given = {program.inputs["theta"]: between(-reach, reach)}
    for name, value in row.items():
        point = np.asarray(value, dtype=np.float64)
        given[program.inputs[name]] = between(point, point, whole=bool(np.all(point == np.round(point))))
    with jax.enable_x64(True):
        (gradient,) = bounds(program, given, [program.outputs["gradient"]])
    return frozenset(int(index) for index in np.flatnonzero((gradient.lo != 0) | (gradient.hi != 0)))


_MOST_COORDINATES = 3
_MOST_ROWS = 6
_MOST_PATCHES = 2
_MOST_CROWDS = 8
_MOST_TRIED = 2
_CHUNK = 4096


@dataclass(frozen=True)
class Patch:
    """Coordinates whose joint posterior is known up to a constant for every data set made of ``rows``.

    ``terms`` maps points ``(k, d)`` to the prior's potential and the rows' losses, ``(1 + rows, k)``.
    """

    coordinates: tuple[str, ...]
    indices: tuple[int, ...]
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
    first: Multiplicities
    second: Multiplicities
    violation: CellViolation
    marginals: Marginals


def patches(row_model: RowModel) -> Iterator[Patch]:
    """Sets of at most three coordinates, a priori independent of the others, and the rows that stay there."""
    rows = extreme_rows(row_model.rows)
    if row_model.dim <= _MOST_COORDINATES:
        yield _patch(row_model, tuple(range(row_model.dim)), rows)
        return
    of_row = activity(row_model)
    active = [of_row(row) for row in rows[:120]]
    sets = dict.fromkeys(s for s in active if 1 <= len(s) <= _MOST_COORDINATES)
    chosen = (s for s in sorted(sets, key=len, reverse=True) if _is_separate(row_model, s))
    for coordinates in islice(chosen, _MOST_PATCHES):
        inside = [row for row, own in zip(rows, active, strict=False) if own <= coordinates]
        yield _patch(row_model, tuple(sorted(coordinates)), inside)


def search_patch(
    patch: Patch, *, n: int, temper: float, target: Target
) -> tuple[FoundOnPatch | None, list[Candidate]]:
    """A violating pair around the first group of equal rows that has one, and the worst pairs met so far."""
    met: list[Candidate] = []
    crowds = by_common_rows(patch.terms, patch.dim, len(patch.rows), n=n, temper=temper, target=target)
    for candidates in islice(crowds, _MOST_CROWDS):
        met += candidates[:_MOST_TRIED]
        worse = [pair for pair in candidates[:_MOST_TRIED] if pair.divergence > target.delta]
        found = certify_on_patch(patch, [(pair.first, pair.second) for pair in worse], temper, target)
        if found is not None:
            return found, met
    return None, sorted(met, key=lambda pair: -pair.divergence)


def certify_on_patch(
    patch: Patch, pairs: Sequence[tuple[Multiplicities, Multiplicities]], temper: float, target: Target
) -> FoundOnPatch | None:
    """The first of these pairs that is integrated to violate the target."""
    for first, second in pairs:
        weights = np.array([law_weights(first, temper), law_weights(second, temper)])
        place = where(patch.terms, weights, patch.dim)
        entry = None if place is None else _frame(patch, place, weights)
        if entry is None:
            continue
        p, q = (cell_masses(*entry, law) for law in weights)
        if p is None or q is None:
            continue
        found = compare(entry[0], p, q, target.epsilon, target.delta)
        if found is not None:
            return FoundOnPatch(patch, first, second, found, entry[0].marginals(p, q))
    return None


def _frame(
    patch: Patch, place: tuple[Array, Array], weights: Array
) -> tuple[Frame, tuple[tuple[Array, Array], ...]] | None:
    """A frame that holds the mass of all laws, and the terms at its nodes."""
    made: list[tuple[tuple[Array, Array], ...]] = []

    def fits(frame: Frame) -> bool:
        made.append(tabulate(frame, patch.terms))
        return all(holds_the_mass(cell_masses(frame, made[-1], law)) for law in weights)

    frame = framed(*place, fits)
    return None if frame is None else (frame, made[-1])


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
    return on_patch(row_model, coordinates, _distinct(row_model, coordinates, rows))


def on_patch(row_model: RowModel, indices: tuple[int, ...], rows: list[PublicRow]) -> Patch:
    """The patch of these coordinates for data sets of these rows, which must speak of no others."""
    names = tuple(coordinate_name(row_model, i) for i in indices)
    return Patch(names, indices, tuple(rows), _terms(row_model, indices, rows))


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
