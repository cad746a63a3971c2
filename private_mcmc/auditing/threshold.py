"""A score becomes a test: the threshold is chosen on one half of the outputs and counted on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from private_mcmc.auditing.confidence import (
    ErrorCounts,
    FloatArray,
    delta_lower,
    epsilon_lower,
    gdp_lower,
)

# On each side and tail.
_QUANTILES = 100

Bound = Callable[[ErrorCounts], FloatArray]


@dataclass(frozen=True, eq=False)
class Scores:
    """A score of every output, larger where the second data set is likelier; chosen and tested apart.

    Attributes:
        choose: scores on the (first, second) data set of the outputs that thresholds are chosen on.
        test: scores of the outputs that errors are counted on, in the same order.
    """

    choose: tuple[FloatArray, FloatArray]
    test: tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds of one attack, which hold together with probability at least ``1 − failure``.

    Attributes:
        epsilon: on ``ε`` at the ``delta`` asked for.
        delta: on ``δ`` at the ``epsilon`` asked for.
        gdp: on the Gaussian DP parameter.
        gdp_estimate: ``|mean difference|/sd`` of the tested scores: ``m`` itself where the scores are
            Gaussian of one variance, with no confidence attached.
    """

    epsilon: float
    delta: float
    gdp: float
    gdp_estimate: float


def lower_bounds(scores: Scores, *, delta: float, epsilon: float, failure: float) -> LowerBounds:
    """Lower bounds on ``ε`` at ``delta``, on ``δ`` at ``epsilon`` and on ``m``, from one score.

    Each has its own threshold, chosen where the same bound is largest on the outputs to choose on, and a
    third of ``failure``. Which outputs are chosen on does not matter to the confidence; that they are not
    the tested ones does.
    """
    share = failure / 3
    return LowerBounds(
        epsilon=bound_at_best(scores, lambda counts: epsilon_lower(counts, delta, share)),
        delta=bound_at_best(scores, lambda counts: delta_lower(counts, epsilon, share)),
        gdp=bound_at_best(scores, lambda counts: gdp_lower(counts, share)),
        gdp_estimate=_separation(*scores.test),
    )


def errors_at(scores: tuple[FloatArray, FloatArray], thresholds: FloatArray) -> ErrorCounts:
    """Errors of the tests "second if the score is above the threshold"."""
    first, second = (np.sort(side) for side in scores)
    above = len(first) - np.searchsorted(first, thresholds, side="right")
    below = np.searchsorted(second, thresholds, side="right")
    return ErrorCounts(above, below, len(first), len(second))


def candidate_thresholds(scores: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Sorted thresholds at quantiles of either side, dense in the tails, and between them."""
    tail = np.geomspace(1e-5, 0.5, _QUANTILES)
    levels = np.concatenate([tail, 1 - tail])
    found = np.unique(np.concatenate([np.quantile(side, levels) for side in scores]))
    return np.unique(np.concatenate([found, found[:-1] + np.diff(found) / 2]))


def bound_at_best(scores: Scores, bound: Bound) -> float:
    """``bound`` on the tested outputs, at the threshold where it is largest on the outputs to choose on."""
    thresholds = candidate_thresholds(scores.choose)
    values = bound(errors_at(scores.choose, thresholds))
    # Of several best ones the middle: far from where either side errs.
    best = np.flatnonzero(values == values.max())
    chosen = thresholds[[best[len(best) // 2]]]
    return float(bound(errors_at(scores.test, chosen))[0])


def _separation(first: FloatArray, second: FloatArray) -> float:
    spread = np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2)
    return float(abs(second.mean() - first.mean()) / spread) if spread > 0 else 0.0
