"""The audit: run on two adjacent data sets, attack, and compare lower bounds with the claim.

A test guesses, from one output, which of the data sets it came from. With ``FP`` and ``FN`` its
probabilities of error, an ``(ε, δ)``-DP mechanism has ``FP + e^ε FN ≥ 1 − δ`` and ``FN + e^ε FP ≥ 1 − δ``,
and an ``m``-GDP one ``Φ^{-1}(1 − FP) − Φ^{-1}(FN) ≤ m``. Errors counted on independent outputs give upper
confidence limits of ``FP`` and ``FN``, hence lower bounds on ``ε`` at a ``δ``, and on ``m``. A score becomes
a test: its threshold is chosen on one half of the outputs and its errors are counted on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import betaincinv, expit, ndtri

from private_mcmc.accounting import Statement
from private_mcmc.auditing.mechanism import DataSet, FloatArray, Mechanism, Pair, Score, chain_mechanism
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import LangevinKernel
from private_mcmc.report import at_least, at_most

# A score of every output on the first and on the second data set, larger where the second is likelier.
Scores: TypeAlias = tuple[FloatArray, FloatArray]
# A lower bound from upper limits of false positives and false negatives.
Bound: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]


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


def gdp_from_errors(false_positive: FloatArray, false_negative: FloatArray) -> FloatArray:
    """``max{0, Φ^{-1}(1 − FP) − Φ^{-1}(FN)}`` from upper limits of both errors.

    To be compared with a Gaussian DP claim only: a mechanism that is not Gaussian may have a large value here
    at a small ``ε``. Source: Dong, Roth, Su 2022, Definition 2.6.
    """
    return np.asarray(np.maximum(-ndtri(false_positive) - ndtri(false_negative), 0.0))


# Quantiles of either side on each tail, where thresholds are tried, and between them.
_LEVELS = np.concatenate([tail := np.geomspace(1e-5, 0.5, 100), 1 - tail])


def bound_at_best(scores: Scores, failure: float, bound: Bound) -> float:
    """``bound`` of the errors on the second half of the outputs, at a threshold chosen on the first half."""
    choose = [side[: len(side) // 2] for side in scores]
    quantiles = np.unique(np.concatenate([np.quantile(side, _LEVELS) for side in choose]))
    thresholds = np.unique(np.concatenate([quantiles, quantiles[:-1] + np.diff(quantiles) / 2]))
    values = bound(*_errors(choose, thresholds, failure))
    # Of several best ones the middle: far from where either side errs.
    best = np.flatnonzero(values == values.max())
    test = [side[len(side) // 2 :] for side in scores]
    return float(bound(*_errors(test, thresholds[[best[len(best) // 2]]], failure))[0])


def _errors(
    scores: Sequence[FloatArray], thresholds: FloatArray, failure: float
) -> tuple[FloatArray, FloatArray]:
    """Upper limits of ``FP`` and ``FN`` of the tests "second if the score is above the threshold".

    At one threshold they hold together with probability at least ``1 − failure``.
    """
    first, second = (np.sort(side) for side in scores)
    above = len(first) - np.searchsorted(first, thresholds, side="right")
    below = np.searchsorted(second, thresholds, side="right")
    return (
        clopper_pearson_upper(above, len(first), failure / 2),
        clopper_pearson_upper(below, len(second), failure / 2),
    )


class Comparison(NamedTuple):
    """A lower bound with confidence beside what is claimed."""

    quantity: str
    lower: float
    upper: float


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
        deltas: where ``ε`` was compared.
        attacks: by the attack's name its lower bounds on ``ε`` at each ``δ``, and on ``m``.
    """

    mechanism: str
    pair: str
    statement: Statement
    deltas: tuple[float, ...]
    attacks: Mapping[str, tuple[float, ...]]

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Best lower bounds beside the claims on ``ε`` and, where one is made, on ``m``."""
        claims = [(f"ε at δ = {at_most(delta)}", self.statement.epsilon(delta)) for delta in self.deltas]
        claims += [] if self.statement.gdp is None else [("gdp", self.statement.gdp)]
        found = map(max, zip(*self.attacks.values(), strict=True))
        return tuple(Comparison(name, one, claim) for (name, claim), one in zip(claims, found, strict=False))

    @property
    def violations(self) -> tuple[Comparison, ...]:
        """Comparisons that refute the claim; one that is NaN counts as refuted."""
        return tuple(one for one in self.comparisons if not one.lower <= one.upper)

    @property
    def sound(self) -> bool:
        """True if no lower bound exceeds its upper bound."""
        return not self.violations

    def __str__(self) -> str:
        lines = [f"{self.mechanism} on {self.pair}: {'sound' if self.sound else 'CLAIM REFUTED'}"]
        lines += [f"  {c.quantity}: {at_least(c.lower)} ≤ … ≤ {at_most(c.upper)}" for c in self.comparisons]
        for name, (*epsilons, gdp) in self.attacks.items():
            lines.append(f"  {name}: ε ≥ {', '.join(map(at_least, epsilons))}, m ≥ {at_least(gdp)}")
        return "\n".join(lines)


def audit(
    kernel_or_mechanism: LangevinKernel | Mechanism,
    pair: tuple[DataSet, DataSet],
    *,
    delta: float | Sequence[float] = 1e-5,
    num_runs: int = 20_000,
    failure_probability: float = 1e-6,
    seed: int | Sequence[int] = 0,
    **declared: Any,
) -> AuditResult:
    """Attack a mechanism's privacy claim: lower bounds on ``ε`` and ``m`` beside the claimed ones.

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
        delta: where ``ε`` is compared; of several, at each.
        num_runs: runs on each data set.
        failure_probability: that any of all these lower bounds is too large.
        seed: of the audit's randomness, which is reproducible.

    Raises:
        DeclarationError: for numbers out of range, missing declarations, and data sets not adjacent.
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
    deltas = tuple(np.ravel(delta).tolist())
    if not (isinstance(num_runs, int | np.integer) and num_runs >= 40):
        raise DeclarationError(f"num_runs={num_runs}: a whole number, at least 40, is needed.")
    if not 0 < failure_probability < 1:
        raise DeclarationError(f"failure_probability={failure_probability}: must lie in (0, 1).")
    if not all(0 <= each < 1 for each in deltas):
        raise DeclarationError(f"delta={delta}: must lie in [0, 1).")
    if not (isinstance(pair, tuple) and len(pair) in (2, 3)):
        raise DeclarationError("pair: give a tuple of two data sets (first, second), columns by name.")
    mechanism, sides = kernel_or_mechanism, Pair(*pair)
    if isinstance(mechanism, LangevinKernel):
        mechanism = chain_mechanism(mechanism, **declared)
    elif not isinstance(mechanism, Mechanism):
        raise DeclarationError(
            f"audit takes a private kernel or a Mechanism, not a {type(mechanism).__name__}: for a driver, "
            "audit(its kernel, pair, rows=…, target=…, release=…, num_steps=…, n=…)."
        )
    elif declared:
        raise DeclarationError(f"{sorted(declared)}: a mechanism brings its own declarations.")
    sides.differing(mechanism.statement.adjacency)
    # What is not finite is an output like any other, and may tell the data sets apart.
    first, second = (
        np.clip(np.nan_to_num(mechanism.draw(data, num_runs, at), nan=1e15), -1e15, 1e15)
        for data, at in zip(sides[:2], np.random.SeedSequence(seed).spawn(2), strict=True)
    )
    half = len(first) // 2
    learned = {"logistic density ratio": logistic(first[:half], second[:half])}
    attacks = {**mechanism.scores(sides), **learned}
    bounds: list[Bound] = [*(partial(epsilon_from_errors, delta=each) for each in deltas), gdp_from_errors]
    share = failure_probability / (len(attacks) * len(bounds))

    def bounded(score: Score) -> tuple[float, ...]:
        scores = score(first), score(second)
        return tuple(bound_at_best(scores, share, bound) for bound in bounds)

    found = {name: bounded(score) for name, score in attacks.items()}
    return AuditResult(mechanism.name, sides.name, mechanism.statement, deltas, found)


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
        squares = [z**2, np.abs(z)] if z.shape[1] <= 40 else []
        return np.concatenate([np.ones((len(z), 1)), z, *squares], axis=1)

    inputs = np.concatenate([features(first), features(second)])
    labels = np.concatenate([np.zeros(len(first)), np.ones(len(second))])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        predictor = inputs @ weights
        value = np.logaddexp(0.0, predictor).sum() - labels @ predictor + 5e-4 * weights @ weights
        return float(value), inputs.T @ (expit(predictor) - labels) + 1e-3 * weights

    weights = minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda outputs: features(outputs) @ weights
