"""Synthetic rows before anything was released, and functions of covariates that their weights depend on."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc

from private_mcmc.domains import Counts, Domain
from private_mcmc.domains.persons import Several
from private_mcmc.inference.posterior.outcomes import Columns
from private_mcmc.model import RowModel
from private_mcmc.planning.synthetic import outcome_columns

Array: TypeAlias = npt.NDArray[np.float64]

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
