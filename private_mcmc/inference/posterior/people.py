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
from private_mcmc.inference.posterior.outcomes import (
    LINE,
    Columns,
    Listed,
    Outcome,
    Tilt,
    outcome_of,
    shares,
)
from private_mcmc.model import RowModel
from private_mcmc.records import RUN_ONCE

Array: TypeAlias = npt.NDArray[np.float64]

_FEW, _NODES, _NODES_OF_SCALES, _NODES_OF_COUNTS, _MOST_NODES, _GRID = 16, 17, 49, 65, 97, 1025
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
        mean, information = self._score(reading, theta)
        return math.sqrt(max(float(mean @ np.linalg.pinv(information, hermitian=True) @ mean), 0.0))

    def information(self, reading: RowModel, theta: Array) -> Array:
        """What all people say of the parameter without privacy, Fisher's information at ``θ``, ``(p, p)``."""
        return self._score(reading, theta)[1]

    def _score(self, reading: RowModel, theta: Array) -> tuple[Array, Array]:
        """Mean of the score of all people together, and its covariance."""
        shares = (self.shares(reading, theta) * self.weights[:, None]).ravel()
        scores = np.asarray(_scores(reading, self.columns, jnp.asarray(theta)))
        scores = np.where(shares[:, None] > 0, scores, 0.0)
        return shares @ scores, (scores * shares[:, None]).T @ scores


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _scores(reading: RowModel, columns: Columns, theta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))(theta, columns))


def with_outcomes(reading: RowModel, covariates: Fitted, thetas: Array) -> People:
    """Every outcome of few, or nodes of a rule of integration that reach as far as outcomes do at ``thetas``.

    ``(p,)`` or ``(k, p)``, a likely one first and then others that are not much less likely: where nodes end,
    so does the law.

    Raises:
        NotYetSupported: for outcomes of several columns, or of vectors.
    """
    outcome, rows = outcome_of(reading), covariates.rows
    if outcome is None:
        raise NotYetSupported("the posterior given releases needs an outcome of one scalar column.")
    name = outcome.name
    if not math.isfinite(outcome.high - outcome.low):
        raise NotYetSupported(f"column {name!r} is unbounded: no outcomes to go through.")
    grid = outcome.all(_GRID)
    count = len(next(iter(rows.values())))
    if len(grid) <= _FEW:
        nodes = np.broadcast_to(grid, (count, len(grid)))
        log_base = np.zeros(nodes.shape)
    else:
        nodes, log_base = _nodes(reading, rows, outcome, grid, thetas)
    repeated = {key: jnp.repeat(column, nodes.shape[1], axis=0) for key, column in rows.items()}
    values = jnp.asarray(nodes, dtype=rows[name].dtype)
    repeated[name] = values.ravel()
    known = covariates.weights, covariates.functions, covariates.deviations
    told = Listed(rows, {name: values}, jnp.asarray(log_base))
    return People(rows, repeated, *known, nodes, told)


def _nodes(
    reading: RowModel, rows: Columns, outcome: Outcome, grid: Array, thetas: Array
) -> tuple[Array, Array]:
    """Row by row, outcomes evenly spaced on their scale where the row's law is not negligible."""
    name, scale = outcome.name, outcome.scale
    choices = jnp.asarray(grid, dtype=rows[name].dtype)
    slopes = jnp.asarray(scale.log_slope(grid))
    found = _reaches(reading, name, jnp.asarray(np.atleast_2d(thetas)), rows, choices, slopes)
    firsts, lasts = (np.asarray(each) for each in found)
    ends, first, last = scale.to(grid), firsts.min(axis=0), lasts.max(axis=0)
    spans = np.stack([ends[lasts[0]] - ends[firsts[0]], ends[last] - ends[first]])
    most = _how_many(outcome, spans)
    nodes = scale.back(
        ends[first][:, None] + np.linspace(0.0, 1.0, most) * (ends[last] - ends[first])[:, None]
    )
    if not outcome.integer:
        slopes_there: Array = scale.log_slope(nodes)
        return nodes, slopes_there
    nodes = nodes.round()
    # Counts next to each other are gone through; further apart each stands for its neighbourhood.
    short = grid[last] - grid[first] < most
    nodes[short] = grid[first][short][:, None] + np.arange(most)
    middles = (nodes[:, 1:] + nodes[:, :-1]) / 2
    edges = np.column_stack([nodes[:, :1] - 0.5, middles, nodes[:, -1:] + 0.5])
    widths = np.diff(edges, axis=1)
    return nodes, np.log(np.maximum(widths, 1e-12))


def _how_many(outcome: Outcome, spans: Array) -> int:
    """So many that they lie as closely as for the law of one parameter; ``spans`` are its reach and all."""
    most = _NODES_OF_COUNTS if outcome.counted else _NODES if outcome.scale is LINE else _NODES_OF_SCALES
    wider = float((spans[1] / np.maximum(spans[0], 1e-12)).max())
    # Few sizes: what is compiled is kept.
    return min(1 + (most - 1) * max(math.ceil(wider - 0.1), 1), max(most, _MOST_NODES))


@partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def _reaches(
    reading: RowModel,
    name: str,
    thetas: jax.Array,
    rows: Columns,
    choices: jax.Array,
    log_slope: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Of every parameter and row the first and the last choice that is not negligible, ``(k, rows)``."""

    def of_row(theta: jax.Array, row: Columns) -> tuple[jax.Array, jax.Array]:
        found = -jax.vmap(lambda y: reading.row_loss(theta, {**row, name: y}))(choices)
        found = jnp.where(jnp.isfinite(found), found, -jnp.inf) + log_slope
        kept = found - found.max() > -_NEGLIGIBLE
        return jnp.argmax(kept), len(choices) - 1 - jnp.argmax(kept[::-1])

    def of_all(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, last = jax.lax.map(partial(of_row, theta), rows)
        return first, last

    first, last = jax.lax.map(of_all, thetas)
    return first, last
