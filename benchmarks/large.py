"""Ten million rows from a Parquet file with flat memory.

    python -m benchmarks.large        # writes benchmarks/measured/large.json and large.md

Writes a file of made-up rows group by group, then runs a few private steps on it, which read it block by
block. Reports seconds a step and the largest resident set of each part; exit code 1 where the run needs more
than ``MOST`` bytes beyond what the interpreter and the compiled program hold before it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.pages.page import machine
from benchmarks.written import keep, put

MOST = 600e6
_GROUP = 100_000


def write(path: Path, rows: int) -> None:
    """Ten covariates in the unit ball and a binary outcome, in groups of 100,000."""
    import pyarrow
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    weights = np.linspace(-2, 2, 10)
    names = [f"x{j}" for j in range(10)]
    schema = pyarrow.schema([*((name, pyarrow.float32()) for name in names), ("y", pyarrow.int8())])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        for first in range(0, rows, _GROUP):
            n = min(_GROUP, rows - first)
            X = (rng.uniform(-1, 1, (n, 10)) / 10**0.5).astype(np.float32)
            y = (rng.random(n) < 1 / (1 + np.exp(-X @ weights))).astype(np.int8)
            file.write_table(pyarrow.table([*X.T, y], schema=schema))


def peak() -> float:
    """Largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def run(path: Path, rows: int, steps: int) -> dict[str, Any]:
    """So many steps of a private chain over the whole file."""
    import private_mcmc as pmc
    from private_mcmc.models import logistic, logistic_rows

    def driver(n: int) -> pmc.PrivateMCMC:
        return pmc.PrivateMCMC(
            pmc.PrivateULA(logistic, step_size=1e-7, clip=1.0),
            rows=logistic_rows(10),
            target=pmc.Target(3.0, 1e-8),
            guarantee="run",
            release="path",
            num_steps=steps,
            n=n,
            execution=pmc.Execution(progress_bar=False, rows_on_device=_GROUP),
        )

    X = np.zeros((2 * _GROUP, 10), np.float32)
    driver(len(X)).run(X=X, y=X[:, 0])
    before, began = peak(), time.perf_counter()
    file, mcmc = pmc.Parquet(str(path)), driver(rows)
    mcmc.run(X=file[[f"x{j}" for j in range(10)]], y=file["y"])
    spent = time.perf_counter() - began
    return {
        "machine": machine(),
        "rows": rows,
        "steps": steps,
        "file_bytes": path.stat().st_size,
        "seconds_a_pass": spent / (steps + 1),
        "peak_before": before,
        "peak_after": peak(),
        "epsilon": mcmc.statement.epsilon(1e-8),
    }


def shown(found: dict[str, Any]) -> list[str]:
    """What the page says of it."""
    beyond, size = (found["peak_after"] - found["peak_before"]) / 1e6, found["file_bytes"] / 1e6
    return [
        f"{found['rows']:,} rows of ten covariates and an outcome, a Parquet file of {size:,.0f} MB:",
        f"{found['seconds_a_pass']:.0f} s a pass, and {beyond:.0f} MB beyond what the process held before",
        f"the run ({found['machine']}; the limit is {MOST / 1e6:.0f} MB).",
    ]


def main() -> int:
    """Write, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        child = os.fork()
        if child == 0:
            # In a process of its own, whose memory is not counted.
            write(path, asked.rows)
            os._exit(0)
        os.waitpid(child, 0)
        found = run(path, asked.rows, asked.steps)
    print(json.dumps(found, indent=1))
    keep("large.json", found)
    put("large.md", "python -m benchmarks.large", shown(found))
    return 0 if found["peak_after"] - found["peak_before"] <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
