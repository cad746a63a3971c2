"""Public stand-ins for what a plan may not look at: draws of the prior, synthetic rows, possible outcomes.

Everything is drawn with fixed keys from the declared row domain and the model's own prior, so that it
depends on nothing private.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import softmax

from private_mcmc.domains import Domain, Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.model.ir.program import Output
from private_mcmc.model.predictor import cut_off
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic_times import EventTimes
from private_mcmc.records import RUN_ONCE, Record

Columns: TypeAlias = Record
_MOST_VALUES, _MOST_OUTCOMES = 257, 129
_FEW_OUTCOMES = 8
# So many outcomes of a synthetic row stand for those of its copies.
_STRATA = 4
# Times to an event that are drawn for each row.
_TIMES = 4
# Where an outcome has many values: quantiles in the middle of strata, and the strata's widths.
_EDGES = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
_QUANTILES, _WIDTHS = zip(*(((low + high) / 2, high - low) for low, high in pairwise(_EDGES)), strict=True)


def has_factors(reading: RowModel) -> bool:
    """Whether a term is a ``numpyro.factor``."""
    return any(site.family == "Unit" for site in reading.observations)


def outcome_columns(reading: RowModel) -> tuple[str, ...]:
    """The columns that the observed values are made of; of a ``factor``, those apart from its predictors."""
    program = reading.program
    if not has_factors(reading):
        observed = [program.outputs[Output("observed", site.name)] for site in reading.observations]
        return tuple(sorted(program.reads(observed) & reading.rows.columns.keys()))
    covariates = program.reads([cut for cut in [cut_off(program)] if cut is not None])
    others = (program.reads([program.outputs["loss"]]) & reading.rows.columns.keys()) - covariates
    # An event, not the time until it: see ``FactorLikelihood``.
    whole = {name for name in others if np.issubdtype(reading.rows.columns[name].dtype, np.integer)}
    return tuple(sorted(whole or others))


def possible_outcomes(reading: RowModel) -> dict[str, np.ndarray]:
    """Every value of the outcome, or up to 257 evenly spaced ones, by the name of its column.

    Raises:
        NotYetSupported: if what is observed is not one scalar column, or it is unbounded.
    """
    names, columns = outcome_columns(reading), reading.rows.columns
    if len(names) != 1 or columns[names[0]].event_shape != ():
        raise NotYetSupported(f"plans need an outcome of one scalar column; the model observes {names}.")
    values = _values(columns[names[0]], _MOST_VALUES)
    if values is None:
        raise NotYetSupported(f"column {names[0]!r} is unbounded: declare Box(lo, hi) to plan for it.")
    return {names[0]: values}


def candidates(rows: Rows, names: tuple[str, ...]) -> Columns:
    """Possible values of the outcome columns: all of them, an even grid, or public random ones.

    Raises:
        NotYetSupported: if there are none.
    """
    if not names:
        raise NotYetSupported(
            "plans need an outcome: a column that the model observes, or that a factor reads and its "
            "predictors do not. Without one, give PrivateMCMC a kernel and numbers of your own."
        )
    with jax.enable_x64(True):
        if len(names) == 1 and rows.columns[names[0]].event_shape == ():
            domain = rows.columns[names[0]]
            values = _values(domain, _MOST_OUTCOMES)
            if values is not None:
                return {names[0]: domain.project(values)}
        drawn = rows.project(rows.synthetic(2, _MOST_OUTCOMES))
        return {name: drawn[name] for name in names}


def _values(domain: Domain, most: int) -> np.ndarray | None:
    """All values of a scalar domain, or ``most`` evenly spaced ones; ``None`` where it is unbounded."""
    low, high = (float(bound) for bound in domain.interval())
    if not math.isfinite(high - low):
        return None
    if not np.issubdtype(domain.dtype, np.integer):
        return np.linspace(low, high, most)
    return np.unique(np.linspace(low, high, min(int(high - low) + 1, most)).round()).astype(domain.dtype)


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """Synthetic rows with what their exact posterior says.

    Attributes:
        rows: their columns.
        weights: how many rows each stands for, shape ``(rows,)``.
        mean: posterior means of what errors are measured in, shape ``(q,)``.
        sd: posterior sds of it, shape ``(q,)``.
        draws: of ``θ``, shape ``(…, draws, p)``.
    """

    rows: Columns
    weights: Array
    mean: Array
    sd: Array
    draws: Array


def with_outcomes(
    rows: Columns,
    outcomes: Mapping[str, ArrayLike],
    logits: ArrayLike,
    each: float,
    key: jax.Array,
    strata: int = 1,
) -> tuple[Columns, Array]:
    """``each`` times every row, with outcomes of probabilities ``softmax(logits)``, and the rows' weights.

    Where outcomes take a few values there is a row for each, weighted by how often it was drawn: a single
    draw for all copies of a row would be as noisy as if rows were few. Else copies share ``strata`` outcomes,
    one from each stratum of their law, so that the mean of several is nearly the law's. ``logits`` is
    ``(rows, values)``; the weights are ``(rows',)``.
    """
    scores = np.asarray(logits, dtype=np.float64)
    count, values = scores.shape
    shares = softmax(scores, axis=1)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    options = {name: np.asarray(each) for name, each in outcomes.items()}
    if values > _FEW_OUTCOMES:
        strata = min(strata, max(1, round(each)))
        uniform = (np.arange(strata) + random.random((count, strata))) / strata
        below = np.cumsum(shares, axis=1)[:, None, :] < uniform[:, :, None]
        chosen = np.minimum(below.sum(axis=2), values - 1).ravel()
        repeated = {name: np.repeat(np.asarray(column), strata, axis=0) for name, column in rows.items()}
        drawn = {name: every[chosen] for name, every in options.items()}
        return repeated | drawn, np.full(count * strata, each / strata)
    copies = max(1, round(each))
    times = random.multinomial(copies, shares / shares.sum(axis=1, keepdims=True))
    repeated = {name: np.repeat(np.asarray(column), values, axis=0) for name, column in rows.items()}
    tiled = {name: np.concatenate([every] * count) for name, every in options.items()}
    weights = times.ravel().astype(np.float64) * (each / copies)
    return repeated | tiled, weights


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A row's loss with every possible outcome put in place of the row's own; ``temper`` is its weight."""

    reading: RowModel
    outcomes: Columns
    temper: float = 1.0
    times: EventTimes | None = None

    @property
    def few(self) -> bool:
        """Whether the outcome takes so few values that all can be gone through."""
        return self._count <= _FEW_OUTCOMES

    @property
    def vectors(self) -> int:
        """How many gradients stand for one row and parameter."""
        return self._count if self.few else len(_QUANTILES)

    @property
    def _count(self) -> int:
        return int(next(iter(self.outcomes.values())).shape[0])

    def information(self, thetas: ArrayLike, root: ArrayLike, row: Columns) -> jax.Array:
        """``V`` with ``VᵀV ≈ w Aᵀ mean_j E_y[∇v ∇vᵀ] A`` at ``thetas`` ``(k, p)``; shape ``(k·vectors, p)``.

        The expectation is over outcomes of the model given the row's covariates: the row's own outcome is
        not used. ``root`` is ``A``.
        """
        at = jax.vmap(self._scores, in_axes=(0, None))(jnp.asarray(thetas), row)
        flat = at.reshape(-1, at.shape[-1]) * jnp.sqrt(self.temper / at.shape[0])
        return jnp.nan_to_num(flat @ jnp.asarray(root), nan=0.0, posinf=0.0, neginf=0.0)

    def sample(self, theta: jax.Array, rows: Columns, each: float, key: jax.Array) -> tuple[Columns, Array]:
        """``each`` outcomes of every row, drawn from the model at ``theta``: see ``with_outcomes``."""
        if self.times is not None:
            rows = {name: jnp.repeat(column, _TIMES, axis=0) for name, column in rows.items()}
            count = len(rows[self.times.time])
            drawn = jax.vmap(self.drawn, in_axes=(None, 0, 0))(theta, rows, jax.random.split(key, count))
            return rows | drawn, np.full(count, each / _TIMES)
        logits = _all_logits(self, theta, dict(rows))
        return with_outcomes(rows, self.outcomes, logits, each, key, _STRATA)

    def drawn(self, theta: jax.Array, row: Columns, key: jax.Array) -> Columns:
        """One outcome of a row: columns in the place of its own."""
        if self.times is not None:
            return self.times.drawn(functools.partial(self.reading.row_loss, theta), row, key)
        chosen = jax.random.categorical(key, self._logits(theta, row))
        return {name: options[chosen] for name, options in self.outcomes.items()}

    def _logits(self, theta: jax.Array, row: Columns) -> jax.Array:
        losses = jax.vmap(lambda outcome: self.reading.row_loss(theta, row | outcome))(self.outcomes)
        return jnp.where(jnp.isfinite(losses), -losses, -1e30)

    def score(self, theta: jax.Array, row: Columns) -> tuple[jax.Array, jax.Array]:
        """``E_y ∇v``, which is 0 unless declared outcomes are not all that are possible, and ``E_y‖∇v‖²``."""
        score = jax.grad(self.reading.row_loss)
        gradients = jax.vmap(lambda outcome: score(theta, row | outcome))(self.outcomes)
        shares = jax.nn.softmax(self._logits(theta, row))
        return shares @ gradients, shares @ jnp.sum(gradients**2, axis=1)

    def _scores(self, theta: jax.Array, row: Columns) -> jax.Array:
        probabilities = jax.nn.softmax(self._logits(theta, row))
        if self.few:
            chosen, weights = self.outcomes, probabilities
        else:
            index = jnp.searchsorted(jnp.cumsum(probabilities), jnp.asarray(_QUANTILES))
            index = jnp.clip(index, 0, self._count - 1)
            chosen = {name: values[index] for name, values in self.outcomes.items()}
            weights = jnp.asarray(_WIDTHS)
        score = jax.grad(self.reading.row_loss)
        gradients = jax.vmap(lambda outcome: score(theta, row | outcome))(chosen)
        return jnp.asarray(jnp.sqrt(weights)[:, None] * gradients)


@functools.partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _all_logits(likelihood: Likelihood, theta: jax.Array, rows: Columns) -> jax.Array:
    return jax.vmap(likelihood._logits, in_axes=(None, 0))(theta, rows)
