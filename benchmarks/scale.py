"""What an engine costs, as ratios within one run, and how many passes over the rows plans need.

    python -m benchmarks.scale [--passes]     # writes benchmarks/measured/scale.json and scale.md

A pass is one private step of a logistic regression of ten covariates: rows in this process, at one worker of
Ray on this machine, and at two. Here its seconds are those of a long run less those of a short one, each the
least of some repetitions, over the steps between; at workers, whose start takes long, the lower quartile of
the times between two questions to the first of them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import private_mcmc as pmc
from benchmarks.large import write
from benchmarks.papers.pages.page import machine
from benchmarks.park import exact_of
from benchmarks.written import keep, kept, put
from private_mcmc.inference import execute
from private_mcmc.inference.posterior import posterior_of
from private_mcmc.kernels.partitions import Ask, Partition, Question
from private_mcmc.model.synthetic import people
from private_mcmc.models import logistic
from private_mcmc.planning.simulate import simulate
from private_mcmc.planning.stages import passes

EPSILONS, LIMITS, ROWS_OF_PLANS, TABLES = (0.1, 0.3, 1.0, 3.0, 10.0), (None, 40, 60), 100_000, 12
_SYNTHETIC = 1024
# The aims: of a pass's overhead over the same sums here, and of two workers over two threads.
OVERHEAD, SHARE, FASTER = 0.02, 0.1, 0.85
_SHORT, _REPEATED = 3, 3


@dataclass(frozen=True)
class Clocked:
    """A partition whose questions are timed."""

    partition: Partition
    times: list[float]

    def ask(self, question: Question) -> Ask:
        """As the partition."""
        asked = self.partition.ask(question)

        def started(*given: Any) -> Callable[[], Any]:
            self.times.append(time.perf_counter())
            return asked(*given)

        return started


def seconds(table: Path, steps: int, engine: pmc.Ray | None) -> float:
    """Of one pass."""
    file, times, placed = pmc.Parquet(table), [], execute.placed

    def clocked(*given: Any) -> tuple[Partition, ...]:
        first, *others = placed(*given)
        return Clocked(first, times), *others

    X, y = file[[f"x{j}" for j in range(10)]], file["y"]
    columns = {"X": X, "y": y} if engine else {"X": X.loaded(), "y": y.loaded()}

    def run(count: int) -> float:
        mcmc = pmc.PrivateMCMC(
            pmc.PrivateULA(logistic, 1e-9, 1.0),
            rows=pmc.Rows(X=pmc.Ball(10**0.5, dim=10), y=pmc.Binary()),
            target=pmc.Target(9.0, 1e-6),
            release="path",
            num_steps=count,
            guarantee="run",
            execution=pmc.Execution(engine=engine, progress_bar=False),
        )
        began = time.perf_counter()
        mcmc.run(**columns)
        return time.perf_counter() - began

    if engine:
        with patch.object(execute, "placed", clocked):
            run(steps)
        return float(np.quantile(np.diff(times[2:]), 0.25))
    few, many = (min(run(count) for _ in range(_REPEATED)) for count in (_SHORT, _SHORT + steps))
    return (many - few) / steps


def _people(rows: pmc.Rows, seed: int) -> dict[str, np.ndarray]:
    """Synthetic people, whose outcomes have nothing to do with their covariates."""
    drawn = people(rows, _SYNTHETIC, seed)
    return drawn | {"y": np.random.default_rng(seed).binomial(1, 0.3, _SYNTHETIC)}


def planned() -> list[dict[str, Any]]:
    """Passes of a plan's run on synthetic tables and how far its means are off, by ε and ``max_passes``."""
    rows, made = pmc.Rows(X=pmc.Ball(10**0.5, dim=10), y=pmc.Binary()), []
    for epsilon in EPSILONS:
        target, each = pmc.Target(epsilon, 1e-7), []
        for most in LIMITS:
            options: dict[str, Any] = {"n": ROWS_OF_PLANS, "guarantee": "run", "max_passes": most}
            plan = pmc.plan(logistic, rows, target, **options)
            weights, squares, gone = np.full(_SYNTHETIC, ROWS_OF_PLANS / _SYNTHETIC), [], []
            for k in range(TABLES):
                table = _people(rows, k)
                run = simulate(plan.policy, table, weights, k)
                given = posterior_of(plan.reading, run, plan.policy.conclude(run))
                mode, covariance = exact_of(plan.reading, table, weights)
                off = given.draws.reshape(-1, len(mode)).mean(axis=0) - mode
                squares.append(np.mean(off**2 / np.diag(covariance)))
                gone.append(passes(run))
            each.append({"passes": gone, "error": float(np.sqrt(np.mean(squares)))})
        made.append({"epsilon": epsilon, "limits": each})
    return made


def measured(rows: int, steps: int) -> dict[str, Any]:
    """Seconds of a pass, everywhere, and passes of plans."""
    with tempfile.TemporaryDirectory() as place:
        table = Path(place) / "rows"
        write(table, rows)
        here, one, two = (
            seconds(table, steps, engine)
            for engine in (None, pmc.Ray(workers=1, cpus=0.5), pmc.Ray(workers=2, cpus=0.5))
        )
    return {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "rows": rows,
        "here": here,
        "one_worker": one,
        "two_workers": two,
        "passes": planned(),
    }


def shown(found: dict[str, Any]) -> list[str]:
    """What the page says of it."""
    here, one, two = (found[name] for name in ("here", "one_worker", "two_workers"))
    limits = " | ".join(f"of {most} at most" if most else "without a limit" for most in LIMITS)
    table = [f"| ε | {limits} |", "|---" * (1 + len(LIMITS)) + "|"]
    for row in found["passes"]:
        cells = (f"{min(k['passes'])} to {max(k['passes'])}, {k['error']:.2f}" for k in row["limits"])
        table.append(f"| {row['epsilon']:g} | {' | '.join(cells)} |")
    return [
        f"{found['rows']:,} rows of ten covariates: a pass takes {here:.3f} s in one process, {one:.3f} s at",
        f"one worker of Ray ({1e3 * (one - here):+.0f} ms, {one / here - 1:+.0%}; the aim is at most",
        f"{1e3 * OVERHEAD:.0f} ms and {SHARE:.0%}) and {two:.3f} s at two, {here / two:.2f} of the speed of",
        f"this process's threads (the aim is {FASTER}). {found['machine']}.",
        f"Load average then: {found['load']:.1f}. Above the number of cores, such seconds say little.",
        "",
        f"Passes of a plan for a logistic regression of ten covariates, {ROWS_OF_PLANS:,} rows, on {TABLES}",
        "synthetic tables, and the error of means that was seen in them, in posterior sds, by `max_passes=`.",
        "",
        *table,
    ]


def main() -> None:
    """Measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--passes", action="store_true", help="of plans alone; times stay as they are")
    asked = parser.parse_args()
    found = kept("scale.json") | {"passes": planned()} if asked.passes else measured(asked.rows, asked.steps)
    print(json.dumps(found, indent=1))
    keep("scale.json", found)
    put("scale.md", "python -m benchmarks.scale", shown(found))


if __name__ == "__main__":
    main()
