"""The audit: run on two adjacent data sets, attack, and compare lower bounds with the claim.

A test guesses, from one output, which of the data sets it came from. With ``FP`` and ``FN`` its
probabilities of error, an ``(ε, δ)``-DP mechanism has ``FP + e^ε FN ≥ 1 − δ`` and ``FN + e^ε FP ≥ 1 − δ``,
and an ``m``-GDP one ``Φ^{-1}(1 − FP) − Φ^{-1}(FN) ≤ m``. Errors counted on independent outputs give upper
confidence limits of ``FP`` and ``FN``, hence lower bounds on ``ε``, ``δ`` and ``m``. A score becomes a test:
its threshold is chosen on one half of the outputs and its errors are counted on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import betaincinv, expit, ndtri

from private_mcmc.accounting import Statement
from private_mcmc.auditing.mechanism import DataSet, FloatArray, Mechanism, Pair, Score, chain_mechanism
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import LangevinKernel
from private_mcmc.records import Fields
from private_mcmc.report import at_least, at_most, number


class ErrorCounts(NamedTuple):
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


def clopper_pearson_upper(errors: npt.ArrayLike, trials: int, failure: float) -> FloatArray:
    """One-sided upper limit: the binomial probability exceeds it with probability at most ``failure``.

    Source: Clopper, Pearson 1934; the quantile ``1 − failure`` of Beta(k + 1, n − k).
    """
    counts = np.asarray(errors, dtype=np.float64)
    inside = np.minimum(counts, trials - 1)
    # The complement keeps its digits where the limit is near 1; the margin covers betaincinv's error.
    limit = 1.0 - betaincinv(trials - inside, inside + 1.0, failure)
    return np.asarray(np.where(counts == trials, 1.0, np.minimum(1.0, limit * (1 + 1e-9))), dtype=np.float64)


def epsilon_from_errors(false_positive: FloatArray, false_negative: FloatArray, delta: float) -> FloatArray:
    """``max{0, ln((1−δ−FP)/FN), ln((1−δ−FN)/FP)}`` from upper limits of both errors.

    Source: Heller, Fetaya 2023, (11)-(12).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.log(np.maximum(1 - delta - false_positive, 0.0)) - np.log(false_negative)
        two = np.log(np.maximum(1 - delta - false_negative, 0.0)) - np.log(false_positive)
    return np.asarray(np.fmax(np.fmax(one, two), 0.0))


def delta_from_errors(false_positive: FloatArray, false_negative: FloatArray, epsilon: float) -> FloatArray:
    """``max{0, 1 − FN − e^ε FP, 1 − FP − e^ε FN}`` from upper limits of both errors."""
    factor = np.exp(min(epsilon, 700.0))
    one = 1 - false_negative - factor * false_positive
    two = 1 - false_positive - factor * false_negative
    return np.asarray(np.maximum(np.maximum(one, two), 0.0))


def gdp_from_errors(false_positive: FloatArray, false_negative: FloatArray) -> FloatArray:
    """``max{0, Φ^{-1}(1 − FP) − Φ^{-1}(FN)}`` from upper limits of both errors.

    To be compared with a Gaussian DP claim only: a mechanism that is not Gaussian may have a large value here
    at a small ``ε``. Source: Dong, Roth, Su 2022, Definition 2.6.
    """
    return np.asarray(np.maximum(-ndtri(false_positive) - ndtri(false_negative), 0.0))


class Scores(NamedTuple):
    """A score of every output, larger where the second data set is likelier; chosen and tested apart.

    Attributes:
        choose: scores on the (first, second) data set of the outputs that thresholds are chosen on.
        test: scores of the outputs that errors are counted on, in the same order.
    """

    choose: tuple[FloatArray, FloatArray]
    test: tuple[FloatArray, FloatArray]


