"""Synthetic people for what was released: covariates like the released moments, and possible outcomes.

Real covariate columns are ``x = m + Bz`` of public shapes ``z``, moved into their domain; ``m`` and ``B`` are fitted so that
every released matrix of second moments (of designs, of curvature, of information) is what these rows would
give, as closely as its noise says. The other columns are drawn from their domain. Nothing private is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.stats import qmc

from private_mcmc.domains import Domain
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.planning import MomentsStage
from private_mcmc.planning.simulate import second_moments
from private_mcmc.planning.synthetic import outcome_columns
from private_mcmc.release import SecondMoments

Array: TypeAlias = npt.NDArray[np.float64]
Columns: TypeAlias = dict[str, jax.Array]

_ROWS = 384
# Columns of real numbers beyond this many keep the spread of their domain.
_MOST_FITTED = 40
# Shapes are not known better than this share of a typical row's curvature.
_DISCREPANCY = 0.02
_WEAK = 0.1
_FITTING_STEPS = 40
_FEW, _NODES, _GRID = 16, 25, 1025
# Outcomes less likely than exp(−this) of the most likely one, under a law four times as dispersed, are left out.
_NEGLIGIBLE = 14.0


@dataclass(frozen=True, eq=False)
class Released:
    """One released matrix of second moments, with the stage that it came from."""

    stage: MomentsStage
    value: SecondMoments

    @property
    def root(self) -> Array | None:
        """``A``, where the rows' vectors are ``Aᵀ`` times those of the parameter; ``None`` if it is not known."""
        vectors = self.stage.vectors
        last = vectors.args[-1] if isinstance(vectors, partial) and vectors.args else None
        dim = self.stage.mechanism.dim
        return last if isinstance(last, np.ndarray) and last.shape == (dim, dim) else None

    def predicted(self, rows: Columns, each: float) -> jax.Array:
        """What rows that stand for ``each`` people would release without noise."""
        weights = jnp.full(len(next(iter(rows.values()))), each)
        return second_moments(self.stage.vectors, (), self.stage.mechanism.radius, rows, weights)


@dataclass(frozen=True, eq=False)
class People:
    """Synthetic rows, each with every outcome that matters, ``rows × outcomes`` of them in one axis.

    Attributes:
        covariates: columns ``(rows, …)``, one outcome each.
        columns: columns ``(rows·outcomes, …)``.
        log_base: weights of the outcomes as a rule of integration, ``(rows, outcomes)``.
        each: how many real rows a synthetic one stands for.
    """

    covariates: Columns
    columns: Columns
    log_base: Array
    each: float

    def log_shares(self, reading: RowModel, theta: jax.Array) -> jax.Array:
        """Logarithms of the outcomes' probabilities under ``θ``, normalised row by row, ``(rows, outcomes)``."""
        losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(theta, self.columns)
        losses = losses.reshape(self.log_base.shape)
        return jax.nn.log_softmax(jnp.where(jnp.isfinite(losses), self.log_base - losses, -1e30), axis=1)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Synthetic rows that fit the released moments, and how sure that is.

    Attributes:
        rows: their columns.
        fitted: whether they could be fitted.
        uncertainty: of the last released matrix without its noise, in the upper triangle: a root of the covariance.
    """

    rows: Columns
    uncertainty: Array | None = None


def people(reading: RowModel, released: Sequence[Released], n: int) -> Fitted:
    """Columns of synthetic rows that fit the released moments."""
    rows = reading.rows.project(reading.rows.synthetic(jax.random.key(11), _ROWS))
    fitted = _real_columns(reading)
    width = sum(math.prod(reading.rows.columns[name].event_shape) for name in fitted)
    if not released or not 0 < width <= _MOST_FITTED:
        return Fitted(rows)
    shapes = _shapes(width)
    centre, spread = _start(reading, fitted, rows, width)
    lower = np.tril_indices(width)

    def coloured(parameters: jax.Array) -> Columns:
        mean = centre + spread * parameters[:width]
        factor = jnp.zeros((width, width)).at[lower].set(parameters[width:]) * spread[:, None]
        values = mean + shapes @ factor.T
        return {**rows, **_split(reading, fitted, values)}

    start = np.concatenate([np.zeros(width), np.eye(width)[lower]])

    def residuals(parameters: jax.Array) -> jax.Array:
        made = coloured(parameters)
        parts = [_WEAK * (parameters - start)]
        for one in released:
            scale = math.hypot(one.value.noise_sd, _DISCREPANCY)
            off = one.predicted(made, n / _ROWS) - one.value.matrix
            parts.append(_upper(off, one.stage.mechanism.dim) / scale)
        return jnp.concatenate(parts)

    jacobian = jax.jit(jax.jacfwd(residuals))
    value = jax.jit(residuals)
    found = least_squares(
        lambda x: np.asarray(value(x)),
        start,
        jac=lambda x: np.asarray(jacobian(x)),
        max_nfev=_FITTING_STEPS,
        loss="linear",
    )
    made = {name: jnp.asarray(column) for name, column in coloured(jnp.asarray(found.x)).items()}
    known = [index for index, one in enumerate(released) if one.root is not None]
    return Fitted(made, _uncertainty(found.jac, released, known[-1]) if known else None)


def _uncertainty(jacobian: Array, released: Sequence[Released], which: int) -> Array:
    """A root of the covariance of the upper triangle of a predicted matrix, linearised where the fit ended."""
    sizes = [one.stage.mechanism.dim * (one.stage.mechanism.dim + 1) // 2 for one in released]
    first = jacobian.shape[1] + sum(sizes[:which])
    own = jacobian[first : first + sizes[which]] * math.hypot(released[which].value.noise_sd, _DISCREPANCY)
    factor = np.linalg.cholesky(jacobian.T @ jacobian)
    return np.asarray(np.linalg.solve(factor, own.T).T)


def with_outcomes(reading: RowModel, rows: Columns, n: int, theta: Array) -> People:
    """Every outcome of few, or nodes of a rule of integration that reach as far as outcomes do at ``theta``.

    Raises:
        NotYetSupported: for outcomes of several columns, or of vectors.
    """
    names = outcome_columns(reading)
    if len(names) != 1 or reading.rows.columns[names[0]].event_shape != ():
        raise NotYetSupported("the posterior given releases needs an outcome of one scalar column.")
    name = names[0]
    grid = _grid(reading, name)
    count = len(next(iter(rows.values())))
    if len(grid) <= _FEW:
        nodes = np.broadcast_to(grid, (count, len(grid)))
        log_base = np.zeros(nodes.shape)
    else:
        nodes, log_base = _nodes(reading, rows, name, grid, theta)
    repeated = {key: jnp.repeat(column, nodes.shape[1], axis=0) for key, column in rows.items()}
    repeated[name] = jnp.asarray(nodes.ravel(), dtype=rows[name].dtype)
    return People(rows, repeated, log_base, n / count)


def _grid(reading: RowModel, name: str) -> Array:
    """Possible outcomes in the model's support: beyond the declared bounds too where it is the line or all counts."""
    domain = reading.rows.columns[name]
    low, high = (float(bound) for bound in domain.interval())
    if not math.isfinite(high - low):
        raise NotYetSupported(f"column {name!r} is unbounded: no outcomes to go through.")
    families = {site.family for site in reading.observations}
    if np.issubdtype(domain.dtype, np.integer):
        if families <= _COUNTS:
            high = 2 * high + 8
        return np.unique(np.linspace(low, high, min(int(high - low) + 1, _GRID)).round())
    if families <= _ON_THE_LINE:
        low, high = low - (high - low), high + (high - low)
    return np.linspace(low, high, _GRID)


