"""Synthetic people for what was released: covariates like the released moments, and possible outcomes.

Real covariate columns are ``x = m + Bz`` of public shapes ``z``, moved into their domain; ``m`` and ``B`` are
fitted so that every released matrix of second moments (of designs, of curvature, of information) is what
these rows would give, as closely as its noise says. The other columns are drawn from their domain. Nothing
private is used.
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

_ROWS = 256
# Columns of real numbers beyond this many keep the spread of their domain.
_MOST_FITTED = 40
# Shapes are not known better than this share of a typical row's curvature.
_DISCREPANCY = 0.02
_WEAK = 0.1
_FITTING_STEPS = 40
_FEW, _NODES, _NODES_OF_COUNTS, _GRID = 16, 17, 65, 1025
# Outcomes less likely than exp(−this) times the most likely one are left out.
_NEGLIGIBLE = 28.0


Query: TypeAlias = tuple[Callable[..., jax.Array], tuple[Any, ...], float]


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
    def query(self) -> Query:
        """The rows' vectors as a function and its arguments, which other releases of the policy have too."""
        vectors = self.stage.vectors
        if isinstance(vectors, partial) and all(
            isinstance(each, float | np.ndarray) for each in vectors.args
        ):
            return vectors.func, vectors.args, self.stage.mechanism.radius
        return vectors, (), self.stage.mechanism.radius

    def predicted(self, rows: Columns, each: float) -> Array:
        """What rows that stand for ``each`` people would release without noise."""
        function, given, radius = self.query
        weights = jnp.full(len(next(iter(rows.values()))), each)
        return np.asarray(second_moments(function, given, radius, rows, weights))


def resembles(reading: RowModel) -> bool:
    """Whether all covariates are real, so that synthetic rows can be fitted to what was released of them."""
    rows, outcomes = reading.rows.columns, outcome_columns(reading)
    return all(np.issubdtype(rows[name].dtype, np.floating) for name in rows if name not in outcomes)


@dataclass(frozen=True, eq=False)
class People:
    """Synthetic rows, each with every outcome that matters, ``rows × outcomes`` of them in one axis.

    Attributes:
        rows: columns ``(rows, …)``, one outcome each.
        columns: columns ``(rows·outcomes, …)``.
        log_base: weights of the outcomes as a rule of integration, ``(rows, outcomes)``.
        each: how many real rows a synthetic one stands for.
        covariates: the columns that are not outcomes.
    """

    rows: Columns
    columns: Columns
    log_base: Array
    each: float
    covariates: tuple[str, ...]

    def log_shares(self, reading: RowModel, theta: jax.Array) -> jax.Array:
        """Logarithms of the outcomes' probabilities under ``θ`` in every row, ``(rows, outcomes)``."""
        found: jax.Array = log_shares(reading, self.columns, jnp.asarray(self.log_base), theta)
        return found

    def off_centre(self, reading: RowModel, theta: Array) -> float:
        """How far the rule of integration moves the place where the expected score is 0, in posterior sds.

        Under the model's own law the score has mean 0 at its parameter, whatever the covariates.
        """
        shares = np.exp(np.asarray(self.log_shares(reading, jnp.asarray(theta)))).ravel()
        scores = np.asarray(_scores(reading, self.columns, jnp.asarray(theta)))
        scores = np.where(shares[:, None] > 0, scores, 0.0)
        mean, spread = self.each * shares @ scores, self.each * (scores * shares[:, None]).T @ scores
        return float(np.sqrt(max(mean @ np.linalg.pinv(spread, hermitian=True) @ mean, 0.0)))


@partial(jax.jit, static_argnums=0)
def _scores(reading: RowModel, columns: Columns, theta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))(theta, columns))


@partial(jax.jit, static_argnums=0)
def log_shares(reading: RowModel, columns: Columns, log_base: jax.Array, theta: jax.Array) -> jax.Array:
    """As :meth:`People.log_shares`."""
    losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(theta, columns).reshape(log_base.shape)
    return jax.nn.log_softmax(jnp.where(jnp.isfinite(losses), log_base - losses, -1e30), axis=1)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Synthetic rows that fit the released moments, and how sure that is.

    Attributes:
        rows: their columns.
        fitted: whether they could be fitted.
        uncertainty: of the last released matrix without its noise: a root of its triangle's covariance.
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
    queries = [one.query for one in released]
    lower = np.tril_indices(width)
    start = np.concatenate([np.zeros(width), np.eye(width)[lower]])
    data = Target(
        tuple((given, radius) for _, given, radius in queries),
        tuple(jnp.asarray(one.value.matrix) for one in released),
        tuple(jnp.asarray(math.hypot(one.value.noise_sd, _DISCREPANCY)) for one in released),
        jnp.asarray(n / _ROWS),
        rows,
        jnp.asarray(start),
    )
    functions = tuple(function for function, _, _ in queries)
    if not np.all(np.isfinite(_residuals(reading, functions, data, jnp.asarray(start)))):
        return Fitted(rows)
    found = least_squares(
        lambda x: np.asarray(_residuals(reading, functions, data, x)),
        start,
        jac=lambda x: np.asarray(_jacobian(reading, functions, data, x)),
        max_nfev=_FITTING_STEPS,
        ftol=1e-3,
        xtol=1e-4,
        x_scale=np.maximum(np.abs(start), 0.3),
    )
    made = {
        name: jnp.asarray(column)
        for name, column in _coloured(reading, data.rows, jnp.asarray(found.x)).items()
    }
    known = [index for index, one in enumerate(released) if one.root is not None]
    return Fitted(made, _uncertainty(found.jac, released, known[-1]) if known else None)


