"""A ledger as pages and JSON: for people alone, nothing is priced by it."""

from __future__ import annotations

from collections.abc import Iterable

from private_mcmc.accounting import gdp
from private_mcmc.records import Record
from private_mcmc.release.ledger_state import DataSet, LedgerState, Reservation
from private_mcmc.report import Table, at_least, at_most
from private_mcmc.report.blocks import Cell


def as_epsilon(amount: str, delta: float, left: bool = False) -> str:
    """An amount in words with the ε of one such release; rounded as ``describe``."""
    shown = at_least if left else at_most
    # Few digits would make 1.1 of the 1.000004 that a rounded amount of ε = 1 comes to.
    return f"about ε = {shown(gdp.epsilon(float(amount.removesuffix('-GDP')), delta))} ({amount})"


def record(state: LedgerState, charge: Reservation) -> Record:
    """One charge as plain JSON types."""
    said = ("outcome", "time", "settled", "model", "dossiers", "statement")
    return state.standing(charge.identity) | {name: getattr(charge, name) for name in said}


def balances_table(datasets: Iterable[DataSet]) -> Table:
    """What was spent on each data set, and what is left."""
    rows: list[tuple[Cell, ...]] = []
    for found in datasets:
        kept, spent = found.filter, found.spent
        rows.append(
            (
                found.name,
                f"ε = {at_most(kept.epsilon, 6)} at δ = {at_most(kept.delta, 6)}",
                found.adjacency + ("" if found.unit is None else f", persons by {found.unit!r}"),
                f"ε = {at_most(kept.epsilon_of(spent))} ({kept.describe(spent)})",
                what_fits(found),
                f"{len(found.charges)} ({found.open} open)",
            )
        )
    return Table(("data set", "budget", "adjacency", "spent", "left", "charges"), tuple(rows))


def charges_table(state: LedgerState, charges: Iterable[Reservation]) -> Table:
    """When, on what, how it ended, how much, what for."""
    rows: list[tuple[Cell, ...]] = []
    for one in charges:
        cost = state.dataset(one.dataset).filter.describe(one.spent)
        # To the minute; the record has the rest.
        rows.append((one.time[:16].replace("T", " "), one.dataset, one.outcome, cost, one.purpose))
    return Table(("time (UTC)", "data set", "outcome", "cost", "purpose"), tuple(rows))


# What is shown as fitting must fit, whatever a conversion rounds.
BELOW = 1 - 1e-8


def what_fits(dataset: DataSet) -> str:
    """What is left of a budget: as the ε of one more release, rounded down, and in its own currency."""
    room, kept = dataset.remaining, dataset.filter
    if not room > 0:
        return "nothing"
    # Of a budget that is whole its own ε; else that of one more release, with what computing it rounds.
    left = at_least(kept.epsilon, 6) if not dataset.spent else at_least(kept.epsilon_of(room) * BELOW)
    return f"ε = {left} ({kept.describe(room, left=True)})"
