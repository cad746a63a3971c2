"""How fast and how sharp the audit is.

    python benchmarks/audit.py [--json FILE] [--skip-throughput]

Sharpness: the point estimate of m where the law of the last state is exactly Gaussian, and lower/upper at
m = 2 with 40,000 chains in all and failure probability 1e-6. Throughput: 10,000 chains of 1,000 steps on
1,000 rows × 10, in seconds, for a linear and a logistic regression.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from private_mcmc import Ball, Binary, Box, PrivateULA, Rows, Target
from private_mcmc.auditing import Pair, audit, chain_mechanism
from tests.soundness.sweep.zoo import line, logistic, mean

CHAINS, STEPS, ROWS, DIM = 10_000, 1_000, 1_000, 10


def sharpness(m: float, num_runs: int) -> dict[str, float]:
    """An audit of a last state that is exactly ``m``-GDP."""

    def mechanism(clip: float):
        return chain_mechanism(
            PrivateULA(mean, step_size=0.05, clip=clip),
            rows=Rows(y=Box(-50.0, 50.0)),
            target=Target(1.0, 1e-5),
            release="last",
            num_steps=12,
            n=1,
        )

    clip = m / mechanism(1.0).statement.gdp
    found = audit(mechanism(clip), Pair({"y": np.array([50.0])}, {"y": np.array([-50.0])}), num_runs=num_runs)
    claimed = found.statement.gdp
    return {
        "m": claimed,
        "chains in all": 2 * num_runs,
        "estimate/m": found.best.bounds.gdp_estimate / claimed,
        "lower/upper": max(attack.bounds.gdp for attack in found.attacks) / claimed,
    }


def throughput(model, response) -> float:
    """Seconds for the chains on one data set, compilation included."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, DIM))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    real = response == "real"
    domain, y = (Box(-2.0, 2.0), rng.uniform(-2.0, 2.0, ROWS)) if real else (Binary(), np.arange(ROWS) % 2)
    mechanism = chain_mechanism(
        PrivateULA(model, step_size=1e-3, clip=0.5),
        rows=Rows(X=Ball(1.0, dim=DIM), y=domain),
        target=Target(1.0, 1e-5),
        release="last",
        num_steps=STEPS,
        n=ROWS,
    )
    started = time.perf_counter()
    mechanism.draw({"X": X, "y": y}, CHAINS, np.random.SeedSequence(0))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=None, help="also save the numbers here")
    parser.add_argument("--skip-throughput", action="store_true")
    options = parser.parse_args()
    console = Console()
    sharp = [sharpness(m, runs) for m in (0.5, 1.0, 2.0, 4.0) for runs in (10_000, 20_000)]
    table = Table(title="Exact Gaussian case, failure probability 1e-6")
    for name in sharp[0]:
        table.add_column(name, justify="right")
    for row in sharp:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    console.print(table)
    record = {"machine": platform.platform(), "cores": os.cpu_count(), "sharpness": sharp}
    if not options.skip_throughput:
        seconds = {"linear": throughput(line, "real"), "logistic": throughput(logistic, "binary")}
        for name, value in seconds.items():
            console.print(
                f"{name}: {CHAINS:,} chains × {STEPS:,} steps, {ROWS:,} rows × {DIM}: {value:.1f} s"
            )
        record["seconds"] = seconds
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
