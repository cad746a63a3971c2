"""The ledger: what every release on a data set has cost, and whether the next one may happen."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.errors import (
    BudgetExceeded,
    DeclarationError,
    LedgerError,
    ReleaseError,
    clean_errors,
    warn_of_what_was_paid,
)
from private_mcmc.records import as_seen
from private_mcmc.release.ledger_export import refusal, report, what_fits
from private_mcmc.release.ledger_file import Columns, Head, LedgerFile, Transaction, data_mark
from private_mcmc.release.ledger_state import (
    Balance,
    DataSet,
    Filter,
    LedgerState,
    Outcome,
    Reservation,
    recheck,
    replay,
)
from private_mcmc.report import Report
from private_mcmc.target import Target

# Charges made in this process that have paid for no run yet. A child process has a copy, and other numbers.
_UNUSED: set[tuple[int, str]] = set()
# Charges of which what was released is in this process's memory alone.
_UNSAVED: set[str] = set()
# How runs have ended whose release is out, whatever follows.
_ENDS: dict[str, Outcome] = {}


def take(charge: Reservation) -> None:
    """Let a charge pay for a run: for one, and only in the process that made it.

    No other process can tell whether its run was released before whoever made it was stopped.
    """
    try:
        _UNUSED.remove((os.getpid(), charge.identity))
    except KeyError:
        raise ReleaseError(
            "that charge has paid for a run, or was made in another process: charge this run anew."
        ) from None


def note_end(charge: str, outcome: Outcome) -> None:
    """Say that all that a charge paid for is released: what stops its process then changes nothing of it."""
    _ENDS[charge] = outcome


def note_copy(charge: str, saved: bool) -> None:
    """Say whether all that a charge has released so far is on disk; only then it is settled as released."""
    (_UNSAVED.discard if saved else _UNSAVED.add)(charge)


def is_saved(charge: str) -> bool:
    """Whether nothing that a charge has released is in this process's memory alone."""
    return charge not in _UNSAVED


