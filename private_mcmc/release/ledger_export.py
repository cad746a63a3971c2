"""A ledger as pages and JSON: for people alone, nothing is priced by it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from private_mcmc.accounting import gdp
from private_mcmc.records import Record
from private_mcmc.release.ledger_state import Balance, DataSet, Filter, LedgerState, Reservation
from private_mcmc.report import Block, Heading, Report, Table, at_least, at_most
from private_mcmc.report.blocks import Cell


def as_epsilon(amount: str, delta: float, left: bool = False) -> str:
    """An amount in words with the ε of one such release; rounded as ``describe``."""
    shown = at_least if left else at_most
    # Few digits would make 1.1 of the 1.000004 that a rounded amount of ε = 1 comes to.
    return f"about ε = {shown(gdp.epsilon(float(amount.removesuffix('-GDP')), delta))} ({amount})"


def record(state: LedgerState, reservation: Reservation) -> Record:
    """One charge as plain JSON types."""
    kept = state.dataset(reservation.dataset).filter
    return {
        "id": reservation.identity,
        "time": reservation.time,
        "dataset": reservation.dataset,
        "outcome": reservation.outcome,
        "settled": reservation.settled,
        "cost": kept.describe(reservation.spent),
        "epsilon": kept.epsilon_of(reservation.spent),
        "delta": kept.delta,
        "theorem": reservation.statement["argument"]["theorem"],
        "purpose": reservation.purpose,
        "model": reservation.model,
        "dossiers": list(reservation.dossiers),
        "statement": dict(reservation.statement),
    }


def balances_table(balances: Iterable[Balance]) -> Table:
    """What was spent on each data set, and what is left."""
    rows: list[tuple[Cell, ...]] = []
    for found in balances:
        kept, unit = found.dataset.filter, found.dataset.unit
        rows.append(
            (
                found.dataset.name,
                f"ε = {at_most(kept.epsilon, 6)} at δ = {at_most(kept.delta, 6)}",
                found.dataset.adjacency + ("" if unit is None else f", persons by {unit!r}"),
                f"ε = {at_most(found.spent_epsilon)} ({kept.describe(found.spent)})",
                what_fits(kept, found.remaining),
                f"{found.reservations} ({found.open} open)",
            )
        )
    return Table(("data set", "budget", "adjacency", "spent", "left", "charges"), tuple(rows))


def charges_table(state: LedgerState, charges: Iterable[Reservation]) -> Table:
    """When, on what, how it ended, how much, what for."""
    rows: list[tuple[Cell, ...]] = [
        (
            # To the minute; the record has the rest.
            one.time[:16].replace("T", " "),
            one.dataset,
            one.outcome,
            state.dataset(one.dataset).filter.describe(one.spent),
            one.purpose,
        )
        for one in charges
    ]
    return Table(("time (UTC)", "data set", "outcome", "cost", "purpose"), tuple(rows))


def report(state: LedgerState, dataset: str | None = None, *, charges: bool = True) -> Report:
    """Balances and charges as a page; of one data set or of all."""
    shown = state.datasets.values() if dataset is None else [state.dataset(dataset)]
    blocks: list[Block] = [balances_table(map(state.balance, shown))]
    if charges and state.reservations:
        blocks += [Heading("Charges"), charges_table(state, state.reservations.values())]
    return Report("What has been spent, and what is left", tuple(blocks))


# What is shown as fitting must fit, whatever a conversion rounds.
_BELOW = 1 - 1e-8


def refusal(state: LedgerState, dataset: DataSet, cost: Fraction) -> str:
    """Why a charge does not fit, and what would."""
    room, kept = state.room(dataset), dataset.filter
    message = (
        f"the budget of {dataset.name!r} (ε = {at_most(kept.epsilon)}, δ = {at_most(kept.delta)}) has "
        f"{kept.describe(room, left=True)} left; this release costs {kept.describe(cost)} "
        f"(ε = {at_most(kept.epsilon_of(cost))}). Nothing was run. "
    )
    if not room > 0:
        return message + "Nothing more fits."
    share = at_least(float(room / cost) * _BELOW)
    return (
        f"{message}What would fit: ε = {_epsilon_left(kept, room)} at δ = {at_most(kept.delta)}, or {share} "
        "of a path's Langevin time."
    )


def what_fits(kept: Filter, room: Fraction) -> str:
    """What is left of a budget: as the ε of one more release, rounded down, and in its own currency."""
    if not room > 0:
        return "nothing"
    return f"ε = {_epsilon_left(kept, room)} ({kept.describe(room, left=True)})"


def _epsilon_left(kept: Filter, room: Fraction) -> str:
    """Of a budget that is whole its own ε; else the ε of one more release, with what computing it rounds."""
    whole = room == kept.limit
    return at_least(kept.epsilon, 6) if whole else at_least(kept.epsilon_of(room) * _BELOW)
