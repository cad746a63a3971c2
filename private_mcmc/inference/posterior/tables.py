"""Public synthetic tables that covariates may look like before any release, and functions of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag
from scipy.stats import qmc

from private_mcmc.domains import Ball, Counts, Domain
from private_mcmc.domains.persons import Several
from private_mcmc.inference.posterior.outcomes import Columns
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import outcome_columns, people

Array: TypeAlias = npt.NDArray[np.float64]

# Rows of a table of numbers, of one with categories; how many kinds of people are in one table.
_ROWS, _ROWS_OF_CATEGORIES, _KINDS = 256, 512, 8
_PERSONS = 256
# Real columns beyond this many keep the spread of their domain.
_MOST_FITTED = 40
# Relative prior sds of how much there is of a law: along numbers, products of two, cubes and tails, tables.
_SECOND, _HIGHER, _TAIL, _TABLE = 0.7, 0.5, 2.0, 1.5
# Of people, how many the smooth one of two tables stands for before anything is known.
SMOOTH = 0.2
# Where empty slots are private: prior mean and sd of the log odds that a slot is full.
_FULL, FULL_SD = 2.0, 2.0
# So many products of numbers are fitted.
_MOST_PRODUCTS = 200


class Table(NamedTuple):
    """Real columns are ``centre + place·m + spread·B base``; ``m = 0`` and ``B = I`` to begin with.

    Attributes:
        rows: of all columns, in their domains.
        features: of categories, ``(rows, features)``.
        effects: what log-weights are linear in, ``(rows, effects)``; with one row more, of empty slots.
        shapes: columns of mean 0 and variance 1, ``(rows, numbers)``; none where they are too many.
        base: ``(rows, numbers)``.
        centre, place, spread: ``(numbers,)``.
        slopes: 1, or 0 where ``B`` is diagonal.
        empty: log-weight of all empty slots together, over that of a row, before effects.
    """

    rows: Columns
    features: jax.Array
    effects: jax.Array
    shapes: jax.Array
    base: jax.Array
    centre: jax.Array
    place: jax.Array
    spread: jax.Array
    slopes: jax.Array
    empty: jax.Array

    @property
    def numbers(self) -> int:
        """How many numbers make ``m`` and ``B``."""
        width = self.shapes.shape[1]
        return width * (width + 3) // 2

    def weights(self, effects: jax.Array, slots: jax.Array) -> jax.Array:
        """How many people each row stands for, ``(rows,)``."""
        logs, rows = self.effects @ effects, len(self.shapes)
        if len(logs) > rows:
            logs = logs.at[-1].add(self.empty)
        return slots * jax.nn.softmax(logs)[:rows]

    def with_empty_slots(self) -> Table:
        """The table where slots may be empty: how many are is an effect of its own."""
        effects = np.asarray(block_diag(np.asarray(self.effects), FULL_SD))
        return self._replace(effects=jnp.asarray(effects))


def tables(reading: RowModel) -> list[Table]:
    """One of smooth columns, which are moved, and one of indicators, shares and an intercept, reweighted.

    Of persons with several rows there is the second one alone.
    """
    if reading.unit is not None:
        return [_of_persons(reading, _PERSONS)]
    count = _ROWS_OF_CATEGORIES if whole_columns(reading) else _ROWS
    rows, real = evenly(reading, count), real_columns(reading)
    width = sum(math.prod(domain.event_shape) for _, domain in real)
    if not 0 < width <= _MOST_FITTED:
        shapes, nothing = np.zeros((count, 0)), np.zeros(0)
        features = features_of(reading, rows, shapes)
        return [_table(rows, features, features, shapes, shapes, *[nothing] * 3, 0.0)]
    shapes, values = shapes_of(width, count), stacked(real, rows)
    spread, centre = values.std(axis=0) + 1e-12, values.mean(axis=0)
    # The middle of a domain, or the positive side of one around zero.
    centre = np.where(np.abs(centre) < 0.3 * spread, spread, centre)
    features = features_of(reading, rows, shapes)
    # Effects of numbers as in the other table, which they do nothing to: one program is compiled.
    effects = np.concatenate([features, 0 * _numbers(shapes)], axis=1)
    smooth = _table(rows, features, effects, shapes, shapes, centre, spread, spread, 1.0)
    return [smooth, _of_people(reading, rows, real)]


def _of_people(reading: RowModel, rows: Columns, real: Sequence[tuple[str, Domain]]) -> Table:
    """Columns keep their zero, or the lower end of their domain: what is not negative stays so."""
    count = len(next(iter(rows.values())))
    each = -(-count // _KINDS)
    kinds = [dict(reading.rows.project(people(reading.rows, each, seed))) for seed in range(_KINDS)]
    drawn = {name: jnp.concatenate([kind[name] for kind in kinds])[:count] for name, _ in real}
    low = np.concatenate([_zero(domain) for _, domain in real])
    values = stacked(real, drawn) - low
    size = np.sqrt(np.square(values).mean(axis=0)) + 1e-12
    spread = values.std(axis=0)
    shapes = np.where(spread > 1e-6 * size, (values - values.mean(axis=0)) / (spread + 1e-300), 0.0)
    mixed = rows | drawn
    features = features_of(reading, mixed, shapes)
    effects = np.concatenate([features, _numbers(shapes)], axis=1)
    return _table(mixed, features, effects, shapes, values / size, low, np.zeros(len(low)), size, 0.0)


def _of_persons(reading: RowModel, count: int) -> Table:
    """Persons whose rows say the same of some columns; weights depend on means over a person's rows."""
    rows = dict(reading.rows.project(people(reading.rows, count, 0)))
    numbers, nothing = numbers_of(reading, rows), np.zeros(0)
    features = np.concatenate([features_of(reading, rows, np.zeros((count, 0))), _numbers(numbers)], axis=1)
    none = np.zeros((count, 0))
    return _table(rows, features, features, none, none, *[nothing] * 3, 0.0)


