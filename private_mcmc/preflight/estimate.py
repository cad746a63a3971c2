"""About what one exact posterior draw would reveal on data that the model draws: an estimate, never a bound.

Near its mode a posterior is about Normal with precision ``H = ∇²K + w Σ_i ∇²v(θ, d_i)``. Another row in the
place of one moves its mean by about ``w H^{-1}(∇v(d) − ∇v(d'))``: the two are as far apart as Normal laws
whose means are ``m = w ‖H^{-1/2}(∇v(d) − ∇v(d'))‖`` standard deviations apart: ``m``-GDP. Data are synthetic:
people of the declared domain, outcomes drawn from the model at public draws of the prior, which are pulled
half of the way to its centre, since those of vague priors are like no data. ``d`` and ``d'`` are any rows of
the domain: the longest step is searched from its extremes, by a fixed number of evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import gdp
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import project_rows
from private_mcmc.model import RowModel
from private_mcmc.model.integrated import Summed
from private_mcmc.model.refusals import rows_at_ends
from private_mcmc.model.synthetic import (
    Array,
    PublicRow,
    extreme_rows,
    outcome_columns,
    people,
    prior_draws,
    row_words,
    scale_of,
    stacked,
)
from private_mcmc.records import Record
from private_mcmc.report import at_most, number
from private_mcmc.system import ON_FEW_ROWS, RUN_ONCE, blas_of_one_thread
from private_mcmc.target import Adjacency, Target

Columns = dict[str, np.ndarray]

# Rows of a data set, fewer where losses of many outcomes or many parameters make a row dear; draws of the
# prior, and data sets.
_ROWS, _FEWEST, _PRIOR_DRAWS, _DATA_SETS = 512, 64, 200, 3
_MOST_EVALUATIONS = 2**17
# Of more parameters curvature is the outer product of scores.
_MOST_CURVED = 100
# Of what the prior adds to curvature so much is certain, where it bends the wrong way.
_LEAST = 0.1
# Values of an outcome that are compared at once, and how often they are then drawn closer together.
_CELLS, _ZOOMS, _MOST_OUTCOMES, _SWEPT_TWICE = 32, 3, 64, 4
# Unbounded outcomes are looked for up to ``sinh(14)``, 600,000.
_FAR = 14.0
# Rows of the domain that are compared, and that are tried afterwards.
_POOL, _TRIED = 1024, 4096
# Numbers that the loss of a plain row computes, and the most of them.
_PLAIN, _MOST_NUMBERS = 2048, 2**20


@dataclass(frozen=True)
class Estimate:
    """About what one exact draw reveals on synthetic data; it certifies nothing.

    Attributes:
        gdp: the GDP level ``m`` that a Normal posterior would have.
        epsilon: the ε of ``gdp`` at the target's δ.
        row: the synthetic row of the domain that moves the posterior most.
        other: the row in whose place it comes; ``None`` where rows are added, removed or zeroed.
    """

    gdp: float
    epsilon: float
    row: PublicRow
    other: PublicRow | None

    def words(self, target: Target) -> str:
        """How far that is from the target, in a line."""
        about = f"on data such as the model draws about ε = {at_most(self.epsilon, 3)}"
        if self.epsilon > target.epsilon:
            return f"{about}: treat it as not private"
        return (
            f"{about}, below the target's {at_most(target.epsilon)}, which is an estimate and proves nothing"
        )

    @property
    def change(self) -> str:
        """The change of one row that moves the posterior most, by public values."""
        row = f"a row with {row_words(self.row)}"
        return row if self.other is None else f"{row} in place of one with {row_words(self.other)}"


@dataclass(frozen=True, eq=False)
class _Problem:
    """The gradients of a model at ``batch`` rows at a time; so many are tried beside those of the pool."""

    model: RowModel
    n: int
    temper: float
    batch: int
    tried: int

    def steps(self, theta: Array, rows: Columns) -> tuple[Array, Array, Columns]:
        """``∇K``, the rows' gradients, and the rows in their domain."""
        prior, each, inside = jax.tree.map(np.asarray, _gradients(self.model, theta, rows))
        return prior, each, inside

    def root(self, theta: Array, data: Columns, scale: Array) -> Callable[[Array], Array] | None:
        """``H^{-1/2}``, up to a rotation, of gradients ``(k, p)``; ``None`` if ``H`` is not finite.

        With the prior's scales ``S``, ``S H S = 1 + Q diag(λ − 1) Qᵀ`` by differences of gradients, or of
        many parameters by scores; every row of the data stands for as many as there are.
        """
        count, dim = min(self.n, self.batch), len(theta)
        each = self.temper * self.n / count

        def total(at: Array) -> Array:
            prior, slopes, _ = self.steps(at, data)
            return np.asarray(prior + each * slopes[:count].sum(axis=0))

        if dim > _MOST_CURVED:
            bend = math.sqrt(each) * self.steps(theta, data)[1][:count] * scale
        else:
            moved = np.stack([total(theta + 1e-5 * scale * unit) for unit in np.eye(dim)])
            bend = (moved - total(theta)) / 1e-5 * scale
        if not np.all(np.isfinite(bend)):
            return None
        if dim > _MOST_CURVED:
            _, roots, rows = np.linalg.svd(bend, full_matrices=False)
            values, vectors = 1 + roots**2, rows.T
        else:
            values, vectors = np.linalg.eigh((bend + bend.T) / 2)
        shrunk = np.maximum(values, _LEAST) ** -0.5 - 1
        return lambda steps: steps * scale + ((steps * scale) @ vectors * shrunk) @ vectors.T


