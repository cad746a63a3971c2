"""What a ledger's entries add up to: data sets, reservations, balances. Pure functions of the entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from private_mcmc.errors import LedgerError
from private_mcmc.release.ledger.file import Entry
from private_mcmc.release.ledger.filter import Filter
from private_mcmc.target import Adjacency, check_adjacency

Outcome = Literal["reserved", "released", "kept"]


@dataclass(frozen=True)
class DataSet:
    """A data set as its owner declared it.

    Attributes:
        name: the owner's name for it; a part is called ``whole/by=part``.
        adjacency: the one relation all its statements are under.
        filter: its budget; a part has that of the whole.
        fingerprint: keyed hash of its columns, or ``None`` until data are seen.
        whole: name of the data set this is a part of, or ``None``.
        by: the partition it belongs to, or ``None``.
        unit: the column of identifiers of the persons that are protected, ``None`` where rows are.
    """

    name: str
    adjacency: Adjacency
    filter: Filter
    fingerprint: str | None = None
    whole: str | None = None
    by: str | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Reservation:
    """A charge. It is spent from the moment it is on disk, whatever happens to the run.

    Attributes:
        identity: its unique name.
        dataset: what it was charged to.
        cost: in the currency of the data set's filter.
        outcome: ``"reserved"`` (running, or crashed), ``"released"``, or ``"kept"`` after a failure.
        statement: the statement it paid for, as plain values.
        purpose: the owner's words.
        model: fingerprint of the model, or ``""``.
        time: when it was made, UTC.
        settled: when its outcome was recorded, or ``""``.
    """

    identity: str
    dataset: str
    cost: Fraction
    outcome: Outcome
    statement: Entry
    purpose: str
    model: str
    time: str
    settled: str = ""


@dataclass(frozen=True)
class Balance:
    """Where a data set stands.

    ``spent_epsilon`` is the equivalent ``ε`` at the budget's ``δ`` of what was charged so far; the promise
    to the persons in the data is the whole budget, since what was charged depends on earlier outputs.
    """

    dataset: DataSet
    spent: Fraction
    remaining: Fraction
    spent_epsilon: float
    reservations: int
    open: int

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types, without the fingerprint."""
        return {
            "dataset": self.dataset.name,
            "adjacency": self.dataset.adjacency,
            **({} if self.dataset.unit is None else {"unit": self.dataset.unit}),
            "filter": self.dataset.filter.to_dict(),
            "spent": self.dataset.filter.describe(self.spent),
            "remaining": self.dataset.filter.describe(self.remaining),
            "spent_epsilon": self.spent_epsilon,
            "reservations": self.reservations,
            "open": self.open,
        }


@dataclass(frozen=True)
class LedgerState:
    """All data sets and reservations of a ledger, in the order they were entered."""

    datasets: Mapping[str, DataSet]
    reservations: Mapping[str, Reservation]

    def dataset(self, name: str) -> DataSet:
        """A declared data set. Raises ``LedgerError`` for an unknown name."""
        if name not in self.datasets:
            raise LedgerError(
                f"data set {name!r} is not in this ledger; it holds {sorted(self.datasets) or 'none'}."
            )
        return self.datasets[name]

    def whole_of(self, dataset: DataSet) -> DataSet:
        """The data set that owns the budget."""
        return dataset if dataset.whole is None else self.whole_of(self.dataset(dataset.whole))

    def spent(self, dataset: DataSet) -> Fraction:
        """What any one row of a data set may have been charged, itself and its parts.

        A row is in at most one part of each partition, so a partition costs as much as its dearest part.
        """
        return self._own(dataset) + sum(self._partitions(dataset).values(), Fraction(0))

    def room(self, dataset: DataSet) -> Fraction:
        """The largest cost that may still be charged to this data set."""
        return self._allowance(dataset) - self.spent(dataset)

    def _allowance(self, dataset: DataSet) -> Fraction:
        """The most that ``spent`` of this data set may become."""
        if dataset.whole is None:
            return dataset.filter.limit
        whole = self.dataset(dataset.whole)
        others = [cost for by, cost in self._partitions(whole).items() if by != dataset.by]
        return self._allowance(whole) - self._own(whole) - sum(others, Fraction(0))

    def _own(self, dataset: DataSet) -> Fraction:
        return sum((r.cost for r in self.reservations.values() if r.dataset == dataset.name), Fraction(0))

    def _partitions(self, dataset: DataSet) -> dict[str, Fraction]:
        dearest: dict[str, Fraction] = {}
        for part in self.datasets.values():
            if part.whole == dataset.name and part.by is not None:
                dearest[part.by] = max(dearest.get(part.by, Fraction(0)), self.spent(part))
        return dearest

    def balance(self, dataset: DataSet) -> Balance:
        """Spent and remaining, of the whole for a part."""
        whole = self.whole_of(dataset)
        spent = self.spent(whole)
        charged = [r for r in self.reservations.values() if r.dataset == dataset.name]
        return Balance(
            dataset,
            spent,
            self.room(dataset),
            whole.filter.epsilon_of(spent),
            len(charged),
            sum(r.outcome == "reserved" for r in charged),
        )


def replay(entries: Iterable[Entry]) -> LedgerState:
    """The state after all entries.

    Raises:
        LedgerError: for entries that this version does not know or that contradict earlier ones.
    """
    datasets: dict[str, DataSet] = {}
    reservations: dict[str, Reservation] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            _apply(entry, datasets, reservations)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise LedgerError(
                f"entry {number} of the ledger makes no sense to this version ({type(error).__name__}): it "
                "was written by a newer version or tampered with. Nothing is run against it."
            ) from error
    return LedgerState(datasets, reservations)


def _apply(entry: Entry, datasets: dict[str, DataSet], reservations: dict[str, Reservation]) -> None:
    kind = entry["kind"]
    if kind == "dataset":
        new = _dataset(entry, datasets)
        if new.name in datasets:
            raise ValueError("declared twice")
        datasets[new.name] = new
    elif kind == "fingerprint":
        datasets[entry["dataset"]] = replace(
            datasets[entry["dataset"]], fingerprint=str(entry["fingerprint"])
        )
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