class Ledger:
    """A file of charges, shared by any number of processes.

    Every release reserves its cost *before* the run touches the data. The reservation is on disk when
    ``charge`` or ``reserve`` returns and stays spent whatever happens then: crash, error, interrupt.

    **Guarantee**: for every declared data set, all releases charged to it together are ``(ε, δ)``-DP with
    the owner's budget, also when each was chosen after seeing the earlier ones (see ``Filter``).
    **Assumptions**: every release on the data is charged here; the file is not replaced by a copy (keep
    ``head`` elsewhere to notice).

    Keep the file as secret as the data: the fingerprints in it are keyed hashes of the data.

    Args:
        path: the file; make one with :meth:`create`.
        key: the owner's secret key, if it was made with one.

    Raises:
        LedgerError: if the file is missing, damaged or made with another key.

    Example:
        >>> ledger = pmc.Ledger.create("books.db")
        >>> balance = ledger.declare("survey-2026", pmc.Target(epsilon=5.0, delta=1e-6))
        >>> price = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=4.0)
        >>> with ledger.charge("survey-2026", price, purpose="mean income"):
        ...     pass  # draw and release here
        >>> ledger.history()[0].outcome
        'released'
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes | None = None) -> None:
        self._file = LedgerFile(Path(path), key)
        self.state()

    @classmethod
    def create(cls, path: str | os.PathLike[str], key: bytes | None = None) -> Ledger:
        """A new file, readable by its owner only. With a ``key``, entries cannot be forged without it."""
        if key is not None and len(key) < 16:
            raise DeclarationError("key: at least 16 bytes from a random source.")
        LedgerFile(Path(path), key).create()
        return cls(path, key)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def checkpoint_key(self) -> bytes:
        """The secret by which a checkpoint is known from one that somebody changed."""
        with self._file.reading() as transaction:
            return hmac.new(transaction.key, b"checkpoint", hashlib.sha256).digest()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @clean_errors
    def declare(self, name: str, target: Target, *, unit: str | None = None) -> Balance:
        """Declare a data set, its adjacency and its budget, once and for good.

        Args:
            name: the owner's name for it.
            target: adjacency and total ``(ε, δ)`` of everything that will ever be released on it.
            unit: name of the column of identifiers, where persons are protected and not rows.
        """
        _check_name("data set", name)
        if unit is not None:
            _check_name("unit", unit)
        budget = Filter.of(target)
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            if name in state.datasets:
                raise LedgerError(f"{self.path}: {name!r} is declared already; a budget is never changed.")
            _check_apart(name, state.datasets)
            entry = {"name": name, "adjacency": target.adjacency, "filter": budget.to_dict()}
            state = _enter(transaction, "dataset", **entry, unit=unit)
            return state.balance(state.dataset(name))

    @clean_errors
    def reserve(
        self,
        dataset: str,
        statement: Statement,
        *,
        purpose: str,
        model: str = "",
        data: Columns | None = None,
        staged: bool = False,
        unit: str | None = None,
    ) -> Reservation:
        """Charge a release before it runs. On disk when this returns.

        A ``staged`` one sets the budget of a plan aside; :meth:`stage` then charges each stage. ``unit``: the
        column of identifiers, where a row of the statement is the one row of a person that enters.

        Raises:
            BudgetExceeded: if too little is left; the message says what would fit.
            LedgerError: for another adjacency or unit, other data than before, or any trouble with the file.
        """
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            kept = state.dataset(dataset)
            cost = _affordable(state, kept, statement, unit)
            self._recognise(transaction, state, kept, data)
            identity = uuid.uuid4().hex
            entry = {"id": identity, "dataset": dataset, "cost": str(cost), "statement": statement.to_dict()}
            said = {"purpose": purpose, "model": model, "staged": staged, "unit": unit}
            made = _enter(transaction, "reserve", **entry, **said).reservations[identity]
        _UNUSED.add((os.getpid(), identity))
        return made

    def stage(self, reservation: Reservation, statement: Statement) -> None:
        """Charge one stage of an open reservation, before it touches a row. On disk when this returns.

        Raises:
            BudgetExceeded: for more than is left of what was set aside.
            LedgerError: if the reservation is settled or not for stages, or for any trouble with the file.
        """
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            current = state.reservations.get(reservation.identity)
            if current is None or current.outcome != "reserved" or not current.staged:
                raise LedgerError(f"{self.path}: this reservation is not open for stages.")
            kept = state.dataset(current.dataset)
            cost = kept.cost(statement, current.unit)
            if not cost <= current.cost - current.charged:
                raise BudgetExceeded(
                    f"the stage costs {kept.filter.describe(cost)}, and of what was set aside "
                    f"{kept.filter.describe(current.cost - current.charged, left=True)} is left."
                )
            _enter(transaction, "stage", id=current.identity, cost=str(cost), statement=statement.to_dict())

    @clean_errors
    def recognise(self, dataset: str, data: Columns | None) -> None:
        """Refuse data that ``dataset`` does not stand for; the first ones to come are kept in mind.

        Raises:
            LedgerError: for other data than before, or those of another name.
        """
        with self._file.writing() as transaction:
            state = replay(transaction.entries)
            self._recognise(transaction, state, state.dataset(dataset), data)

    def room_for(self, dataset: str, statement: Statement, unit: str | None = None) -> str:
        """What is left for a data set, in words, if a release of this price would be charged now.

        Raises:
            BudgetExceeded, LedgerError: as :meth:`reserve` would.
        """
        state = self.state()
        kept = state.dataset(dataset)
        _affordable(state, kept, statement, unit)
        return what_fits(kept.filter, state.room(kept))

    def settle(self, reservation: Reservation, outcome: Outcome = "released") -> None:
        """Record how a reserved release ended; what was charged stays spent either way.

        What was released must be where it cannot be lost before this is called.

        Raises:
            LedgerError: if it is unknown or settled already.
        """
        if outcome not in ("released", "stopped", "kept"):
            raise DeclarationError(f"outcome {outcome!r}: 'released', 'stopped' or 'kept'.")
        with self._file.writing() as transaction:
            current = replay(transaction.entries).reservations.get(reservation.identity)
            if current is None or current.outcome != "reserved":
                raise LedgerError(f"{self.path}: this reservation is not open.")
            _enter(transaction, "settle", id=current.identity, outcome=outcome)

    def know(self, charge: str, fingerprint: str) -> None:
        """Keep the fingerprint of a dossier of a charge, by which it is known from one that was changed.

        Raises:
            LedgerError: for a charge that is not in the ledger, or any trouble with the file.
        """
        with self._file.writing() as transaction:
            found = replay(transaction.entries).reservations.get(charge)
            if found is None:
                raise LedgerError(f"{self.path}: there is no such charge.")
            if fingerprint not in found.dossiers:
                _enter(transaction, "dossier", id=charge, fingerprint=fingerprint)

    @clean_errors
    def charge(self, dataset: str, statement: Statement, **said: Any) -> AbstractContextManager[Reservation]:
        """:meth:`reserve` now; settle on leaving, as ``released`` or, after an exception, as ``kept``.

        What stops a run whose release is out changes nothing of it. A charge whose release could not be
        written where it was to be stays open. What was run is not lost for a ledger that cannot be written
        any more, which gives a warning: one that is not settled is spent as well.
        """
        return self.settled(self.reserve(dataset, statement, **said))

    def reopen(self, dataset: str, charge: str) -> Reservation:
        """An open charge of a run in stages, to pay for more of them from this process.

        Each stage that it pays for is charged, whoever else does the same.

        Raises:
            LedgerError: for any other charge.
        """
        for found in self.history(dataset):
            if found.identity == charge and found.outcome == "reserved" and found.staged:
                _UNUSED.add((os.getpid(), charge))
                return found
        raise LedgerError(f"{self.path}: there is no such charge of stages that is open.")

    @contextlib.contextmanager
    def settled(self, reservation: Reservation) -> Iterator[Reservation]:
        """Settle on leaving, as :meth:`charge` does; one that was settled meanwhile is left as it is."""
        name = reservation.identity
        try:
            yield reservation
        except BaseException:
            # The run's own error matters more than a ledger that cannot be written now: an unsettled
            # reservation is spent as well.
            if not (name in _ENDS and name in _UNSAVED):
                with contextlib.suppress(LedgerError):
                    self.settle(reservation, _ENDS.get(name, "kept"))
            raise
        if name in _UNSAVED:
            return
        try:
            if self.state().reservations[name].outcome == "reserved":
                self.settle(reservation, _ENDS.get(name, "released"))
        except LedgerError as error:
            warn_of_what_was_paid(f"the charge stays open, and spent: {error}")

    def state(self) -> LedgerState:
        """All data sets and reservations, after checking the whole file."""
        with self._file.reading() as transaction:
            return replay(transaction.entries)

    def balance(self, dataset: str) -> Balance:
        """Spent and remaining."""
        state = self.state()
        return state.balance(state.dataset(dataset))

    def history(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        """Charges in order, of one data set or of all."""
        state = self.state()
        if dataset is not None:
            state.dataset(dataset)
        return tuple(r for r in state.reservations.values() if dataset in (None, r.dataset))

    def report(self) -> Report:
        """What was spent on every data set and what is left, and every charge."""
        return report(self.state())

    def verify(self, head: str | None = None) -> Head:
        """Check the file, every charge against its statement, and that nothing after ``head`` is missing.

        Args:
            head: an earlier return value, as text, kept where nobody could change it with the file.

        Raises:
            LedgerError: for whatever is wrong; what is charged stays charged.
        """
        with self._file.reading() as transaction:
            state = replay(transaction.entries)
            if head is not None:
                transaction.refuse_without(head)
            recheck(self.path, state)
            return transaction.head

    def _recognise(
        self, transaction: Transaction, state: LedgerState, dataset: DataSet, data: Columns | None
    ) -> None:
        if data is None:
            return
        mark = data_mark(transaction.key, data)
        if dataset.fingerprint is None:
            if (known := state.other_name(mark)) is not None:
                raise LedgerError(
                    f"these are the data that this ledger knows as {known!r}: under a second name a second "
                    "budget would be spent on the same people. Charge them to that name."
                )
            _enter(transaction, "fingerprint", dataset=dataset.name, fingerprint=mark)
        elif not hmac.compare_digest(mark, dataset.fingerprint):
            raise LedgerError(
                f"these are not the data that {dataset.name!r} stands for. If rows came or went, this is a "
                "new data set; people in both are charged in both."
            )


def _affordable(state: LedgerState, dataset: DataSet, statement: Statement, unit: str | None) -> Fraction:
    """What a statement costs a data set; raises ``BudgetExceeded`` where that does not fit any more."""
    cost = dataset.cost(statement, unit)
    if not cost <= state.room(dataset):
        raise BudgetExceeded(refusal(state, dataset, cost))
    return cost


def _check_name(what: str, name: str) -> None:
    """Refuse a name that cannot be shown as it is."""
    if not name or name != name.strip() or not name.isprintable() or "/" in name:
        raise DeclarationError(
            f"{what} {name!r}: not empty, without '/', spaces at its ends and unprintable signs."
        )


def _check_apart(name: str, known: Iterable[str]) -> None:
    """Refuse a name that differs from a known one in looks alone.

    Spaces, invisible signs, capitals and the ways to write an accent do not tell two names apart.
    """
    if alike := next((one for one in known if one != name and _looks(one) == _looks(name)), None):
        raise DeclarationError(
            f"data set {name!r} looks like {alike!r}, which is there: what is charged to one would not count "
            "for the other. Give it another name, or charge that one."
        )


def _looks(name: str) -> str:
    return "".join(as_seen(name).casefold().split())


def _enter(transaction: Transaction, kind: str, **fields: object) -> LedgerState:
    """Append an entry at its time, UTC; what all entries add up to with it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    transaction.append({"kind": kind, **fields, "time": now})
    return replay(transaction.entries)
