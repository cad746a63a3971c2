"""Preflight of every zoo model: verdict, certified ε, seconds; the share of provable models found private.

python benchmarks/zoo_verdicts.py
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from private_mcmc.preflight import preflight
from private_mcmc.report import number
from tests.zoo import ZOO, Entry


def examine(entry: Entry) -> tuple[str, str, float]:
    begun = time.perf_counter()
    options = {"clip": entry.clip, "temper": entry.temper, "model_args": entry.model_args}
    report = preflight(entry.model, entry.rows, entry.target, n=entry.n, **options)
    epsilon = "—" if report.epsilon is None else number(report.epsilon)
    return report.verdict, epsilon, time.perf_counter() - begun


def main() -> None:
    table = Table("model", "target", "verdict", "certified ε at δ", "seconds", "as expected")
    slowest, wrong = 0.0, []
    for entry in ZOO:
        verdict, epsilon, seconds = examine(entry)
        slowest = max(slowest, seconds)
        target = f"({number(entry.target.epsilon)}, {number(entry.target.delta)})"
        if verdict != entry.verdict:
            wrong.append(entry.name)
        table.add_row(
            entry.name,
            target,
            verdict,
            epsilon,
            f"{seconds:.2f}",
            "yes" if verdict == entry.verdict else "NO",
        )
    console = Console()
    console.print(table)
    private = sum(entry.verdict == "private" for entry in ZOO)
    provable = private + sum(bool(entry.provable) for entry in ZOO)
    console.print(f"{len(ZOO)} models; slowest {slowest:.1f} s; not as expected: {wrong or 'none'}")
    console.print(
        f"found private: {private} of the {provable} models that a proof certifies ({private / provable:.0%})"
    )


if __name__ == "__main__":
    main()
