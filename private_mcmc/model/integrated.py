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

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import NotYetSupported
from private_mcmc.model.program import Output, Program
from private_mcmc.model.row_latents import PLAIN_POINTS, POINTS, Row, RowLatent, RowLoss

# A tree of arrays ``(points, …)``.
Points = TypeVar("Points")

# Arrays of a person's terms that are alive together.
_OF_TERMS = 4
# Prior sds that a grid for all that a latent may be spans on either side. With spacing h a sum over a grid
# misses a Gaussian integrand of sd s by about exp(−2π²s²/h²) of it.
_SPAN = 5.0
# The first one is dense around 0, and reaches rows that a latent's distribution is not meant for.
_FAR, _DENSE, _FIRST_POINTS = 40.0, 4.0, {1: 25, 2: 17}
# Of other families: the ends on the unconstrained line.
_END = 8.0
# So often a grid is laid anew over what is left of the last one: where terms are above e^{−18} of the most.
_ZOOMS, _DROP = 3, 18.0


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
        points = self._points(self._axes(first=False), theta, row)
        return points, jax.nn.log_softmax(jax.vmap(functools.partial(self._weight, theta, row))(points))

    def total(self, theta: jax.Array, row: Row, term: Callable[[Row], jax.Array]) -> jax.Array:
        """``−log Σ_q ω_q exp(term(u_q))`` over points that follow the row."""
        atoms = self.near(theta, row, term)
        return -log_total(lambda atoms: jax.vmap(lambda at, weight: weight + term(at))(*atoms), atoms)

    def near(self, theta: jax.Array, row: Row, term: Callable[[Row], jax.Array]) -> tuple[Row, jax.Array]:
        """Points where ``e^{term}`` times the density of the latents is not negligible, and log weights.

        A fixed number of grids, each over what is left of the last one; they follow ``θ`` and this row alone.
        That the points move with ``θ`` is no part of the slopes, which are sums over them as well.
        """
        weight = functools.partial(self._weight, theta, row)
        axes = self._axes(first=True)
        free = [not each.values for each in self.latents for _ in range(each.numbers or 1)]

        def nearer(_: int, axes: list[jax.Array]) -> list[jax.Array]:
            found = jax.vmap(lambda at: weight(at) + term(at))(self._points(axes, theta, row))
            found = jax.lax.stop_gradient(found)
            found = jnp.where(jnp.isfinite(found), found, -jnp.inf).reshape([len(axis) for axis in axes])
            keep = jnp.moveaxis(found > jnp.max(found) - _DROP, 0, -1)
            windows = []
            for axis, one in zip(axes, free, strict=True):
                places = jnp.any(keep, axis=tuple(range(keep.ndim - 1)))
                windows.append(_window(axis, places) if one else axis)
                keep = jnp.moveaxis(keep, 0, -1)
            return windows

        if any(free):
            axes = jax.lax.fori_loop(0, _ZOOMS + self.finer, nearer, axes)
        widths = [jnp.log(axis[1] - axis[0]) for axis, one in zip(axes, free, strict=True) if one]
        points = self._points(axes, theta, row)
        return points, jax.vmap(weight)(points) + sum(widths, jnp.zeros(()))

    def _weight(self, theta: jax.Array, row: Row, at: Row) -> jax.Array:
        """The log density of the latents, of numbers in those of the axes.

        Under the mask of an obs_mask nothing reads a latent: there all its values have the same weight.
        """
        total = jnp.zeros(())
        for each in self.latents:
            keys = [Output("row", each.site), Output("weight", each.site, "mask0")]
            found = self.run([key for key in keys if key in self.program.outputs], theta, {**row, **at})
            own, even = jnp.sum(found[0]), -math.log(max(each.values, 1))
            if each.numbers:
                x, (end, count) = at[each.column], self._grid(each, first=True)
                own += jnp.sum(each.transform.log_abs_det_jacobian(x, each.transform(x)))
                own += jnp.sum(jnp.log(self._scale(each, theta, row)[1]))
                even = -each.numbers * math.log(2 * end * count / (count - 1))
            total += own if len(found) == 1 else jnp.where(jnp.all(found[1]), own, even)
        return total

    def _grid(self, latent: RowLatent, first: bool) -> tuple[float, int]:
        """The end and the points of the values of a number, of a Normal in units of its sd."""
        numbers = sum(each.numbers for each in self.latents)
        if not latent.line:
            return _FAR if first else _END, PLAIN_POINTS * (1 + self.finer)
        return (_FAR, _FIRST_POINTS[numbers] * (1 + self.finer)) if first else (_SPAN, POINTS[numbers])

    def _axes(self, first: bool) -> list[jax.Array]:
        axes = []
        for each in self.latents:
            end, count = self._grid(each, first) if each.numbers else (0.0, 0)
            axis = jnp.linspace(-end, end, count) if count else jnp.arange(each.values)
            if end == _FAR:
                axis = _FAR * jnp.sinh(_DENSE * axis / _FAR) / math.sinh(_DENSE)
            axes += [axis] * (each.numbers or 1)
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

    def _points(self, axes: Sequence[jax.Array], theta: jax.Array, row: Row) -> Row:
        """Columns ``(points, …)`` of every combination of the values on the axes."""
        grid = [part.ravel() for part in jnp.meshgrid(*axes, indexing="ij")]
        found = {}
        for latent in self.latents:
            own, grid = grid[: latent.numbers or 1], grid[latent.numbers or 1 :]
            if latent.line:
                own = [c + sd * x for c, sd, x in zip(*self._scale(latent, theta, row), own, strict=True)]
            found[latent.column] = jnp.stack(own, axis=-1) if latent.dim is not None else own[0]
        return {each.column: found[each.column].astype(each.domain.dtype) for each in self.latents}


def _window(axis: jax.Array, keep: jax.Array) -> jax.Array:
    """As many points between the neighbours of those that are kept; all of them where none is."""
    places, last = jnp.arange(len(axis)), len(axis) - 1
    keep = keep | ~jnp.any(keep)
    low = jnp.maximum(jnp.min(jnp.where(keep, places, last)) - 1, 0)
    high = jnp.minimum(jnp.max(jnp.where(keep, places, 0)) + 1, last)
    return axis[low] + (axis[high] - axis[low]) * jnp.linspace(0.0, 1.0, len(axis))


def summed_loss(summed: Summed, row_loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """``v``: over all values of the row's latents; ``row_loss`` is that of the row with them as columns."""

    def term(values: Row) -> jax.Array:
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
        return _OF_TERMS * math.prod(map(len, self._axes(first=False))) * rows

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

    def term(columns: Row) -> jax.Array:
        losses = jax.vmap(lambda row: own.term(theta, columns, row))(rows)
        return -jnp.sum(jnp.where(there, losses, 0.0))

    return own.total(theta, {}, term)


def of_one_row(loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """The term of a person with one row."""
    person = {name: jnp.asarray(value)[None] for name, value in row.items()}
    return loss(theta, {**person, OWN_ROWS: jnp.ones(1, int)})
