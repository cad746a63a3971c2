"""Covariates of synthetic people, like those that releases speak of.

Real columns of smooth tables are moved and stretched; rows of every table stand for a number of people,
log-linear in categories, pairs of them and numbers. Both are fitted under weak Normal priors, so that every
released matrix of second moments (of designs, of curvature, of information) is what these people would give,
as closely as its noise says (maximum entropy reweighting: Hainmueller 2012). What matrices leave unknown is a
Normal combination of functions of rows. Nothing private is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike
from scipy.stats import chi2

from private_mcmc.inference.posterior.outcomes import Columns, Law, law
from private_mcmc.inference.posterior.tables import (
    FULL_SD,
    SMOOTH,
    Table,
    deviation_functions,
    real_columns,
    squares,
    tables,
)
from private_mcmc.model import RowModel
from private_mcmc.planning import MomentsStage, of_rows, partial_parts
from private_mcmc.planning.simulate import second_moments
from private_mcmc.records import ON_FEW_ROWS, RUN_ONCE
from private_mcmc.release import SecondMoments
from private_mcmc.target import Adjacency

Array: TypeAlias = npt.NDArray[np.float64]
# Queries, and whether they read the outcome.
Functions: TypeAlias = tuple[tuple[Callable[..., jax.Array], bool], ...]

# Shapes are not known better than this share of a typical row's curvature.
_DISCREPANCY = 0.02
# One table of people alone is used where its squared deviations are not above this quantile.
_EXPLAINED = 0.99
# Prior sds, in the spread of the domain: of ``m``; of the logarithms of ``B``'s diagonal; of its other
# entries over the diagonal's.
_PLACE, _WIDTH, _SLOPE = 3.0, 1.0, 0.5
# Steps of difference quotients; counts are rounded, and those of many rows only move with longer ones.
_DIFFERENCE, _DIFFERENCE_OF_COUNTS = 1e-5, 0.05


@dataclass(frozen=True, eq=False)
class Released:
    """One released matrix of second moments, with the stage that it came from."""

    stage: MomentsStage
    value: SecondMoments

    @property
    def query(self) -> tuple[Callable[..., jax.Array], tuple[Any, ...], float]:
        """The rows' vectors as a function and its arguments, which other releases of the policy have too."""
        return *partial_parts(self.stage.vectors), self.stage.mechanism.radius

    def predicted(self, rows: Columns, weights: ArrayLike) -> Array:
        """What rows that stand for ``weights`` people would release without noise."""
        function, given, radius = self.query
        return np.asarray(second_moments(function, given, radius, rows, jnp.asarray(weights)))

    def reads(self, rows: Columns, law: Law) -> bool:
        """Whether a row's vectors change with its outcome."""
        ends = [
            {name: jnp.full_like(rows[name], at[end]) for name, at in law.values.items()} for end in (0, -1)
        ]
        low, high = (np.asarray(of_rows(self.stage.vectors, {**rows, **end})) for end in ends)
        return not np.allclose(low, high, rtol=1e-6, atol=1e-12)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Synthetic rows that fit the released moments, and how sure that is.

    Attributes:
        rows: their columns.
        weights: how many people each stands for, ``(rows,)``.
        functions: of the covariates, which a model may have left out; ``(rows, functions)``.
        deviations: by how much those numbers may be off, relatively: a column for every independent standard
            Normal number that they depend on linearly, given what was released; ``(rows, deviations)``.
        off: released matrices less what these rows would give, each in its entries' sds, ``(entries,)``.
    """

    rows: Columns
    weights: Array
    functions: Array
    deviations: Array
    off: tuple[Array, ...] = ()


class Target(NamedTuple):
    """What a synthetic table is fitted to: arguments of queries, released matrices, their noise."""

    given: tuple[tuple[tuple[Any, ...], float], ...]
    matrices: tuple[jax.Array, ...]
    scales: tuple[jax.Array, ...]
    slots: jax.Array
    table: Table
    law: Law | None


def fitted(
    reading: RowModel,
    released: Sequence[Released],
    n: int,
    theta: Array,
    adjacency: Adjacency = "replace_one",
) -> Fitted:
    """Synthetic rows that fit the released moments; outcomes that a matrix reads are the model's at ``θ``.

    Where the adjacency hides how many of the ``n`` slots are empty, the moments tell that too.
    """
    at, made = law(reading, theta), tables(reading)
    if adjacency != "replace_one":
        made = [one.with_empty_slots() for one in made]
    # With the law of outcomes, the queries that read them; else any outcome will do.
    asked = tuple((one.query[0], at is not None and one.reads(made[0].rows, at)) for one in released)
    given = tuple(one.query[1:] for one in released)
    matrices = tuple(jnp.asarray(one.value.matrix) for one in released)
    everyone = jnp.asarray(float(n))
    known = [_entry_sds(one) for one in released]
    scales = known
    # Twice where a matrix reads outcomes: how far those are from their mean is known once people are.
    for _ in range(2 if any(reads for _, reads in asked) else 1):
        target = partial(Target, given, matrices, tuple(map(jnp.asarray, scales)), everyone)
        parts = [_people(reading, asked, target(one, at)) for one in made]
        rows = {name: jnp.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
        shares = (SMOOTH, 1 - SMOOTH) if len(made) > 1 else (1.0,)
        weights = np.concatenate([share * part[1] for share, part in zip(shares, parts, strict=True)])
        of_each = [_of_rows(reading, ask, *one, at, rows) for ask, one in zip(asked, given, strict=True)]
        scales = [np.sqrt(sd**2 + weights @ varies) for sd, (_, varies) in zip(known, of_each, strict=True)]
    seen = [means / scale for (means, _), scale in zip(of_each, scales, strict=True)]
    released_entries = [
        np.asarray(_upper(matrix, len(matrix))) / scale
        for matrix, scale in zip(matrices, scales, strict=True)
    ]
    count = len(parts[-1][1])
    if len(made) > 1 and _explained(parts[-1][1], [one[-count:] for one in seen], released_entries):
        # Smooth columns are never constant, nor those of a flat direction that noise hides.
        made, (rows, weights), seen = made[-1:], parts[-1], [one[-count:] for one in seen]
    functions = np.concatenate(
        [np.hstack([np.asarray(one.features), squares(np.asarray(one.shapes))]) for one in made]
    )
    # By how much the number of people may be off, before it was released.
    total_sd = 0.0 if adjacency == "replace_one" else FULL_SD * max(1 - float(weights.sum()) / n, 0.0)
    weights, deviations = conditioned(
        weights, deviation_functions(reading, made), seen, released_entries, total_sd
    )
    off = tuple(found - weights @ one for found, one in zip(released_entries, seen, strict=True))
    return Fitted(rows, weights, functions, deviations, off)


def _explained(weights: Array, seen: Sequence[Array], released: Sequence[Array]) -> bool:
    """Whether rows of these weights would give what was released but for noise, as ``χ²`` tells."""
    if not released:
        return False
    off = np.concatenate([found - weights @ one for found, one in zip(released, seen, strict=True)])
    return bool(off @ off < chi2.ppf(_EXPLAINED, len(off)))


def _people(reading: RowModel, asked: Functions, data: Target) -> tuple[Columns, Array]:
    """One table's rows, fitted to the matrices, and how many people each stands for."""
    table = data.table
    start = np.zeros(table.numbers + table.effects.shape[1])
    found = None
    if asked and len(start):
        found, _ = least_squares(partial(_linearised, reading, asked, data), start)
    made, weights = _made(reading, data, *_parts(data, jnp.asarray(start if found is None else found)))
    return {name: jnp.asarray(column) for name, column in made.items()}, np.asarray(weights)