class Target(NamedTuple):
    """What synthetic rows are fitted to: arguments of queries, released matrices, their noise; the start."""

    given: tuple[tuple[tuple[Any, ...], float], ...]
    matrices: tuple[jax.Array, ...]
    scales: tuple[jax.Array, ...]
    each: jax.Array
    rows: Columns
    start: jax.Array


Functions: TypeAlias = tuple[Callable[..., jax.Array], ...]


def _coloured(reading: RowModel, rows: Columns, parameters: jax.Array) -> Columns:
    """Rows whose real columns are ``m + Bz``, with ``m`` and ``B``'s lower triangle in the domain's units."""
    names = _real_columns(reading)
    centre, spread = _start(reading, names, rows)
    width = len(centre)
    factor = jnp.zeros((width, width)).at[np.tril_indices(width)].set(parameters[width:])
    values = centre + spread * (parameters[:width] + _shapes(width) @ factor.T)
    return {**rows, **_split(reading, names, values)}


@partial(jax.jit, static_argnums=(0, 1))
def _residuals(reading: RowModel, functions: Functions, data: Target, parameters: jax.Array) -> jax.Array:
    made = _coloured(reading, data.rows, parameters)
    weights = jnp.full(_ROWS, data.each)
    parts = [_WEAK * (parameters - data.start)]
    for function, (given, radius), matrix, scale in zip(
        functions, data.given, data.matrices, data.scales, strict=True
    ):
        off = second_moments(function, given, radius, made, weights) - matrix
        parts.append(_upper(off, len(matrix)) / scale)
    return jnp.concatenate(parts)


@partial(jax.jit, static_argnums=(0, 1))
def _jacobian(reading: RowModel, functions: Functions, data: Target, parameters: jax.Array) -> jax.Array:
    found: jax.Array = jax.jacfwd(partial(_residuals, reading, functions, data))(parameters)
    return found


def _uncertainty(jacobian: Array, released: Sequence[Released], which: int) -> Array:
    """A root of the covariance of a predicted matrix's triangle, linearised where the fit ended."""
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
    covariates = {key: column for key, column in rows.items() if key != name}
    return People(rows, repeated, log_base, n / count, tuple(covariates))


def _grid(reading: RowModel, name: str) -> Array:
    """Possible outcomes: beyond the declared bounds too, where the support is the line or all counts."""
    domain = reading.rows.columns[name]
    low, high = (float(bound) for bound in domain.interval())
    if not math.isfinite(high - low):
        raise NotYetSupported(f"column {name!r} is unbounded: no outcomes to go through.")
    families = {site.family for site in reading.observations}
    if np.issubdtype(domain.dtype, np.integer):
        if families <= _COUNTS:
            high = 2 * high + 8
        return np.unique(np.linspace(low, high, min(int(high - low) + 1, _GRID)).round())
    if not families <= _ON_THE_LINE:
        return np.linspace(low, high, _GRID)
    width = high - low
    inner = np.linspace(low - width, high + width, _GRID)
    if families != {"Normal"}:
        return inner
    # A law that is cut off has another mean, and of many rows little of that is too much.
    beyond = width * np.linspace(1.0, _WIDEST, _GRID // 8)[1:]
    return np.concatenate([(low - beyond)[::-1], inner, high + beyond])


# In widths of the declared range.
_WIDEST = 12.0
_ON_THE_LINE = {"Normal", "StudentT", "Laplace", "Logistic", "Cauchy", "Gumbel", "AsymmetricLaplace"}
_COUNTS = {"Poisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits", "GammaPoisson"}


def _nodes(reading: RowModel, rows: Columns, name: str, grid: Array, theta: Array) -> tuple[Array, Array]:
    """Row by row, evenly spaced outcomes where a law about twice as wide as the row's is not negligible."""

    choices = jnp.asarray(grid, dtype=rows[name].dtype)
    found = np.asarray(_log_densities(reading, name, jnp.asarray(theta), rows, choices))
    found = np.where(np.isfinite(found), found, -np.inf)
    best = found.max(axis=1, keepdims=True)
    kept = found - best > -_NEGLIGIBLE
    first = kept.argmax(axis=1)
    last = len(grid) - 1 - kept[:, ::-1].argmax(axis=1)
    whole = np.issubdtype(reading.rows.columns[name].dtype, np.integer)
    most = _NODES_OF_COUNTS if whole else _NODES
    share = np.linspace(0.0, 1.0, most)
    nodes = grid[first][:, None] + share * (grid[last] - grid[first])[:, None]
    if not whole:
        return nodes, np.zeros(nodes.shape)
    nodes = nodes.round()
    # Counts next to each other are gone through; further apart each stands for its neighbourhood.
    short = grid[last] - grid[first] < most
    nodes[short] = grid[first][short][:, None] + np.arange(most)
    middles = (nodes[:, 1:] + nodes[:, :-1]) / 2
    edges = np.column_stack([nodes[:, :1] - 0.5, middles, nodes[:, -1:] + 0.5])
    widths = np.diff(edges, axis=1)
    return nodes, np.log(np.maximum(widths, 1e-12))


@partial(jax.jit, static_argnums=(0, 1))
def _log_densities(
    reading: RowModel, name: str, theta: jax.Array, rows: Columns, choices: jax.Array
) -> jax.Array:
    def of_row(row: Columns) -> jax.Array:
        return -jax.vmap(lambda y: reading.row_loss(theta, {**row, name: y}))(choices)

    found: jax.Array = jax.lax.map(of_row, rows)
    return found


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


def _start(reading: RowModel, names: tuple[str, ...], rows: Columns) -> tuple[jax.Array, jax.Array]:
    """Where the fit begins: the middle of a domain, or the positive side of one around zero."""
    values = jnp.concatenate([rows[name].reshape(_ROWS, -1) for name in names], axis=1)
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
