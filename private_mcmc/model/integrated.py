"""Sums over what the latents of a row, or of a person, may be, over points that follow that row alone.

The term of a row is minus the log of a finite sum over values of its latents,
``v(θ, row) = −log Σ_q ω_q(θ, row) p(row | θ, u_q)``: all values of a discrete latent, whose ``ω_q`` add up
to 1, and the points of a grid for a number, laid anew a fixed number of times by this row and ``θ`` alone.
Its slope is taken with the points held fixed, and may be that of no function: such models run as paths,
whose slopes are clipped, and nothing else is claimed of them; how far the sum is from the integral is
accuracy. Of a person, ``V(θ, person) = −log Σ_q ω_q Π_rows p(row | θ, u_q)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import NotYetSupported
from private_mcmc.model.program import Output, Program
from private_mcmc.model.row_latents import PLAIN_POINTS, POINTS, Row, RowLatent, RowLoss
from private_mcmc.potential.rowwise import at_each

# A tree of arrays ``(points, …)``.
Points = TypeVar("Points")

# Arrays of a person's terms that are alive together.
_OF_TERMS = 4
# Prior sds that a grid for all that a latent may be spans on either side. With spacing h a sum over a grid
# misses a Gaussian integrand of sd s by about exp(−2π²s²/h²) of it.
_SPAN = 5.0
# The first one is dense around 0, and reaches rows that a latent's distribution is not meant for.
_FAR, _DENSE, _FIRST_POINTS, _LAST_POINTS = 40.0, 4.0, {1: 25, 2: 17}, 25
# Of other families: the ends on the unconstrained line.
_END = 8.0
# So often a grid is laid anew over what is left of the last one: where terms are above e^{−18} of the most.
_ZOOMS, _DROP = 3, 18.0
# Newton's steps up a ridge, the parts of one that are tried, the least curvature, and how many sds of the
# curvature at the top the next grid spans on either side.
_NEWTON, _PARTS, _FLAT, _RIDGE = 8, (1.0, 0.3, 0.1, 0.02, 0.0), 0.1, 9.0
# What a row adds, given its latents.
Term = Callable[[jax.Array, Row], jax.Array]
# A box, by its middle and half of its edges as columns, and places in it with how far their neighbours are.
Frame = tuple[jax.Array, jax.Array]
Grid = tuple[Frame, jax.Array, jax.Array]


@dataclass(frozen=True, eq=False)
class Summed:
    """All that some latents may be together, and how probable that is, by the program of a model.

    Attributes:
        latents: read as columns of ``program``.
        finer: with how many grids and times as many points more, to compare others with.
    """

    latents: tuple[RowLatent, ...]
    program: Program
    finer: int = 0

    def run(self, keys: Sequence[Output], theta: jax.Array, columns: Row) -> list[jax.Array]:
        """Outputs of the program; columns that it does not read may be left out."""
        inputs, outputs = self.program.inputs, self.program.outputs
        given = {inputs[name]: value for name, value in columns.items() if name in inputs}
        return self.program.run([outputs[key] for key in keys], given | {inputs["theta"]: theta})

    def density(self, theta: jax.Array, columns: Row) -> jax.Array:
        """The log density of the latents on their own supports."""
        parts = self.run([Output("row", latent.site) for latent in self.latents], theta, columns)
        return jnp.sum(jnp.stack([jnp.sum(part) for part in parts]))

    def atoms(self, theta: jax.Array, row: Row) -> tuple[Row, jax.Array]:
        """What the latents may be, as columns ``(points, …)``, and the logs of the probabilities."""
        points = self._points(_mesh(self._axes(first=False)), theta, row)
        return points, jax.nn.log_softmax(jax.vmap(functools.partial(self._weight, theta, row))(points))

    def total(self, theta: jax.Array, row: Row, term: Term) -> jax.Array:
        """``−log Σ_q ω_q exp(term(θ, u_q))`` over points that follow the row."""
        atoms = self.near(theta, row, term)
        return -log_total(lambda atoms: at_each(lambda at, own: own + term(theta, at), *atoms), atoms)

    def near(self, theta: jax.Array, row: Row, term: Term) -> tuple[Row, jax.Array]:
        """Points where ``e^{term}`` times the density of the latents is not negligible, and log weights.

        A fixed number of grids, each along the axes of what is left of the last one; they follow ``θ`` and
        this row alone. Between the points of the first grid over two numbers a ridge may pass: from the best
        of them Newton's steps go to its top. That the points move with ``θ`` is no part of the slopes, which
        are sums over them as well.
        """
        axes, here = self._axes(first=True), jax.lax.stop_gradient(theta)
        weight = functools.partial(self._weight, theta, row)
        if not axes:
            points = self._points(_mesh(axes), theta, row)
            return points, jax.vmap(weight)(points)

        def heights(places: jax.Array) -> jax.Array:
            at = self._points(places, here, row)
            found = at_each(lambda at: self._weight(here, row, at) + term(here, at), at)
            found = jnp.where(jnp.isfinite(found), found, -jnp.inf)
            return jax.nn.logsumexp(found.reshape(len(places), -1), axis=1)

        def nearer(_: int, grid: Grid) -> Grid:
            return _around(grid, heights(_placed(*grid[:2]))), unit, cells

        unit = _mesh([jnp.linspace(-1.0, 1.0, len(axis)) for axis in axes])
        cell = jnp.array([2.0 / (len(axis) - 1) for axis in axes])
        cells, whole = jnp.broadcast_to(cell, unit.shape), (jnp.zeros(len(axes)), jnp.eye(len(axes)))
        gaps = [jnp.diff(axis, prepend=2 * axis[0] - axis[1]) for axis in axes]
        grid = whole, _mesh(axes), _mesh([jnp.maximum(gap, gap[::-1]) for gap in gaps])
        if len(axes) > 1:
            ridge = _on_ridge(heights, grid[1][jnp.argmax(heights(grid[1]))])
            found = jnp.all(jnp.isfinite(ridge[1]))
            grid = jax.tree.map(functools.partial(jnp.where, found), (ridge, unit, cells), grid)
        frame, *_ = jax.lax.stop_gradient(jax.lax.fori_loop(0, _ZOOMS + self.finer, nearer, grid))
        # What is differentiated is a sum over more of them.
        counts = [max(len(axis), _LAST_POINTS * (1 + self.finer)) for axis in axes]
        last = _mesh([jnp.linspace(-1.0, 1.0, count) for count in counts])
        points = self._points(_placed(frame, last), theta, row)
        size = _log_volume(frame[1] * (2.0 / (jnp.array(counts) - 1)))
        return points, jax.vmap(weight)(points) + size

    def _weight(self, theta: jax.Array, row: Row, at: Row) -> jax.Array:
        """The log density of the latents, of numbers in units of the axes.

        Under the mask of an obs_mask nothing reads a latent: there any density does.
        """
        total = jnp.zeros(())
        for each in self.latents:
            keys = [Output("row", each.site), Output("weight", each.site, "mask0")]
            found = self.run([key for key in keys if key in self.program.outputs], theta, {**row, **at})
            own, other = jnp.sum(found[0]), jnp.array(-math.log(max(each.values, 1)))
            if each.numbers:
                x, (centre, sd) = at[each.column], self._scale(each, theta, row)
                own += jnp.sum(each.transform.log_abs_det_jacobian(x, each.transform(x)))
                own += jnp.sum(jnp.log(sd))
                other = jnp.sum(jax.scipy.stats.norm.logpdf((x - centre) / sd))
            total += own if len(found) == 1 else jnp.where(jnp.all(found[1]), own, other)
        return total

    def _grid(self, latent: RowLatent, first: bool) -> tuple[float, int]:
        """The end and the points of the values of a number, of a Normal in units of its sd."""
        numbers = sum(each.numbers for each in self.latents)
        if not latent.line:
            return _FAR if first else _END, PLAIN_POINTS * (1 + self.finer)
        return (_FAR, _FIRST_POINTS[numbers] * (1 + self.finer)) if first else (_SPAN, POINTS[numbers])

    def _axes(self, first: bool) -> list[jax.Array]:
        """Of each number."""
        axes = []
        for each in self.latents:
            if each.numbers:
                end, count = self._grid(each, first)
                axis = jnp.linspace(-end, end, count)
                if end == _FAR:
                    axis = _FAR * jnp.sinh(_DENSE * axis / _FAR) / math.sinh(_DENSE)
                axes += [axis] * each.numbers
        return axes

    def _scale(self, latent: RowLatent, theta: jax.Array, row: Row) -> tuple[jax.Array, jax.Array]:
        """Location and sd of each number of a Normal, where other latents are 0; 0 and 1 of others."""
        if not latent.line:
            return jnp.zeros(latent.numbers), jnp.ones(latent.numbers)
        origin = {each.column: jnp.zeros(each.domain.event_shape, each.domain.dtype) for each in self.latents}
        keys = [Output("given", latent.site, name) for name in ("loc", "scale")]
        ends = self.run(keys, theta, {**row, **origin})
        centres, sds = (jnp.broadcast_to(jnp.ravel(end), (latent.numbers,)) for end in ends)
        return centres, sds

    def _points(self, places: jax.Array, theta: jax.Array, row: Row) -> Row:
        """Columns ``(points, …)``: numbers at ``places`` ``(p, numbers)``, each with all discrete values."""
        classes = [each.values for each in self.latents if each.values]
        each_of = jnp.meshgrid(jnp.arange(len(places)), *map(jnp.arange, classes), indexing="ij")
        place, *values = (one.ravel() for one in each_of)
        numbers, found = iter(places[place].T), {}
        for latent in self.latents:
            if latent.values:
                own = values.pop(0)
            else:
                scales = zip(*self._scale(latent, theta, row), strict=True)
                own = jnp.stack([centre + sd * next(numbers) for centre, sd in scales], axis=-1)
                own = own if latent.dim is not None else own[:, 0]
            found[latent.column] = own.astype(latent.domain.dtype)
        return found


def _mesh(axes: Sequence[jax.Array]) -> jax.Array:
    """All places ``(p, axes)``; of no axis a single one."""
    parts = [part.ravel() for part in jnp.meshgrid(*axes, indexing="ij")]
    return jnp.stack(parts, axis=-1) if parts else jnp.zeros((1, 0))


def _placed(frame: Frame, places: jax.Array) -> jax.Array:
    return frame[0] + places @ frame[1].T


def _log_volume(edges: jax.Array) -> jax.Array:
    """Of the box with one or two edges, as columns."""
    first, *others = edges
    volume = first[0] * others[0][1] - first[1] * others[0][0] if others else first[0]
    return jnp.log(jnp.abs(volume))


def _around(grid: Grid, heights: jax.Array) -> Frame:
    """The box along the scatter of those places of a grid that are high enough, and their neighbours."""
    frame, places, gaps = grid
    keep = heights > jnp.max(heights) - _DROP
    keep |= ~jnp.any(keep)
    share = keep / jnp.sum(keep)
    middle = share @ places
    apart = places - middle
    scatter = apart.T @ (share[:, None] * apart) + jnp.diag((share @ gaps) ** 2) / 12
    squares, axes = eigh(scatter)
    inverse, axes = axes / jnp.sqrt(squares), axes * jnp.sqrt(squares)
    along, reach = apart @ inverse, gaps @ jnp.abs(inverse)
    low = jnp.min(jnp.where(keep[:, None], along - reach, jnp.inf), axis=0)
    high = jnp.max(jnp.where(keep[:, None], along + reach, -jnp.inf), axis=0)
    return _placed(frame, middle + axes @ (low + high) / 2), frame[1] @ (axes * (high - low) / 2)


_SWEEPS = 10


def eigh(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors, as columns, of a small symmetric matrix, in no order (Jacobi 1846).

    By no LAPACK, of which a call gets few rows. Each rotation of a sweep takes one pair of coordinates apart.
    Not to be differentiated.
    """
    pairs = np.tile(np.stack(np.triu_indices(a.shape[-1], 1), axis=1), (_SWEEPS, 1))

    def rotate(at: tuple[jax.Array, jax.Array], pair: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        a, axes = at
        off, gap = a[pair[0], pair[1]], a[pair[1], pair[1]] - a[pair[0], pair[0]]
        half = jnp.where(gap < 0, -2, 2) * off
        tangent = jnp.where(off == 0, 0.0, half / (jnp.abs(gap) + jnp.sqrt(gap**2 + half**2)))
        cosine = 1 / jnp.sqrt(1 + tangent**2)
        turn = cosine * jnp.stack([jnp.stack([1.0, tangent]), jnp.stack([-tangent, 1.0])])
        a = a.at[:, pair].set(a[:, pair] @ turn)
        return (a.at[pair].set(turn.T @ a[pair]), axes.at[:, pair].set(axes[:, pair] @ turn)), None

    (a, axes), _ = jax.lax.scan(rotate, (a, jnp.eye(a.shape[-1], dtype=a.dtype)), jnp.asarray(pairs))
    return jnp.diagonal(a), axes


def _on_ridge(heights: Callable[[jax.Array], jax.Array], start: jax.Array) -> Frame:
    """A box by the curvature near the top that Newton's steps from ``start`` come to."""

    def slope(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = jax.grad(lambda x: heights(x[None])[0])(x)
        return found, found

    def step(_: int, frame: Frame) -> Frame:
        curvature, uphill = jax.jacfwd(slope, has_aux=True)(frame[0])
        sizes, axes = eigh(-curvature)
        sizes = jnp.maximum(jnp.abs(sizes), _FLAT)
        move = axes @ ((uphill @ axes) / sizes)
        tried = frame[0] + jnp.array(_PARTS)[:, None] * jnp.where(jnp.isfinite(move), move, 0.0)
        return tried[jnp.argmax(heights(tried))], axes * (_RIDGE / jnp.sqrt(sizes))

    top, box = jax.lax.fori_loop(0, _NEWTON, step, (start, jnp.eye(len(start))))
    return top, box


def summed_loss(summed: Summed, row_loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """``v``: over all values of the row's latents; ``row_loss`` is that of the row with them as columns."""

    def term(theta: jax.Array, values: Row) -> jax.Array:
        return -row_loss(theta, {**row, **values})

    return summed.total(theta, row, term)


# Beside the largest term these are 0 in float64.
_NOTHING = -800.0


def log_total(terms: Callable[[Points], jax.Array], points: Points) -> jax.Array:
    """``log Σ_q exp(term_q)`` over points of which some may overflow, to a rate of ``e^800``, say.

    Such a term adds 0, but its gradient is no number, and neither is 0 times it. In the place of its point
    stands that of the largest term.
    """
    found = jax.lax.stop_gradient(terms(points))
    found = jnp.where(jnp.isfinite(found), found, -jnp.inf)
    best = jnp.argmax(found)
    counts = found - found[best] > _NOTHING

    def placed(leaf: jax.Array) -> jax.Array:
        return jnp.where(counts.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, leaf[best])

    return jax.nn.logsumexp(jnp.where(counts, terms(jax.tree.map(placed, points)), -jnp.inf))


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnLatents(Summed):
    """The latents of one person, by the program of a row, and all that they may be.

    Attributes:
        row_loss: ``(θ, row) ↦`` a row's term, given the latents as columns.
    """

    row_loss: RowLoss

    @property
    def names(self) -> list[str]:
        """Of the person's own sites."""
        return [latent.site for latent in self.latents]

    def elements(self, rows: int) -> int:
        """How many numbers are alive while the gradient of a person with so many rows is formed."""
        classes = math.prod(each.values or 1 for each in self.latents)
        return _OF_TERMS * classes * math.prod(map(len, self._axes(first=False))) * rows

    def term(self, theta: jax.Array, own: Row, row: Row) -> jax.Array:
        """A row's term, given the person's own latents."""
        return self.row_loss(theta, {**row, **own})


def own_latents(latents: tuple[RowLatent, ...], program: Program, row_loss: RowLoss) -> OwnLatents:
    """Those of a person, whose distributions may follow each other and ``θ``, and no row."""
    read = program.reads([program.outputs[Output("row", latent.site)] for latent in latents])
    if data := sorted(read - {"theta"} - {latent.column for latent in latents}):
        raise NotYetSupported(f"latents of persons whose distributions follow columns {data}.")
    return OwnLatents(latents, program, row_loss=row_loss)


def integrated_loss(own: OwnLatents, theta: jax.Array, person: Row) -> jax.Array:
    """``V``: ``person`` holds columns ``(k, …)`` and which of its rows there are."""
    there = person[OWN_ROWS] > 0

    def placed(column: jax.Array) -> jax.Array:
        # In the place of a row that there is not: the first one, which overflows only where the person does.
        return jnp.where(there.reshape(-1, *(1,) * (column.ndim - 1)), column, column[:1])

    rows = {name: placed(column) for name, column in person.items() if name != OWN_ROWS}

    def term(theta: jax.Array, columns: Row) -> jax.Array:
        losses = at_each(lambda row: own.term(theta, columns, row), rows)
        return -jnp.sum(jnp.where(there, losses, 0.0))

    return own.total(theta, {}, term)


def of_one_row(loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """The term of a person with one row."""
    person = {name: jnp.asarray(value)[None] for name, value in row.items()}
    return loss(theta, {**person, OWN_ROWS: jnp.ones(1, int)})
