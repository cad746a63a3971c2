"""Covariates of synthetic people, like those that releases speak of.

Real columns are ``x = m + Bz`` of public shapes ``z``, moved into their domain; other columns are drawn
evenly. A synthetic row stands for a number of people, log-linear in its categories and in pairs of
them and shapes. ``m``, ``B`` and the effects are fitted under a weak Normal prior, so that every released
matrix of second moments (of designs, of curvature, of information) is what these people would give, as
closely as its noise says (maximum entropy reweighting: Hainmueller 2012). Nothing private is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.stats import qmc

from private_mcmc.domains import Domain
from private_mcmc.inference.posterior.least_squares import least_squares
from private_mcmc.model import RowModel
from private_mcmc.planning import MomentsStage
from private_mcmc.planning.simulate import second_moments
from private_mcmc.planning.synthetic import outcome_columns
from private_mcmc.release import SecondMoments

Array: TypeAlias = npt.NDArray[np.float64]
Columns: TypeAlias = dict[str, jax.Array]
Functions: TypeAlias = tuple[Callable[..., jax.Array], ...]

_ROWS, _ROWS_OF_CATEGORIES = 256, 512
# Real columns beyond this many keep the spread of their domain.
_MOST_FITTED = 40
# Shapes are not known better than this share of a typical row's curvature.
_DISCREPANCY = 0.02
# Prior sds, in the spread of the domain: of ``m``; of the logarithms of ``B``'s diagonal; of its other
# entries over the diagonal's.
_PLACE, _WIDTH, _SLOPE = 3.0, 1.0, 0.5
# Prior sds of log-linear effects: of a category, and of two together or with a number.
_MAIN, _PAIR = 1.5, 0.7
# Whole numbers of more values than this count as numbers; so many effects are fitted.
_MOST_LEVELS, _MOST_PAIRS = 64, 200


@dataclass(frozen=True, eq=False)
class Released:
    """One released matrix of second moments, with the stage that it came from."""

    stage: MomentsStage
    value: SecondMoments

    @property
    def root(self) -> Array | None:
        """``A``, where the rows' vectors are ``Aᵀ`` times the parameter's; ``None`` if it is not known."""
        vectors = self.stage.vectors
        last = vectors.args[-1] if isinstance(vectors, partial) and vectors.args else None
        dim = self.stage.mechanism.dim
        return last if isinstance(last, np.ndarray) and last.shape == (dim, dim) else None

    @property
    def query(self) -> tuple[Callable[..., jax.Array], tuple[Any, ...], float]:
        """The rows' vectors as a function and its arguments, which other releases of the policy have too."""
        vectors = self.stage.vectors
        if isinstance(vectors, partial) and all(
            isinstance(each, float | np.ndarray) for each in vectors.args
        ):
            return vectors.func, vectors.args, self.stage.mechanism.radius
        return vectors, (), self.stage.mechanism.radius

    def predicted(self, rows: Columns, weights: Array) -> Array:
        """What rows that stand for ``weights`` people would release without noise."""
        function, given, radius = self.query
        return np.asarray(second_moments(function, given, radius, rows, jnp.asarray(weights)))


@dataclass(frozen=True, eq=False)
class Fitted:
    """Synthetic rows that fit the released moments, and how sure that is.

    Attributes:
        rows: their columns.
        weights: how many people each stands for, ``(rows,)``.
        functions: of the covariates, which a model may have left out; ``(rows, functions)``.
        uncertainty: of the last released matrix without its noise: a root of its triangle's covariance.
    """

    rows: Columns
    weights: Array
    functions: Array
    uncertainty: Array | None = None


class Target(NamedTuple):
    """What synthetic rows are fitted to: arguments of queries, released matrices, their noise."""

    given: tuple[tuple[tuple[Any, ...], float], ...]
    matrices: tuple[jax.Array, ...]
    scales: tuple[jax.Array, ...]
    total: jax.Array
    rows: Columns
    features: jax.Array


