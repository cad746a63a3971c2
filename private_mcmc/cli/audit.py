"""``private-mcmc audit run``: attack the claim of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.account_chain import released_states
from private_mcmc.cli.common import (
    AdjacencyOption,
    ArgsOption,
    HtmlOption,
    JsonOption,
    ModelArgument,
    NumRows,
    RowsOption,
    load_model,
    read_arguments,
    read_rows,
)
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.report import Report

REFUTED = 1

app = typer.Typer(
    help="Attack our own claims: lower bounds beside the claimed upper bounds.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None:
    """Attack our own claims."""


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

    result = audit(
        PrivateULA(load_model(model)[0], step_size=step_size, clip=clip, temper=temper),
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
    finish(result.sound, result.report, result.to_dict(), as_json, html)


def finish(
    sound: bool,
    report: Report,
    record: dict[str, object],
    as_json: bool,
    html: Path | None,
    shown: Report | None = None,
) -> None:
    """Show or print what was found and end with its exit code; ``shown``: less than the whole report."""
    from private_mcmc.report import plain

    if as_json:
        typer.echo(json.dumps(plain(record), indent=2, ensure_ascii=False))
    else:
        (report if shown is None else shown).show()
    # Last, so that what was found is told even if the disk has filled up meanwhile.
    if html is not None:
        report.to_html(html)
    raise typer.Exit(0 if sound else REFUTED)