def numbers_of(reading: RowModel, rows: Columns) -> Array:
    """Real covariates, of persons their means over rows, with mean 0 and variance 1."""
    values = stacked(real_columns(reading), rows)
    return np.asarray((values - values.mean(axis=0)) / (values.std(axis=0) + 1e-12))


def _zero(domain: Domain) -> Array:
    """Where the columns of people begin."""
    low = np.broadcast_to(np.asarray(domain.interval()[0], dtype=np.float64), domain.event_shape).ravel()
    return np.zeros(low.shape) if isinstance(domain, Ball) else np.where(np.isfinite(low), low, 0.0)


def _numbers(shapes: Array) -> Array:
    """Numbers and products of two; squares alone where there are many."""
    first, second = np.triu_indices(shapes.shape[1])
    if len(first) > _MOST_PRODUCTS:
        first = second = np.arange(shapes.shape[1])
    pairs = shapes[:, first] * shapes[:, second]
    return np.concatenate([shapes, _SECOND * (pairs - pairs.mean(axis=0))], axis=1)


def _table(rows: Columns, *arrays: Array | float) -> Table:
    empty = math.log(len(next(iter(rows.values())))) - _FULL
    return Table(rows, *(jnp.asarray(each) for each in (*arrays, empty)))


def real_columns(reading: RowModel) -> list[tuple[str, Domain]]:
    """Covariates that are quantities: real numbers, and counts of many values."""
    return [each for each in covariates_of(reading) if is_number(each[1])]


def stacked(real: Sequence[tuple[str, Domain]], rows: Columns) -> Array:
    """Their values, of persons their means over rows, ``(rows, numbers)``."""
    count = len(next(iter(rows.values())))
    parts = [np.zeros((count, 0))]
    for name, domain in real:
        values = np.asarray(rows[name], dtype=np.float64)
        parts.append((values.mean(axis=1) if isinstance(domain, Several) else values).reshape(count, -1))
    return np.concatenate(parts, axis=1)


