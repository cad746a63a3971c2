"""``private-mcmc plan MODEL.py:model --rows rows.toml …``: what a budget buys, without data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from private_mcmc.cli.declared import (
    AdjacencyOption,
    ArgsOption,
    Delta,
    Epsilon,
    JsonOption,
    ModelArgument,
    NumRows,
    RowsOption,
    read_rows,
)
from private_mcmc.cli.preflight import load_model, read_arguments
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.plan import Plan


def plan(
    model: ModelArgument,
    rows: RowsOption,
    n: NumRows,
    epsilon: Epsilon,
    delta: Delta,
    adjacency: AdjacencyOption = "replace_one",
    args: ArgsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a private path of states and predict its error, from the program and public facts alone."""
    from private_mcmc.plan import plan as make

    target = Target(epsilon, delta, check_adjacency(adjacency))
    made = make(load_model(model), read_rows(rows), target, n=n, model_args=read_arguments(args))
    if as_json:
        typer.echo(json.dumps(record(made), ensure_ascii=False))
        return
    typer.echo(f"predicted error of posterior means: {made.prediction.rms:.2f} posterior sd")
    typer.echo(str(made.statement.summary(delta)))


def record(made: Plan) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "guarantee": made.guarantee,
        "n": made.n,
        "gdp": made.budget,
        "prediction": made.prediction._asdict(),
        "statement": made.statement.to_dict(),
    }