class LowerBounds(NamedTuple):
    """Lower bounds of one attack, which hold together with the probability that was asked for.

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
    share, (first, second) = failure / 3, scores.test
    spread = float(np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2))
    return LowerBounds(
        bound_at_best(scores, lambda counts: epsilon_from_errors(*counts.limits(share), delta)),
        bound_at_best(scores, lambda counts: delta_from_errors(*counts.limits(share), epsilon)),
        bound_at_best(scores, lambda counts: gdp_from_errors(*counts.limits(share))),
        float(abs(second.mean() - first.mean()) / spread) if spread > 0 else 0.0,
    )


# Quantiles of either side on each tail, where thresholds are tried, and between them.
_LEVELS = np.concatenate([tail := np.geomspace(1e-5, 0.5, 100), 1 - tail])


def bound_at_best(scores: Scores, bound: Callable[[ErrorCounts], FloatArray]) -> float:
    """``bound`` on the tested outputs, at the threshold where it is largest on the outputs to choose on."""
    quantiles = np.unique(np.concatenate([np.quantile(side, _LEVELS) for side in scores.choose]))
    thresholds = np.unique(np.concatenate([quantiles, quantiles[:-1] + np.diff(quantiles) / 2]))
    values = bound(_errors_at(scores.choose, thresholds))
    # Of several best ones the middle: far from where either side errs.
    best = np.flatnonzero(values == values.max())
    return float(bound(_errors_at(scores.test, thresholds[[best[len(best) // 2]]]))[0])


def _errors_at(scores: tuple[FloatArray, FloatArray], thresholds: FloatArray) -> ErrorCounts:
    """Errors of the tests "second if the score is above the threshold"."""
    first, second = (np.sort(side) for side in scores)
    above = len(first) - np.searchsorted(first, thresholds, side="right")
    below = np.searchsorted(second, thresholds, side="right")
    return ErrorCounts(above, below, len(first), len(second))


@dataclass(frozen=True)
class Comparison:
    """A lower bound with confidence beside what is claimed."""

    quantity: str
    lower: float
    upper: float

    @property
    def violated(self) -> bool:
        """True if the claim is refuted; an upper bound that is NaN counts as refuted."""
        return not self.lower <= self.upper


@dataclass(frozen=True)
class AuditResult:
    """Lower bounds of every attack on one pair of data sets, and the claim they are compared with.

    **Guarantee**: all lower bounds of all attacks hold together with probability at least
    one minus the audit's ``failure_probability`` over the runs, whatever the mechanism is.
    **Assumptions**: the runs are independent. A lower bound speaks of this pair only: that it is below
    the claim is evidence, not proof.

    Attributes:
        mechanism: what was run.
        pair: name of the pair of data sets.
        statement: the claim.
        epsilon, delta: where ``δ(ε)`` and ``ε(δ)`` were compared.
        attacks: lower bounds by the attack's name.
    """

    mechanism: str
    pair: str
    statement: Statement
    epsilon: float
    delta: float
    attacks: Mapping[str, LowerBounds]

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Best lower bounds beside the claims on ``ε``, ``δ`` and, where one is made, ``m``."""
        found, claim = self.attacks.values(), self.statement
        gdp = [] if claim.gdp is None else [Comparison("gdp", max(b.gdp for b in found), claim.gdp)]
        return (
            Comparison("epsilon", max(b.epsilon for b in found), claim.epsilon(self.delta)),
            Comparison("delta", max(b.delta for b in found), claim.delta(self.epsilon)),
            *gdp,
        )

    @property
    def violations(self) -> tuple[Comparison, ...]:
        """Comparisons whose lower bound exceeds the claim: each refutes the claim."""
        return tuple(comparison for comparison in self.comparisons if comparison.violated)

    @property
    def sound(self) -> bool:
        """True if no lower bound exceeds its upper bound."""
        return not self.violations

    def __str__(self) -> str:
        lines = [f"{self.mechanism} on {self.pair}: {'sound' if self.sound else 'CLAIM REFUTED'}"]
        lines += [f"  {c.quantity}: {at_least(c.lower)} ≤ … ≤ {at_most(c.upper)}" for c in self.comparisons]
        for name, b in self.attacks.items():
            epsilon, delta, gdp = map(at_least, (b.epsilon, b.delta, b.gdp))
            estimate = number(b.gdp_estimate)
            lines.append(f"  {name}: ε ≥ {epsilon}, δ ≥ {delta}, m ≥ {gdp}, mean difference/sd {estimate}")
        return "\n".join(lines)


_LEAST_RUNS = 40


def audit(
    kernel_or_mechanism: LangevinKernel | Mechanism,
    pair: tuple[DataSet, DataSet],
    *,
    delta: float = 1e-5,
    epsilon: float = 1.0,
    num_runs: int = 20_000,
    failure_probability: float = 1e-6,
    seed: int = 0,
    **declared: Any,
) -> AuditResult:
    """Attack a mechanism's privacy claim: lower bounds on ``ε``, ``δ`` and ``m`` beside the claimed ones.

    The mechanism runs ``num_runs`` times on each data set of ``pair``. On one half of the runs every attack
    is fitted and its thresholds are chosen; on the other half its errors are counted.

    **Guarantee**: see :class:`AuditResult`. **Assumptions**: the data sets are synthetic and public; the
    chains' random numbers are as good as independent.

    Args:
        kernel_or_mechanism: a private kernel, with the driver's declarations as further arguments (``rows``,
            ``target``, ``release``, ``num_steps``, ``n``, …: see :func:`chain_mechanism`), whose outputs all
            come out of ``PrivateMCMC.run``; or a mechanism of your own.
        pair: two adjacent data sets, columns by name, that differ in one row, wherever it stands. A column
            ``present`` of truth values marks slots without a row: under ``zero_out`` one slot is empty in
            one of them. Under ``add_remove`` one is the other without one row, the order kept.
        delta: where ``ε`` is compared.
        epsilon: where ``δ`` is compared.
        num_runs: runs on each data set.
        failure_probability: that any of all these lower bounds is too large.
        seed: of the audit's randomness; the audit is reproducible.

    Raises:
        DeclarationError: for numbers out of range, declarations that are missing, or data sets that are not
            adjacent.
        DataSchemaError: for data sets with other columns, shapes or numbers of rows than declared.

    Source: Heller, Fetaya 2023, (11)-(12); Dong, Roth, Su 2022, Definition 2.6.

    Example:
        >>> def draw(data, runs, seed):
        ...     return data["x"].sum() + 2.0 * np.random.default_rng(seed).normal(size=(runs, 1))
        >>> claim = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
        >>> noised_sum = pmc.Mechanism("noised sum", claim, draw)
        >>> pair = {"x": np.array([1.0])}, {"x": np.array([0.0])}
        >>> pmc.audit(noised_sum, pair, num_runs=2_000).sound
        True
    """
    _check(num_runs, failure_probability, epsilon, delta, pair)
    return audit_at(
        _mechanism(kernel_or_mechanism, declared),
        Pair(*pair),
        ((epsilon, delta),),
        num_runs=num_runs,
        failure=failure_probability,
        seed=np.random.SeedSequence(seed),
    )[0]


