"""An audit's report: bounds beside claims, ROC on log axes, trade-off against the claimed one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from private_mcmc.auditing.result import Findings
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
    floats,
    number,
)

_WORDS = {
    "epsilon": "ε at δ = {delta}",
    "delta": "δ at ε = {epsilon}",
    "gdp": "Gaussian DP parameter m",
}


def audit_report(result: Findings) -> Report:
    """The report of ``result``: everything in it is public, the data sets are synthetic."""
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
                (_word(c.quantity, result), number(c.lower),
                 number(c.upper), number(c.ratio))
                for c in result.comparisons
            ),
            "Lower bounds of the best attack beside the claim",
        ),
        Table(
            ("attack", "ε at least", "δ at least", "m at least", "mean difference/sd"),
            tuple(
                (a.name, number(b.epsilon), number(b.delta), number(b.gdp), number(b.gdp_estimate))
                for a, b in ((attack, attack.bounds) for attack in result.attacks)
            ),
            "Every attack",
        ),
        Plots((_roc(result), _trade_off(result))),
        _bounds_plot(result),
    )  # fmt: skip
    return Report(f"Audit of {result.mechanism}", blocks)


def _word(quantity: str, result: Findings) -> str:
    return _WORDS[quantity].format(delta=number(result.delta), epsilon=number(result.epsilon))


def _verdict(result: Findings) -> Verdict:
    if result.sound:
        word, line = "sound", "no attack exceeds the claim"
    else:
        word, line = "claim refuted", "an attack's lower bound exceeds the claimed upper bound"
    reasons = tuple(
        f"{c.quantity}: at least {number(c.lower)} is proved, at most {number(c.upper)} was claimed"
        for c in result.violations
    )
    return Verdict(word, line, "good" if result.sound else "bad", reasons)


def _roc(result: Findings) -> Plot:
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


def _trade_off(result: Findings) -> Plot:
    best = result.best
    order = np.argsort(best.false_positive)
    grid = np.linspace(0.0, 1.0, 101)
    return Plot(
        "Trade-off of errors",
        "false positive rate",
        "false negative rate",
        (
            Line(floats(grid), floats(result.statement.beta(float(a)) for a in grid), "claimed", 0, "dashed"),
            Line(
                floats(np.asarray(best.false_positive)[order]),
                floats(np.asarray(best.false_negative)[order]),
                f"{best.name}, observed",
                1,
            ),
        ),
        "False negative against false positive rate; up to sampling noise a sound claim stays below.",
    )


def _bounds_plot(result: Findings) -> Plot:
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


@dataclass(frozen=True)
class AuditResult(Findings):
    """What an audit found, as words, HTML or plain data. Attributes and guarantee: :class:`Findings`."""

    @property
    def report(self) -> Report:
        """Tables and plots: bounds, ROC on log axes, trade-off against the claimed one."""
        return audit_report(self)

    def show(self) -> None:
        """Print the report on a terminal."""
        self.report.show()
