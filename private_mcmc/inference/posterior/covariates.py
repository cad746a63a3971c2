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
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from private_mcmc.domains import Domain
from private_mcmc.inference.posterior.evenly import (
    covariates_of,
    evenly,
    features_of,
    shapes_of,
    squares,
    whole_columns,
)
from private_mcmc.inference.posterior.least_squares import least_squares
from private_mcmc.inference.posterior.outcomes import Columns, Law, law
from private_mcmc.model import RowModel
from private_mcmc.planning import MomentsStage
from private_mcmc.planning.simulate import second_moments
from private_mcmc.release import SecondMoments

Array: TypeAlias = npt.NDArray[np.float64]
# Queries, and whether they read the outcome.
Functions: TypeAlias = tuple[tuple[Callable[..., jax.Array], bool], ...]

_ROWS, _ROWS_OF_CATEGORIES = 256, 512
# Real columns beyond this many keep the spread of their domain.
_MOST_FITTED = 40
# Shapes are not known better than this share of a typical row's curvature.
_DISCREPANCY = 0.02
# Prior sds, in the spread of the domain: of ``m``; of the logarithms of ``B``'s diagonal; of its other
# entries over the diagonal's.
_PLACE, _WIDTH, _SLOPE = 3.0, 1.0, 0.5


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

    def predicted(self, rows: Columns, weights: ArrayLike) -> Array:
        """What rows that stand for ``weights`` people would release without noise."""
        function, given, radius = self.query
        return np.asarray(second_moments(function, given, radius, rows, jnp.asarray(weights)))

    def reads(self, rows: Columns, law: Law) -> bool:
        """Whether a row's vectors change with its outcome."""
        function, given, _ = self.query
        vectors = jax.vmap(partial(function, *given))
        ends = [
            {name: jnp.full_like(rows[name], at[end]) for name, at in law.values.items()} for end in (0, -1)
        ]
        low, high = (np.asarray(vectors({**rows, **end})) for end in ends)
        return not np.allclose(low, high, rtol=1e-6, atol=1e-12)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Synthetic rows that fit the released moments, and how sure that is.

    Attributes:
        rows: their columns.
        weights: how many people each stands for, ``(rows,)``.
        functions: of the covariates, which a model may have left out; ``(rows, functions)``.
        predicted: by these people, the last released matrix whose coordinates are known.
        uncertainty: of the last released matrix without its noise: a root of its triangle's covariance.
    """

    rows: Columns
    weights: Array
    functions: Array
    predicted: Array | None = None
    uncertainty: Array | None = None


class Target(NamedTuple):
    """What synthetic rows are fitted to: arguments of queries, released matrices, their noise."""

    given: tuple[tuple[tuple[Any, ...], float], ...]
    matrices: tuple[jax.Array, ...]
    scales: tuple[jax.Array, ...]
    total: jax.Array
    rows: Columns
    features: jax.Array
    law: Law | None


def fitted(reading: RowModel, released: Sequence[Released], n: int, theta: Array) -> Fitted:
    """Synthetic rows that fit the released moments; outcomes that a matrix reads are the model's at ``θ``."""
    count = _ROWS_OF_CATEGORIES if whole_columns(reading) else _ROWS
    rows = evenly(reading, count)
    _, width = _fitted_columns(reading)
    shapes = shapes_of(width, count)
    features = features_of(reading, rows, shapes)
    functions = np.concatenate([features, squares(shapes)], axis=1)
    if not released or width + features.shape[1] == 0:
        return Fitted(rows, np.full(count, n / count), functions)
    at = law(reading, theta)
    # With the law of outcomes, the queries that read them; else any outcome will do.
    asked = tuple((one.query[0], at is not None and one.reads(rows, at)) for one in released)
    start = np.zeros(width * (width + 3) // 2 + features.shape[1])
    data = Target(
        tuple(one.query[1:] for one in released),
        tuple(jnp.asarray(one.value.matrix) for one in released),
        tuple(jnp.asarray(math.hypot(one.value.noise_sd, _DISCREPANCY)) for one in released),
        jnp.asarray(float(n)),
        rows,
        jnp.asarray(features),
        at,
    )
    found, jacobian = least_squares(partial(_linearised, reading, asked, data), start)
    failed = found is None or jacobian is None
    made, weights = _made(reading, data, *_parts(data, jnp.asarray(start if failed else found)))
    people = {name: jnp.asarray(column) for name, column in made.items()}, np.asarray(weights), functions
    known = [index for index, one in enumerate(released) if one.root is not None]
    if not known:
        return Fitted(*people)
    last = known[-1]
    drawn = at.of(reading, made, weights) if at is not None and asked[last][1] else (made, weights)
    unsure = None if jacobian is None else _uncertainty(jacobian, released, last)
    return Fitted(*people, released[last].predicted(*drawn), unsure)


def _linearised(
    reading: RowModel, functions: Functions, data: Target, parameters: Array
) -> tuple[Array, Array]:
    values, jacobian = _residuals_and_jacobian(reading, functions, data, jnp.asarray(parameters))
    return np.asarray(values), np.asarray(jacobian)


@partial(jax.jit, static_argnums=(0, 1))
def _residuals_and_jacobian(
    reading: RowModel, functions: Functions, data: Target, parameters: jax.Array
) -> tuple[jax.Array, jax.Array]:
    residuals, both = partial(_residuals, reading, functions, data), _parts(data, parameters)
    # Apart: effects, which are many, change the weights of rows and not the rows.
    return residuals(*both), jnp.concatenate(jax.jacfwd(residuals, argnums=(0, 1))(*both), axis=1)


def _parts(data: Target, parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
    numbers = len(parameters) - data.features.shape[1]
    return parameters[:numbers], parameters[numbers:]


def _residuals(
    reading: RowModel, functions: Functions, data: Target, numbers: jax.Array, effects: jax.Array
) -> jax.Array:
    made, weights = _made(reading, data, numbers, effects)
    width = _fitted_columns(reading)[1]
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
    names, width = _fitted_columns(reading)
    weights = data.total * jax.nn.softmax(data.features @ effects)
    if not width:
        return data.rows, weights
    centre, spread = _start(names, data.rows)
    lower = np.tril_indices(width)
    entries = numbers[width : width + len(lower[0])]
    factor = jnp.zeros((width, width)).at[lower].set(entries)
    # Positive by construction: noise makes no direction of covariates vanish.
    widths = jnp.exp(jnp.diagonal(factor))
    factor = widths[:, None] * (factor - jnp.diag(jnp.diagonal(factor)) + jnp.eye(width))
    shapes = jnp.asarray(shapes_of(width, len(weights)))
    values = centre + spread * (numbers[:width] + shapes @ factor.T)
    return {**data.rows, **_split(reading, names, values)}, weights


def _uncertainty(jacobian: Array, released: Sequence[Released], which: int) -> Array:
    """A root of the covariance of a predicted matrix's triangle, linearised where the fit ended."""
    sizes = [one.stage.mechanism.dim * (one.stage.mechanism.dim + 1) // 2 for one in released]
    first = jacobian.shape[1] + sum(sizes[:which])
    own = jacobian[first : first + sizes[which]] * math.hypot(released[which].value.noise_sd, _DISCREPANCY)
    factor = np.linalg.cholesky(jacobian.T @ jacobian)
    return np.asarray(np.linalg.solve(factor, own.T).T)


def _fitted_columns(reading: RowModel) -> tuple[tuple[str, ...], int]:
    """Real covariates and how many numbers they are; none where they are too many."""
    real = [each for each in covariates_of(reading) if np.issubdtype(each[1].dtype, np.floating)]
    width = sum(math.prod(domain.event_shape) for _, domain in real)
    return (tuple(name for name, _ in real), width) if width <= _MOST_FITTED else ((), 0)


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
