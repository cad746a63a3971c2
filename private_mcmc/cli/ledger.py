"""``private-mcmc ledger``: make, show, list and check a ledger file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import ERROR, in_words
from private_mcmc.errors import PrivateMCMCError
from private_mcmc.records import Record
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.release import Ledger

app = typer.Typer(
    help="What has been spent on every data set, and what is left.",
    no_args_is_help=True,
    add_completion=False,
)

FileArgument = Annotated[Path, typer.Argument(help="The ledger file.", show_default=False)]
KeyOption = Annotated[Path | None, typer.Option(help="File with the owner's secret key.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataSetOption = Annotated[str | None, typer.Option(help="Only this data set.", show_default=False)]


@app.command()
def init(
    path: FileArgument,
    dataset: Annotated[str, typer.Option(help="The owner's name for the data set.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Total ε of everything ever released on it.")],
    delta: Annotated[float, typer.Option(help="Total δ.")],
    adjacency: Annotated[str, typer.Option(help="replace_one, add_remove or zero_out.")] = "replace_one",
    filter: Annotated[
        str | None, typer.Option(help="gdp, rdp or basic; by default gdp, and basic at δ = 0.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Column of identifiers, where persons with several rows are protected.")
    ] = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare a data set and its budget; the file is made if there is none."""
    with _errors(as_json):
        ledger = _opened(path, key, create=not path.exists())
        balance = ledger.declare(
            dataset,
            Target(epsilon, delta, check_adjacency(adjacency)),
            filter=filter,  # type: ignore[arg-type]
            unit=unit,
        )
        _show([balance.to_dict()], as_json)


CohortOption = Annotated[list[str], typer.Option(help="A cohort; repeat it for more.", show_default=False)]


@app.command()
def cohorts(
    path: FileArgument,
    dataset: Annotated[str, typer.Option(help="A data set of persons.", show_default=False)],
    cohort: CohortOption,
    membership: Annotated[
        str, typer.Option(help="public (and fixed), or exclusive (add_remove and zero_out).")
    ],
    at_most: Annotated[int, typer.Option(help="The most cohorts that one person is in.")] = 1,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare cohorts of persons: releases that no person can be in twice do not add up."""
    with _errors(as_json):
        ledger = _opened(path, key)
        ledger.cohorts(dataset, tuple(cohort), membership=membership, at_most=at_most)  # type: ignore[arg-type]
        _show([ledger.balance(dataset).to_dict()], as_json)


@app.command()
def wave(
    path: FileArgument,
    dataset: Annotated[str, typer.Option(help="The data set whose cohorts are in it.", show_default=False)],
    name: Annotated[str, typer.Option(help="Of the wave: charge DATASET/NAME.", show_default=False)],
    cohort: CohortOption,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare one year's rows: those of persons of these cohorts and of nobody else."""
    with _errors(as_json):
        ledger = _opened(path, key)
        _show([ledger.balance(ledger.wave(dataset, name, tuple(cohort))).to_dict()], as_json)


@app.command()
def show(
    path: FileArgument, dataset: DataSetOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Spent and remaining budget of every data set."""
    with _errors(as_json):
        state = _opened(path, key).state()
        wanted = state.datasets.values() if dataset is None else [state.dataset(dataset)]
        _show([state.balance(one).to_dict() for one in wanted], as_json)


@app.command()
def history(
    path: FileArgument,
    dataset: DataSetOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, of all data sets.")] = False,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every charge: when, what for, how much, how it ended."""
    from private_mcmc.release.ledger.export import record

    with _errors(as_json):
        ledger = _opened(path, key)
        if csv:
            typer.echo(ledger.export("csv"), nl=False)
            return
        state = ledger.state()
        records = [record(state, charge) for charge in ledger.history(dataset)]
        if as_json:
            typer.echo(json.dumps(records, indent=2))
            return
        _table(("time", "dataset", "outcome", "cost", "purpose", "theorem"), records)


@app.command()
def verify(
    path: FileArgument,
    head: Annotated[str | None, typer.Option(help="An earlier head, kept elsewhere.")] = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the whole file and every charge against its statement; prints the head to keep elsewhere."""
    with _errors(as_json):
        head_now = _opened(path, key).verify(head)
        if as_json:
            typer.echo(json.dumps({"ok": True, "entries": head_now.number, "head": str(head_now)}))
        else:
            typer.echo(f"{head_now.number} entries, all sound. Head: {head_now}")


def _opened(path: Path, key: Path | None, create: bool = False) -> Ledger:
    from private_mcmc.release import Ledger

    secret = None if key is None else key.read_bytes().strip()
    return Ledger.create(path, secret) if create else Ledger(path, secret)


def _show(balances: list[Record], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(balances, indent=2))
        return
    rows = [
        {
            "data set": balance["dataset"],
            "budget": f"ε = {balance['filter']['epsilon']:g} at δ = {balance['filter']['delta']:g}",
            "adjacency": balance["adjacency"],
            "spent": f"ε = {balance['spent_epsilon']:.4g} ({balance['spent']})",
            "left": balance["remaining"],
            "charges": f"{balance['reservations']} ({balance['open']} open)",
        }
        for balance in balances
    ]
    _table(("data set", "budget", "adjacency", "spent", "left", "charges"), rows)
    for balance in balances:
        exposed = [{"cohort": name, "charged": cost} for name, cost in balance.get("cohorts", {}).items()]
        if exposed:
            typer.echo(f"{balance['dataset']}: most exposed are persons of {balance['most_exposed']!r}")
            _table(("cohort", "charged"), exposed)


def _table(columns: tuple[str, ...], rows: list[Record]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    Console().print(table)


class _errors:
    """The library's errors as one line on stderr (or as JSON on stdout) and the exit status of errors."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, (PrivateMCMCError, OSError)):
            if self._as_json:
                name, _, message = in_words(error).partition(": ")
                typer.echo(json.dumps({"ok": False, "error": name, "message": message}))
            else:
                typer.echo(in_words(error), err=True)
            raise typer.Exit(ERROR) from error