def _of_rows(
    reading: RowModel,
    asked: tuple[Callable[..., jax.Array], bool],
    given: tuple[Any, ...],
    radius: float,
    at: Law | None,
    rows: Columns,
) -> tuple[Array, Array]:
    """What one person of every row adds to a released matrix: mean and variance of its free entries.

    Of shapes ``(rows, entries)``; the variance is that of outcomes, where the matrix reads them.
    """
    function, reads = asked
    one = jnp.ones(len(next(iter(rows.values()))))
    people = at.of(reading, rows, one) if reads and at is not None else (rows, one)
    matrices = _one_by_one(function, given, radius, *people)
    entries = np.asarray(jax.vmap(partial(_upper, dim=matrices.shape[-1]))(matrices))
    apart = entries.reshape(len(one), -1, entries.shape[-1])
    means = apart.sum(axis=1)
    probable = np.maximum(np.asarray(people[1]).reshape(len(one), -1, 1), 1e-300)
    return means, np.maximum((apart**2 / probable).sum(axis=1) - means**2, 0.0)


def _entry_sds(released: Released) -> Array:
    """How well the free entries of a matrix are known at best, ``(entries,)``: noise, and other shapes."""
    dim = len(released.value.matrix)
    return np.full(dim * (dim + 1) // 2, math.hypot(released.value.noise_sd, _DISCREPANCY))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _one_by_one(
    function: Callable[..., jax.Array],
    given: tuple[Any, ...],
    radius: float,
    rows: Columns,
    weights: jax.Array,
) -> jax.Array:
    def alone(row: Columns, weight: jax.Array) -> jax.Array:
        only = {name: column[None] for name, column in row.items()}
        return jnp.asarray(second_moments(function, given, radius, only, weight[None]))

    return jnp.asarray(jax.vmap(alone)(rows, weights))


