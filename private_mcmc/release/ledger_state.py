"""What a ledger's entries add up to: data sets and their budgets, reservations, and whether they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

from private_mcmc.accounting import Statement, gdp, verify
from private_mcmc.errors import DeclarationError, LedgerError, PrivateMCMCError, ReleaseError
from private_mcmc.records import Record
from private_mcmc.release.ledger_file import Entry
from private_mcmc.report import at_least, at_most
from private_mcmc.target import Adjacency, Target, check_adjacency

_ROUNDED = 1e-9


@dataclass(frozen=True)
class Filter:
    """A privacy filter: releases are allowed while their ``m²`` add up to at most ``limit``.

    ``limit`` is the largest ``m²`` of which ``m``-GDP gives ``(ε, δ)``. A release costs the ``m²`` of its
    Gaussian statement; a pure ``ε``-DP one ``(2Φ^{-1}(e^ε/(1+e^ε)))²``, the least ``m²`` whose trade-off
    curve lies below randomised response.

    **Guarantee**: everything released together is ``(ε, δ)``-DP, also when each release was chosen after
    seeing the earlier ones. **Assumptions**: every statement holds given the earlier outputs; the limit is
    fixed before the first release (it is, in the ledger). Costs are added and compared as exact fractions.
    Source: Smith, Thakurta 2022; Dong, Roth, Su 2022.
    """

    epsilon: float
    delta: float
    limit: Fraction

    def __post_init__(self) -> None:
        target = Target(self.epsilon, self.delta)
        # Less what rounding on another machine may add.
        sound = target.delta > 0 and self.limit >= 0
        if not sound or not gdp.delta(math.sqrt(self.limit), target.epsilon) * (1 - _ROUNDED) <= target.delta:
            raise DeclarationError("a ledger's budget: its limit is not within its ε and δ.")

    @classmethod
    def of(cls, target: Target) -> Filter:
        """The filter whose releases together meet ``target``."""
        if not target.delta > 0:
            raise DeclarationError(
                "a ledger adds up in Gaussian DP, which never gives δ = 0: declare a δ > 0."
            )
        limit = Fraction(gdp.budget(target.epsilon, target.delta)) ** 2
        return cls(target.epsilon, target.delta, limit)

    def cost(self, statement: Statement) -> Fraction:
        """The ``m²`` of ``statement``; ``ReleaseError`` if none is proved of it."""
        level = min(curve.gdp for curve in statement.curves)
        if 0 <= level < math.inf:
            return Fraction(level) ** 2
        raise ReleaseError(
            f"the statement ({statement.argument.theorem}) is neither Gaussian DP nor pure ε-DP, and a "
            "ledger adds up those alone."
        )

    def epsilon_of(self, amount: Fraction) -> float:
        """The ``ε`` at this filter's ``δ`` of costs that add up to ``amount``, rounded up."""
        spent = float(amount) * (1 + 2.0**-50)
        return gdp.epsilon(math.sqrt(spent) * (1 + 2.0**-50), self.delta)

    def describe(self, amount: Fraction, left: bool = False) -> str:
        """An amount as the ``m`` of one release, rounded up, what is ``left`` down; below 0 as 0."""
        shown = at_least if left else at_most
        return f"{shown(math.sqrt(max(amount, Fraction(0))), 6)}-GDP"

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return vars(self) | {"limit": str(self.limit)}


Outcome = Literal["reserved", "released", "stopped", "kept"]


@dataclass(frozen=True)
class DataSet:
    """A data set as its owner declared it.

    Attributes:
        name: the owner's name for it.
        adjacency: the one relation all its statements are under.
        filter: its budget.
        fingerprint: keyed hash of its columns, or ``None`` until data are seen.
        unit: the column of identifiers of the persons that are protected, ``None`` where rows are.
    """

    name: str
    adjacency: Adjacency
    filter: Filter
    fingerprint: str | None = None
    unit: str | None = None

    def cost(self, statement: Statement, unit: str | None) -> Fraction:
        """What a verified statement under this relation costs, whose protected unit is this one.

        Rows and persons are not added up: who changes one row that enters may change several of a person, or,
        with the identifier, the one that enters of two persons. Nor are two readings of one column of
        identifiers, which may put the same rows together in other ways: who is who is part of a fingerprint.

        Raises:
            LedgerError: for another adjacency or unit.
            ReleaseError: for a statement that is not verified, or that the filter cannot add up.
        """
        found = verify(statement.to_dict())
        if not found:
            raise ReleaseError(f"the statement does not follow from its own constants: {found.reason}")
        if statement.adjacency != self.adjacency:
            raise LedgerError(
                f"{self.name!r} is kept under {self.adjacency!r}; a statement under {statement.adjacency!r} "
                "never composes with it."
            )
        unit = unit if statement.unit is None else statement.unit.name
        if unit != self.unit:
            raise LedgerError(
                f"{self.name!r} is kept for {_whom(self.unit)}; a statement for {_whom(unit)} never composes "
                "with it: state all releases for one unit, in a data set declared for it (unit=…, the column "
                "of identifiers)."
            )
        return self.filter.cost(statement)


