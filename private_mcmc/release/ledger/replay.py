"""What a ledger's entries say: each is applied to the state before it, or refused as one that cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from private_mcmc.errors import LedgerError
from private_mcmc.release.ledger.file import Entry
from private_mcmc.release.ledger.filter import Cohorts, Filter, check_cohorts
from private_mcmc.release.ledger.state import DataSet, LedgerState, Reservation
from private_mcmc.target import check_adjacency


def replay(entries: Iterable[Entry]) -> LedgerState:
    """The state after all entries."""
    datasets: dict[str, DataSet] = {}
    reservations: dict[str, Reservation] = {}
    cohorts: dict[str, Cohorts] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            _apply(entry, datasets, reservations, cohorts)
        except (KeyError, TypeError, ValueError, ZeroDivisionError, LedgerError) as error:
            raise LedgerError(
                f"entry {number} of the ledger makes no sense to this version ({type(error).__name__}): it "
                "was written by a newer version or tampered with. Nothing is run against it."
            ) from error
    return LedgerState(datasets, reservations, cohorts)


def _apply(
    entry: Entry,
    datasets: dict[str, DataSet],
    reservations: dict[str, Reservation],
    cohorts: dict[str, Cohorts],
) -> None:
    kind = entry["kind"]
    if kind in ("cohorts", "wave"):
        _apply_cohorts(entry, datasets, cohorts)
    elif kind == "dataset":
        new = _dataset(entry, datasets)
        if new.name in datasets:
            raise ValueError("declared twice")
        datasets[new.name] = new
    elif kind == "fingerprint":
        known = datasets[entry["dataset"]]
        datasets[known.name] = replace(known, fingerprint=str(entry["fingerprint"]))
    elif kind == "reserve":
        cost = Fraction(entry["cost"])
        if not cost >= 0 or entry["id"] in reservations or entry["dataset"] not in datasets:
            raise ValueError("a charge that cannot be")
        reservations[entry["id"]] = Reservation(
            identity=str(entry["id"]),
            dataset=str(entry["dataset"]),
            cost=cost,
            outcome="reserved",
            statement=dict(entry["statement"]),
            purpose=str(entry["purpose"]),
            model=str(entry["model"]),
            time=str(entry["time"]),
        )
    elif kind == "settle":
        if entry["outcome"] not in ("released", "kept"):
            raise ValueError("unknown outcome")
        before = reservations[entry["id"]]
        reservations[entry["id"]] = replace(before, outcome=entry["outcome"], settled=str(entry["time"]))
    else:
        raise ValueError(f"unknown kind {kind!r}")


def _apply_cohorts(entry: Entry, datasets: dict[str, DataSet], cohorts: dict[str, Cohorts]) -> None:
    if entry["kind"] == "cohorts":
        whole = datasets[entry["dataset"]]
        new = Cohorts(tuple(entry["names"]), entry["membership"], int(entry["at_most"]))
        check_cohorts(new, whole.adjacency, cohorts.get(whole.name))
        cohorts[whole.name] = cohorts[whole.name].joined(new) if whole.name in cohorts else new
        return
    whole, held = datasets[entry["whole"]], frozenset(entry["cohorts"])
    if not held or not held <= set(cohorts[whole.name].names) or entry["name"] in datasets:
        raise ValueError("a wave that cannot be")
    datasets[entry["name"]] = replace(
        whole, name=str(entry["name"]), fingerprint=None, whole=whole.name, cohorts=held
    )


def _dataset(entry: Entry, datasets: Mapping[str, DataSet]) -> DataSet:
    if entry["whole"] is not None:
        whole = datasets[entry["whole"]]
        return replace(
            whole, name=str(entry["name"]), fingerprint=None, whole=whole.name, by=str(entry["by"])
        )
    budget = entry["filter"]
    kept = Filter(
        budget["kind"],
        float(budget["epsilon"]),
        float(budget["delta"]),
        Fraction(budget["limit"]),
        float(budget["order"]),
    )
    if not kept.limit >= 0:
        raise ValueError("a budget that cannot be")
    unit = str(entry["unit"]) if "unit" in entry else None
    adjacency = check_adjacency(entry["adjacency"])
    return DataSet(str(entry["name"]), adjacency, kept, entry["fingerprint"], unit=unit)