def _linearised(
    reading: RowModel, functions: Functions, data: Target, parameters: Array
) -> tuple[Array, Array]:
    values, jacobian = _residuals_and_jacobian(reading, functions, data, jnp.asarray(parameters))
    return np.asarray(values), np.asarray(jacobian)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)
def _residuals_and_jacobian(
    reading: RowModel, functions: Functions, data: Target, parameters: jax.Array
) -> tuple[jax.Array, jax.Array]:
    residuals, (numbers, effects) = partial(_residuals, reading, functions, data), _parts(data, parameters)
    here = residuals(numbers, effects)

    def moved(side: jax.Array) -> jax.Array:
        return (residuals(numbers + side, effects) - here) / jnp.sum(side)

    # Numbers move rows, whose curvature may have slow derivatives or none; effects, which are many, do not.
    of_numbers = jax.lax.map(moved, jnp.diag(_differences(reading, len(numbers)))).T
    return here, jnp.concatenate([of_numbers, jax.jacfwd(residuals, argnums=1)(numbers, effects)], axis=1)


def _differences(reading: RowModel, numbers: int) -> Array:
    """How far each of the numbers that make ``m`` and ``B`` is moved for a difference quotient."""
    if not numbers:
        return np.zeros(0)
    whole = [
        np.full(math.prod(domain.event_shape), not np.issubdtype(domain.dtype, np.floating))
        for _, domain in real_columns(reading)
    ]
    counts = np.concatenate(whole)
    lower = np.tril_indices(len(counts))[0]
    return np.where(np.concatenate([counts, counts[lower]]), _DIFFERENCE_OF_COUNTS, _DIFFERENCE)


def _parts(data: Target, parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
    numbers = len(parameters) - data.table.effects.shape[1]
    return parameters[:numbers], parameters[numbers:]


def _residuals(
    reading: RowModel, functions: Functions, data: Target, numbers: jax.Array, effects: jax.Array
) -> jax.Array:
    made, weights = _made(reading, data, numbers, effects)
    width = data.table.shapes.shape[1]
    corner = jnp.asarray(np.eye(width)[np.tril_indices(width)])
    scale = jnp.concatenate(
        [jnp.full(width, 1 / _PLACE), jnp.where(corner > 0, 1 / _WIDTH, 1 / _SLOPE), jnp.ones(len(effects))]
    )
    parts = [scale * jnp.concatenate([numbers, effects])]
    people = made, weights
    drawn = people if data.law is None else data.law.of(reading, *people)
    for (function, reads), (given, radius), matrix, noise in zip(
        functions, data.given, data.matrices, data.scales, strict=True
    ):
        off = second_moments(function, given, radius, *(drawn if reads else people)) - matrix
        parts.append(_upper(off, len(matrix)) / noise)
    return jnp.concatenate(parts)


def _made(
    reading: RowModel, data: Target, numbers: jax.Array, effects: jax.Array
) -> tuple[Columns, jax.Array]:
    """Rows and weights from numbers, which are ``m``, what makes ``B``, and the log-linear effects."""
    table, width = data.table, data.table.shapes.shape[1]
    weights = table.weights(effects, data.slots)
    if not width:
        return table.rows, weights
    lower = np.tril_indices(width)
    entries = numbers[width : width + len(lower[0])]
    factor = jnp.zeros((width, width)).at[lower].set(entries)
    # Positive by construction: noise makes no direction of covariates vanish.
    widths = jnp.exp(jnp.diagonal(factor))
    slopes = data.table.slopes * (factor - jnp.diag(jnp.diagonal(factor)))
    factor = widths[:, None] * (slopes + jnp.eye(width))
    values = table.centre + table.place * numbers[:width] + table.spread * (table.base @ factor.T)
    return {**table.rows, **_split(reading, values)}, weights


def _split(reading: RowModel, values: jax.Array) -> Columns:
    """The columns of stacked values, in their domains."""
    made, first = {}, 0
    for name, domain in real_columns(reading):
        size = math.prod(domain.event_shape)
        column = values[:, first : first + size].reshape(len(values), *domain.event_shape)
        made[name], first = domain.project(column), first + size
    return made


def _upper(matrix: jax.Array, dim: int) -> jax.Array:
    """The free entries of a symmetric matrix, in a basis in which its noise is isotropic."""
    rows, columns = np.triu_indices(dim)
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))


