"""Millions of rows in a folder of Parquet, fitted with flat memory.

    python -m benchmarks.large        # writes benchmarks/measured/large.json and large.md
    python -m benchmarks.large --persons --rows 1000000    # two rows a person, far apart; prints alone

Writes files of made-up rows, then fits a formula to their folder, which is read once and then block by block.
Reports seconds, passes over the rows and the largest resident set; exit code 1 where the fit needs more than
``MOST`` bytes beyond what the interpreter and the compiled programs hold before it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.pages.page import machine
from benchmarks.written import keep, put

MOST = 600e6
_GROUP = 100_000


def write(folder: Path, rows: int) -> None:
    """Ten covariates in [−1, 1] and a binary outcome, a file for every 100,000 rows."""
    import pyarrow
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    weights = np.linspace(-2, 2, 10)
    folder.mkdir()
    for first in range(0, rows, _GROUP):
        n = min(_GROUP, rows - first)
        X = rng.uniform(-1, 1, (n, 10))
        y = rng.random(n) < 1 / (1 + np.exp(-X @ weights))
        who = np.arange(first, first + n) % -(-rows // 2)
        table = pyarrow.table({**{f"x{j}": X[:, j] for j in range(10)}, "y": y, "who": who})
        pyarrow.parquet.write_table(table, folder / f"{first // _GROUP:05d}.parquet")


def peak() -> float:
    """Largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def run(few: Path, many: Path, rows: int, persons: bool) -> dict[str, Any]:
    """A fit to ``many`` rows, after one to a ``few`` by which all is compiled."""
    import private_mcmc as pmc

    numbers = [
        {"name": f"x{j}", "type": "number", "constraints": {"minimum": "-1", "maximum": "1"}}
        for j in range(10)
    ]
    who = {"name": "who", "type": "string", "private_mcmc": {"role": "person" if persons else "ignored"}}
    unit = {"private_mcmc": {"person": {"field": "who", "at_most": "2"}}} if persons else {}
    schema = pmc.Schema.from_dict({"fields": [*numbers, {"name": "y", "type": "boolean"}, who], **unit})
    formula = "y ~ " + " + ".join(f"x{j}" for j in range(10))
    warnings.simplefilter("ignore")
    bounds = [-(-count // 2) if persons else None for count in (3 * _GROUP, rows)]
    pmc.fit(few, schema, formula, epsilon=1.0, n=bounds[0], progress_bar=False)
    before, began = peak(), time.perf_counter()
    study = pmc.fit(many, schema, formula, epsilon=1.0, n=bounds[1], max_passes=40, progress_bar=False)
    return {
        "machine": machine(),
        "rows": rows,
        "file_bytes": sum(one.stat().st_size for one in many.iterdir()),
        "seconds": time.perf_counter() - began,
        "passes": study.passes,
        "peak_before": before,
        "peak_after": peak(),
    }


def shown(found: dict[str, Any]) -> list[str]:
    """What the page says of it."""
    beyond, size = (found["peak_after"] - found["peak_before"]) / 1e6, found["file_bytes"] / 1e6
    return [
        f"{found['rows']:,} rows of ten covariates and an outcome, a folder of Parquet of {size:,.0f} MB:",
        f"a fit takes {found['seconds']:.0f} s, {found['passes']:.0f} passes over the rows, and",
        f"{beyond:.0f} MB beyond what the process held before it",
        f"({found['machine']}; the limit is {MOST / 1e6:.0f} MB).",
    ]


def main() -> int:
    """Write, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--persons", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        few, many = Path(place) / "few", Path(place) / "many"
        child = os.fork()
        if child == 0:
            # In a process of its own, whose memory is not counted.
            write(few, 3 * _GROUP)
            write(many, asked.rows)
            os._exit(0)
        os.waitpid(child, 0)
        found = run(few, many, asked.rows, asked.persons)
    print(json.dumps(found, indent=1))
    if not asked.persons:
        keep("large.json", found)
        put("large.md", "python -m benchmarks.large", shown(found))
    return 0 if found["peak_after"] - found["peak_before"] <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
