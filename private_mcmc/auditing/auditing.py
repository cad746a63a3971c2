"""The audit: run on two adjacent data sets, attack, compare lower bounds with the claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from private_mcmc.accounting import Statement
from private_mcmc.auditing.chains import chain_mechanism
from private_mcmc.auditing.confidence import (
    FloatArray,
    LowerBounds,
    Scores,
    lower_bounds,
)
from private_mcmc.auditing.mechanism import DataSet, Mechanism, Pair, Score
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import LangevinKernel
from private_mcmc.records import Fields
from private_mcmc.report import at_least, at_most, number


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

    @property
    def ratio(self) -> float:
        """``lower/upper``: 1 is a claim that cannot be improved; 0 for a claim of infinity."""
        floor = math.inf if self.lower else 0.0
        return self.lower / self.upper if self.upper else floor


@dataclass(frozen=True)
class AuditResult:
    """Lower bounds of every attack on one pair of data sets, and the claim they are compared with.

    **Guarantee**: all lower bounds of all attacks hold together with probability at least
    ``1 − failure_probability`` over the runs, whatever the mechanism is.
    **Assumptions**: the runs are independent. A lower bound speaks of this pair only: that it is below
    the claim is evidence, not proof.

    Attributes:
        mechanism: what was run.
        pair: name of the pair of data sets.
        statement: the claim.
        epsilon, delta: where ``δ(ε)`` and ``ε(δ)`` were compared.
        num_runs: runs on each data set, half of them to learn and to choose thresholds.
        failure_probability: of all bounds together.
        attacks: lower bounds by the attack's name.
    """

    mechanism: str
    pair: str
    statement: Statement
    epsilon: float
    delta: float
    num_runs: int
    failure_probability: float
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

    @property
    def tightness(self) -> float:
        """The largest ``lower/upper`` of the comparisons."""
        return max(comparison.ratio for comparison in self.comparisons)

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
            one of them (slots that a data set lacks are empty). Under ``add_remove`` one is the other without
            one row, the order kept.
        delta: where ``ε`` is compared.
        epsilon: where ``δ`` is compared.
        num_runs: runs on each data set.
        failure_probability: that any of all these lower bounds is too large.
        seed: of the audit's randomness; the audit is reproducible.

    Raises:
        DeclarationError: for numbers out of range, declarations that are missing, or data sets that are not
            adjacent or leave the declared domain.
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
    scored = _scored(mechanism, pair, *_outputs(mechanism, pair, num_runs, seed))
    share = failure / len(scored)

    def at(epsilon: float, delta: float) -> AuditResult:
        attacks = {
            name: lower_bounds(scores, delta=delta, epsilon=epsilon, failure=share)
            for name, scores in scored.items()
        }
        return AuditResult(
            mechanism.name, pair.name, mechanism.statement, epsilon, delta, num_runs, failure, attacks
        )

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


def _outputs(
    mechanism: Mechanism, pair: Pair, num_runs: int, seed: np.random.SeedSequence
) -> tuple[FloatArray, FloatArray]:
    one, two = seed.spawn(2)
    first = mechanism.draw(pair.first, num_runs, one)
    second = mechanism.draw(pair.second, num_runs, two)
    # What is not finite is an output like any other, and may tell the data sets apart.
    first, second = (np.nan_to_num(side, nan=1e15, posinf=1e15, neginf=-1e15) for side in (first, second))
    return np.clip(first, -1e15, 1e15), np.clip(second, -1e15, 1e15)


def _scored(mechanism: Mechanism, pair: Pair, first: FloatArray, second: FloatArray) -> dict[str, Scores]:
    half = len(first) // 2
    learned = {name: fit(first[:half], second[:half]) for name, fit in LEARNED.items()}
    scored = {}
    for name, score in {**mechanism.scores(pair), **learned}.items():
        one, two = score(first), score(second)
        scored[name] = Scores((one[:half], two[:half]), (one[half:], two[half:]))
    return scored


_MOST_SQUARED = 40


def linear(first: FloatArray, second: FloatArray) -> Score:
    """The direction ``S^{-1}(x̄_2 − x̄_1)``, ``S`` the pooled covariance: best for Gaussians that share it."""
    centre, scale = _standards(first, second)
    one, two = (first - centre) / scale, (second - centre) / scale
    pooled = (np.cov(one, rowvar=False) + np.cov(two, rowvar=False)).reshape(one.shape[1], -1) / 2
    ridge = 1e-9 * np.eye(len(pooled))
    direction = np.linalg.lstsq(pooled + ridge, two.mean(0) - one.mean(0), rcond=None)[0]
    return lambda outputs: (outputs - centre) / scale @ direction


def logistic(first: FloatArray, second: FloatArray) -> Score:
    """Log density ratio by logistic regression on the outputs and (up to 40 of them) their squares."""
    centre, scale = _standards(first, second)

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


LEARNED = {"linear direction": linear, "logistic density ratio": logistic}


def _standards(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre and spread of every output, resistant to heavy tails; constant outputs have spread 1."""
    both = np.concatenate([first, second])
    low, middle, high = np.quantile(both, (0.1, 0.5, 0.9), axis=0)
    spread = np.where(high > low, (high - low) / 2.5, both.std(axis=0))
    return middle, np.where(spread > 0, spread, 1.0)
