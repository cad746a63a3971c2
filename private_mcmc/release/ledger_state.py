"""What a ledger's entries add up to: data sets and their budgets, reservations, and whether they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

from private_mcmc.accounting import Statement, gdp, verify
from private_mcmc.errors import DeclarationError, LedgerError, PrivateMCMCError, ReleaseError
from private_mcmc.records import Fields, Record
from private_mcmc.report import at_least, at_most
from private_mcmc.target import Adjacency, Target, check_adjacency

_ROUNDED = 1e-9
# What is shown as fitting must fit, whatever a conversion rounds.
BELOW = 1 - 1e-8


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


@dataclass
class Reservation:
    """A charge. It is spent from the moment it is on disk, whatever happens to the run.

    Of a run in stages the whole budget is set aside, and each stage is charged before it touches a row. What
    was set aside and never charged is free again once the run is settled as stopped or failed; a stage that
    was charged stays spent, whatever came of it.

    Attributes:
        identity: its unique name.
        dataset: what it was charged to.
        cost: ``m²`` that was set aside, as an exact fraction.
        statement: the statement it paid for, as plain values.
        purpose: the owner's words.
        model: fingerprint of the model, or ``""``.
        time: when it was made, UTC.
        staged: whether it is charged stage by stage.
        unit: the column of identifiers, where a row of the statement is the one row of a person that enters.
        before: ``m²`` that counted against the data set's budget when it was made.
        outcome: ``"reserved"`` (running, or crashed), ``"released"``, ``"stopped"`` by its owner before its
            last stage, or ``"kept"`` after a failure.
        settled: when its outcome was recorded, or ``""``.
        stages: statements of the stages that were charged, as plain values, each with its ``m²``.
        dossiers: fingerprints of the records that were made of it.
    """

    identity: str
    dataset: str
    cost: Fraction
    statement: Record
    purpose: str
    model: str
    time: str
    staged: bool
    unit: str | None
    before: Fraction
    outcome: Outcome = field(default="reserved", init=False)
    settled: str = field(default="", init=False)
    stages: list[tuple[Record, Fraction]] = field(default_factory=list, init=False)
    dossiers: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        words = (self.identity, self.purpose, self.model, self.time, self.unit or "")
        if not (all(isinstance(word, str) for word in words) and isinstance(self.statement, dict)):
            raise TypeError("fields of other types")

    @property
    def charged(self) -> Fraction:
        """``m²`` of the stages that were charged so far."""
        return sum((cost for _, cost in self.stages), Fraction(0))

    @property
    def spent(self) -> Fraction:
        """``m²`` that counts against the budget."""
        return self.charged if self.staged and self.outcome in ("stopped", "kept") else self.cost


@dataclass
class DataSet:
    """A data set as its owner declared it, and where it stands.

    Attributes:
        name: the owner's name for it.
        adjacency: the one relation all its statements are under.
        filter: its budget.
        unit: the column of identifiers of the persons that are protected, ``None`` where rows are.
        fingerprint: keyed hash of its columns, or ``None`` until data are seen.
        charges: what was charged to it, in order.
    """

    name: str
    adjacency: Adjacency
    filter: Filter
    unit: str | None
    fingerprint: str | None = field(default=None, repr=False)
    charges: list[Reservation] = field(default_factory=list, repr=False)

    @property
    def spent(self) -> Fraction:
        """``m²`` that was charged so far; the promise to the persons in the data is the whole budget."""
        return sum((one.spent for one in self.charges), Fraction(0))

    @property
    def remaining(self) -> Fraction:
        """The largest cost that may still be charged."""
        return self.filter.limit - self.spent

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
            kept, other = ("rows" if one is None else f"persons by {one!r}" for one in (self.unit, unit))
            raise LedgerError(
                f"{self.name!r} is kept for {kept}; a statement for {other} never composes with it: state "
                "all releases for one unit, in a data set that was declared with that column of identifiers."
            )
        return self.filter.cost(statement)

    def what_fits(self) -> str:
        """What is left: as the ε of one more release, rounded down, and in its own currency."""
        room, kept = self.remaining, self.filter
        if not room > 0:
            return "nothing"
        # Of a budget that is whole its own ε; else that of one more release, with what computing it rounds.
        left = at_least(kept.epsilon_of(room) * BELOW) if self.spent else at_least(kept.epsilon, 6)
        return f"ε = {left} ({kept.describe(room, left=True)})"


class LedgerState:
    """All data sets and reservations of a ledger, in the order they were entered.

    What an entry of a kind holds are the arguments of the method ``_of_…`` that takes it: a field that a
    later version writes may change what the others mean, and is refused.
    """

    def __init__(self, entries: Iterable[Fields]) -> None:
        self.datasets: dict[str, DataSet] = {}
        self.reservations: dict[str, Reservation] = {}
        for number, entry in enumerate(entries, start=1):
            try:
                self._enter(**entry)
            except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, LedgerError) as error:
                raise LedgerError(
                    f"entry {number} of the ledger makes no sense to this version ({type(error).__name__}): "
                    "it was written by a newer version or tampered with. Nothing is run against it."
                ) from error

    def _enter(self, *, kind: str, time: str, **fields: Any) -> None:
        getattr(self, f"_of_{kind}")(time, **fields)

    def _of_dataset(self, _: str, *, name: str, adjacency: str, filter: Fields, unit: str | None) -> None:
        if name in self.datasets or not isinstance(unit or "", str):
            raise ValueError("declared twice, or of no unit")
        numbers = {one: float(filter[one]) for one in ("epsilon", "delta")}
        budget = Filter(**{**filter, **numbers, "limit": Fraction(filter["limit"])})
        self.datasets[str(name)] = DataSet(str(name), check_adjacency(adjacency), budget, unit)

    def _of_fingerprint(self, _: str, *, dataset: str, fingerprint: str) -> None:
        self.datasets[dataset].fingerprint = str(fingerprint)

    def _of_reserve(self, time: str, *, dataset: str, cost: str, **said: Any) -> None:
        kept = self.datasets[dataset]
        made = Reservation(dataset=dataset, cost=Fraction(cost), time=time, before=kept.spent, **said)
        if not 0 <= made.cost <= kept.filter.limit or made.identity in self.reservations:
            raise ValueError("a charge that cannot be")
        self.reservations[made.identity] = made
        kept.charges.append(made)

    def _of_stage(self, _: str, *, identity: str, cost: str, statement: Fields) -> None:
        found, amount = self.reservations[identity], Fraction(cost)
        if not (found.staged and found.outcome == "reserved" and 0 <= amount <= found.cost - found.charged):
            raise ValueError("a stage that cannot be")
        found.stages.append((dict(statement), amount))

    def _of_dossier(self, _: str, *, identity: str, fingerprint: str) -> None:
        self.reservations[identity].dossiers.append(str(fingerprint))

    def _of_settle(self, time: str, *, identity: str, outcome: Outcome) -> None:
        found = self.reservations[identity]
        if outcome not in get_args(Outcome)[1:] or found.outcome != "reserved":
            raise ValueError("an outcome that cannot be")
        found.outcome, found.settled = outcome, str(time)

    def dataset(self, name: str) -> DataSet:
        """A declared data set. Raises ``LedgerError`` for an unknown name."""
        if name not in self.datasets:
            raise LedgerError(
                f"data set {name!r} is not in this ledger; it holds {sorted(self.datasets) or 'none'}."
            )
        return self.datasets[name]

    def recheck(self) -> None:
        """Raise ``LedgerError`` unless charges cover their statements, and budgets their charges."""
        for one in self.reservations.values():
            for record, charged in ((one.statement, one.cost), *one.stages):
                try:
                    cost = self.dataset(one.dataset).cost(Statement.from_dict(record), one.unit)
                except PrivateMCMCError as error:
                    raise LedgerError(f"charge {one.identity} is not verified: {error}") from error
                if not charged >= cost:
                    raise LedgerError(f"charge {one.identity} is less than its statement costs.")
        for dataset in self.datasets.values():
            if dataset.remaining < 0:
                raise LedgerError(f"what was charged to {dataset.name!r} is more than its budget.")