def _whom(unit: str | None) -> str:
    return "rows" if unit is None else f"persons by {unit!r}"


@dataclass(frozen=True)
class Reservation:
    """A charge. It is spent from the moment it is on disk, whatever happens to the run.

    Of a run in stages the whole budget is set aside, and each stage is charged before it touches a row. What
    was set aside and never charged is free again once the run is settled as stopped or failed; a stage that
    was charged stays spent, whatever came of it.

    Attributes:
        identity: its unique name.
        dataset: what it was charged to.
        cost: ``m²`` that was set aside, as an exact fraction.
        outcome: ``"reserved"`` (running, or crashed), ``"released"``, ``"stopped"`` by its owner before its
            last stage, or ``"kept"`` after a failure.
        statement: the statement it paid for, as plain values.
        purpose: the owner's words.
        model: fingerprint of the model, or ``""``.
        time: when it was made, UTC.
        settled: when its outcome was recorded, or ``""``.
        dossiers: fingerprints of the records that were made of it.
        staged: whether it is charged stage by stage.
        stages: statements of the stages that were charged, as plain values, each with its ``m²``.
        before: ``m²`` that counted against the data set's budget when it was made.
        unit: the column of identifiers, where a row of the statement is the one row of a person that enters.
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
    dossiers: tuple[str, ...] = ()
    staged: bool = False
    stages: tuple[tuple[Entry, Fraction], ...] = ()
    before: Fraction = Fraction(0)
    unit: str | None = None

    @property
    def charged(self) -> Fraction:
        """``m²`` of the stages that were charged so far."""
        return sum((cost for _, cost in self.stages), Fraction(0))

    @property
    def spent(self) -> Fraction:
        """``m²`` that counts against the budget."""
        return self.charged if self.staged and self.outcome in ("stopped", "kept") else self.cost


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
            "remaining": self.dataset.filter.describe(self.remaining, left=True),
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

    def other_name(self, mark: str) -> str | None:
        """A data set with this fingerprint."""
        return next((one.name for one in self.datasets.values() if one.fingerprint == mark), None)

    def charges(self, dataset: DataSet) -> list[Reservation]:
        """What was charged to a data set, in order."""
        return [one for one in self.reservations.values() if one.dataset == dataset.name]

    def room(self, dataset: DataSet) -> Fraction:
        """The largest cost that may still be charged to this data set."""
        return dataset.filter.limit - sum((one.spent for one in self.charges(dataset)), Fraction(0))

    def balance(self, dataset: DataSet) -> Balance:
        """What was charged to a data set, and what is left."""
        room, charged = self.room(dataset), self.charges(dataset)
        spent = dataset.filter.limit - room
        left_open = sum(one.outcome == "reserved" for one in charged)
        return Balance(dataset, spent, room, dataset.filter.epsilon_of(spent), len(charged), left_open)

    def standing(self, identity: str) -> Record:
        """What was spent when a charge was made, and is left after it, as plain JSON types."""
        charge = self.reservations[identity]
        kept, after = self.dataset(charge.dataset).filter, charge.before + charge.spent
        return {
            "charge": identity,
            "dataset": charge.dataset,
            "purpose": charge.purpose,
            "epsilon": kept.epsilon,
            "delta": kept.delta,
            "budget": kept.describe(kept.limit),
            "before": kept.describe(charge.before),
            "epsilon_before": kept.epsilon_of(charge.before),
            "cost": kept.describe(charge.spent),
            "after": kept.describe(after),
            "epsilon_after": kept.epsilon_of(after),
            "left": kept.describe(kept.limit - after, left=True),
        }


_FIELDS = {
    kind: {"kind", "time", *names.split()}
    for kind, names in {
        "dataset": "name adjacency filter unit",
        "fingerprint": "dataset fingerprint",
        "reserve": "id dataset cost statement purpose model staged unit",
        "stage": "id cost statement",
        "dossier": "id fingerprint",
        "settle": "id outcome",
    }.items()
}


def replay(entries: Iterable[Entry]) -> LedgerState:
    """The state after all entries."""
    datasets: dict[str, DataSet] = {}
    reservations: dict[str, Reservation] = {}
    for number, entry in enumerate(entries, start=1):
        try:
            _apply(entry, datasets, reservations)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, LedgerError) as error:
            raise LedgerError(
                f"entry {number} of the ledger makes no sense to this version ({type(error).__name__}): it "
                "was written by a newer version or tampered with. Nothing is run against it."
            ) from error
    return LedgerState(datasets, reservations)


def _apply(entry: Entry, datasets: dict[str, DataSet], reservations: dict[str, Reservation]) -> None:
    kind = entry["kind"]
    # A field that a later version writes may change what the others mean.
    if set(entry) != _FIELDS[kind]:
        raise ValueError("other fields")
    if kind == "dataset":
        new = _dataset(entry)
        if new.name in datasets:
            raise ValueError("declared twice")
        datasets[new.name] = new
    elif kind == "fingerprint":
        known = datasets[entry["dataset"]]
        datasets[known.name] = replace(known, fingerprint=str(entry["fingerprint"]))
    elif kind == "reserve":
        cost, of = Fraction(entry["cost"]), datasets[entry["dataset"]]
        if not 0 <= cost <= of.filter.limit or entry["id"] in reservations:
            raise ValueError("a charge that cannot be")
        reservations[entry["id"]] = Reservation(
            identity=str(entry["id"]),
            dataset=of.name,
            cost=cost,
            outcome="reserved",
            statement=dict(entry["statement"]),
            purpose=str(entry["purpose"]),
            model=str(entry["model"]),
            time=str(entry["time"]),
            staged=entry["staged"] is True,
            unit=_unit(entry),
            before=sum((one.spent for one in reservations.values() if one.dataset == of.name), Fraction(0)),
        )
    elif kind == "stage":
        before, cost = reservations[entry["id"]], Fraction(entry["cost"])
        if not (before.staged and before.outcome == "reserved" and 0 <= cost <= before.cost - before.charged):
            raise ValueError("a stage that cannot be")
        stages = (*before.stages, (dict(entry["statement"]), cost))
        reservations[entry["id"]] = replace(before, stages=stages)
    elif kind == "dossier":
        before = reservations[entry["id"]]
        reservations[entry["id"]] = replace(before, dossiers=(*before.dossiers, str(entry["fingerprint"])))
    else:
        before = reservations[entry["id"]]
        if entry["outcome"] not in ("released", "stopped", "kept") or before.outcome != "reserved":
            raise ValueError("an outcome that cannot be")
        reservations[entry["id"]] = replace(before, outcome=entry["outcome"], settled=str(entry["time"]))


def _dataset(entry: Entry) -> DataSet:
    budget = entry["filter"]
    kept = Filter(
        **{**budget, "epsilon": float(budget["epsilon"]), "delta": float(budget["delta"])}
        | {"limit": Fraction(budget["limit"])}
    )
    name, adjacency = str(entry["name"]), check_adjacency(entry["adjacency"])
    return DataSet(name, adjacency, kept, unit=_unit(entry))


def _unit(entry: Entry) -> str | None:
    return None if entry["unit"] is None else str(entry["unit"])


def recheck(path: Path, state: LedgerState) -> None:
    """Raise ``LedgerError`` unless charges cover what their statements cost, and budgets their charges."""
    for one in state.reservations.values():
        for record, charged in ((one.statement, one.cost), *one.stages):
            try:
                cost = state.dataset(one.dataset).cost(Statement.from_dict(record), one.unit)
            except PrivateMCMCError as error:
                raise LedgerError(f"{path}: charge {one.identity} is not verified: {error}") from error
            if not charged >= cost:
                raise LedgerError(f"{path}: charge {one.identity} is less than its statement costs.")
    for dataset in state.datasets.values():
        if state.room(dataset) < 0:
            raise LedgerError(f"{path}: what was charged to {dataset.name!r} is more than its budget.")
