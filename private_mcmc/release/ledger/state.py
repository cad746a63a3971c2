"""What a ledger's entries add up to: data sets, reservations, balances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from private_mcmc.errors import LedgerError
from private_mcmc.release.ledger.file import Entry
from private_mcmc.release.ledger.filter import Cohorts, Filter, dearest
from private_mcmc.target import Adjacency

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
        cohorts: of a wave, those whose persons are in it.
    """

    name: str
    adjacency: Adjacency
    filter: Filter
    fingerprint: str | None = None
    whole: str | None = None
    by: str | None = None
    unit: str | None = None
    cohorts: frozenset[str] = frozenset()


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
        dossiers: fingerprints of the records that were made of it; ``None`` for a charge of before they were
            kept, of which nothing can be said.
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
    dossiers: tuple[str, ...] | None = None


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
    cohorts: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def most_exposed(self) -> str | None:
        """The cohort whose persons were charged most."""
        return max(self.cohorts, key=lambda name: self.cohorts[name], default=None)

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types, without the fingerprint."""
        exposed = {name: self.dataset.filter.describe(cost) for name, cost in self.cohorts.items()}
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
            **({"most_exposed": self.most_exposed, "cohorts": exposed} if exposed else {}),
        }


@dataclass(frozen=True)
class LedgerState:
    """All data sets and reservations of a ledger, in the order they were entered."""

    datasets: Mapping[str, DataSet]
    reservations: Mapping[str, Reservation]
    cohorts: Mapping[str, Cohorts] = field(default_factory=dict)

    def dataset(self, name: str) -> DataSet:
        """A declared data set. Raises ``LedgerError`` for an unknown name."""
        if name not in self.datasets:
            raise LedgerError(
                f"data set {name!r} is not in this ledger; it holds {sorted(self.datasets) or 'none'}."
            )
        return self.datasets[name]

    def other_name(self, mark: str, dataset: DataSet | None = None) -> str | None:
        """A data set with this fingerprint whose charges do not add up with those of ``dataset``."""
        known = [one for one in self.datasets.values() if one.fingerprint == mark]
        apart = (one.name for one in known if dataset is None or not self._add_up(one, dataset))
        return next(apart, None if dataset is None else self._of_nobody([*known, dataset]))

    def _add_up(self, one: DataSet, other: DataSet) -> bool:
        """Whether a person can be in both, as far as parts go, who is charged in both then."""
        return self.whole_of(one) == self.whole_of(other) and not any(
            a.by is not None and a.by == b.by
            for a in self._within(one)
            for b in self._within(other)
            if a.whole == b.whole and a != b
        )

    def _of_nobody(self, same: Sequence[DataSet]) -> str | None:
        """One of these, if nobody can be in all of the waves among them: pairs alone do not tell."""
        for name, declared in self.cohorts.items():
            waves = [one for one in same if one.whole == name and one.cohorts]
            if not any(all(one.cohorts & held for one in waves) for held in declared.patterns()):
                return waves[0].name
        return None

    def _within(self, dataset: DataSet) -> tuple[DataSet, ...]:
        """A data set and those that it is a part of, the owner of the budget last."""
        return (dataset,) if dataset.whole is None else (dataset, *self._within(self.dataset(dataset.whole)))

    def whole_of(self, dataset: DataSet) -> DataSet:
        """The data set that owns the budget."""
        return self._within(dataset)[-1]

    def claimed(self, dataset: DataSet) -> tuple[str, ...]:
        """What its owner says of who is in what was charged beside it, on which all sums of charges rest."""
        charged = {reservation.dataset for reservation in self.reservations.values()}
        places = (
            one
            for other in self.datasets.values()
            if other.name in charged and self.whole_of(other) == self.whole_of(dataset)
            for one in self._within(other)
        )
        return tuple(dict.fromkeys(claim for one in places for claim in self._claims(one)))

    def _claims(self, one: DataSet) -> tuple[str, ...]:
        if one.by is not None:
            parts = f"Nobody is in two of the parts of {one.whole!r} by {one.by!r}"
            return (f"{parts}, and who is in which is decided by public facts.",)
        if not one.cohorts:
            return ()
        declared, names = self.cohorts[str(one.whole)], ", ".join(map(repr, sorted(one.cohorts)))
        fixed = "who is of which is public and was fixed before anything was released"
        return (
            f"Everybody in {one.name!r} is of {names}, the cohorts of {one.whole!r} that it holds.",
            f"Nobody is ever of more than {declared.at_most} of the cohorts of {one.whole!r}"
            + (f", and {fixed}." if declared.membership == "public" else "."),
        )

    def spent(self, dataset: DataSet) -> Fraction:
        """What any one row of a data set may have been charged, itself, its parts and its waves.

        A row is in at most one part of each partition, so a partition costs as much as its dearest part;
        a person is in the waves that hold one of that person's cohorts.
        """
        return self.of_all(dataset) + self._of_waves(dataset)

    def of_all(self, dataset: DataSet) -> Fraction:
        """What everybody in a data set may have been charged, apart from its waves."""
        return self._own(dataset) + sum(self._partitions(dataset).values(), Fraction(0))

    def exposures(self, dataset: DataSet) -> dict[str, Fraction]:
        """What persons of each cohort may have been charged by themselves, dearest first."""
        declared = self.cohorts.get(dataset.name)
        if declared is None:
            return {}
        alone, waves, all_of_it = replace(declared, at_most=1), self._waves(dataset), self.of_all(dataset)
        costs = {name: all_of_it + dearest(alone, waves, frozenset([name])) for name in declared.names}
        return dict(sorted(costs.items(), key=lambda item: -item[1]))

    def room(self, dataset: DataSet) -> Fraction:
        """The largest cost that may still be charged to this data set."""
        return self._allowance(dataset) - self.spent(dataset)

    def _allowance(self, dataset: DataSet) -> Fraction:
        """The most that ``spent`` of this data set may become."""
        if dataset.whole is None:
            return dataset.filter.limit
        whole = self.dataset(dataset.whole)
        others = sum((cost for by, cost in self._partitions(whole).items() if by != dataset.by), Fraction(0))
        left = self._allowance(whole) - self._own(whole) - others
        if not dataset.cohorts:
            return left - self._of_waves(whole)
        # Persons in it have been in others: what they paid there is not left to them.
        return left - self._of_waves(whole, dataset.cohorts) + self._own(dataset)

    def _of_waves(self, dataset: DataSet, touching: frozenset[str] | None = None) -> Fraction:
        declared = self.cohorts.get(dataset.name)
        return Fraction(0) if declared is None else dearest(declared, self._waves(dataset), touching)

    def _waves(self, dataset: DataSet) -> dict[frozenset[str], Fraction]:
        """What was charged to waves, by the cohorts in them."""
        found: dict[frozenset[str], Fraction] = {}
        for wave in self.datasets.values():
            if wave.whole == dataset.name and wave.cohorts:
                found[wave.cohorts] = found.get(wave.cohorts, Fraction(0)) + self._own(wave)
        return found

    def _own(self, dataset: DataSet) -> Fraction:
        return sum((r.cost for r in self.reservations.values() if r.dataset == dataset.name), Fraction(0))

    def _partitions(self, dataset: DataSet) -> dict[str, Fraction]:
        dearest: dict[str, Fraction] = {}
        for part in self.datasets.values():
            if part.whole == dataset.name and part.by is not None:
                dearest[part.by] = max(dearest.get(part.by, Fraction(0)), self.spent(part))
        return dearest

    def balance(self, dataset: DataSet) -> Balance:
        """What anybody in a data set, a part or a wave may have been charged anywhere, and what is left."""
        whole, room = self.whole_of(dataset), self.room(dataset)
        spent = whole.filter.limit - room
        charged = [r for r in self.reservations.values() if r.dataset == dataset.name]
        return Balance(
            dataset,
            spent,
            room,
            whole.filter.epsilon_of(spent),
            len(charged),
            sum(r.outcome == "reserved" for r in charged),
            self.exposures(dataset),
        )
