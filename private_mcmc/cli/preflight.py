"""``private-mcmc preflight MODEL.py:model --rows rows.toml …``: decide from a file, without data."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    ArgsOption,
    Delta,
    Epsilon,
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

EXIT_CODES = {"private": 0, "not private": 1, "unknown": 2}


def preflight(
    model: ModelArgument,
    rows: RowsOption,
    n: NumRows,
    epsilon: Epsilon,
    delta: Delta,
    adjacency: AdjacencyOption = "replace_one",
    clip: Annotated[
        float | None, typer.Option(help="bound on every row's gradient that a kernel enforces")
    ] = None,
    temper: Annotated[float, typer.Option(help="power of the likelihood")] = 1.0,
    args: ArgsOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Decide whether a model's posterior is private, from the program and public facts alone.

    Exit code: 0 private, 1 not private, 2 unknown, 3 error.
    """
    from private_mcmc.preflight import preflight as decide

    target = Target(epsilon, delta, check_adjacency(adjacency))
    report = decide(
        load_model(model),
        read_rows(rows),
        target,
        n=n,
        clip=clip,
        temper=temper,
        model_args=read_arguments(args),
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        report.show()
    if html is not None:
        report.to_html(html)
    raise typer.Exit(EXIT_CODES[report.verdict])
