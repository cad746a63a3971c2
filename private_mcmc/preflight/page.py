"""A preflight's findings as a page: the verdict in one line, why in a few, details below."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.accounting.risk import curve
from private_mcmc.preflight.records import Findings
from private_mcmc.preflight.run_statement import TONES, verdicts
from private_mcmc.report import (
    Block,
    Facts,
    Heading,
    Line,
    Note,
    Plot,
    Report,
    Rule,
    Table,
    Text,
    floats,
    number,
)
from private_mcmc.report.blocks import Tone

if TYPE_CHECKING:
    from rich.console import Console


def page(found: Findings) -> Report:
    """All blocks, top-down."""
    blocks = [
        *verdicts(found),
        *_advice(found),
        *_run(found),
        *_proved(found),
        *_refuted(found),
        *_read(found),
    ]
    return Report(f"Preflight of `{found.model_name}`", tuple(blocks))


def _advice(found: Findings) -> list[Block]:
    if not found.advice:
        return []
    rows = tuple((item.text, item.value, item.concerns) for item in found.advice)
    wanted = "the run" if found.verdict == "private" else "it"
    if found.verdict != "private" and found.run is not None and found.run.meets:
        wanted = "the posterior"
    return [
        Heading(f"What would make {wanted} private"),
        Table(("any one of these changes", "value", "concerns"), rows),
    ]


def _run(found: Findings) -> list[Block]:
    if found.run is None:
        return []
    tone: Tone = "good" if found.run.meets else "bad"
    blocks: list[Block] = [
        Heading("This run"),
        Note(found.run.text[0].upper() + found.run.text[1:] + ".", tone),
    ]
    if found.run.statement is not None:
        blocks.append(_argument(found.run.statement, found))
    if len(found.run.by_steps) > 1:
        blocks.append(_steps(found.run.by_steps, found))
    return blocks


def _steps(by_steps: tuple[tuple[int, float, float], ...], found: Findings) -> Plot:
    """ε of the path and of the last state against the number of steps."""
    steps, path, last = (floats(column) for column in zip(*by_steps, strict=True))
    return Plot(
        title="Privacy against the number of steps",
        x_label="steps",
        y_label=f"ε at δ = {number(found.target.delta)}",
        drawn=(
            Line(steps, path, "path", 0, marker=True),
            Line(steps, last, "last state", 1, "dashed", marker=True),
            Rule("y", found.target.epsilon, "target"),
        ),
        description="What this schedule costs at other lengths, all states released or the last alone.",
        x_log=True,
        y_log=True,
    )


def _proved(found: Findings) -> list[Block]:
    if not found.certificates:
        return [Heading("Certificates"), Text("None of the theorems applies.")]
    rows = tuple(
        (
            statement.argument.theorem,
            statement.gdp,
            statement.epsilon(found.target.delta),
            statement.delta(found.target.epsilon),
            bool(statement.delta(found.target.epsilon) <= found.target.delta),
        )
        for statement in found.certificates
    )
    at = (f"ε at δ = {number(found.target.delta)}", f"δ at ε = {number(found.target.epsilon)}")
    blocks: list[Block] = [
        Heading("Certificates"),
        Text("Upper bounds on what one exact draw reveals, for every data set in the row domain."),
        Table(("theorem", "GDP", *at, "meets the target"), rows),
        _argument(found.certificates[0], found, "The best one"),
    ]
    target, best = found.target, found.certificates[0]
    if best.epsilon(max(target.delta, 1e-12)) < 200 and target.epsilon < 200:
        blocks.append(curve(best, (target.epsilon, target.delta), TONES[found.verdict]))
    return blocks


def _argument(statement: Statement, found: Findings, title: str = "") -> Facts:
    constants = [
        f"{key} = {number(value) if isinstance(value, float) else value}"
        for key, value in statement.argument.constants.items()
        if isinstance(value, int | float | str) and not isinstance(value, bool)
    ]
    given = tuple(("given that", line) for line in statement.argument.assumptions)
    price = f"ε = {number(statement.epsilon(found.target.delta))} at δ = {number(found.target.delta)}"
    items = (("price", price), ("theorem", statement.argument.theorem), *given)
    return Facts((*items, ("with", ", ".join(constants))), title)


def _refuted(found: Findings) -> list[Block]:
    refutation = found.refutation
    if refutation is None:
        return []
    blocks: list[Block] = [
        Heading("Refutation"),
        Text(refutation.reason[0].upper() + refutation.reason[1:] + "."),
    ]
    if refutation.kind == "no posterior" or refutation.second is None:
        return [*blocks, _data_sets(found)]
    bound = math.exp(min(found.target.epsilon, 700.0)) * refutation.q_high + found.target.delta
    blocks += [
        Facts(
            (
                ("event", refutation.event),
                ("probability on D", refutation.p),
                ("probability on D′", refutation.q),
                ("e^ε · probability on D′ + δ", bound),
                ("violated by", refutation.p_low - bound),
            )
        ),
        Text("Both are integrals with an error bound, which is counted against the refutation."),
        _data_sets(found),
    ]
    if refutation.density:
        x, first, second = refutation.density
        edges = [
            end for pair in refutation.intervals for end in pair if math.isfinite(end) and x[0] < end < x[-1]
        ]
        blocks.append(
            Plot(
                title=f"The two posteriors of {refutation.coordinate}",
                x_label=refutation.coordinate,
                y_label="density",
                drawn=(
                    Line(x, first, "on D", 0, fill=True),
                    Line(x, second, "on D′", 1, "dashed", fill=True),
                    *(Rule("x", end, "event" if i == 0 else "") for i, end in enumerate(edges[:4])),
                ),
                description="The data sets differ in one row."
                + (" The event is bounded by the vertical lines." if edges else ""),
            )
        )
    return blocks


def _data_sets(found: Findings) -> Table:
    refutation = found.refutation
    rows: list[tuple[str, str, int]] = []
    sets = (refutation.first, refutation.second) if refutation else ()
    for name, data_set in zip(("D", "D′"), sets, strict=False):
        if data_set is not None:
            for row, count in data_set.rows:
                rows.append((name, ", ".join(f"{k} = {_short(v)}" for k, v in row.items()), count))
    return Table(("data set", "row", "times"), tuple(rows), title="The synthetic data sets")


def _short(value: object) -> str:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return number(float(array))
    used = np.flatnonzero(array.ravel())
    if len(used) == 0:
        return "0"
    if len(used) == 1:
        index = ", ".join(str(i) for i in np.unravel_index(used[0], array.shape))
        return f"{number(float(array.ravel()[used[0]]))} at [{index}], else 0"
    return "(" + ", ".join(number(float(v)) for v in array.ravel()[:6]) + (", …)" if array.size > 6 else ")")


def _read(found: Findings) -> list[Block]:
    facts = found.structure
    latents = tuple(
        (item["name"], item["family"], _curvature(item["lower"], item["upper"]), item["why"])
        for item in facts["latents"]
    )
    predictors = facts["predictors"]
    items: tuple[tuple[str, str | int | float | None], ...] = (
        ("rows", found.n),
        ("latent dimension", facts["dim"]),
        ("temper", found.temper),
        ("clip", found.clip),
        ("prior strong convexity μ", facts["prior_strong_convexity"]),
        ("one row's gradient at most", facts["row_gradient"]),
        ("observed", ", ".join(f"{item['name']} ({item['family']})" for item in facts["observed"])),
        ("affine predictors of a row", "none is proved" if predictors is None else predictors["count"]),
        ("a row's likelihood", facts["row"]["why"]),
    )
    return [
        Heading("What was read of the model"),
        Facts(items),
        Table(("latent site", "family", "prior curvature", "why"), latents),
    ]


def _curvature(lower: float, upper: float) -> str:
    if not (math.isfinite(lower) or math.isfinite(upper)):
        return "not proved"
    return number(lower) if lower == upper else f"{number(lower)} to {number(upper)}"


@dataclass(frozen=True)
class PreflightReport(Findings):
    """What preflight found, as words, HTML or plain data; public facts. Attributes: :class:`Findings`.

    Example:
        >>> from private_mcmc.models import bounded_mean, bounded_mean_rows
        >>> report = pmc.preflight(bounded_mean, bounded_mean_rows(), pmc.Target(3.0, 1e-6), n=10)
        >>> isinstance(report, pmc.PreflightReport), report.verdict
        (True, 'not private')
        >>> report.refutation.coordinate
        'mean'
    """

    @property
    def report(self) -> Report:
        """The report as plain blocks."""
        return page(self)

    def show(self, console: Console | None = None) -> None:
        """Print on a terminal (or on a ``rich.console.Console``)."""
        self.report.show(console)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained HTML page, also written to ``path`` where given."""
        return self.report.to_html(path)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()
