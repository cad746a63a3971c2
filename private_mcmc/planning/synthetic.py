"""Public stand-ins for what a plan may not look at: possible outcomes of synthetic rows.

Everything is drawn with fixed keys from the declared row domain and the model's own prior, so that it
depends on nothing private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import jax
import numpy as np
from jax.typing import ArrayLike
from scipy.special import softmax

from private_mcmc.domains import Domain, Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import outcome_columns
from private_mcmc.planning.stages import Array
from private_mcmc.records import Record

Columns: TypeAlias = Record
_MOST_VALUES, _MOST_OUTCOMES = 257, 129
FEW_OUTCOMES = 8


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
    """Possible values of the outcome columns: all of them, an even grid, or public random ones."""
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


def with_outcomes(
    rows: Columns,
    outcomes: Mapping[str, ArrayLike],
    logits: ArrayLike,
    each: float,
    key: jax.Array,
) -> tuple[Columns, Array]:
    """``each`` times every row, with outcomes of probabilities ``softmax(logits)``, and the rows' weights.

    Where outcomes take a few values there is a row for each, weighted by how often it was drawn: a single
    draw for all copies of a row would be as noisy as if rows were few. Else copies share one outcome.
    ``logits`` is ``(rows, values)``; the weights are ``(rows',)``.
    """
    scores = np.asarray(logits, dtype=np.float64)
    count, values = scores.shape
    shares = softmax(scores, axis=1)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    options = {name: np.asarray(each) for name, each in outcomes.items()}
    if values > FEW_OUTCOMES:
        below = np.cumsum(shares, axis=1) < random.random((count, 1))
        chosen = np.minimum(below.sum(axis=1), values - 1)
        return {**rows, **{name: every[chosen] for name, every in options.items()}}, np.full(count, each)
    copies = max(1, round(each))
    times = random.multinomial(copies, shares / shares.sum(axis=1, keepdims=True))
    repeated = {name: np.repeat(np.asarray(column), values, axis=0) for name, column in rows.items()}
    tiled = {name: np.concatenate([every] * count) for name, every in options.items()}
    weights = times.ravel().astype(np.float64) * (each / copies)
    return repeated | tiled, weights
