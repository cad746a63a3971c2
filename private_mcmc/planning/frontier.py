"""Accuracy against ε and against n: what a plan would promise elsewhere, and where that is enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from private_mcmc.planning.stages import Prediction
from private_mcmc.records import Record
from private_mcmc.report import Block, Line, Plot, Report, Table, floats, number
from private_mcmc.report.blocks import Cell
from private_mcmc.target import Target

if TYPE_CHECKING:
    from rich.console import Console

Predict = Callable[[float, int], Prediction]

_FIRST, _FASTEST, _MARGIN, _LARGEST = 1.5, 32.0, 1.1, 2.0**14
_TRIES, _BISECTIONS = 8, 3


@dataclass(frozen=True)
class Point:
    """The error that a plan for ``epsilon`` and ``n`` predicts, in posterior sds."""

    epsilon: float
    n: int
    prediction: Prediction


@dataclass(frozen=True)
class Frontier:
    """Predicted errors over ε and over n, all from public facts."""

    points: tuple[Point, ...]

    def along(self, name: str) -> tuple[Point, ...]:
        """Points that differ in ``"epsilon"`` alone, or in ``"n"`` alone, in order."""
        other = {"epsilon": "n", "n": "epsilon"}[name]
        fixed = [getattr(point, other) for point in self.points]
        base = max(set(fixed), key=fixed.count)
        return tuple(
            sorted(
                (point for point in self.points if getattr(point, other) == base),
                key=lambda point: float(getattr(point, name)),
            )
        )

    def report(self) -> Report:
        """A table, and a plot where there is something to draw."""
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (number(p.epsilon), p.n, *(number(part, 2) for part in p.prediction[:3])) for p in self.points
        )
        columns = ("ε", "n", "error", "of it: bounded influence", "of it: noise")
        unit = " or ".join(sorted({point.prediction.unit for point in self.points}))
        blocks: list[Block] = [Table(columns, rows, f"Predicted error of posterior means, in {unit}")]
        for name, label in (("epsilon", "ε"), ("n", "number of rows")):
            points = self.along(name)
            if len(points) > 2:
                blocks.append(_plot(points, name, label, unit))
        return Report("What the budget buys", tuple(blocks))

    def show(self, console: Console | None = None) -> None:
        """Print the table."""
        self.report().show(console)

    def to_dict(self) -> Record:
        """Plain JSON types."""
        return {
            "points": [
                {"epsilon": p.epsilon, "n": p.n, "prediction": p.prediction._asdict()} for p in self.points
            ]
        }


def frontier(
    predict: Predict, epsilon: float, n: int, epsilons: Sequence[float], ns: Sequence[int]
) -> Frontier:
    """Every ``epsilons`` at ``n``, every ``ns`` at ``epsilon``."""
    pairs = sorted({(float(e), n) for e in epsilons} | {(epsilon, int(k)) for k in ns})
    return Frontier(tuple(Point(e, k, predict(e, k)) for e, k in pairs))


def rows_needed(predict: Predict, epsilon: float, n: int, max_error: float) -> int | None:
    """About how many rows reach ``max_error`` at this ε; ``None``: too many to say."""
    found = _first(lambda factor: predict(epsilon, math.ceil(n * factor)).rms, max_error)
    return None if found is None else math.ceil(n * found)


def epsilon_needed(predict: Predict, epsilon: float, n: int, max_error: float) -> float | None:
    """About which ε reaches ``max_error`` with these rows; ``None``: too large to say."""
    found = _first(lambda factor: predict(epsilon * factor, n).rms, max_error)
    return None if found is None else epsilon * found


def too_little(predict: Predict, target: Target, n: int, prediction: Prediction, max_error: float) -> str:
    """A refusal's words: how many rows, or which ε, would do."""
    rows = rows_needed(predict, target.epsilon, n, max_error)
    epsilon = epsilon_needed(predict, target.epsilon, n, max_error)
    ways = [f"about {rows:,} rows at ε = {target.epsilon:g}"] if rows else []
    ways += [f"about ε = {number(epsilon, 2)} with these {n:,} rows"] if epsilon else []
    return (
        f"the predicted error of the posterior means is {number(prediction.rms, 2)} {prediction.unit}, above "
        f"max_error={max_error:g}. It would take {', or '.join(ways) or 'more than this library can say'}."
    )


def _first(error: Callable[[float], float], wanted: float) -> float | None:
    """A factor above 1 whose error is at most ``wanted``, and not much larger than it needs to be.

    Errors fall about as one over the factor; every one of them is a whole simulation.
    """
    low, high = 1.0, _FIRST
    for _ in range(_TRIES):
        found = error(high)
        if found <= wanted:
            break
        low, high = high, high * min(max(_MARGIN * found / wanted, _FIRST), _FASTEST)
        if high > _LARGEST:
            return None
    else:
        return None
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if error(middle) <= wanted else (middle, high)
    return high


def _plot(points: Sequence[Point], name: str, label: str, unit: str) -> Plot:
    x = floats(getattr(point, name) for point in points)
    errors = floats(point.prediction.rms for point in points)
    return Plot(
        f"Accuracy against {label}",
        label,
        f"error in {unit}",
        (Line(x, errors, marker=True),),
        x_log=True,
        y_log=True,
        x_ticks=tuple((at, f"{at:,g}" if at < 1000 else f"{at:,.0f}") for at in x),
        y_ticks=_ticks([error for error in errors if 0 < error < math.inf]),
    )


def _ticks(values: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """1, 2 and 5 times the powers of ten around ``values``, with their names."""
    if not values:
        return ()
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return tuple((at, f"{at:g}") for at in every if min(values) / 1.5 < at < 1.5 * max(values))
