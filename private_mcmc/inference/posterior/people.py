"""Synthetic people: rows of covariates, each with every outcome that it may have, or with drawn ones.

Where outcomes cannot be gone through, those of every row are drawn from the model at a parameter ``θ_0``, and
weighted for others by ``1 + (s − E[s | row])·(θ − θ_0)``, ``s`` being the score at ``θ_0``, which follows the
mode. Means are then linear in the parameter: weights ``∝ exp(s·(θ − θ_0))``, of few draws, level off where
the model's own means do not, and leave far parameters as likely as near ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.domains.persons import OWN_ROWS
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
from private_mcmc.model.synthetic import has_factors, outcome_columns
from private_mcmc.planning import CountsStage, History, of_rows
from private_mcmc.planning.affine_releases import COUNTS
from private_mcmc.planning.influence import CELLS, InfluenceCounts
from private_mcmc.planning.synthetic_outcomes import Likelihood, likelihood_of
from private_mcmc.records import RUN_ONCE, Fields
from private_mcmc.release import Counts

Array: TypeAlias = npt.NDArray[np.float64]

_FEW, _NODES, _NODES_OF_SCALES, _NODES_OF_COUNTS, _MOST_NODES, _GRID = 16, 17, 49, 65, 97, 1025
# Of laws of counts that begin among so many, long tails are followed in ever longer steps.
_EVERY = 48
# Of laws with heavy tails, ever further apart.
_NODES_OF_TAILS = 41
# Outcomes less likely than exp(−this) times the most likely one are left out.
_NEGLIGIBLE = 28.0


@dataclass(frozen=True, eq=False, kw_only=True)
class People(Fitted):
    """Synthetic rows, each with every outcome that matters, ``rows × outcomes`` of them in one axis.

    Attributes:
        columns: columns ``(rows·outcomes, …)``.
        outcomes: of every row, ``(rows, outcomes)``.
        told: what their probabilities are computed from.
    """

    columns: Columns
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

    def scores(self, reading: RowModel, theta: Array) -> Array:
        """Gradients of all rows and outcomes at ``θ``, ``(rows·outcomes, p)``."""
        return np.asarray(_scores(reading, self.columns, jnp.asarray(theta)))

    def _score(self, reading: RowModel, theta: Array) -> tuple[Array, Array]:
        """Mean of the score of all people together, and its covariance."""
        shares = (self.shares(reading, theta) * self.weights[:, None]).ravel()
        scores = np.where(shares[:, None] > 0, self.scores(reading, theta), 0.0)
        return shares @ scores, (scores * shares[:, None]).T @ scores


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _scores(reading: RowModel, columns: Columns, theta: jax.Array) -> jax.Array:
    return jnp.asarray(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))(theta, columns))


def bounded_outcome(reading: RowModel) -> Outcome:
    """The outcome, that can be gone through.

    Raises:
        NotYetSupported: for outcomes of several columns, or of vectors, or without bounds.
    """
    outcome = outcome_of(reading)
    if outcome is None:
        raise NotYetSupported("the posterior given releases needs an outcome of one scalar column.")
    if not math.isfinite(outcome.high - outcome.low):
        raise NotYetSupported(f"column {outcome.name!r} is unbounded: no outcomes to go through.")
    return outcome


def with_outcomes(reading: RowModel, covariates: Fitted, thetas: Array) -> People:
    """Every outcome of few, or nodes of a rule of integration that reach as far as outcomes do at ``thetas``.

    ``(p,)`` or ``(k, p)``, a likely one first and then others that are not much less likely: where nodes end,
    so does the law.

    Raises:
        NotYetSupported: for outcomes of several columns, or of vectors.
    """
    outcome, rows = bounded_outcome(reading), covariates.rows
    name = outcome.name
    grid = outcome.all(_GRID)
    count = len(next(iter(rows.values())))
    if len(grid) <= _FEW:
        nodes, log_base = grid, np.zeros(len(grid))
    else:
        nodes, log_base = _nodes(reading, rows, outcome, grid, thetas)
    values = jnp.asarray(nodes, dtype=rows[name].dtype)
    nodes = np.broadcast_to(nodes, (count, nodes.shape[-1]))
    repeated = {key: jnp.repeat(column, nodes.shape[1], axis=0) for key, column in rows.items()}
    repeated[name] = jnp.broadcast_to(values, nodes.shape).ravel()
    told = Listed(rows, {name: values}, jnp.asarray(log_base))
    return People(**vars(covariates), columns=repeated, outcomes=nodes, told=told)


def _nodes(
    reading: RowModel, rows: Columns, outcome: Outcome, grid: Array, thetas: Array
) -> tuple[Array, Array]:
    """Outcomes evenly spaced on their scale where a row's law is not negligible; few counts are shared."""
    name, scale = outcome.name, outcome.scale
    choices = jnp.asarray(grid, dtype=rows[name].dtype)
    slopes = jnp.asarray(scale.log_slope(grid))
    found = _reaches(reading, name, jnp.asarray(np.atleast_2d(thetas)), rows, choices, slopes)
    firsts, lasts = (np.asarray(each) for each in found)
    ends, first, last = scale.to(grid), firsts.min(axis=0), lasts.max(axis=0)
    spans = np.stack([ends[lasts[0]] - ends[firsts[0]], ends[last] - ends[first]])
    most = _how_many(outcome, spans)
    if outcome.endless and first.max() < _EVERY:
        nodes = _counts(grid[0], int(grid[last].max() - grid[0]), most)
        return nodes, _log_widths(nodes)
    if outcome.counted and len(grid) <= most:
        return grid, np.zeros(len(grid))
    if outcome.has_ends:
        return _between(grid[first], grid[last], most)
    if outcome.heavy_tailed:
        bulk = _bulk(reading, name, jnp.asarray(np.atleast_2d(thetas)[0]), rows, choices)
        return _from_bulk(grid, first, last, *(np.asarray(each) for each in bulk))
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
    return nodes, _log_widths(nodes)


