"""What an audit found: lower bounds beside claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.auditing.confidence import ErrorCounts, LowerBounds, epsilon_from_errors
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
        comparisons: best lower bounds beside the claims on ``ε``, ``δ`` and, where one is made, ``m``.
    """

    mechanism: str
    pair: str
    statement: Statement
    epsilon: float
    delta: float
    num_runs: int
    failure_probability: float
    attacks: Mapping[str, LowerBounds]
    comparisons: tuple[Comparison, ...]

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

    @property
    def most_provable(self) -> float:
        """The largest lower bound on ``ε`` that so many runs can give: that of an attack without errors."""
        half, none = self.num_runs // 2, np.zeros(1, dtype=np.int64)
        perfect = ErrorCounts(none, none, half, half)
        share = self.failure_probability / len(self.attacks) / 3
        return float(epsilon_from_errors(*perfect.limits(share), self.delta)[0])

    @property
    def best(self) -> LowerBounds:
        """Of the attack with the largest Gaussian DP bound, which orders attacks at every scale."""
        return max(self.attacks.values(), key=lambda bounds: (bounds.gdp, bounds.gdp_estimate))

    def __str__(self) -> str:
        lines = [f"{self.mechanism} on {self.pair}: {'sound' if self.sound else 'CLAIM REFUTED'}"]
        lines += [f"  {c.quantity}: {at_least(c.lower)} ≤ … ≤ {at_most(c.upper)}" for c in self.comparisons]
        for name, b in self.attacks.items():
            epsilon, delta, gdp = map(at_least, (b.epsilon, b.delta, b.gdp))
            estimate = number(b.gdp_estimate)
            lines.append(f"  {name}: ε ≥ {epsilon}, δ ≥ {delta}, m ≥ {gdp}, mean difference/sd {estimate}")
        most = at_least(self.most_provable)
        return "\n".join([*lines, f"  {self.num_runs} runs can prove ε ≥ {most} at most"])
