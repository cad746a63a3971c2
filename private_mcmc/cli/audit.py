"""``private-mcmc audit``: attack the claim of a run, or with ``sweep`` every claim of the library."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from benchmarks.papers.experiments.commands import batch_size, hf, noise
from private_mcmc.cli.account_chain import released_states
from private_mcmc.cli.audit_finish import finish
from private_mcmc.cli.declared import (
    AdjacencyOption,
    ArgsOption,
    HtmlOption,
    JsonOption,
    ModelArgument,
    NumRows,
    RowsOption,
    read_rows,
)
from private_mcmc.cli.preflight import load_model, read_arguments
from private_mcmc.target import Target, check_adjacency

app = typer.Typer(
    help="Attack our own claims: lower bounds beside the claimed upper bounds.",
    no_args_is_help=True,
)

for experiment in (hf, noise, batch_size):
    app.command()(experiment)

NumRuns = Annotated[int, typer.Option(help="runs on each of the two data sets")]
Failure = Annotated[float, typer.Option(help="probability that any lower bound is too large")]


@app.command()
def run(
    model: ModelArgument,
    rows: RowsOption,
    n: NumRows,
    step_size: Annotated[float, typer.Option(help="γ")],
    num_steps: Annotated[int, typer.Option(help="T")],
    clip: Annotated[float, typer.Option(help="bound on every row's gradient")],
    temper: Annotated[float, typer.Option(help="power of the likelihood")] = 1.0,
    release: Annotated[str, typer.Option(help="last, path, or steps such as 10,20,50")] = "last",
    adjacency: AdjacencyOption = "replace_one",
    epsilon: Annotated[float, typer.Option(help="compare δ at this ε")] = 1.0,
    delta: Annotated[float, typer.Option(help="compare ε at this δ")] = 1e-5,
    args: ArgsOption = None,
    num_runs: NumRuns = 20_000,
    failure: Failure = 1e-6,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Attack a kernel's run on a model file, on the worst of a few synthetic pairs of data sets.

    Exit code: 0 sound, 1 claim refuted, 3 error.
    """
    from private_mcmc.auditing import audit
    from private_mcmc.kernels import PrivateULA

    found = audit(
        PrivateULA(load_model(model), step_size=step_size, clip=clip, temper=temper),
        rows=read_rows(rows),
        target=Target(epsilon, delta, check_adjacency(adjacency)),
        release=released_states(release),
        num_steps=num_steps,
        n=n,
        model_args=read_arguments(args),
        epsilon=epsilon,
        delta=delta,
        num_runs=num_runs,
        failure_probability=failure,
    )
    finish(found.sound, found.report, found.to_dict(), as_json, html)


@app.command()
def sweep(
    every: Annotated[int, typer.Option(help="take every k-th setting only")] = 1,
    num_runs: NumRuns = 4_000,
    failure: Annotated[float, typer.Option(help="probability that one audit refutes a true claim")] = 1e-6,
    workers: Annotated[int | None, typer.Option(help="processes, by default one for each core")] = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Run the library against itself: kernels × releases × adjacencies × models × (ε, δ).

    Exit code: 0 sound, 1 a claim was refuted, 3 error.
    """
    from private_mcmc.inference.progress import progress
    from tests.soundness.sweep.settings import settings
    from tests.soundness.sweep.sweep import sweep as run_sweep

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
    finish(found.sound, found.report, found.to_dict(), as_json, html, found.summary)