def _between(first: Array, last: Array, most: int) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and log weights; evenly spaced ones are exact only where a law vanishes."""
    at, weights = np.polynomial.legendre.leggauss(most)
    nodes = (first + last)[:, None] / 2 + (last - first)[:, None] / 2 * at
    return nodes, np.broadcast_to(np.log(weights), nodes.shape)


def _from_bulk(
    grid: Array, first: Array, last: Array, middle: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Nodes that lie ever further apart from where most of a row's law is, and their log widths.

    Evenly they would lie a sd and more apart where tails reach as far as the declared range.
    """
    width = np.maximum(grid[high] - grid[low], np.diff(grid).min()) / 2
    ends = [np.arcsinh((grid[each] - grid[middle]) / width) for each in (first, last)]
    steps = ends[0][:, None] + np.linspace(0.0, 1.0, _NODES_OF_TAILS) * (ends[1] - ends[0])[:, None]
    return grid[middle][:, None] + width[:, None] * np.sinh(steps), np.log(np.cosh(steps))


@partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def _bulk(
    reading: RowModel, name: str, theta: jax.Array, rows: Columns, choices: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of every row the likeliest choice, and the first and the last that are not an e-th as likely."""

    def of_row(row: Columns) -> tuple[jax.Array, jax.Array, jax.Array]:
        found = -jax.vmap(lambda y: reading.row_loss(theta, {**row, name: y}))(choices)
        found = jnp.where(jnp.isfinite(found), found, -jnp.inf)
        kept = found - found.max() > -1.0
        return jnp.argmax(found), jnp.argmax(kept), len(choices) - 1 - jnp.argmax(kept[::-1])

    middle, low, high = jax.lax.map(of_row, rows)
    return middle, low, high


def _counts(lowest: float, span: int, most: int) -> Array:
    """Counts from the lowest on; after :data:`_EVERY` of them ever further apart where they are many."""
    if span < most:
        return np.asarray(lowest + np.arange(most))
    far = np.geomspace(_EVERY, max(span, _MOST_NODES), _MOST_NODES - _EVERY).round()
    return lowest + np.unique(np.concatenate([np.arange(_EVERY), far]))


def _log_widths(nodes: Array) -> Array:
    """Of the neighbourhoods that whole numbers stand for, along the last axis."""
    middles = (nodes[..., 1:] + nodes[..., :-1]) / 2
    edges = np.concatenate([nodes[..., :1] - 0.5, middles, nodes[..., -1:] + 0.5], axis=-1)
    return np.log(np.maximum(np.diff(edges, axis=-1), 1e-12))


def _how_many(outcome: Outcome, spans: Array) -> int:
    """So many that they lie as closely as for the law of one parameter; ``spans`` are its reach and all."""
    on_the_line = outcome.scale is LINE and not outcome.has_ends
    most = _NODES_OF_COUNTS if outcome.counted else _NODES if on_the_line else _NODES_OF_SCALES
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


def dispersion(
    reading: RowModel, histories: Sequence[History], rows: People, theta: np.ndarray, n: int
) -> float:
    """Mean square of released slopes over that of the model's outcomes in the same cells, 1 or more.

    Sampling deviates by as much more: the posterior without privacy is taken at the people that there are,
    and where counts vary five times as much as a model says, its mean is √5 of its sds from the parameter.
    1 where nothing was counted, or noise hides it.
    """
    found = [1.0]
    for one in (completed for history in histories for completed in history):
        if not (isinstance(one.stage, CountsStage) and isinstance(one.value, Counts)):
            continue
        # Of slots that may be empty, so many hold somebody by the other releases.
        counted = InfluenceCounts(one.value, n, 0.0, people=float(rows.weights.sum()))
        if one.stage.name != COUNTS["clip"] or counted.hidden:
            continue
        columns: Fields = rows.columns
        cells = np.asarray(of_rows(one.stage.cell, columns)).ravel()
        people = (rows.shares(reading, theta) * rows.weights[:, None]).ravel()
        expected = np.bincount(cells, people, minlength=CELLS).astype(np.float64)
        of_model = InfluenceCounts(replace(one.value, values=expected), n, 0.0)
        found.append(counted.mean_square / max(of_model.mean_square, 1e-300))
    return max(found)


# Outcomes of every row, and steps by which the draws' mean score is made 0, as the model's is.
_OUTCOMES, _CENTRING = 16, 4


@lru_cache(maxsize=8)
def likelihood_to_draw(reading: RowModel) -> Likelihood | None:
    """What draws the outcomes of a row of ``reading``; ``None`` where they are gone through instead.

    Raises:
        NotYetSupported: for persons with latents of their own, or whose rows have another outcome than one
            bounded number.
    """
    if reading.unit is None:
        return None
    if reading.own is not None:
        raise NotYetSupported("persons with latents of their own have no likelihood of their releases yet.")
    single = reading.each or reading
    names = outcome_columns(single)
    scalar = len(names) == 1 and not has_factors(single) and single.rows.columns[names[0]].event_shape == ()
    if not (scalar and np.all(np.isfinite(single.rows.columns[names[0]].interval()))):
        raise NotYetSupported("the posterior given releases needs an outcome of one bounded scalar column.")
    return likelihood_of(reading, 1.0)


def with_drawn(reading: RowModel, likelihood: Likelihood, covariates: Fitted, theta: Array) -> People:
    """Every row with outcomes drawn at ``theta``, weighted so that their mean score there is 0."""
    rows, count = covariates.rows, len(covariates.weights)
    repeated = {name: jnp.repeat(column, _OUTCOMES, axis=0) for name, column in rows.items()}
    columns = _drawn(likelihood, jnp.asarray(theta), repeated)
    scores = np.asarray(_scores_in_blocks(reading, jnp.asarray(theta), columns))
    weights, moved = covariates.weights, theta
    apart = scores.reshape(count, _OUTCOMES, -1)
    for _ in range(_CENTRING):
        log_shares = apart @ (theta - moved)
        shares = np.exp(log_shares - log_shares.max(axis=1, keepdims=True))
        shares = shares / shares.sum(axis=1, keepdims=True)
        means = np.einsum("rq,rqi->ri", shares, apart)
        spread = np.einsum("r,rq,rqi,rqj->ij", weights, shares, apart, apart)
        spread = spread - np.einsum("r,ri,rj->ij", weights, means, means)
        moved = moved + np.linalg.pinv(spread, hermitian=True) @ (weights @ means)
    totals = _totals(reading, columns).reshape(count, _OUTCOMES)
    centred = (apart - means[:, None]).reshape(scores.shape)
    told = Tilt(jnp.asarray(centred), jnp.asarray(theta), jnp.asarray(shares))
    return People(**vars(covariates), columns=columns, outcomes=totals, told=told)


def _totals(reading: RowModel, columns: Columns) -> Array:
    """Of every person's outcomes the sum over its rows, whose spread tells how alike they are."""
    values = np.asarray(columns[outcome_columns(reading.each or reading)[0]], dtype=np.float64)
    return np.asarray((values * np.asarray(columns[OWN_ROWS])).sum(axis=1))


@partial(jax.jit, static_argnums=0)
def _drawn(likelihood: Likelihood, theta: jax.Array, rows: Columns) -> Columns:
    return likelihood.sample(theta, rows, 1.0, jax.random.key(17))[0]


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _scores_in_blocks(reading: RowModel, theta: jax.Array, rows: Columns) -> jax.Array:
    def one(row: Columns) -> jax.Array:
        return jnp.asarray(-jax.grad(reading.row_loss)(theta, row))

    found: jax.Array = jax.lax.map(one, rows, batch_size=1024)
    return jnp.asarray(jnp.nan_to_num(found))