def estimate(row_model: RowModel, *, n: int, temper: float, target: Target) -> Estimate | str:
    """The estimate, or why there is none, in a line.

    On the median of three data sets; all keys are fixed, and nothing private is read.
    """
    if target.delta == 0:
        return "at δ = 0 a Normal posterior has no finite ε"
    try:
        with jax.enable_x64(True), blas_of_one_thread(), np.errstate(all="ignore"):
            found = _found(row_model, n, temper, target.adjacency)
    except Exception as error:  # no run is to end for want of an estimate; all that is computed is public
        return f"it could not be computed ({type(error).__name__})"
    if isinstance(found, str):
        return found
    level, row, other = found
    return Estimate(level, gdp.epsilon(level, target.delta), row, other)


def _found(
    row_model: RowModel, n: int, temper: float, adjacency: Adjacency
) -> tuple[float, PublicRow, PublicRow | None] | str:
    """The median data set's GDP level, and the rows that make it."""
    numbers = row_model.work
    if numbers > _MOST_NUMBERS:
        return f"the loss of one row takes about {number(numbers)} numbers, too many to try rows"
    draws = prior_draws(row_model, _PRIOR_DRAWS)
    centre, scale = scale_of(draws)
    each = max(1, numbers // _PLAIN)
    plain = row_model.each or row_model
    drawn = max(1, (plain.given or plain).work // _PLAIN) * len(_places(row_model)) * _CELLS
    work = each * row_model.dim + drawn
    rows_each = 1 if row_model.unit is None else row_model.unit.rows
    fewest = max(_FEWEST // each, _FEWEST // 4)
    batch = max(fewest, min(_ROWS, _MOST_EVALUATIONS // work) // rows_each)
    problem = _Problem(row_model, n, temper, batch, _TRIED // each)
    outcomes, pool = outcomes_of(row_model), _pool(row_model, batch, _POOL // each)
    found: list[tuple[float, PublicRow, PublicRow | None]] = []
    for index in range(_DATA_SETS):
        theta = centre + 0.5 * (draws[index] - centre)
        crowd = typed(row_model, people(row_model.rows, batch, index))
        data = outcomes(theta, crowd, np.random.default_rng(index))
        if min(n, batch) < batch:
            data = {name: column[np.arange(batch) % n] for name, column in data.items()}
        root = problem.root(theta, data, scale)
        one = None if root is None else _longest(problem, theta, root, pool, adjacency)
        found += [] if one is None else [one]
    if not found:
        return "no synthetic data set has finite information"
    return sorted(found, key=lambda one: one[0])[len(found) // 2]


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _gradients(row_model: RowModel, theta: jax.Array, rows: Record) -> tuple[jax.Array, jax.Array, Record]:
    """``∇K`` at ``θ``, every row's ``∇v``, and the rows in their domain; compiled once for a model."""
    inside = row_model.rows.project(rows)
    slopes = jax.vmap(row_model.row_slope, in_axes=(None, 0))(theta, inside)
    return row_model.prior_slope(theta), slopes, inside


def _longest(
    problem: _Problem, theta: Array, root: Callable[[Array], Array], pool: Columns, adjacency: Adjacency
) -> tuple[float, PublicRow, PublicRow | None] | None:
    """The longest step of the mean in its own standard deviations: from the pool, then by random changes."""

    def images(rows: Columns) -> tuple[Array, Columns]:
        """Of the rows' gradients under ``w H^{-1/2}``, NaN where they are not finite; and the rows."""
        _, each, inside = problem.steps(theta, rows)
        found = problem.temper * root(each)
        return np.where(np.all(np.isfinite(found), axis=1, keepdims=True), found, np.nan), inside

    size = len(next(iter(pool.values())))
    parts = [
        images({name: column[first : first + problem.batch] for name, column in pool.items()})
        for first in range(0, size, problem.batch)
    ]
    at = np.concatenate([found for found, _ in parts])
    pool = {name: np.concatenate([inside[name] for _, inside in parts]) for name in pool}
    good = np.flatnonzero(np.isfinite(at[:, 0]))
    if len(good) == 0:
        return None
    norms = np.sum(at[good] ** 2, axis=1)
    pairs = norms[:, None] + norms[None, :] - 2 * at[good] @ at[good].T
    ends = [int(np.argmax(norms))]
    if adjacency == "replace_one":
        ends = [int(place) for place in np.unravel_index(int(np.argmax(pairs)), pairs.shape)]
    rows = [{name: column[good[end]] for name, column in pool.items()} for end in ends]
    vectors = [at[good[end]] for end in ends]
    if len(ends) == 1:
        vectors.append(np.zeros_like(vectors[0]))
    random = np.random.default_rng(11)
    for round_ in range(problem.tried // problem.batch):
        end = round_ % len(ends)
        tried = _changed(problem.model, rows[end], pool, problem.batch, random)
        image, inside = images(tried)
        apart = np.nan_to_num(np.linalg.norm(image - vectors[1 - end], axis=1), nan=0.0)
        best = int(np.argmax(apart))
        if apart[best] > np.linalg.norm(vectors[end] - vectors[1 - end]):
            rows[end], vectors[end] = {name: column[best] for name, column in inside.items()}, image[best]
    level = float(np.linalg.norm(vectors[0] - vectors[1]))
    return (level, rows[0], rows[1] if len(rows) > 1 else None) if math.isfinite(level) else None


def _pool(row_model: RowModel, batch: int, most: int) -> Columns:
    """Extreme rows of the domain and random ones, ``most`` or more, a multiple of ``batch``."""
    extreme = typed(row_model, stacked(extreme_rows(row_model.rows)))
    least = len(next(iter(extreme.values())))
    count = -(-max(most, least + 4) // batch) * batch - least
    random = rows_at_ends(row_model.rows, count, 7)
    return {name: np.concatenate([extreme[name], random[name]]) for name in extreme}


def typed(row_model: RowModel, rows: Record) -> Columns:
    """Columns of the domains' types, before they are mapped into them."""
    found = {}
    for name, domain in row_model.rows.items:
        column = np.asarray(rows[name])
        whole = np.issubdtype(domain.dtype, np.integer)
        found[name] = (np.rint(column) if whole else column).astype(domain.dtype)
    return found


def _changed(
    row_model: RowModel, row: PublicRow, pool: Columns, count: int, random: np.random.Generator
) -> Columns:
    """Rows of the domain with some columns of the pool's in place of this row's, or a little moved."""
    found: Columns = {}
    for name, domain in row_model.rows.items:
        wide = (count, *(1 for _ in domain.event_shape))
        base = np.broadcast_to(row[name], (count, *domain.event_shape))
        low, high = domain.interval()
        with np.errstate(invalid="ignore", over="ignore"):
            span = np.where(np.isfinite(high - low), high - low, 1.0)
        size = 10.0 ** -random.uniform(0, 3, wide)
        kind = random.integers(0, 4, wide)
        moved = base + size * span * random.standard_normal(base.shape)
        drawn = pool[name][random.integers(0, len(pool[name]), count)]
        found[name] = np.where(kind == 0, drawn, np.where((kind == 1) & (name != OWN_ROWS), moved, base))
    return typed(row_model, found)


def _places(row_model: RowModel) -> list[tuple[str, tuple[int, ...], bool]]:
    """The numbers of a row's outcome in the order in which they are drawn, if they are few: column and index.

    A number of many values is drawn among 32 cells, and then again among cells of the one drawn and its
    neighbours (``True``).
    """
    reading = row_model.each or row_model
    names, columns = outcome_columns(reading), reading.rows.columns
    numbers = [(name, index) for name in names for index in np.ndindex(columns[name].event_shape)]
    if len(numbers) > _MOST_OUTCOMES:
        return []
    few = all(columns[name].dtype.kind != "f" and columns[name].norm_bound < _CELLS for name in names)
    once = [(name, at, again > 0) for name, at in numbers for again in range(1 if few else _ZOOMS)]
    return once * (2 if 1 < len(numbers) <= _SWEPT_TWICE else 1)


def outcomes_of(row_model: RowModel) -> Callable[[Array, Columns, np.random.Generator], Columns]:
    """Rows with outcomes drawn from the model at ``θ`` in place of their own, one number after another.

    Each number's law given the rest is ``∝ exp(−v)`` over its domain; latents of rows and persons are drawn
    first. Where there is no outcome, or too many numbers of it, rows stay.
    """
    reading, places = row_model.each or row_model, _places(row_model)
    names, given = {name for name, _, _ in places}, reading.given or reading
    losses = _SELDOM_AND_OFTEN[len(places) > _OFTEN]

    def drawn(theta: Array, rows: Columns, random: np.random.Generator) -> Columns:
        rows = {name: np.asarray(column) for name, column in project_rows(row_model.rows, rows).items()}
        # Rows of persons one by one, where one has a term of its own.
        axes = 1 if row_model.each is None else 2
        own = {name: rows[name].reshape(-1, *rows[name].shape[axes:]) for name in reading.rows.columns}
        rest = {name: column for name, column in own.items() if name not in names}
        if reading.summed is not None:
            latents = _latents(reading.summed, theta, rows, jax.random.key(int(random.integers(2**31))))
            times = len(next(iter(own.values()))) // len(next(iter(rows.values())))
            rest |= {name: np.repeat(np.asarray(column), times, axis=0) for name, column in latents.items()}
        start: Array = np.zeros(0)
        width: Array = np.zeros(0)
        for name, index, again in places:
            low, high = (end[index] for end in reading.rows.columns[name].interval())
            whole, bounded = own[name].dtype.kind != "f", np.isfinite(high - low)
            least, most = (low, high + whole) if bounded else (-_FAR, _FAR)
            if not again:
                # Of few whole numbers each has a cell.
                span = max(most - least, _CELLS) if whole and bounded else most - least
                start, width = np.full(len(own[name]), least), np.full(len(own[name]), span)
            cells = start[:, None] + (np.arange(_CELLS) + 0.5) * width[:, None] / _CELLS
            tried = {key: np.repeat(own[key][:, None], _CELLS, axis=1) for key in names}
            values = (np.floor(cells) if whole else cells) if bounded else np.sinh(cells)
            at: Any = (slice(None), slice(None), *index)
            tried[name][at] = values
            score = -np.asarray(losses(given, theta, tried, rest)) + (
                0.0 if bounded else np.log(np.cosh(cells))
            )
            score = np.where(np.isfinite(score) & (cells < most), score, -1e30)
            chosen = np.arange(len(score)), np.argmax(score + random.gumbel(size=score.shape), axis=1)
            own[name] = tried[name][chosen]
            start = np.maximum(cells[chosen] - width / _CELLS, least)
            width = np.minimum(cells[chosen] + width / _CELLS, most) - start
        return rows | {name: own[name].reshape(rows[name].shape) for name in names}

    return drawn


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _latents(summed: Summed, theta: jax.Array, rows: Record, key: jax.Array) -> Record:
    """A draw of the latents of every row, or person, given its covariates."""
    count = len(next(iter(rows.values())))

    def of_row(row: Record, key: jax.Array) -> Record:
        values, weights = summed.atoms(theta, row)
        chosen = jax.random.categorical(key, weights)
        return {name: column[chosen] for name, column in values.items()}

    return jax.vmap(of_row)(rows, jax.random.split(key, count))


def _losses(reading: RowModel, theta: jax.Array, tried: Record, rows: Record) -> jax.Array:
    """Of every row with every outcome that is tried in it, ``(rows, outcomes)``."""

    def of_row(tried: Record, row: Record) -> jax.Array:
        return jax.vmap(lambda outcome: reading.row_loss(theta, {**row, **outcome}))(tried)

    return jnp.asarray(jax.vmap(of_row)(tried, rows))


# Of outcomes that are drawn more often than this a program that runs faster is worth its compilation.
_OFTEN = 32
_SELDOM_AND_OFTEN = [
    jax.jit(_losses, static_argnums=0, compiler_options=options) for options in (RUN_ONCE, ON_FEW_ROWS)
]
