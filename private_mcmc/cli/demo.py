"""``private-mcmc demo``: the main job on real data, from refusals to a report, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    epsilon: Annotated[float, typer.Option(help="ε of the private path.")] = 3.0,
    delta: Annotated[float, typer.Option(help="δ of the private path.")] = 1e-6,
    output: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo-report"),
    nuts: Annotated[bool, typer.Option(help="Compare with non-private NUTS (curator's side).")] = True,
) -> None:
    """Refusals, a plan, a private path and a private expectation of 32,561 people's census rows."""
    from rich.console import Console

    from private_mcmc.cli.adult_demo import AdultDemo

    AdultDemo(epsilon, delta, output, nuts).run(Console())
