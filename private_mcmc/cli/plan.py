"""``private-mcmc plan MODEL.py:model --rows rows.toml …``: what a budget buys, without data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    ArgsOption,
    Delta,
    Epsilon,
    JsonOption,
    ModelArgument,
    NumRows,
    RowsOption,
    load_model,
    read_arguments,
    read_rows,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.planning import Plan


def plan(
    model: ModelArgument,
    rows: RowsOption,
    n: NumRows,
    epsilon: Epsilon,
    delta: Delta,
    adjacency: AdjacencyOption = "replace_one",
    guarantee: Annotated[str, typer.Option(help="'posterior' or 'run'")] = "posterior",
    max_error: Annotated[
        float | None, typer.Option(help="refuse a larger predicted error, in posterior sds")
    ] = None,
    frontier: Annotated[bool, typer.Option(help="also predict errors at other ε and n")] = False,
    args: ArgsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a private path of states and predict its error, from the program and public facts alone."""
    from private_mcmc.planning import plan as make

    target = Target(epsilon, delta, check_adjacency(adjacency))
    if guarantee not in ("posterior", "run"):
        raise DeclarationError(f"guarantee={guarantee!r}: 'posterior' or 'run'.")
    wanted: Literal["posterior", "run"] = "posterior" if guarantee == "posterior" else "run"
    made = make(
        load_model(model),
        read_rows(rows),
        target,
        n=n,
        guarantee=wanted,
        model_args=read_arguments(args),
        max_error=max_error,
    )
    elsewhere = made.frontier() if frontier else None
    if as_json:
        extra = {} if elsewhere is None else {"frontier": elsewhere.to_dict()["points"]}
        typer.echo(json.dumps({**record(made), **extra}, ensure_ascii=False))
        return
    made.show()
    typer.echo(str(made.statement.summary(delta)))
    if elsewhere is not None:
        elsewhere.show()


def record(made: Plan) -> dict[str, object]:
    """A plan as plain data."""
    return {
        "guarantee": made.guarantee,
        "temper": made.temper,
        "n": made.n,
        "gdp": made.budget,
        "prediction": made.prediction._asdict(),
        "statement": made.statement.to_dict(),
    }
