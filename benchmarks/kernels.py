"""Kernels against their rivals on one problem each: ratios of medians in one run, printed and saved as JSON.

    python benchmarks/kernels.py --rows 1000 10000 --dims 10 50 --out kernels.json

Logistic regression on synthetic rows, float64, unless a line says otherwise. A ratio compares two
programs on the same data, measured in turn so that a busy machine slows both. A GPU is used where JAX
finds one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import kernels_chains as whole
import kernels_gradients as gradients
import kernels_peers as peers
from kernels_problems import Problem, logistic, machine, network
from rich.console import Console
from rich.table import Table

# What to reach: at least (+) or at most (−).
TARGETS = {
    "clipped / unclipped gradient": -1.05,
    "NumPyro's potential gradient / private step": 1.5,
    "general clipped / unclipped gradient": -2.5,
    "Poisson draw / the rest of its step": -2.0,
    "Poisson SGLD steps a second / BlackJAX SGLD with replacement": 1.0,
    "64 chains / 1 chain, cost of a chain's step": -1 / 3,
    "peak memory of the general path / the data": -2.0,
    "second run of equal shape to its first step, s": -0.1,
    "progress bar, share of a run": -0.02,
    "jax-privacy / ours, affine": 2.0,
    "jax-privacy / ours, general": 1.0,
    "opacus / ours, affine": 5.0,
    "opacus / ours, general": 1.0,
    "d3p / ours, affine": 10.0,
    "d3p / ours, general": 1.0,
}


class Record:
    """The results so far, each printed as it comes."""

    def __init__(self) -> None:
        cpu = jax.default_backend() == "cpu"
        self.targets = {**TARGETS, "share of the memory bandwidth": 0.6 if cpu else 0.8}
        self.results: list[dict[str, Any]] = []
        self.console = Console()

    def add(self, problem: str, n: int, p: int, values: dict[str, float | str]) -> None:
        for name, value in values.items():
            target, met = self.targets.get(name), None
            if target is not None and not isinstance(value, str):
                met = value >= target if target > 0 else value <= -target
            self.results.append(
                {
                    "problem": problem,
                    "rows": n,
                    "dim": p,
                    "what": name,
                    "value": value,
                    "target": target,
                    "met": met,
                }
            )
            self.console.print(f"{problem:9} {n:>9,} × {p:<4} {name}: {_shown(value)}")

    def table(self) -> Table:
        shown = Table("problem", "rows × dim", "what", "value", "to reach", "", title="Kernels")
        for row in self.results:
            if row["target"] is not None:
                sign = "≥" if row["target"] > 0 else "≤"
                verdict = {True: "met", False: "missed", None: ""}[row["met"]]
                size = f"{row['rows']:,} × {row['dim']}"
                goal = f"{sign} {abs(row['target']):.3g}"
                shown.add_row(row["problem"], size, row["what"], _shown(row["value"]), goal, verdict)
        return shown


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def against_peers(n: int, p: int, repeats: int) -> dict[str, float | str]:
    """Clipped gradients of one batch: rivals' seconds over ours."""
    found: dict[str, float | str] = {}
    for kind, model in (("affine", logistic), ("general", network)):
        ours, rivals = gradients.clipped_batch_seconds(Problem(model, n, p), repeats)
        found[f"jax-privacy / ours, {kind}"] = rivals / ours if rivals else "not available"
        for peer in peers.PEERS:
            seconds = peers.seconds(peer, model.__name__, n, p, repeats)
            found[f"{peer} / ours, {kind}"] = seconds if isinstance(seconds, str) else seconds / ours
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 50, 500])
    parser.add_argument(
        "--most", type=int, default=50_000_000, help="leave out problems of more elements (rows × dim)"
    )
    parser.add_argument("--batch-rows", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--memory-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("kernels.json"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    record, repeats, p = Record(), options.repeats, options.dims[0]
    bandwidth = gradients.bandwidth(repeats)
    record.console.print(f"memory: {bandwidth / 1e9:.3g} GB/s (sum)")
    for n in options.rows:
        for dim in options.dims:
            if n * dim <= options.most:
                record.add(
                    "logistic", n, dim, gradients.affine(Problem(logistic, n, dim), repeats, bandwidth)
                )
    small = min(options.rows, key=lambda n: abs(n - 10_000))
    for dim in options.dims[:2]:
        record.add("network", small, dim, gradients.general(Problem(network, small, dim), repeats))
    big = Problem(logistic, options.batch_rows, p)
    record.add("minibatch", options.batch_rows, p, whole.batches(big, options.batch_size, repeats))
    record.add("chains", small, p, whole.chains(Problem(logistic, small, p), 64, repeats))
    record.add("runs", small, p, whole.runs(Problem(logistic, small, p), repeats))
    record.add("batch", options.batch_size, 50, against_peers(options.batch_size, 50, repeats))
    if options.memory_rows:
        peak = whole.peak_memory(options.memory_rows, 50)
        record.add("network", options.memory_rows, 50, {"peak memory of the general path / the data": peak})
    record.console.print(record.table())
    saved = {"machine": {**machine(repeats), "bandwidth": bandwidth}, "results": record.results}
    options.out.write_text(json.dumps(saved, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