def fitted(reading: RowModel, released: Sequence[Released], n: int) -> Fitted:
    """Synthetic rows that fit the released moments."""
    count = _ROWS_OF_CATEGORIES if _whole_columns(reading) else _ROWS
    rows = _evenly(reading, count)
    _, width = _fitted_columns(reading)
    shapes = _shapes(width, count)
    features = _features(reading, rows, shapes)
    functions = np.concatenate([features, _squares(shapes)], axis=1)
    even = np.full(count, n / count)
    if not released or width + features.shape[1] == 0:
        return Fitted(rows, even, functions)
    queries = [one.query for one in released]
    start = np.zeros(width * (width + 3) // 2 + features.shape[1])
    data = Target(
        tuple((given, radius) for _, given, radius in queries),
        tuple(jnp.asarray(one.value.matrix) for one in released),
        tuple(jnp.asarray(math.hypot(one.value.noise_sd, _DISCREPANCY)) for one in released),
        jnp.asarray(float(n)),
        rows,
        jnp.asarray(features),
    )
    asked = tuple(function for function, _, _ in queries)
    found, jacobian = least_squares(partial(_linearised, reading, asked, data), start)
    if found is None or jacobian is None:
        return Fitted(rows, even, functions)
    made, weights = _made(reading, data, jnp.asarray(found))
    known = [index for index, one in enumerate(released) if one.root is not None]
    unsure = _uncertainty(jacobian, released, known[-1]) if known else None
    columns = {name: jnp.asarray(column) for name, column in made.items()}
    return Fitted(columns, np.asarray(weights), functions, unsure)


def _linearised(
    reading: RowModel, functions: Functions, data: Target, parameters: Array
) -> tuple[Array, Array]:
    values, jacobian = _residuals_and_jacobian(reading, functions, data, jnp.asarray(parameters))
    return np.asarray(values), np.asarray(jacobian)


@partial(jax.jit, static_argnums=(0, 1))
def _residuals_and_jacobian(
    reading: RowModel, functions: Functions, data: Target, parameters: jax.Array
) -> tuple[jax.Array, jax.Array]:
    residuals = partial(_residuals, reading, functions, data)
    return residuals(parameters), jax.jacfwd(residuals)(parameters)


def _residuals(reading: RowModel, functions: Functions, data: Target, parameters: jax.Array) -> jax.Array:
    made, weights = _made(reading, data, parameters)
    effects, width = data.features.shape[1], _fitted_columns(reading)[1]
    corner = jnp.asarray(np.eye(width)[np.tril_indices(width)])
    scale = jnp.concatenate(
        [jnp.full(width, 1 / _PLACE), jnp.where(corner > 0, 1 / _WIDTH, 1 / _SLOPE), jnp.ones(effects)]
    )
    parts = [scale * parameters]
    for function, (given, radius), matrix, noise in zip(
        functions, data.given, data.matrices, data.scales, strict=True
    ):
        off = second_moments(function, given, radius, made, weights) - matrix
        parts.append(_upper(off, len(matrix)) / noise)
    return jnp.concatenate(parts)


def _made(reading: RowModel, data: Target, parameters: jax.Array) -> tuple[Columns, jax.Array]:
    """Rows and weights from ``m``, what makes ``B``, and the log-linear effects."""
    names, width = _fitted_columns(reading)
    effects = data.features.shape[1]
    weights = data.total * jax.nn.softmax(data.features @ parameters[len(parameters) - effects :])
    if not width:
        return data.rows, weights
    centre, spread = _start(names, data.rows)
    lower = np.tril_indices(width)
    entries = parameters[width : width + len(lower[0])]
    factor = jnp.zeros((width, width)).at[lower].set(entries)
    # Positive by construction: noise makes no direction of covariates vanish.
    widths = jnp.exp(jnp.diagonal(factor))
    factor = widths[:, None] * (factor - jnp.diag(jnp.diagonal(factor)) + jnp.eye(width))
    shapes = jnp.asarray(_shapes(width, len(weights)))
    values = centre + spread * (parameters[:width] + shapes @ factor.T)
    return {**data.rows, **_split(reading, names, values)}, weights


def _uncertainty(jacobian: Array, released: Sequence[Released], which: int) -> Array:
    """A root of the covariance of a predicted matrix's triangle, linearised where the fit ended."""
    sizes = [one.stage.mechanism.dim * (one.stage.mechanism.dim + 1) // 2 for one in released]
    first = jacobian.shape[1] + sum(sizes[:which])
    own = jacobian[first : first + sizes[which]] * math.hypot(released[which].value.noise_sd, _DISCREPANCY)
    factor = np.linalg.cholesky(jacobian.T @ jacobian)
    return np.asarray(np.linalg.solve(factor, own.T).T)


def _covariates(reading: RowModel) -> list[tuple[str, Domain]]:
    outcomes = outcome_columns(reading)
    return [(name, domain) for name, domain in reading.rows.items if name not in outcomes]


def _whole_columns(reading: RowModel) -> list[tuple[str, Domain]]:
    return [each for each in _covariates(reading) if not np.issubdtype(each[1].dtype, np.floating)]


def _fitted_columns(reading: RowModel) -> tuple[tuple[str, ...], int]:
    """Real covariates and how many numbers they are; none where they are too many."""
    real = [each for each in _covariates(reading) if np.issubdtype(each[1].dtype, np.floating)]
    width = sum(math.prod(domain.event_shape) for _, domain in real)
    return (tuple(name for name, _ in real), width) if width <= _MOST_FITTED else ((), 0)


def _evenly(reading: RowModel, count: int) -> Columns:
    """Rows of the declared domain, every value of a whole number as often as every other."""
    rows = dict(reading.rows.project(reading.rows.synthetic(jax.random.key(11), count)))
    random = np.random.default_rng(11)
    for name, domain in _whole_columns(reading):
        low, high = (np.min(bound) for bound in domain.interval())
        if math.isfinite(high - low):
            size = count * math.prod(domain.event_shape)
            values = low + np.floor((np.arange(size) + 0.5) / size * (high - low + 1))
            drawn = random.permutation(values).reshape(count, *domain.event_shape)
            rows[name] = domain.project(drawn)
    return rows


def _features(reading: RowModel, rows: Columns, shapes: Array) -> Array:
    """What log-weights are linear in, ``(rows, effects)``, scaled by prior sds."""
    count, groups = len(shapes), []
    for name, domain in _whole_columns(reading):
        values = np.asarray(rows[name], dtype=np.float64).reshape(count, -1)
        low, high = (float(np.min(bound)) for bound in domain.interval())
        if high - low < _MOST_LEVELS:
            levels = np.arange(low, high + 1)
            groups.append((values[..., None] == levels).mean(axis=1))
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


def _squares(shapes: Array) -> Array:
    """Squares and products of two shapes, and cubes."""
    first, second = np.triu_indices(shapes.shape[1])
    return np.concatenate([shapes[:, first] * shapes[:, second], shapes**3 / 2], axis=1)


def _products(one: Array, other: Array) -> Array:
    return np.asarray((one[:, :, None] * other[:, None, :]).reshape(len(one), -1))


def _shapes(width: int, count: int) -> Array:
    """Points of a cube with mean 0 and second moments ``I``, ``(rows, width)``."""
    if not width:
        return np.zeros((count, 0))
    points = qmc.Halton(width, scramble=True, seed=5).random(count) - 0.5
    points = points - points.mean(axis=0)
    factor = np.linalg.cholesky(points.T @ points / count)
    return np.asarray(np.linalg.solve(factor, points.T).T)


def _start(names: tuple[str, ...], rows: Columns) -> tuple[jax.Array, jax.Array]:
    """Where the fit begins: the middle of a domain, or the positive side of one around zero."""
    values = jnp.concatenate([rows[name].reshape(len(rows[name]), -1) for name in names], axis=1)
    spread, mean = values.std(axis=0) + 1e-12, values.mean(axis=0)
    return jnp.where(jnp.abs(mean) < 0.3 * spread, spread, mean), spread


def _split(reading: RowModel, names: tuple[str, ...], values: jax.Array) -> Columns:
    """The columns of stacked values, in their domains."""
    made, first = {}, 0
    for name in names:
        domain: Domain = reading.rows.columns[name]
        size = math.prod(domain.event_shape)
        column = values[:, first : first + size].reshape(len(values), *domain.event_shape)
        made[name], first = domain.project(column), first + size
    return made


def _upper(matrix: jax.Array, dim: int) -> jax.Array:
    """The free entries of a symmetric matrix, in a basis in which its noise is isotropic."""
    rows, columns = np.triu_indices(dim)
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
