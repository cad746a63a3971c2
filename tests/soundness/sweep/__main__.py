"""``python -m tests.soundness.sweep``: run the library against itself, every claim attacked."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from private_mcmc.cli.common import HtmlOption, JsonOption, show
from private_mcmc.cli.main import main
from private_mcmc.cli.plan import REFUTED, Failure, NumRuns
from private_mcmc.report.document import progress
from tests.soundness.sweep.settings import settings
from tests.soundness.sweep.sweep import sweep as run_sweep

app = typer.Typer(add_completion=False)


@app.command()
def sweep(
    every: Annotated[int, typer.Option(help="take every k-th setting only")] = 1,
    num_runs: NumRuns = 4_000,
    failure: Failure = 1e-6,
    workers: Annotated[int | None, typer.Option(help="processes, by default one for each core")] = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Run the library against itself: kernels × releases × adjacencies × models × (ε, δ).

    Exit code: 0 sound, 1 a claim was refuted, 3 error.
    """
    chosen = list(settings())[:: max(every, 1)]
    done = 0
    with progress("audits", len(chosen), not as_json) as on_progress:

        def on_setting(name: str) -> None:
            nonlocal done
            done += 1
            on_progress(done)

        found = run_sweep(
            chosen,
            num_runs=num_runs,
            failure_probability=failure,
            workers=workers or min(os.cpu_count() or 1, len(chosen)),
            on_setting=on_setting,
        )
    show(found.summary, found.to_dict(), as_json)
    if html is not None:
        found.report.to_html(html)
    raise typer.Exit(0 if found.sound else REFUTED)


if __name__ == "__main__":
    main(app)