def audit_at(
    mechanism: Mechanism,
    pair: Pair,
    points: Sequence[tuple[float, float]],
    *,
    num_runs: int,
    failure: float,
    seed: np.random.SeedSequence,
) -> tuple[AuditResult, ...]:
    """One result for each ``(ε, δ)`` of ``points``, all from the same runs, each with ``failure``."""
    pair.differing(mechanism.statement.adjacency)
    # What is not finite is an output like any other, and may tell the data sets apart.
    first, second = (
        np.clip(np.nan_to_num(mechanism.draw(data, num_runs, at), nan=1e15), -1e15, 1e15)
        for data, at in zip(pair[:2], seed.spawn(2), strict=True)
    )
    half, scored = len(first) // 2, {}
    learned = {"logistic density ratio": logistic(first[:half], second[:half])}
    for name, score in {**mechanism.scores(pair), **learned}.items():
        one, two = score(first), score(second)
        scored[name] = Scores((one[:half], two[:half]), (one[half:], two[half:]))
    share = failure / len(scored)

    def at(epsilon: float, delta: float) -> AuditResult:
        attacks = {
            name: lower_bounds(scores, delta=delta, epsilon=epsilon, failure=share)
            for name, scores in scored.items()
        }
        return AuditResult(mechanism.name, pair.name, mechanism.statement, epsilon, delta, attacks)

    return tuple(at(epsilon, delta) for epsilon, delta in points)


def _check(num_runs: int, failure: float, epsilon: float, delta: float, pair: object) -> None:
    if not (isinstance(num_runs, int | np.integer) and num_runs >= _LEAST_RUNS):
        raise DeclarationError(f"num_runs={num_runs}: a whole number, at least {_LEAST_RUNS}, is needed.")
    if not 0 < failure < 1:
        raise DeclarationError(f"failure_probability={failure}: must lie in (0, 1).")
    if not 0 <= epsilon < np.inf:
        raise DeclarationError(f"epsilon={epsilon}: must be non-negative and finite.")
    if not 0 <= delta < 1:
        raise DeclarationError(f"delta={delta}: must lie in [0, 1).")
    if not (isinstance(pair, tuple) and len(pair) in (2, 3)):
        raise DeclarationError("pair: give a tuple of two data sets (first, second), columns by name.")


def _mechanism(given: LangevinKernel | Mechanism, declared: Fields) -> Mechanism:
    if isinstance(given, Mechanism):
        if declared:
            raise DeclarationError(f"{sorted(declared)}: a mechanism brings its own declarations.")
        return given
    if not isinstance(given, LangevinKernel):
        raise DeclarationError(
            f"audit takes a private kernel or a Mechanism, not a {type(given).__name__}: for a driver, "
            "audit(its kernel, pair, rows=…, target=…, release=…, num_steps=…, n=…)."
        )
    try:
        signature(chain_mechanism).bind(given, **declared)
    except TypeError as error:
        raise DeclarationError(f"audit({type(given).__name__}, …): {error}.") from error
    return chain_mechanism(given, **declared)


_MOST_SQUARED = 40


def logistic(first: FloatArray, second: FloatArray) -> Score:
    """Log density ratio by logistic regression on the outputs and (up to 40 of them) their squares."""
    # Centres and spreads that resist heavy tails; of constant outputs the spread is 1.
    both = np.concatenate([first, second])
    low, centre, high = np.quantile(both, (0.1, 0.5, 0.9), axis=0)
    spread = np.where(high > low, (high - low) / 2.5, both.std(axis=0))
    scale = np.where(spread > 0, spread, 1.0)

    def features(outputs: FloatArray) -> FloatArray:
        # Bounded, so that one far output cannot decide the fit.
        z = np.clip((outputs - centre) / scale, -6.0, 6.0)
        squares = [z**2, np.abs(z)] if z.shape[1] <= _MOST_SQUARED else []
        return np.concatenate([np.ones((len(z), 1)), z, *squares], axis=1)

    inputs = np.concatenate([features(first), features(second)])
    labels = np.concatenate([np.zeros(len(first)), np.ones(len(second))])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        predictor = inputs @ weights
        value = np.logaddexp(0.0, predictor).sum() - labels @ predictor + 5e-4 * weights @ weights
        return float(value), inputs.T @ (expit(predictor) - labels) + 1e-3 * weights

    weights = minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda outputs: features(outputs) @ weights
