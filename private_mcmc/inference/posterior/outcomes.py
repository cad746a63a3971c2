"""Outcomes that synthetic rows may have, with their probabilities, for what reads outcomes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.model import RowModel
from private_mcmc.planning.synthetic import outcome_columns

Array: TypeAlias = npt.NDArray[np.float64]
Columns: TypeAlias = dict[str, jax.Array]

ON_THE_LINE = {"Normal", "StudentT", "Laplace", "Logistic", "Cauchy", "Gumbel", "AsymmetricLaplace"}
COUNTS = {"Poisson", "NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits", "GammaPoisson"}
# Counts up to the first are gone through; then so many nodes, ever further apart.
_EVERY, _SPARSE, _NODES = 5, 7, 65


class Law(NamedTuple):
    """The model's law of the outcome at a parameter.

    Attributes:
        theta: the parameter, ``(p,)``.
        values: of the outcome, ``(k,)`` by the name of its column.
        log_base: their weights as a rule of integration, ``(k,)``.
    """

    theta: jax.Array
    values: Columns
    log_base: jax.Array

    def of(self, reading: RowModel, rows: Columns, weights: jax.Array) -> tuple[Columns, jax.Array]:
        """Every row with every outcome, ``rows·k`` of them, and how many people each stands for."""
        count, k = len(weights), len(self.log_base)
        columns = {name: jnp.repeat(column, k, axis=0) for name, column in rows.items()}
        columns |= {name: jnp.tile(values, count) for name, values in self.values.items()}
        base = jnp.broadcast_to(self.log_base, (count, k))
        shares = jnp.exp(log_shares(reading, columns, base, self.theta))
        return columns, (weights[:, None] * shares).ravel()


def law(reading: RowModel, theta: Array) -> Law | None:
    """The law at ``θ``; ``None`` where the outcome is not one bounded scalar column."""
    names = outcome_columns(reading)
    if len(names) != 1 or reading.rows.columns[names[0]].event_shape != ():
        return None
    domain = reading.rows.columns[names[0]]
    low, high = (float(bound) for bound in domain.interval())
    if not np.isfinite(high - low):
        return None
    whole = np.issubdtype(domain.dtype, np.integer)
    nodes = _whole(reading, low, high) if whole else _real(reading, low, high)
    middles = (nodes[1:] + nodes[:-1]) / 2
    ends = [nodes[0] - 0.5, nodes[-1] + 0.5] if whole else [nodes[0], nodes[-1]]
    widths = np.diff([ends[0], *middles, ends[1]])
    given = {names[0]: jnp.asarray(nodes, dtype=domain.dtype)}
    return Law(jnp.asarray(theta), given, jnp.log(jnp.asarray(widths)))


def _whole(reading: RowModel, low: float, high: float) -> Array:
    if {site.family for site in reading.observations} <= COUNTS:
        high = 2 * high + 8
    if high - low <= _EVERY + _SPARSE:
        return np.arange(low, high + 1)
    far = np.geomspace(_EVERY, high - low, _SPARSE).round()
    return low + np.unique(np.concatenate([np.arange(_EVERY), far]))


def _real(reading: RowModel, low: float, high: float) -> Array:
    if {site.family for site in reading.observations} <= ON_THE_LINE:
        return np.linspace(2 * low - high, 2 * high - low, _NODES)
    if low >= 0 and high > 1:
        return np.geomspace(max(low, 1e-4 * high), high, _NODES)
    inside = (np.arange(_NODES) + 0.5) / _NODES
    return low + (high - low) * inside


class Listed(NamedTuple):
    """Rows with outcomes that are gone through, ``(rows·outcomes, …)``; ``log_base`` weights them.

    The latter is a rule of integration, ``(rows, outcomes)``.
    """

    columns: Columns
    log_base: jax.Array


class Tilt(NamedTuple):
    """Drawn outcomes, whose probabilities are taken to be linear in the parameter.

    Attributes:
        scores: less their mean over a row's outcomes, ``(rows·outcomes, p)``.
        at: where they were taken, ``(p,)``.
        shares: probabilities there, ``(rows, outcomes)``.
    """

    scores: jax.Array
    at: jax.Array
    shares: jax.Array


def shares(reading: RowModel, told: Listed | Tilt, theta: jax.Array) -> jax.Array:
    """The outcomes' probabilities under ``θ`` in every row, ``(rows, outcomes)``."""
    if isinstance(told, Tilt):
        more = told.scores @ (theta - told.at)
        return told.shares * (1 + more.reshape(told.shares.shape))
    return jnp.exp(log_shares(reading, told.columns, told.log_base, theta))


@partial(jax.jit, static_argnums=0)
def log_shares(reading: RowModel, columns: Columns, log_base: jax.Array, theta: jax.Array) -> jax.Array:
    """Logarithms of the outcomes' probabilities under ``θ`` in every row, ``(rows, outcomes)``."""
    losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(theta, columns).reshape(log_base.shape)
    return jax.nn.log_softmax(jnp.where(jnp.isfinite(losses), log_base - losses, -1e30), axis=1)
