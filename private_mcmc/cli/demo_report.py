"""The demonstration's page: private posterior, privacy curves, prices, and the curator's comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.preflight import PreflightReport
from private_mcmc.release import ReleasedExpectations
from private_mcmc.report import (
    Block,
    Facts,
    Heading,
    Interval,
    Line,
    Mark,
    Note,
    Plot,
    Plots,
    Report,
    Table,
    Text,
    floats,
    number,
)
from private_mcmc.target import Target

Draws = npt.NDArray[np.float64]
_GRID = 120


@dataclass(frozen=True, eq=False)
class DemoResults:
    """Everything the page shows; ``reference`` is curator-side and may be missing."""

    target: Target
    preflight: PreflightReport
    draws: Draws
    path: Statement
    expectation: ReleasedExpectations
    expectation_statement: Statement
    total: Statement
    reference: Draws | None


def demo_report(
    results: DemoResults,
    names: tuple[str, ...],
    probability: Callable[[Mapping[str, jax.Array]], jax.Array],
    n: int,
) -> Report:
    """All blocks, the answer first."""
    return Report(
        f"Private posterior of {n:,} people's incomes",
        (
            Heading("The private posterior"),
            Text(
                "Released states of one private Langevin chain, and everything computed from them. "
                + _accuracy(results)
            ),
            _forest(results, names),
            _means(results, names),
            *_curator_note(results),
            Heading("What it cost"),
            _prices(results),
            _curves(results),
            Heading("A probability released with Laplace noise"),
            *_expectation(results, probability),
            Heading("What preflight says of the posterior itself"),
            *results.preflight.report.blocks,
            *_densities(results, names),
        ),
    )


def _accuracy(results: DemoResults) -> str:
    if results.reference is None:
        return ""
    error = (results.draws.mean(0) - results.reference.mean(0)) / results.reference.std(0)
    ratio = results.draws.std(0) / results.reference.std(0)
    return (
        f"Against non-private NUTS the means are off by {np.sqrt(np.mean(error**2)):.2f} posterior sd "
        f"(root mean square) and the sds are {np.sqrt(np.mean(ratio**2)):.2f} times as large."
    )


def _curator_note(results: DemoResults) -> list[Block]:
    if results.reference is None:
        return []
    return [
        Note(
            "Curator's side: everything named NUTS here was computed from the private rows without any "
            "protection. It is shown because this census extract is public; on private data leave it out.",
            "bad",
        )
    ]


def _forest(results: DemoResults, names: tuple[str, ...]) -> Plot:
    """Intervals of every coefficient, in units of the reference's sd around its mean where there is one."""
    heights = np.arange(len(names))[::-1].astype(float)
    reference = results.reference
    centre, scale = (0.0, 1.0) if reference is None else (reference.mean(0), reference.std(0))
    drawn = [_intervals((results.draws - centre) / scale, heights + 0.14, "private (released)", 0)]
    if reference is not None:
        drawn.append(_intervals((reference - centre) / scale, heights - 0.14, "NUTS (curator's side)", 1))
    return Plot(
        title="Coefficients: median and 90 % interval",
        x_label="coefficient" if reference is None else "(coefficient − NUTS mean) / NUTS sd",
        y_label="",
        drawn=tuple(drawn),
        description="One row for each covariate; the private interval above the non-private one.",
        y_ticks=tuple(zip(heights.tolist(), names, strict=True)),
        # Room for the legend above the first row.
        y_range=(-0.6, len(names) + 0.6),
    )


def _intervals(draws: Draws, heights: Draws, label: str, color: int) -> Interval:
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    return Interval(floats(heights), floats(low), floats(middle), floats(high), label, color)


