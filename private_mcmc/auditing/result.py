"""What an audit found: lower bounds beside the claimed upper bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.auditing.confidence import ErrorCounts, LowerBounds, epsilon_lower


@dataclass(frozen=True)
class AttackResult:
    """One attack: its lower bounds, and its errors on the tested runs at many thresholds."""

    name: str
    bounds: LowerBounds
    false_positive: tuple[float, ...] = field(repr=False)
    false_negative: tuple[float, ...] = field(repr=False)


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
        if self.upper == 0:
            return 0.0 if self.lower == 0 else float("inf")
        return self.lower / self.upper


def compared(
    attacks: Sequence[AttackResult], claim: Statement, *, epsilon: float, delta: float
) -> tuple[Comparison, ...]:
    """The best lower bounds beside what ``claim`` says at ``epsilon`` and at ``delta``."""
    bounds = [attack.bounds for attack in attacks]
    comparisons = [
        Comparison("epsilon", max(b.epsilon for b in bounds), claim.epsilon(delta)),
        Comparison("delta", max(b.delta for b in bounds), claim.delta(epsilon)),
    ]
    if claim.gdp is not None:
        comparisons.append(Comparison("gdp", max(b.gdp for b in bounds), claim.gdp))
    return tuple(comparisons)


@dataclass(frozen=True)
class Findings:
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
        attacks: every attack.
        comparisons: best lower bounds beside the claims on ``ε``, ``δ`` and, where one is made, ``m``.
    """

    mechanism: str
    pair: str
    statement: Statement
    epsilon: float
    delta: float
    num_runs: int
    failure_probability: float
    attacks: tuple[AttackResult, ...]
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
        return float(epsilon_lower(perfect, self.delta, self.failure_probability / len(self.attacks) / 3)[0])

    @property
    def best(self) -> AttackResult:
        """The attack with the largest Gaussian DP bound, which orders attacks at every scale."""
        return max(self.attacks, key=lambda attack: (attack.bounds.gdp, attack.bounds.gdp_estimate))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return {
            "mechanism": self.mechanism,
            "pair": self.pair,
            "adjacency": self.statement.adjacency,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "num_runs": self.num_runs,
            "failure_probability": self.failure_probability,
            "sound": self.sound,
            "tightness": self.tightness,
            "comparisons": [
                {"quantity": c.quantity, "lower": c.lower, "upper": c.upper} for c in self.comparisons
            ],
            "attacks": {
                attack.name: {
                    "epsilon": attack.bounds.epsilon,
                    "delta": attack.bounds.delta,
                    "gdp": attack.bounds.gdp,
                    "gdp_estimate": attack.bounds.gdp_estimate,
                }
                for attack in self.attacks
            },
        }

    def __str__(self) -> str:
        lines = [f"{self.mechanism} on {self.pair}: {'sound' if self.sound else 'CLAIM REFUTED'}"]
        lines += [f"  {c.quantity}: {c.lower:.4g} ≤ … ≤ {c.upper:.4g}" for c in self.comparisons]
        return "\n".join(lines)
