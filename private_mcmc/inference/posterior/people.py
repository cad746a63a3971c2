"""Synthetic people: rows of covariates, each with every outcome that it may have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import NotYetSupported
from private_mcmc.inference.posterior.covariates import Fitted
from private_mcmc.inference.posterior.outcomes import COUNTS, ON_THE_LINE, Columns, Listed, Tilt, shares
from private_mcmc.model import RowModel
from private_mcmc.planning.synthetic import outcome_columns

Array: TypeAlias = npt.NDArray[np.float64]

_FEW, _NODES, _NODES_OF_COUNTS, _GRID = 16, 17, 65, 1025
# Outcomes less likely than exp(−this) times the most likely one are left out.
_NEGLIGIBLE = 28.0


@dataclass(frozen=True, eq=False)
class People:
    """Synthetic rows, each with every outcome that matters, ``rows × outcomes`` of them in one axis.

    Attributes:
        rows: columns ``(rows, …)``, one outcome each.
        columns: columns ``(rows·outcomes, …)``.
        weights: how many people each stands for, ``(rows,)``.
        functions: of the covariates, ``(rows, functions)``.
        deviations: by how much ``weights`` may be off, relatively, ``(rows, deviations)``.
        outcomes: of every row, ``(rows, outcomes)``.
        told: what their probabilities are computed from.
    """

    rows: Columns
    columns: Columns
    weights: Array
    functions: Array
    deviations: Array
    outcomes: Array
    told: Listed | Tilt

    def shares(self, reading: RowModel, theta: Array) -> Array:
        """The outcomes' probabilities under ``θ`` in every row, ``(rows, outcomes)``."""
        return np.asarray(shares(reading, self.told, jnp.asarray(theta)))

    def residuals(self, shares: Array) -> Array:
        """Orthonormal functions of the outcome given the row, of mean 0: ``(residuals, rows, outcomes)``.

        The first is linear in the outcome, the second squared: they change its mean and its spread.
        """
        found: list[Array] = [np.ones_like(self.outcomes)]
        base = self.outcomes - (shares * self.outcomes).sum(axis=1, keepdims=True)
        scale = np.sqrt((shares * base**2).sum(axis=1, keepdims=True)) + 1e-12
        for power in (1, 2):
            value = (base / scale) ** power
            for one in found:
                value = value - (shares * value * one).sum(axis=1, keepdims=True) * one
            norm = np.sqrt((shares * value**2).sum(axis=1, keepdims=True))
            found.append(np.where(norm > 1e-6, value / np.maximum(norm, 1e-6), 0.0))
        return np.stack(found[1:])

    def off_centre(self, reading: RowModel, theta: Array) -> float:
        """How far the rule of integration moves the place where the expected score is 0, in posterior sds.

        Under the model's own law the score has mean 0 at its parameter, whatever the covariates.
        """
        shares = (self.shares(reading, theta) * self.weights[:, None]).ravel()
        scores = np.asarray(_scores(reading, self.columns, jnp.asarray(theta)))
        scores = np.where(shares[:, None] > 0, scores, 0.0)
        mean, spread = shares @ scores, (scores * shares[:, None]).T @ scores
        return float(np.sqrt(max(mean @ np.linalg.pinv(spread, hermitian=True) @ mean, 0.0)))


@partial(jax.jit, static_argnums=0)
def _scores(reading: RowModel, columns: Columns, theta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))(theta, columns))


def with_outcomes(reading: RowModel, covariates: Fitted, theta: Array) -> People:
    """Every outcome of few, or nodes of a rule of integration that reach as far as outcomes do at ``theta``.

    Raises:
        NotYetSupported: for outcomes of several columns, or of vectors.
    """
    names = outcome_columns(reading)
    if len(names) != 1 or reading.rows.columns[names[0]].event_shape != ():
        raise NotYetSupported("the posterior given releases needs an outcome of one scalar column.")
    name, rows = names[0], covariates.rows
    grid = _grid(reading, name)
    count = len(next(iter(rows.values())))
    if len(grid) <= _FEW:
        nodes = np.broadcast_to(grid, (count, len(grid)))
        log_base = np.zeros(nodes.shape)
    else:
        nodes, log_base = _nodes(reading, rows, name, grid, theta)
    repeated = {key: jnp.repeat(column, nodes.shape[1], axis=0) for key, column in rows.items()}
    repeated[name] = jnp.asarray(nodes.ravel(), dtype=rows[name].dtype)
    known = covariates.weights, covariates.functions, covariates.deviations
    return People(rows, repeated, *known, nodes, Listed(repeated, jnp.asarray(log_base)))


def _grid(reading: RowModel, name: str) -> Array:
    """Possible outcomes: beyond the declared bounds too, where the support is the line or all counts."""
    domain = reading.rows.columns[name]
    low, high = (float(bound) for bound in domain.interval())
    if not math.isfinite(high - low):
        raise NotYetSupported(f"column {name!r} is unbounded: no outcomes to go through.")
    families = {site.family for site in reading.observations}
    if np.issubdtype(domain.dtype, np.integer):
        if families <= COUNTS:
            high = 2 * high + 8
        return np.unique(np.linspace(low, high, min(int(high - low) + 1, _GRID)).round())
    if not families <= ON_THE_LINE:
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