_ON_THE_LINE = {"Normal", "StudentT", "Laplace", "Logistic", "Cauchy", "Gumbel", "AsymmetricLaplace"}
_COUNTS = {"Poisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits", "GammaPoisson"}


def _nodes(reading: RowModel, rows: Columns, name: str, grid: Array, theta: Array) -> tuple[Array, Array]:
    """Row by row, evenly spaced outcomes over where a law twice as wide as the row's own is not negligible."""

    @jax.jit
    def log_densities(theta: jax.Array, rows: Columns) -> jax.Array:
        dtype = rows[name].dtype
        choices = jnp.asarray(grid, dtype=dtype)
        return jax.lax.map(
            lambda row: -jax.vmap(lambda y: reading.row_loss(theta, {**row, name: y}))(choices), rows
        )

    found = np.asarray(log_densities(jnp.asarray(theta), rows))
    found = np.where(np.isfinite(found), found, -np.inf)
    best = found.max(axis=1, keepdims=True)
    kept = (found - best) / 4 > -_NEGLIGIBLE / 2
    first = kept.argmax(axis=1)
    last = len(grid) - 1 - kept[:, ::-1].argmax(axis=1)
    share = np.linspace(0.0, 1.0, _NODES)
    nodes = grid[first][:, None] + share * (grid[last] - grid[first])[:, None]
    if not np.issubdtype(reading.rows.columns[name].dtype, np.integer):
        return nodes, np.zeros(nodes.shape)
    nodes = nodes.round()
    # Counts next to each other are gone through; further apart each stands for its neighbourhood.
    short = grid[last] - grid[first] < _NODES
    nodes[short] = grid[first][short][:, None] + np.arange(_NODES)
    middles = (nodes[:, 1:] + nodes[:, :-1]) / 2
    edges = np.column_stack([nodes[:, :1] - 0.5, middles, nodes[:, -1:] + 0.5])
    widths = np.diff(edges, axis=1)
    return nodes, np.log(np.maximum(widths, 1e-12))


def _real_columns(reading: RowModel) -> tuple[str, ...]:
    outcomes = outcome_columns(reading)
    return tuple(
        name
        for name, domain in reading.rows.items
        if name not in outcomes and np.issubdtype(domain.dtype, np.floating)
    )


def _shapes(width: int) -> jax.Array:
    """Points of a cube with mean 0 and second moments ``I``, ``(rows, width)``."""
    points = qmc.Halton(width, scramble=True, seed=5).random(_ROWS) - 0.5
    points = points - points.mean(axis=0)
    factor = np.linalg.cholesky(points.T @ points / _ROWS)
    return jnp.asarray(np.linalg.solve(factor, points.T).T)


def _start(reading: RowModel, names: tuple[str, ...], rows: Columns, width: int) -> tuple[Array, Array]:
    """Where the fit begins: the middle of a domain, or the positive side of one around zero."""
    centres, spreads = [], []
    for name in names:
        values = np.asarray(rows[name], dtype=np.float64).reshape(_ROWS, -1)
        spread = values.std(axis=0) + 1e-12
        mean = values.mean(axis=0)
        around_zero = np.abs(mean) < 0.3 * spread
        centres.append(np.where(around_zero, spread, mean))
        spreads.append(spread)
    return np.concatenate(centres), np.concatenate(spreads)


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
