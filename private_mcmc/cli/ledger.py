"""``private-mcmc ledger``: make, show, list and check a ledger file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import JsonOption, KeyOption, echo, open_ledger
from private_mcmc.cli.common import show as show_report
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.release import Ledger

app = typer.Typer(
    help="What has been spent on every data set, and what is left.",
    no_args_is_help=True,
    add_completion=False,
)

FileArgument = Annotated[Path, typer.Argument(help="The ledger file.", show_default=False)]
DataSetOption = Annotated[str | None, typer.Option(help="Only this data set.", show_default=False)]


@app.command()
def init(
    path: FileArgument,
    dataset: Annotated[str, typer.Option(help="The owner's name for the data set.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="Total ε of everything ever released on it.")],
    delta: Annotated[float, typer.Option(help="Total δ.")],
    adjacency: Annotated[str, typer.Option(help="replace_one, add_remove or zero_out.")] = "replace_one",
    unit: Annotated[
        str | None, typer.Option(help="Column of identifiers, where persons with several rows are protected.")
    ] = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare a data set and its budget; the file is made if there is none."""
    from private_mcmc.release import Filter

    # Before a file is made.
    target = Target(epsilon, delta, check_adjacency(adjacency))
    Filter.of(target)
    ledger = open_ledger(path, key, create=not path.exists())
    ledger.declare(dataset, target, unit=unit)
    _show(ledger, dataset, as_json)


@app.command()
def show(
    path: FileArgument, dataset: DataSetOption = None, key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Spent and remaining budget of every data set."""
    _show(open_ledger(path, key), dataset, as_json)


@app.command()
def history(
    path: FileArgument,
    dataset: DataSetOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every charge: when, what for, how much, how it ended."""
    from private_mcmc.release.ledger_export import charges_table, record
    from private_mcmc.report import Report

    ledger = open_ledger(path, key)
    state, charges = ledger.state(), ledger.history(dataset)
    page = Report("Charges", (charges_table(state, charges),))
    show_report(page, [record(state, charge) for charge in charges], as_json)


@app.command()
def verify(
    path: FileArgument,
    head: Annotated[str | None, typer.Option(help="An earlier head, kept elsewhere.")] = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the whole file and every charge against its statement; prints the head to keep elsewhere."""
    head_now = open_ledger(path, key).verify(head)
    if as_json:
        echo(json.dumps({"ok": True, "entries": head_now.number, "head": str(head_now)}))
    else:
        echo(f"{head_now.number} entries, all sound. Head: {head_now}")


def _show(ledger: Ledger, dataset: str | None, as_json: bool) -> None:
    """Where one data set stands, or each of them."""
    from private_mcmc.release.ledger_export import report

    state = ledger.state()
    shown = state.datasets.values() if dataset is None else [state.dataset(dataset)]
    found = [state.balance(one).to_dict() for one in shown]
    show_report(report(state, dataset, charges=False), found, as_json)