def _means(results: DemoResults, names: tuple[str, ...]) -> Table:
    mean, sd = results.draws.mean(0), results.draws.std(0)
    if results.reference is None:
        rows = tuple((name, f"{m:.2f}", f"{s:.2f}") for name, m, s in zip(names, mean, sd, strict=True))
        return Table(("covariate", "mean", "sd"), rows)
    off = (mean - results.reference.mean(0)) / results.reference.std(0)
    ratio = sd / results.reference.std(0)
    columns = zip(
        names, mean, sd, results.reference.mean(0), results.reference.std(0), off, ratio, strict=True
    )
    return Table(
        ("covariate", "mean", "sd", "NUTS mean", "NUTS sd", "error / NUTS sd", "sd ratio"),
        tuple((name, *(f"{value:.2f}" for value in values)) for name, *values in columns),
    )


def _prices(results: DemoResults) -> Table:
    delta = results.target.delta
    statements = {
        "path of states, with the second moments": results.path,
        "expectation": results.expectation_statement,
        "both": results.total,
    }
    rows = []
    for name, statement in statements.items():
        gdp = "" if statement.gdp is None else number(statement.gdp)
        rows.append((name, number(statement.epsilon(delta)), gdp, statement.argument.theorem))
    return Table(("mechanism", f"ε at δ = {number(delta)}", "GDP", "theorem"), tuple(rows))


def _curves(results: DemoResults) -> Plot:
    delta = results.target.delta
    largest = results.total.epsilon(delta) * 1.3
    epsilons = np.linspace(0.0, largest, _GRID)
    lines = (
        Line(*_curve(results.path, epsilons, delta), "path", 0),
        Line(*_curve(results.expectation_statement, epsilons, delta), "expectation", 1, "dashed"),
        Line(*_curve(results.total, epsilons, delta), "both", 2),
    )
    return Plot(
        title="Privacy curves: δ at every ε",
        x_label="ε",
        y_label="δ",
        drawn=(*lines, Mark(results.target.epsilon, delta, "target of each", "plain")),
        description="Upper bounds. A curve below and to the left of a point certifies that (ε, δ).",
        y_log=True,
        y_range=(delta / 100, 1.5),
        x_range=(0.0, largest),
    )


def _curve(
    statement: Statement, epsilons: Draws, delta: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    deltas = np.array([statement.delta(float(epsilon)) for epsilon in epsilons])
    shown = deltas > delta / 1000
    return floats(epsilons[shown]), floats(deltas[shown])


def _expectation(
    results: DemoResults, probability: Callable[[Mapping[str, jax.Array]], jax.Array]
) -> list[Block]:
    value = results.expectation["probability"]
    with jax.enable_x64(True):
        per_draw = np.asarray(jax.vmap(lambda w: probability({"w": w}))(results.draws))
    facts: list[tuple[str, str]] = [
        ("released, tempered posterior", str(value)),
        ("free, from the released path", f"{per_draw.mean():.3f} ± {per_draw.std():.3f} (posterior)"),
    ]
    return [
        Text(
            "The probability that one synthetic profile earns more than 50,000 dollars. The posterior that "
            f"guarantee='posterior' can certify weights the people by only {number(_temper(results))}, so "
            "its answer is closer to the prior's; where data are plenty the path is the better buy."
        ),
        Facts(tuple(facts)),
    ]


def _temper(results: DemoResults) -> float:
    return next(
        (item.value for item in results.preflight.advice if item.change == "temper" and item.value), math.nan
    )


def _densities(results: DemoResults, names: tuple[str, ...]) -> list[Block]:
    return [
        Heading("Every coefficient"),
        Plots(tuple(_density(results, name, index) for index, name in enumerate(names))),
    ]


def _density(results: DemoResults, name: str, index: int) -> Plot:
    drawn = [_histogram(results.draws[:, index], "private", 0, "solid")]
    if results.reference is not None:
        drawn.append(_histogram(results.reference[:, index], "NUTS (curator's side)", 1, "dashed"))
    return Plot(title=name, x_label="coefficient", y_label="density", drawn=tuple(drawn))


def _histogram(draws: Draws, label: str, color: int, style: Literal["solid", "dashed"]) -> Line:
    from scipy.stats import gaussian_kde

    spread = 4 * draws.std()
    x = np.linspace(draws.mean() - spread, draws.mean() + spread, _GRID)
    return Line(floats(x), floats(gaussian_kde(draws)(x)), label, color, style, fill=True)
