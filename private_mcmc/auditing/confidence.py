"""Lower bounds on privacy loss, with confidence, from the errors of one fixed test.

A test guesses, from one output, which of two adjacent data sets it came from. With ``FP`` and ``FN`` its
probabilities of error, an ``(ε, δ)``-DP mechanism has ``FP + e^ε FN ≥ 1 − δ`` and ``FN + e^ε FP ≥ 1 − δ``,
and an ``m``-GDP one ``Φ^{-1}(1 − FP) − Φ^{-1}(FN) ≤ m``. Errors counted on independent outputs give upper
confidence limits of ``FP`` and ``FN``, hence lower bounds on ``ε``, ``δ`` and ``m``.

A score becomes a test: its threshold is chosen on one half of the outputs and its errors are counted on the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri

from private_mcmc.errors import DeclarationError

FloatArray = npt.NDArray[np.float64]


def clopper_pearson_upper(errors: npt.ArrayLike, trials: int, failure: float) -> FloatArray:
    """One-sided upper limit: the binomial probability exceeds it with probability at most ``failure``.

    Source: Clopper, Pearson 1934; the quantile ``1 − failure`` of Beta(k + 1, n − k).
    """
    counts = np.asarray(errors, dtype=np.float64)
    if not (trials >= 1 and np.all((counts >= 0) & (counts <= trials))):
        raise DeclarationError(f"a count of errors lies between 0 and trials={trials} ≥ 1.")
    if not 0 < failure < 1:
        raise DeclarationError(f"failure={failure}: must lie in (0, 1).")
    inside = np.minimum(counts, trials - 1)
    # The complement keeps its digits where the limit is near 1; the margin covers betaincinv's error.
    limit = 1.0 - betaincinv(trials - inside, inside + 1.0, failure)
    return np.asarray(np.where(counts == trials, 1.0, np.minimum(1.0, limit * (1 + 1e-9))), dtype=np.float64)


def epsilon_from_errors(false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
    """``max{0, ln((1−δ−FP)/FN), ln((1−δ−FN)/FP)}`` from upper limits of both errors.

    Source: Heller, Fetaya 2023, (11)-(12).
    """
    if not 0 <= delta < 1:
        raise DeclarationError(f"delta={delta}: must lie in [0, 1).")
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.log(np.maximum(1 - delta - false_positive, 0.0)) - np.log(false_negative)
        two = np.log(np.maximum(1 - delta - false_negative, 0.0)) - np.log(false_positive)
    bound: FloatArray = np.fmax(np.fmax(one, two), 0.0)
    return bound


def delta_from_errors(false_positive: FloatArray, false_negative: FloatArray, epsilon: float) -> FloatArray:
    """``max{0, 1 − FN − e^ε FP, 1 − FP − e^ε FN}`` from upper limits of both errors."""
    if not 0 <= epsilon < np.inf:
        raise DeclarationError(f"epsilon={epsilon}: must be non-negative and finite.")
    factor = np.exp(min(epsilon, 700.0))
    one = 1 - false_negative - factor * false_positive
    two = 1 - false_positive - factor * false_negative
    bound: FloatArray = np.maximum(np.maximum(one, two), 0.0)
    return bound


def gdp_from_errors(false_positive: FloatArray, false_negative: FloatArray) -> FloatArray:
    """``max{0, Φ^{-1}(1 − FP) − Φ^{-1}(FN)}`` from upper limits of both errors.

    To be compared with a Gaussian DP certificate only: a mechanism that is not Gaussian may have a large
    value here at a small ``ε``, so it says nothing about ``ε``.

    Source: Dong, Roth, Su 2022, Definition 2.6.
    """
    bound: FloatArray = np.maximum(-ndtri(false_positive) - ndtri(false_negative), 0.0)
    return bound


@dataclass(frozen=True)
class ErrorCounts:
    """Errors of a test, or of several at once (arrays), on outputs it was not chosen on.

    Attributes:
        false_positives: outputs on the first data set that the test takes for the second's.
        false_negatives: outputs on the second that it takes for the first's.
        negatives, positives: number of outputs on the first and on the second data set.
    """

    false_positives: npt.NDArray[np.int64]
    false_negatives: npt.NDArray[np.int64]
    negatives: int
    positives: int

    def limits(self, failure: float) -> tuple[FloatArray, FloatArray]:
        """Upper limits of ``FP`` and ``FN`` that hold together with probability at least ``1 − failure``."""
        return (
            clopper_pearson_upper(self.false_positives, self.negatives, failure / 2),
            clopper_pearson_upper(self.false_negatives, self.positives, failure / 2),
        )


# On each side and tail.
_QUANTILES = 100


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
        epsilon, delta, gdp: on ``ε`` at the ``delta`` asked for, on ``δ`` at the ``epsilon``, and on ``m``.
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
    first, second = scores.test
    spread = float(np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2))
    return LowerBounds(
        bound_at_best(scores, lambda counts: epsilon_from_errors(*counts.limits(share), delta)),
        bound_at_best(scores, lambda counts: delta_from_errors(*counts.limits(share), epsilon)),
        bound_at_best(scores, lambda counts: gdp_from_errors(*counts.limits(share))),
        float(abs(second.mean() - first.mean()) / spread) if spread > 0 else 0.0,
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
    quantiles = np.unique(np.concatenate([np.quantile(side, levels) for side in scores]))
    return np.unique(np.concatenate([quantiles, quantiles[:-1] + np.diff(quantiles) / 2]))


def bound_at_best(scores: Scores, bound: Callable[[ErrorCounts], FloatArray]) -> float:
    """``bound`` on the tested outputs, at the threshold where it is largest on the outputs to choose on."""
    thresholds = candidate_thresholds(scores.choose)
    values = bound(errors_at(scores.choose, thresholds))
    # Of several best ones the middle: far from where either side errs.
    best = np.flatnonzero(values == values.max())
    chosen = thresholds[[best[len(best) // 2]]]
    return float(bound(errors_at(scores.test, chosen))[0])
