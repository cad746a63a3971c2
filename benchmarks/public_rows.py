"""What public rows buy, and what those of other people cost.

    python benchmarks/public_rows.py [--datasets adult affairs] [--epsilons 0.1 0.3 1 3] [--runs 8]
        [--share 0.05] [--json FILE] [--minutes 10]

A share of a real data set is made public, and the plan is for the rest: without public rows, with them, and
with as many rows of a *shifted* population, which has those people only whose predictor is above the median
and in which every fifth outcome is another person's. Runs are simulated: all stages with their noise, on the
private rows. Errors of posterior means in non-private posterior sds, root mean square over parameters and
runs. A file that exists is added to.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import LOADERS, Dataset
from private_mcmc.accounting.curves import gdp
from private_mcmc.model import read
from private_mcmc.planning.affine import AffinePolicy, affine_policy
from private_mcmc.planning.planners import public_columns, summary_of
from private_mcmc.planning.simulate import posterior_mode, simulate

Columns = Mapping[str, npt.NDArray[Any]]
DELTA = 1e-6
KINDS = ("none", "same people", "shifted")


def split(data: Dataset, share: float) -> tuple[Columns, Columns, Columns]:
    """Private rows, public ones, and as many of a shifted population."""
    random = np.random.default_rng(0)
    order = random.permutation(data.n)
    count = round(share * data.n)
    public, private = order[:count], order[count:]
    columns = {"X": np.asarray(data.X), "y": np.asarray(data.y)}
    score = columns["X"] @ np.linalg.lstsq(columns["X"], columns["y"].astype(float), rcond=None)[0]
    high = random.permutation(np.flatnonzero(score >= np.median(score)))[:count]
    shifted = {name: column[high] for name, column in columns.items()}
    other = random.random(len(high)) < 0.2
    shifted["y"] = np.where(other, columns["y"][random.integers(data.n, size=len(high))], shifted["y"])
    ours, theirs = ({name: column[part] for name, column in columns.items()} for part in (private, public))
    return ours, theirs, shifted


def taught(policy: AffinePolicy, rows: Columns | None) -> AffinePolicy:
    """The policy that learnt from public rows."""
    known = None if rows is None else summary_of(policy, public_columns(policy.reading, rows))
    return replace(policy, public=known)


def measured(policy: AffinePolicy, private: Columns, runs: int) -> float:
    """Root mean square error of simulated runs on the private rows."""
    inside = public_columns(policy.reading, private)
    weights = np.ones(policy.num_rows)
    mode, covariance = posterior_mode(policy, inside, weights)
    concluded = [policy.conclude(simulate(policy, inside, weights, seed)) for seed in range(runs)]
    off = [(one.draws.mean(axis=0) - mode) / np.sqrt(np.diag(covariance)) for one in concluded]
    return float(np.sqrt(np.mean(np.square(off))))


def shown(results: Mapping[str, Mapping[str, float]]) -> Table:
    """A line for a data set and ε."""
    table = Table("data", "ε", *KINDS, "gain", "shifted over none")
    for key, found in sorted(results.items()):
        if not all(kind in found for kind in KINDS):
            continue
        none, same, shifted = (found[kind] for kind in KINDS)
        numbers = (none, same, shifted, none / same, shifted / none)
        table.add_row(*key.split("|"), *(f"{number:.2f}" for number in numbers))
    return table


def main() -> None:
    options = _options()
    console = Console()
    results: dict[str, dict[str, float]] = {}
    if options.json.exists():
        results = json.loads(options.json.read_text())
    begin = time.perf_counter()
    for name in options.datasets:
        data = LOADERS[name]()
        parts = split(data, options.share)
        count = len(parts[0]["y"])
        base = affine_policy(read(data.regression.model, data.rows, n=count), count, "replace_one", 1.0)
        for epsilon in options.epsilons:
            policy = replace(base, budget=gdp.budget(epsilon, DELTA))
            found = results.setdefault(f"{name}|{epsilon:g}", {})
            for kind, rows in zip(KINDS, (None, *parts[1:]), strict=True):
                if kind in found or time.perf_counter() - begin > 60 * options.minutes:
                    continue
                found[kind] = measured(taught(policy, rows), parts[0], options.runs)
                console.print(f"{name} ε={epsilon:g} {kind}: {found[kind]:.3g} posterior sds")
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(results))
    console.print(shown(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=tuple(LOADERS), default=["adult", "affairs"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.3, 1.0, 3.0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.05, help="of the rows that are public")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after so long")
    parser.add_argument("--json", type=Path, default=Path("build/public_rows.json"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
