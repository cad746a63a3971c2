"""A ledger in words, JSON and CSV, and the check of its charges against their statements."""

from __future__ import annotations

import csv
import io
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from private_mcmc.accounting import Statement, verify
from private_mcmc.errors import LedgerError, PrivateMCMCError
from private_mcmc.release.ledger.state import DataSet, LedgerState, Reservation

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
        f"{kept.describe(room)} left; this release costs {kept.describe(cost)}. Nothing was run. "
    )
    if not room > 0:
        return message + "Nothing more fits."
    fits = f"What would fit: ε = {_shown_below(kept.epsilon_of(room))} at δ = {kept.delta:g}"
    share = (
        "" if kept.kind == "basic" else f", or {_shown_below(float(room / cost))} of a path's Langevin time"
    )
    return f"{message}{fits}{share}."


def record(state: LedgerState, reservation: Reservation) -> dict[str, Any]:
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
        "statement": dict(reservation.statement),
    }


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


def _shown_below(value: float) -> str:
    """Four digits, rounded down: what is shown as fitting must fit."""
    if not value > 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.floor(value / unit * (1 - 1e-9)) * unit:.4g}"