def deviation_functions(reading: RowModel, made: Sequence[Table]) -> Array:
    """Functions of a row by which there may be more or less of it, times prior sds: ``(rows, functions)``."""
    numbers = np.concatenate([np.asarray(one.shapes) for one in made])
    if not numbers.shape[1]:
        numbers = numbers_of(reading, made[0].rows)
    first, second = np.triu_indices(numbers.shape[1])
    higher = np.concatenate([numbers**3, 1.0 * (numbers > _TAIL), 1.0 * (numbers < -_TAIL)], axis=1)
    higher = (higher - higher.mean(axis=0)) / (higher.std(axis=0) + 1e-12)
    features = np.concatenate([np.asarray(one.features) for one in made])
    last = np.repeat(np.arange(len(made)) == len(made) - 1, len(features) // len(made))
    every = [features, numbers, _SECOND * numbers[:, first] * numbers[:, second], _HIGHER * higher]
    found = np.concatenate([*every, _TABLE * last[:, None]], axis=1)
    if reading.unit is None:
        return found
    # Persons are few, and matrices say little of them: no more is unknown than weights that stay positive.
    return np.asarray(found / max(np.sqrt(np.square(found - found.mean(axis=0)).sum(axis=1).mean()), 1.0))


# Prior sds of log-linear effects: of a category, and of two together or with a number.
_MAIN, _PAIR = 1.5, 0.7
# Whole numbers of more values than this count as numbers; so many effects are fitted.
_MOST_LEVELS, _MOST_PAIRS = 64, 200


def covariates_of(reading: RowModel) -> list[tuple[str, Domain]]:
    """The columns that are not outcomes."""
    outcomes = outcome_columns(reading)
    return [(name, domain) for name, domain in reading.rows.items if name not in outcomes]


def is_number(domain: Domain) -> bool:
    """Whether a column is a quantity: real, or counts of many values, which as levels stay evenly spread."""
    each = domain.each if isinstance(domain, Several) else domain
    many = isinstance(each, Counts) and each.max >= _MOST_LEVELS
    return many or bool(np.issubdtype(domain.dtype, np.floating))


def whole_columns(reading: RowModel) -> list[tuple[str, Domain]]:
    """Covariates that are categories, indicators or counts of few values."""
    return [each for each in covariates_of(reading) if not is_number(each[1])]


def evenly(reading: RowModel, count: int) -> Columns:
    """Rows of the declared domain, every value of a whole number as often as every other."""
    rows = dict(reading.rows.project(reading.rows.synthetic(11, count)))
    random = np.random.default_rng(11)
    for name, domain in whole_columns(reading):
        low, high = (np.min(bound) for bound in domain.interval())
        if math.isfinite(high - low):
            size = count * math.prod(domain.event_shape)
            values = low + np.floor((np.arange(size) + 0.5) / size * (high - low + 1))
            drawn = random.permutation(values).reshape(count, *domain.event_shape)
            rows[name] = domain.project(drawn)
    return rows


def features_of(reading: RowModel, rows: Columns, shapes: Array) -> Array:
    """What log-weights are linear in, ``(rows, effects)``, scaled by prior sds."""
    count, groups = len(shapes), []
    for name, domain in whole_columns(reading):
        values = np.asarray(rows[name], dtype=np.float64).reshape(count, -1)
        several = isinstance(domain, Several)
        low, high = (float(np.min(bound)) for bound in domain.interval())
        if high - low < _MOST_LEVELS:
            levels = np.arange(low, high + 1)
            shares = (values[..., None] == levels).mean(axis=1)
            # Of persons, squares too: how much of a level's variance is between them.
            groups.append(np.concatenate([shares, shares**2], axis=1) if several else shares)
        else:
            mean = values.mean(axis=1)
            groups.append(((mean - mean.mean()) / (mean.std() + 1e-12))[:, None])
    pairs = [_products(one, other) for one, other in combinations(groups, 2)]
    pairs += [_products(one, shapes) for one in groups if shapes.size]
    kept: list[Array] = []
    for pair in sorted(pairs, key=lambda pair: pair.shape[1]):
        if sum(each.shape[1] for each in kept) + pair.shape[1] <= _MOST_PAIRS:
            kept.append(pair)
    parts = [*(_MAIN * group for group in groups), *(_PAIR * pair for pair in kept)]
    return np.concatenate([np.zeros((count, 0)), *parts], axis=1)


def squares(shapes: Array) -> Array:
    """Squares and products of two shapes, and cubes."""
    first, second = np.triu_indices(shapes.shape[1])
    return np.concatenate([shapes[:, first] * shapes[:, second], shapes**3 / 2], axis=1)


def _products(one: Array, other: Array) -> Array:
    return np.asarray((one[:, :, None] * other[:, None, :]).reshape(len(one), -1))


def shapes_of(width: int, count: int) -> Array:
    """Points of logistic laws with mean 0 and second moments ``I``, ``(rows, width)``."""
    if not width:
        return np.zeros((count, 0))
    points = np.arctanh(2 * qmc.Halton(width, scramble=True, seed=5).random(count) - 1)
    points = points - points.mean(axis=0)
    factor = np.linalg.cholesky(points.T @ points / count)
    return np.asarray(np.linalg.solve(factor, points.T).T)
