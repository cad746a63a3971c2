"""``python -m tests.soundness.sweep``: run the library against itself, every claim attacked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import HtmlOption, JsonOption, show
from private_mcmc.cli.main import main
from tests.soundness.sweep.settings import settings
from tests.soundness.sweep.sweep import Swept
from tests.soundness.sweep.sweep import sweep as run_sweep

app = typer.Typer(add_completion=False)


@app.command()
def sweep(
    every: Annotated[int, typer.Option(help="take every k-th setting only")] = 1,
    num_runs: Annotated[int, typer.Option(help="runs on each of the two data sets")] = 4_000,
    failure: Annotated[float, typer.Option(help="probability that any lower bound is too large")] = 1e-6,
    workers: Annotated[int | None, typer.Option(help="processes, by default one for each core")] = None,
    kept: Annotated[
        Path | None,
        typer.Option(help="folder for what is found: a sweep of the same code that was stopped goes on"),
    ] = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Run the library against itself: kernels × releases × adjacencies × models × (ε, δ).

    A line on standard error tells of every setting that is done. Exit code: 0 sound, 1 a claim was refuted,
    3 error.
    """
    chosen = list(settings())[:: max(every, 1)]
    found = run_sweep(
        chosen,
        num_runs=num_runs,
        failure_probability=failure,
        workers=workers or min(os.cpu_count() or 1, len(chosen)),
        kept=kept,
        on_setting=_told(len(chosen)),
    )
    show(found.summary, found.to_dict(), as_json)
    if html is not None:
        found.report.to_html(html)
    raise typer.Exit(0 if found.sound else 1)


def _told(number: int) -> Callable[[Sequence[Swept], bool], None]:
    """Says of every setting what was found, and how long the rest takes at the pace so far."""
    began, done, before, refuted = time.monotonic(), 0, 0, 0

    def tell(found: Sequence[Swept], now: bool) -> None:
        nonlocal done, before, refuted
        done += 1
        before += not now
        sound = all(one.result.sound for one in found)
        refuted += not sound
        gone = time.monotonic() - began
        left = _minutes(gone / max(1, done - before) * (number - done))
        word = f"{max(one.result.tightness for one in found):.2f} of its claim" if sound else "REFUTED"
        typer.echo(
            f"{done}/{number}, {refuted} refuted, {_minutes(gone)} gone, about {left} left: "
            f"{found[0].setting}: {word}",
            err=True,
        )

    return tell


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    main(app)
