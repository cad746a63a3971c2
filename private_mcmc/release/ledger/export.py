"""A ledger in words, JSON and CSV, and the check of its charges against their statements."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from private_mcmc.accounting import Statement, verify
from private_mcmc.accounting.curves import gdp
from private_mcmc.errors import LedgerError, PrivateMCMCError
from private_mcmc.records import Record
from private_mcmc.release.ledger.filter import Filter
from private_mcmc.release.ledger.state import Balance, DataSet, LedgerState, Reservation
from private_mcmc.report import Block, Heading, Report, Table, at_most, number, rounded_down, rounded_up
from private_mcmc.report.blocks import Cell

_COLUMNS = (
    "time",
    "dataset",
    "outcome",
    "settled",
    "cost",
    "epsilon",
    "delta",
    "theorem",
    "purpose",
    "model",
    "id",
)


def refusal(state: LedgerState, dataset: DataSet, cost: Fraction) -> str:
    """Why a charge does not fit, and what would."""
    room, kept = state.room(dataset), dataset.filter
    message = (
        f"the budget of {dataset.name!r} (ε = {kept.epsilon:g}, δ = {kept.delta:g}) has "
        f"{kept.describe(room, left=True)} left; this release costs {kept.describe(cost)} "
        f"(ε = {at_most(kept.epsilon_of(cost))}). Nothing was run. "
    )
    if not room > 0:
        return message + "Nothing more fits."
    fits = f"What would fit: ε = {_epsilon_left(kept, room)} at δ = {kept.delta:g}"
    share = (
        "" if kept.kind == "basic" else f", or {_shown_below(float(room / cost))} of a path's Langevin time"
    )
    return f"{message}{fits}{share}."


def what_fits(kept: Filter, room: Fraction) -> str:
    """What is left of a budget: as the ε of one more release, rounded down, and in its own currency."""
    if not room > 0:
        return "nothing"
    return f"ε = {_epsilon_left(kept, room)} ({kept.describe(room, left=True)})"


def _epsilon_left(kept: Filter, room: Fraction) -> str:
    """Of a budget that is whole its own ε; one Rényi order gives no release of that ε."""
    whole = room == kept.limit and kept.kind != "rdp"
    return f"{rounded_down(kept.epsilon, 6):g}" if whole else _shown_below(kept.epsilon_of(room))


def as_epsilon(amount: str, delta: float, left: bool = False) -> str:
    """An amount in words with the ε of one such release, where it is Gaussian; rounded as ``describe``."""
    level, dash, _ = amount.partition("-GDP")
    rounded = rounded_down if left else rounded_up
    # Few digits would make 1.1 of the 1.000004 that a rounded amount of ε = 1 comes to.
    return f"about ε = {number(rounded(gdp.epsilon(float(level), delta), 4))} ({amount})" if dash else amount


def record(state: LedgerState, reservation: Reservation) -> Record:
    """One charge as plain JSON types."""
    kept = state.dataset(reservation.dataset).filter
    return {
        "id": reservation.identity,
        "time": reservation.time,
        "dataset": reservation.dataset,
        "outcome": reservation.outcome,
        "settled": reservation.settled,
        "cost": kept.describe(reservation.cost),
        "epsilon": kept.epsilon_of(reservation.cost),
        "delta": kept.delta,
        "theorem": reservation.statement["argument"]["theorem"],
        "purpose": reservation.purpose,
        "model": reservation.model,
        "dossiers": list(reservation.dossiers or ()),
        "statement": dict(reservation.statement),
    }


def standing(state: LedgerState, identity: str) -> Record:
    """What was spent before a charge and is left after it, as plain JSON types."""
    names = list(state.reservations)
    charge, first = state.reservations[identity], names.index(identity)
    dataset = state.dataset(charge.dataset)

    def at(count: int) -> LedgerState:
        return replace(state, reservations={name: state.reservations[name] for name in names[:count]})

    before, after, kept = at(first).balance(dataset), at(first + 1).balance(dataset), dataset.filter
    claimed = list(at(first + 1).claimed(dataset))
    return {
        "charge": identity,
        "dataset": charge.dataset,
        "purpose": charge.purpose,
        "epsilon": kept.epsilon,
        "delta": kept.delta,
        "budget": kept.describe(kept.limit),
        "before": kept.describe(before.spent),
        "epsilon_before": before.spent_epsilon,
        "cost": kept.describe(charge.cost),
        "after": kept.describe(after.spent),
        "epsilon_after": after.spent_epsilon,
        "left": kept.describe(after.remaining, left=True),
        **({"whole": state.whole_of(dataset).name, "claimed": claimed} if claimed else {}),
    }


def balances_table(balances: Iterable[Balance]) -> Table:
    """What was spent on each data set, and what is left."""
    rows: list[tuple[Cell, ...]] = []
    for found in balances:
        kept = found.dataset.filter
        rows.append(
            (
                found.dataset.name,
                f"ε = {rounded_up(kept.epsilon, 6):g} at δ = {rounded_up(kept.delta, 6):g}",
                found.dataset.adjacency,
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
            state.dataset(one.dataset).filter.describe(one.cost),
            one.purpose,
        )
        for one in charges
    ]
    return Table(("time (UTC)", "data set", "outcome", "cost", "purpose"), tuple(rows))


def report(state: LedgerState, dataset: str | None = None, *, charges: bool = True) -> Report:
    """Balances, what each cohort was charged, and charges as a page; of one data set or of all."""
    shown = state.datasets.values() if dataset is None else [state.dataset(dataset)]
    blocks: list[Block] = [balances_table(map(state.balance, shown))]
    for one in shown:
        if one.name in state.cohorts:
            blocks += _exposure(state, one)
    if charges and state.reservations:
        blocks += [Heading("Charges"), charges_table(state, state.reservations.values())]
    return Report("What has been spent, and what is left", tuple(blocks))


def _exposure(state: LedgerState, dataset: DataSet) -> tuple[Block, ...]:
    """What persons of each cohort were charged, the most exposed first."""
    declared, kept = state.cohorts[dataset.name], dataset.filter
    rows: list[tuple[Cell, ...]] = []
    for name, cost in state.exposures(dataset).items():
        waves = [
            one.name for one in state.datasets.values() if one.whole == dataset.name and name in one.cohorts
        ]
        rows.append((name, ", ".join(waves), f"ε = {at_most(kept.epsilon_of(cost))} ({kept.describe(cost)})"))
    who = "one of these" if declared.at_most == 1 else f"up to {declared.at_most} of these"
    return (
        Heading(
            f"Cohorts of {dataset.name!r}: a person is in {who} ({declared.membership}), most exposed first"
        ),
        Table(("cohort", "waves", "charged"), tuple(rows)),
    )


def export_json(state: LedgerState) -> str:
    """Balances and charges."""
    return json.dumps(
        {
            "datasets": [state.balance(dataset).to_dict() for dataset in state.datasets.values()],
            "charges": [record(state, reservation) for reservation in state.reservations.values()],
        },
        indent=2,
    )


def export_csv(state: LedgerState) -> str:
    """One line for each charge."""
    out = io.StringIO()
    table = csv.DictWriter(out, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(record(state, reservation) for reservation in state.reservations.values())
    return out.getvalue()


def recheck(path: Path, state: LedgerState, reservation: Reservation) -> None:
    """Raise ``LedgerError`` unless a charge covers what its statement costs."""
    try:
        statement = Statement.from_dict(reservation.statement)
        cost = state.dataset(reservation.dataset).filter.cost(statement)
    except (KeyError, TypeError, ValueError, PrivateMCMCError) as error:
        raise LedgerError(f"{path}: the statement of charge {reservation.identity} is unreadable.") from error
    found = verify(reservation.statement)
    if not found:
        raise LedgerError(
            f"{path}: the statement of charge {reservation.identity} is not verified: {found.reason}"
        )
    if not reservation.cost >= cost:
        raise LedgerError(f"{path}: charge {reservation.identity} is less than its statement costs.")


def recheck_budgets(path: Path, state: LedgerState) -> None:
    """Raise ``LedgerError`` where what was charged, recomputed over parts and cohorts, exceeds a budget."""
    for dataset in state.datasets.values():
        if state.room(dataset) < 0:
            raise LedgerError(f"{path}: what was charged to {dataset.name!r} is more than its budget.")


def _shown_below(value: float) -> str:
    """Four digits, rounded down: what is shown as fitting must fit."""
    if not value > 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.floor(value / unit * (1 - 1e-9)) * unit:.4g}"
