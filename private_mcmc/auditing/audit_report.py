"""What an audit found, and its report: bounds beside claims, ROC on log axes, trade-off."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass, field

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.auditing.confidence import ErrorCounts, LowerBounds, epsilon_from_errors
from private_mcmc.report import (
    Block,
    Facts,
    Interval,
    Line,
    Plot,
    Plots,
    Report,
    Rule,
    Table,
    Verdict,
    at_least,
    at_most,
    floats,
    number,
)


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
        share = self.failure_probability / len(self.attacks) / 3
        return float(epsilon_from_errors(*perfect.limits(share), self.delta)[0])

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
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            "attacks": {attack.name: asdict(attack.bounds) for attack in self.attacks},
        }

    @property
    def report(self) -> Report:
        """Tables and plots: bounds, ROC on log axes, trade-off against the claimed one."""
        return _report(self)

    def show(self) -> None:
        """Print the report on a terminal."""
        self.report.show()

    def __str__(self) -> str:
        lines = [f"{self.mechanism} on {self.pair}: {'sound' if self.sound else 'CLAIM REFUTED'}"]
        lines += [f"  {c.quantity}: {c.lower:.4g} ≤ … ≤ {c.upper:.4g}" for c in self.comparisons]
        return "\n".join(lines)


_WORDS = {"epsilon": "ε at δ = {delta}", "delta": "δ at ε = {epsilon}", "gdp": "Gaussian DP parameter m"}


def _report(result: AuditResult) -> Report:
    """Everything in it is public, the data sets are synthetic."""
    blocks: tuple[Block, ...] = (
        _verdict(result),
        Facts(
            (
                ("mechanism", result.mechanism),
                ("pair of data sets", result.pair),
                ("adjacency", result.statement.adjacency),
                ("runs on each data set", result.num_runs),
                ("failure probability of all bounds together", result.failure_probability),
                (f"the most that so many runs can prove, {_word('epsilon', result)}", result.most_provable),
                ("the claim rests on", result.statement.argument.theorem),
            )
        ),
        Table(
            ("quantity", "lower bound", "claimed upper bound", "lower/upper"),
            tuple(
                (_word(c.quantity, result), *map(number, (c.lower, c.upper, c.ratio)))
                for c in result.comparisons
            ),
            "Lower bounds of the best attack beside the claim",
        ),
        Table(
            ("attack", "ε at least", "δ at least", "m at least", "mean difference/sd"),
            tuple((attack.name, *map(number, astuple(attack.bounds))) for attack in result.attacks),
            "Every attack",
        ),
        Plots((_roc(result), _trade_off(result))),
        _bounds_plot(result),
    )
    return Report(f"Audit of {result.mechanism}", blocks)


def _word(quantity: str, result: AuditResult) -> str:
    return _WORDS[quantity].format(delta=number(result.delta), epsilon=number(result.epsilon))


def _verdict(result: AuditResult) -> Verdict:
    reasons = tuple(
        f"{c.quantity}: at least {at_least(c.lower)} is proved, at most {at_most(c.upper)} was claimed"
        for c in result.violations
    )
    if result.sound:
        return Verdict("sound", "no attack exceeds the claim", "good")
    return Verdict("claim refuted", "an attack's lower bound exceeds the claimed upper bound", "bad", reasons)


def _roc(result: AuditResult) -> Plot:
    best = result.best
    false, true = np.asarray(best.false_positive), 1 - np.asarray(best.false_negative)
    seen = (false > 0) & (true > 0)
    order = np.argsort(false[seen])
    least = 1.0 / max(result.num_runs // 2, 1)
    grid = np.geomspace(least, 1.0, 80)
    claimed = [1 - result.statement.beta(float(alpha)) for alpha in grid]
    return Plot(
        "ROC of the best attack",
        "false positive rate",
        "true positive rate",
        (
            Line(floats(grid), floats(claimed), "claimed upper bound", 0, "dashed"),
            Line(floats(false[seen][order]), floats(true[seen][order]), f"{best.name}, observed", 1),
            Line(floats(grid), floats(grid), "guessing", 4, "dotted"),
        ),
        "True against false positive rate on log axes; up to sampling noise a sound claim stays above.",
        x_log=True,
        y_log=True,
    )


def _trade_off(result: AuditResult) -> Plot:
    best = result.best
    order = np.argsort(best.false_positive)
    false, missed = (np.asarray(side)[order] for side in (best.false_positive, best.false_negative))
    grid = np.linspace(0.0, 1.0, 101)
    return Plot(
        "Trade-off of errors",
        "false positive rate",
        "false negative rate",
        (
            Line(floats(grid), floats(result.statement.beta(float(a)) for a in grid), "claimed", 0, "dashed"),
            Line(floats(false), floats(missed), f"{best.name}, observed", 1),
        ),
        "False negative against false positive rate; up to sampling noise a sound claim stays below.",
    )


def _bounds_plot(result: AuditResult) -> Plot:
    """Every attack's lower bound beside the claim: of ``m`` where one is claimed, else of ``ε``."""
    claimed = result.statement.gdp
    places = floats(range(len(result.attacks)))
    if claimed is None:
        name, upper = _word("epsilon", result), result.statement.epsilon(result.delta)
        low = floats(attack.bounds.epsilon for attack in result.attacks)
    else:
        name, upper = _WORDS["gdp"], claimed
        low = floats(attack.bounds.gdp for attack in result.attacks)
    drawn = Interval(places, floats(0.0 for _ in low), low, low, "proved", 1)
    return Plot(
        "What each attack shows",
        name,
        "",
        (drawn, Rule("x", upper, "claimed")) if math.isfinite(upper) else (drawn,),
        "For each attack its lower bound beside the claimed upper bound.",
        y_range=(-0.6, len(places) + 0.2),
        y_ticks=tuple((at, attack.name) for at, attack in zip(places, result.attacks, strict=True)),
    )
