"""Are the intervals of a plan's run as wide as they should be?

    python benchmarks/calibration.py [--problems adult counts softmax …] [--real adult crashes …]
        [--epsilons 0.1 0.3 1 3 10] [--replicates 20] [--adjacency replace_one] [--guarantee run]
        [--json FILE] [--minutes 10] [--page benchmarks/measured/calibration.md]

Two questions, for the posterior given what was released. *Simulated*: parameters are drawn from the prior,
outcomes from the model at real or synthetic covariates, stages with their noise by the code that plans
simulate with; how often do 50 % and 90 % intervals hold the parameter, and are its ranks uniform? *Real*: how
often do they hold the mean of the non-private posterior of a real data set? Cells go in turn, so that an
interrupted run is even; a file that exists is added to. ``--page`` writes what a file holds into the page,
and a plot where problems were run at several ε.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.stats import kstest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.calibration_problems import FAMILIES, Problem, real, simulated
from benchmarks.datasets import LOADERS
from benchmarks.datasets.tables import TABLES
from private_mcmc.errors import DeclarationError, NotYetSupported
from private_mcmc.report.blocks import Line, Plot, Rule
from private_mcmc.report.document import figure

Array = npt.NDArray[np.float64]
LEVELS = (0.5, 0.9)
_PICTURE = "calibration.png"
_BESIDE, _COLORS = 1.06, 5
_STYLES: tuple[Literal["solid", "dashed", "dotted"], ...] = ("solid", "dashed", "dotted")
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"


def replicate(problem: Problem, epsilon: float, seed: int) -> dict[str, Any]:
    """One run: ranks of the truth among the draws, and its distance in posterior sds."""
    begin = time.perf_counter()
    try:
        people, truth = problem.outcomes(seed)
        with jax.enable_x64(True):
            found = problem.draws(people, epsilon, seed)
    except (NotYetSupported, DeclarationError) as refusal:
        return {"refused": str(refusal), "seed": seed}
    ranks = (found < truth).mean(axis=0)
    z = (found.mean(axis=0) - truth) / found.std(axis=0)
    seconds = time.perf_counter() - begin
    return {"ranks": ranks.tolist(), "z": z.tolist(), "seconds": round(seconds, 1), "seed": seed}


def coverage(ranks: Array, level: float) -> float:
    """Share of ranks inside the central interval."""
    return float(np.mean(np.abs(ranks - 0.5) <= level / 2))


def table(results: dict[str, list[dict[str, Any]]]) -> Table:
    """Coverage and uniformity, cell by cell, and all cells of one ε together."""
    shown = Table("truth", "data", "ε", "runs", "50 %", "90 %", "rms of z", "p of uniform ranks")
    pooled: dict[tuple[str, float], list[Array]] = defaultdict(list)
    for key, runs in sorted(results.items()):
        kind, name, epsilon = key.split("|")
        made = [run for run in runs if "ranks" in run]
        refused = "" if len(made) == len(runs) else f", {len(runs) - len(made)} refused"
        if not made:
            shown.add_row(kind, name, epsilon, f"0{refused}")
            continue
        ranks, z = (np.concatenate([run[which] for run in made]) for which in ("ranks", "z"))
        pooled[kind, float(epsilon)].append(ranks)
        shown.add_row(kind, name, epsilon, f"{len(made)}{refused}", *_columns(ranks, z))
    shown.add_section()
    for (kind, at), parts in sorted(pooled.items()):
        shown.add_row(kind, "all", f"{at:g}", "", *_columns(np.concatenate(parts), None))
    return shown


def page(results: dict[str, list[dict[str, Any]]]) -> str:
    """The tables of the page: a line for a problem, the shares that 50 % and 90 % intervals hold."""
    cells: dict[tuple[str, str], dict[float, list[Array]]] = defaultdict(lambda: defaultdict(list))
    for key, runs in sorted(results.items()):
        kind, name, epsilon = key.split("|")
        cells[kind, name][float(epsilon)] += [np.array(run["ranks"]) for run in runs if "ranks" in run]
    epsilons = sorted({epsilon for row in cells.values() for epsilon in row})
    lines = []
    for kind in ("simulated", "real"):
        rows = {name: row for (which, name), row in cells.items() if which == kind}
        if not rows:
            continue
        title = "parameters drawn from the prior" if kind == "simulated" else "non-private means of real data"
        lines += [f"| {title} | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |"]
        lines += ["|---" * (len(epsilons) + 1) + "|"]
        for name, row in rows.items():
            shown = " | ".join(_shares(row[epsilon]) for epsilon in epsilons)
            lines.append(f"| `{name}` | {shown} |")
        together = [[ranks for row in rows.values() for ranks in row[epsilon]] for epsilon in epsilons]
        lines += ["| all | " + " | ".join(_shares(runs) for runs in together) + " |", ""]
    return "\n".join(lines)


def picture(results: dict[str, list[dict[str, Any]]]) -> Plot:
    """How often 90 % intervals hold against ε, of problems at two of them or more."""
    drawn: dict[str, dict[float, float]] = defaultdict(dict)
    for key, runs in sorted(results.items()):
        kind, name, epsilon = key.split("|")
        made = [np.array(run["ranks"]) for run in runs if "ranks" in run]
        # Other adjacencies stand in the table.
        if made and "," not in name:
            label = f"{name}, real" if kind == "real" else name
            drawn[label][float(epsilon)] = coverage(np.concatenate(made), LEVELS[1])
    many = [(name, sorted(cells.items())) for name, cells in drawn.items() if len(cells) > 1]
    # Beside one another, as most shares are 1.
    lines = tuple(
        Line(
            tuple(epsilon * _BESIDE ** (color - len(many) / 2) for epsilon, _ in cells),
            tuple(share for _, share in cells),
            name,
            color,
            style=_STYLES[color // _COLORS],
            marker=True,
        )
        for color, (name, cells) in enumerate(many)
    )
    return Plot(
        "How often 90 % intervals hold",
        "ε",
        "share of intervals",
        (Rule("y", LEVELS[1]), *lines),
        description="Shares of the tables below, which are written from the same file.",
        x_log=True,
        y_range=(0.4, 1.02),
    )


def _shares(runs: list[Array]) -> str:
    """``50 % / 90 % (runs)``, and the standard error of the second over runs."""
    if not runs:
        return ""
    half, most = ([coverage(ranks, level) for ranks in runs] for level in LEVELS)
    error = f" ± {np.std(most, ddof=1) / np.sqrt(len(runs)):.2f}" if len(runs) > 1 else ""
    return f"{np.mean(half):.2f} / {np.mean(most):.2f}{error} ({len(runs)})"


def _columns(ranks: Array, z: Array | None) -> list[str]:
    # Parameters of one run are not independent: small p-values are a hint, no test.
    uniform = kstest(ranks, "uniform").pvalue
    spread = "" if z is None else f"{np.sqrt(np.mean(z**2)):.2f}"
    return [*(f"{coverage(ranks, level):.2f}" for level in LEVELS), spread, f"{uniform:.2g}"]


def main() -> None:
    options = _options()
    console = Console()
    results: dict[str, list[dict[str, Any]]] = {}
    if options.json.exists():
        results = json.loads(options.json.read_text())
    asked = options.adjacency, options.guarantee
    problems = [("simulated", simulated(name, *asked)) for name in options.problems]
    problems += [("real", real(name, *asked)) for name in options.real]
    begin = time.perf_counter()
    for seed in range(options.replicates):
        for kind, problem in problems:
            for epsilon in options.epsilons:
                name = problem.name
                if options.adjacency != "replace_one":
                    name = f"{name}, {options.adjacency}"
                if options.guarantee != "run":
                    name = f"{name}, posterior certified"
                runs = results.setdefault(f"{kind}|{name}|{epsilon:g}", [])
                late = time.perf_counter() - begin > 60 * options.minutes
                if late or any(run["seed"] == seed for run in runs):
                    continue
                runs.append(replicate(problem, epsilon, seed))
                last = runs[-1]
                said = last.get("refused") or f"rms z {np.sqrt(np.mean(np.square(last['z']))):.2f}"
                console.print(f"{kind} {name} ε={epsilon:g} {said} ({last.get('seconds', 0)} s)")
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps({name: kept for name, kept in results.items() if kept}))
    kept = {name: runs for name, runs in results.items() if runs}
    console.print(table(kept))
    if options.page is not None:
        before, rest = options.page.read_text().split(_BEGIN)
        after = rest.split(_END)[1]
        drawn = picture(kept)
        if len(drawn.drawn) > 1:
            figure(drawn).savefig(options.page.parent / _PICTURE, dpi=150, facecolor="white")
        shown = f"![{drawn.title}, by problem and ε]({_PICTURE})\n" if len(drawn.drawn) > 1 else ""
        options.page.write_text(f"{before}{_BEGIN}\n{page(kept)}\n{shown}{_END}{after}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = (*(name for name in LOADERS if name != "made_up"), *TABLES)
    some = ["adult", "affairs", "counts", "line"]
    parser.add_argument("--problems", nargs="*", choices=(*known, *FAMILIES), default=some)
    parser.add_argument("--real", nargs="*", choices=known, default=[])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument(
        "--adjacency", default="replace_one", choices=("replace_one", "add_remove", "zero_out")
    )
    parser.add_argument("--guarantee", default="run", choices=("run", "posterior"))
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after so long")
    parser.add_argument("--json", type=Path, default=Path("build/calibration.json"))
    parser.add_argument("--page", type=Path, help="write the numbers between its marks")
    return parser.parse_args()


if __name__ == "__main__":
    main()
