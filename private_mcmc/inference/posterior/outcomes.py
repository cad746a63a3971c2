"""Outcomes that synthetic rows may have, with their probabilities, for what reads outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import numpyro.distributions as dist
from scipy.special import expit, logit

from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import outcome_columns

Array: TypeAlias = npt.NDArray[np.float64]
Columns: TypeAlias = dict[str, jax.Array]

_ON_THE_LINE = {"Normal", "StudentT", "Laplace", "Logistic", "Cauchy", "Gumbel", "AsymmetricLaplace"}
_HEAVY_TAILED = {"StudentT", "Cauchy", "Logistic", "Gumbel"}
_POISSON = {"Poisson", "ZeroInflatedPoisson"}
_DISPERSED = {
    *("NegativeBinomial2", "NegativeBinomialProbs", "NegativeBinomialLogits", "GammaPoisson"),
    *("GeometricProbs", "GeometricLogits"),
}
# What laws of more zeros are called, around another's name.
_ZERO_INFLATED = re.compile(r"ZeroInflated(?:Probs|Logits)\((\w+)\)")
# For what reads outcomes: counts up to the first are gone through; then so many nodes, ever further apart.
_EVERY, _SPARSE, _NODES = 5, 7, 65
# In widths of the declared range; and the least share of it that a logarithm is taken of.
_WIDEST, _SMALLEST = 12.0, 1e-6
# Log odds of shares that float64 tells from 0 and 1.
_FARTHEST = 30.0


class Scale(NamedTuple):
    """Where a law on the line, the half-line or the unit interval is smooth enough for evenly spaced nodes.

    Attributes:
        to: from outcomes.
        back: to outcomes.
        log_slope: logarithm of the derivative of ``back``, at an outcome.
    """

    to: Callable[[Array], Array]
    back: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]


LINE = Scale(np.asarray, np.asarray, np.zeros_like)
POSITIVE = Scale(np.log, np.exp, np.log)
UNIT = Scale(logit, expit, lambda y: np.log(y) + np.log1p(-y))


@dataclass(frozen=True, eq=False)
class Outcome:
    """The one scalar column that a model observes.

    Attributes:
        name: of the column.
        low, high: of its declared range.
        families: of the distributions that it is observed under.
        integer: whether its values are whole numbers.
    """

    name: str
    low: float
    high: float
    families: frozenset[str]
    integer: bool

    @property
    def counted(self) -> bool:
        """Whether the law itself is one of whole numbers."""
        return self.integer and not self.families <= _ON_THE_LINE

    @property
    def endless(self) -> bool:
        """Whether the law is one of all whole numbers, whatever range is declared."""
        return self._with_fewer_zeros <= _POISSON | _DISPERSED

    @property
    def _with_fewer_zeros(self) -> set[str]:
        return {_ZERO_INFLATED.sub(r"\1", family) for family in self.families}

    @property
    def has_ends(self) -> bool:
        """Whether the law is continuous on an interval of the line, and need not vanish at its ends."""
        return self.scale is LINE and not (self.integer or self.families <= _ON_THE_LINE)

    @property
    def heavy_tailed(self) -> bool:
        """Whether the law reaches so far that evenly spaced nodes would be sds apart."""
        return self.families <= _HEAVY_TAILED and not self.integer

    @property
    def scale(self) -> Scale:
        """By the support that all families have."""
        supports = [getattr(getattr(dist, family, None), "support", None) for family in self.families]
        if all(support is dist.constraints.positive for support in supports):
            return POSITIVE
        return UNIT if all(support is dist.constraints.unit_interval for support in supports) else LINE

    def evenly(self, count: int) -> Array:
        """Values evenly on the scale; beyond the declared range where the law is on the line or of counts."""
        low, high = self.low, self.high
        if self.counted:
            high = 2 * high + 8 if self.endless else high
            return np.unique(np.linspace(low, high, min(int(high - low) + 1, count)).round())
        if self.scale is LINE:
            beyond = high - low if self.families <= _ON_THE_LINE else 0.0
            values = np.linspace(low - beyond, high + beyond, count)
            return np.unique(values.round()) if self.integer else values
        smallest = _SMALLEST * high
        inside = np.clip([low, high], smallest, high if self.scale is POSITIVE else 1 - smallest)
        first, last = self.scale.to(inside)
        return self.scale.back(np.linspace(first, last, count))

    def all(self, count: int) -> Array:
        """As :meth:`evenly`, and far beyond where a law that is cut off has another mean."""
        inner = self.evenly(count)
        if self.endless and inner[-1] - inner[0] < count // 4:
            inner = np.asarray(inner[0] + np.arange(count // 4 + 1))
        if self._with_fewer_zeros <= _DISPERSED:
            # Few people have most of the count: a small part of the law is a large part of its mean.
            far = np.geomspace(inner[-1], _WIDEST * inner[-1], count // 8)[1:]
            return np.concatenate([inner, far.round()])
        if self.scale is POSITIVE and not self.counted:
            low, high = self.scale.to(inner[[0, -1]])
            return self.scale.back(np.linspace(2 * low - high, 2 * high - low, count))
        if self.scale is UNIT:
            return self.scale.back(np.linspace(-_FARTHEST, _FARTHEST, count))
        if not (self.families == {"Normal"} or self.heavy_tailed):
            return inner
        beyond = (self.high - self.low) * np.linspace(1.0, _WIDEST, count // 8)[1:]
        values = np.concatenate([(self.low - beyond)[::-1], inner, self.high + beyond])
        return np.unique(values.round()) if self.integer else values

    def few(self) -> Array:
        """Nodes for all rows alike, and few: counts ever further apart."""
        if not self.counted:
            return self.evenly(_NODES)
        every = self.evenly(1 << 30)
        if len(every) <= _EVERY + _SPARSE + 1:
            return every
        far = np.geomspace(_EVERY, len(every) - 1, _SPARSE).round()
        return self.low + np.unique(np.concatenate([np.arange(_EVERY), far]))


def outcome_of(reading: RowModel) -> Outcome | None:
    """The outcome; ``None`` where it is not one scalar column."""
    names = outcome_columns(reading)
    if len(names) != 1 or reading.rows.columns[names[0]].event_shape != ():
        return None
    domain = reading.rows.columns[names[0]]
    low, high = (float(bound) for bound in domain.interval())
    families = frozenset(site.family for site in reading.observations)
    return Outcome(names[0], low, high, families, bool(np.issubdtype(domain.dtype, np.integer)))


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
        shares = jnp.exp(log_shares(reading, Listed(rows, self.values, self.log_base), self.theta))
        return columns, (weights[:, None] * shares).ravel()


def law(reading: RowModel, theta: Array) -> Law | None:
    """The law at ``θ``; ``None`` where the outcome is not one bounded scalar column."""
    outcome = outcome_of(reading)
    if outcome is None or not np.isfinite(outcome.high - outcome.low):
        return None
    nodes = outcome.few()
    middles = (nodes[1:] + nodes[:-1]) / 2
    ends = [nodes[0] - 0.5, nodes[-1] + 0.5] if outcome.integer else [nodes[0], nodes[-1]]
    widths = np.diff([ends[0], *middles, ends[1]])
    given = {outcome.name: jnp.asarray(nodes, dtype=reading.rows.columns[outcome.name].dtype)}
    return Law(jnp.asarray(theta), given, jnp.log(jnp.asarray(widths)))


class Listed(NamedTuple):
    """Rows with outcomes that are gone through.

    Attributes:
        rows: columns ``(rows, …)``; the outcome in them is not read.
        values: of the outcome, by the name of its column, ``(rows, outcomes)``, or ``(outcomes,)`` for all
            rows: what a law says of an outcome alone, as log Γ of a count, is computed once for them all.
        log_base: their weights as a rule of integration, of the same shape.
    """

    rows: Columns
    values: Columns
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
    return jnp.exp(log_shares(reading, told, theta))


@partial(jax.jit, static_argnums=0)
def log_shares(reading: RowModel, told: Listed, theta: jax.Array) -> jax.Array:
    """Logarithms of the outcomes' probabilities under ``θ`` in every row, ``(rows, outcomes)``."""

    def of_row(row: Columns, values: Columns) -> jax.Array:
        # Mapped apart from rows: predictors, which read no outcome, are computed once for a row.
        return jax.vmap(lambda value: reading.row_loss(theta, {**row, **value}))(values)

    shared = told.log_base.ndim == 1
    losses = jax.vmap(of_row, in_axes=(0, None if shared else 0))(told.rows, told.values)
    return jax.nn.log_softmax(jnp.where(jnp.isfinite(losses), told.log_base - losses, -1e30), axis=1)