def conditioned(
    weights: Array, moving: Array, seen: Sequence[Array], released: Sequence[Array], total_sd: float = 0.0
) -> tuple[Array, Array]:
    """Weights ``∝ w exp(φe)`` at the most likely ``e ~ N(0, I)``, and deviations of what is left of ``e``.

    They stay positive however far releases pull them; deviations are those of small changes from there.

    Args:
        weights: ``w``, ``(rows,)``.
        moving: ``φ``, ``(rows, functions)``.
        seen: what one person of every row adds to each release, over its noise's sd, ``(rows, entries)``.
        released: over its noise's sd, ``(entries,)``.
        total_sd: of the logarithm of the sum of all weights before anything was released; 0 where it is
            public.
    """
    if not seen:
        return weights, _centred(weights, moving, total_sd)
    adds, found = np.concatenate(seen, axis=1), np.concatenate(released)
    first = weights

    def of(effects: Array) -> Array:
        logs = moving @ effects[:-1]
        made = first * np.exp(logs - logs.max())
        return np.asarray(made * (first.sum() * np.exp(total_sd * effects[-1]) / made.sum()))

    def linearised(effects: Array) -> tuple[Array, Array]:
        made = of(effects)
        sides = (made[:, None] * _centred(made, moving, total_sd)).T @ adds
        off = np.concatenate([effects, made @ adds - found])
        return off, np.vstack([np.eye(len(effects)), sides.T])

    best, _ = least_squares(linearised, np.zeros(moving.shape[1] + 1))
    weights = first if best is None else of(best)
    centred, factor = _factored(weights, moving, adds, total_sd)
    return weights, np.asarray(np.linalg.solve(factor, centred.T).T)


def _centred(weights: Array, moving: Array, total_sd: float) -> Array:
    """``φ`` less its mean, which moves no total, and what moves all weights alike."""
    everyone = np.full(len(weights), total_sd)
    return np.column_stack([moving - weights @ moving / weights.sum(), everyone])


def _factored(weights: Array, moving: Array, adds: Array, total_sd: float) -> tuple[Array, Array]:
    """These functions, and a factor of the precision of ``e``."""
    centred = _centred(weights, moving, total_sd)
    jacobian = (weights[:, None] * centred).T @ adds
    return centred, np.asarray(np.linalg.cholesky(np.eye(len(jacobian)) + jacobian @ jacobian.T))


_FITTING_STEPS, _SETTLED = 40, 1e-3


def least_squares(
    linearised: Callable[[Array], tuple[Array, Array]], start: Array
) -> tuple[Array, Array] | tuple[None, None]:
    """Levenberg's and Marquardt's method: the minimum and the Jacobian there; ``None`` where they fail."""
    at, damping = start, 0.01
    residuals, jacobian = linearised(at)
    if not (np.all(np.isfinite(residuals)) and np.all(np.isfinite(jacobian))):
        return None, None
    for _ in range(_FITTING_STEPS):
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), jacobian.T @ residuals)
        tried, other = linearised(at - step)
        before, after = float(residuals @ residuals), float(tried @ tried)
        if not (np.all(np.isfinite(tried)) and np.all(np.isfinite(other)) and after < before):
            damping = min(8 * damping, 1e6)
            continue
        at, residuals, jacobian = at - step, tried, other
        damping = max(damping / 4, 1e-8)
        if before - after < _SETTLED * max(after, 1.0):
            break
    return at, jacobian
