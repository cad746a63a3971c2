"""``private-mcmc run MODEL.py:model --rows rows.toml --data people.csv …``: plan, run, release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    ArgsOption,
    Delta,
    Epsilon,
    ModelArgument,
    RowsOption,
    load_model,
    near_private_rows,
    read_arguments,
    read_rows,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.files import new_file
from private_mcmc.target import Target, check_adjacency


def run(
    model: ModelArgument,
    rows: RowsOption,
    data: Annotated[Path, typer.Option(help="CSV file of private rows, with a header")],
    epsilon: Epsilon,
    delta: Delta,
    output: Annotated[Path, typer.Option(help="write the released draws and their statement here (JSON)")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="fields of a vector column, as NAME=field,field,…; may be repeated"),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="what a cell that is no number counts as, as FIELD=NUMBER; otherwise refused"),
    ] = None,
    missing_code: Annotated[
        list[str] | None,
        typer.Option(help="numbers that stand for a missing value, as FIELD=NUMBER,NUMBER,…"),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", help="public: bound on the number of rows (add_remove), of slots (zero_out), of persons"
        ),
    ] = None,
    present: Annotated[
        str | None,
        typer.Option(help="field that is 1 where a row holds a person, else its slot is empty (zero_out)"),
    ] = None,
    adjacency: AdjacencyOption = "replace_one",
    args: ArgsOption = None,
    ledger: Annotated[Path | None, typer.Option(help="ledger file to charge")] = None,
    dataset: Annotated[str | None, typer.Option(help="the ledger's name for these rows")] = None,
    purpose: Annotated[str, typer.Option(help="the owner's words for the ledger's history")] = "",
) -> None:
    """Run a planned private path on a CSV file and save what was released (guarantee='run')."""
    from private_mcmc.cli.table import Missing, read_columns
    from private_mcmc.inference import Bookkeeping, PrivateMCMC
    from private_mcmc.planning import plan
    from private_mcmc.release import Ledger

    target = Target(epsilon, delta, check_adjacency(adjacency))
    if target.adjacency != "replace_one" and n is None:
        raise DeclarationError(f"adjacency={adjacency!r} hides the number of rows: give a public one, --n.")
    if target.adjacency != "zero_out" and present is not None:
        raise DeclarationError("--present: slots may be empty under --adjacency zero_out only.")
    declared, public = read_rows(rows), read_arguments(args)
    if declared.unit is not None and n is None:
        raise DeclarationError(f"persons by {declared.unit.name!r}: give their number, which is public, --n.")
    program, fate = load_model(model), Missing.parse(missing or [], missing_code or [])
    with new_file(output) as release:
        with near_private_rows():
            columns = read_columns(data, declared, column or [], fate, present)
        count = len(next(iter(columns.values()))) if n is None else n
        made = plan(program, declared, target, n=count, guarantee="run", model_args=public)
        books = Bookkeeping(None if ledger is None else Ledger(ledger), dataset, purpose)
        driver = PrivateMCMC.from_plan(made, bookkeeping=books)
        with near_private_rows():
            driver.run(**columns)
        draws = {name: value.tolist() for name, value in driver.get_samples().items()}
        release.write(json.dumps({"draws": draws, "statement": driver.statement.to_dict()}))
    driver.print_summary()
