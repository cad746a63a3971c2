"""The page of the benchmark: error against ε for every data set, and the numbers as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table as TerminalTable

from benchmarks.utility_results import Result, Store
from private_mcmc.report import (
    Block,
    Facts,
    Heading,
    Line,
    Plot,
    Report,
    Rule,
    Table,
    Text,
    floats,
)

_METRICS = {
    "rms": "rms error of posterior means, in reference sds",
    "sd_ratio": "sd / reference sd",
    "coverage_50": "coverage of the reference mean by 50 % intervals",
    "coverage_90": "coverage of the reference mean by 90 % intervals",
    "energy": "energy distance of draws, coordinates in reference sds",
}
_AXES = {"rms": "rms error, reference sds", "energy": "energy distance"}
_STYLES = ("solid", "dashed", "dotted")
_COLOURS = 5
# What a reader can tell apart on a logarithmic axis; larger values are in the table alone.
_SMALLEST, _LARGEST = 1e-3, 100.0


def page(store: Store, abouts: Mapping[str, str]) -> Report:
    """Everything that was measured."""
    blocks: list[Block] = [
        Text(
            f"Every number compares independent private runs at δ = {store.delta:g} with the non-private "
            "posterior. ± is one standard error over runs. Methods with different adjacency have "
            "different guarantees: add_remove is about half as demanding as replace_one at the same ε."
        )
    ]
    for name, facts in store.datasets.items():
        blocks.append(Heading(f"{name}: {facts.family}, n = {facts.n:,}, {facts.dim} parameters"))
        items = (
            ("one row", facts.unit),
            ("source", facts.source),
            ("reference", f"importance sampling, ESS {facts.ess:,.0f}"),
        )
        blocks.append(Facts(items))
        chosen = [result for result in store.results.values() if result.dataset == name]
        blocks += [_plot(name, "rms", chosen), _plot(name, "energy", chosen)]
        blocks += [_table(metric, chosen) for metric in _METRICS]
        blocks += _remarks(chosen)
    blocks.append(Heading("Methods"))
    blocks.append(Table(("method", "what it is"), tuple(abouts.items())))
    return Report("Private posteriors against the non-private one", tuple(blocks))


def tables(store: Store) -> list[TerminalTable]:
    """Errors of posterior means, one terminal table for each data set."""
    made = []
    for name in store.datasets:
        block = _table("rms", [result for result in store.results.values() if result.dataset == name])
        table = TerminalTable(title=f"{name}: {block.title}")
        for index, column in enumerate(block.columns):
            table.add_column(column, justify="left" if index < 2 else "right")
        for row in block.rows:
            table.add_row(*map(str, row))
        made.append(table)
    return made


OURS, ORACLE, BOUND = "ours (simulated)", "oracle", "best influence"


def beside_the_oracle(store: Store) -> list[str]:
    """Our runs beside the oracle and the best influence, in Markdown."""
    metrics = ("sd_ratio", "coverage_50", "coverage_90", "energy")
    heads = ("data set", "ε", "runs", "predicted", "error", "oracle", "error / oracle", "best influence")
    heads = (*heads, "ratio of sds", "coverage, 50 %", "coverage, 90 %", "energy distance")
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for result in sorted(store.results.values(), key=lambda each: each.epsilon or 0.0):
        error = result.summary("rms")
        oracle, bound = (
            store.results.get((result.dataset, name, result.epsilon)) for name in (ORACLE, BOUND)
        )
        if result.method != OURS or error is None or oracle is None or bound is None:
            continue
        best, least = float(oracle.facts["expected rms"]), float(bound.facts["bound"])
        predicted = float(result.facts["predicted rms"])
        cells = [f"`{result.dataset}`", f"{result.epsilon:g}", str(len(result.scores)), f"{predicted:.2g}"]
        cells += [_cell(result, "rms"), f"{best:.2g}", f"{error.value / best:.2g}", f"{least:.2g}"]
        lines.append("| " + " | ".join(cells + [_cell(result, metric) for metric in metrics]) + " |")
    return lines


def _names(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.method for result in results))


def _epsilons(results: Sequence[Result]) -> list[float]:
    return sorted({result.epsilon for result in results if result.epsilon is not None})


def _table(metric: str, results: Sequence[Result]) -> Table:
    epsilons = _epsilons(results)
    by_key = {(result.method, result.epsilon): result for result in results}
    rows: list[tuple[Any, ...]] = []
    for name in _names(results):
        if not any(result.summary(metric) for result in _measured(results, name)) and metric != "rms":
            # Point estimates have no spread.
            continue
        public = by_key.get((name, None))
        if public is not None:
            rows.append((name, "not private", *[_cell(public, metric)] * len(epsilons)))
            continue
        cells = [_cell(by_key.get((name, epsilon)), metric) for epsilon in epsilons]
        adjacency = next(result.adjacency for result in results if result.method == name)
        rows.append((name, adjacency or "", *cells))
    return Table(
        ("method", "adjacency", *(f"ε = {value:g}" for value in epsilons)), tuple(rows), _METRICS[metric]
    )


def _cell(result: Result | None, metric: str) -> str:
    if result is None:
        return "—"
    if result.status != "measured":
        return result.status
    summary = result.summary(metric)
    if summary is None:
        return "point estimate"
    # No-break spaces keep a number with its error.
    return _short(summary.value) + (
        f"\u00a0±\u00a0{_short(summary.error, 1)}" if summary.error == summary.error else ""
    )


def _short(value: float, digits: int = 3) -> str:
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _remarks(results: Sequence[Result]) -> list[Block]:
    reasons = {f"{result.method}: {result.reason}" for result in results if result.reason}
    return [Text(reason) for reason in sorted(reasons)]


def _plot(dataset: str, metric: str, results: Sequence[Result]) -> Plot:
    drawn: list[Line | Rule] = []
    private = [
        name for name in _names(results) if any(r.epsilon is not None for r in _measured(results, name))
    ]
    for index, name in enumerate(private):
        points = [
            (result.epsilon, summary)
            for result in _measured(results, name)
            if result.epsilon is not None and (summary := result.summary(metric)) is not None
        ]
        if all(summary.value > _LARGEST for _, summary in points):
            continue
        points.sort(key=lambda point: point[0])
        x = floats(epsilon for epsilon, _ in points)
        y = floats(max(summary.value, _SMALLEST) for _, summary in points)
        colour = index % _COLOURS
        style = _STYLES[index // _COLOURS % len(_STYLES)]
        drawn.append(Line(x, y, label=name, color=colour, style=style, marker=True))
        if all(summary.error == summary.error for _, summary in points):
            low = floats(max(summary.value - summary.error, _SMALLEST) for _, summary in points)
            high = floats(max(summary.value + summary.error, _SMALLEST) for _, summary in points)
            drawn += [Line(x, ends, color=colour, style="dotted") for ends in (low, high)]
    for result in results:
        summary = result.summary(metric) if result.epsilon is None and result.method == "NUTS" else None
        if summary is not None:
            drawn.append(Rule("y", max(summary.value, _SMALLEST), "NUTS, not private"))
    return Plot(
        title=f"{dataset}: {_METRICS[metric]}",
        x_label="ε",
        y_label=_AXES[metric],
        drawn=tuple(drawn),
        description=f"{_METRICS[metric]} against ε for every private method on {dataset}; lower is better",
        x_log=True,
        y_log=True,
        y_range=_visible(drawn),
    )


def _visible(drawn: Sequence[Line | Rule]) -> tuple[float, float] | None:
    heights = [y for line in drawn if isinstance(line, Line) for y in line.y if y <= _LARGEST]
    heights += [rule.at for rule in drawn if isinstance(rule, Rule)]
    return (min(heights) / 2, max(heights) * 2) if heights else None


def _measured(results: Sequence[Result], name: str) -> list[Result]:
    return [result for result in results if result.method == name and result.status == "measured"]
