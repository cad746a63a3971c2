"""The ledger: what every release on a data set has cost, and whether the next one may happen."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.domains.columns import Columns, data_mark
from private_mcmc.errors import BudgetExceeded, DeclarationError, LedgerError, ReleaseError, clean_errors
from private_mcmc.release.ledger_file import Head, LedgerFile, Transaction
from private_mcmc.release.ledger_state import DataSet, Filter, LedgerState, Outcome, Reservation
from private_mcmc.release.released import too_little_left
from private_mcmc.system import warn_of_what_was_paid
from private_mcmc.target import Target

# Charges made in this process that have paid for no run yet. A child process has a copy, and other numbers.
_UNUSED: set[tuple[int, str]] = set()
# Charges of which what was released is in this process's memory alone: they are not settled as released.
UNSAVED: set[str] = set()
# How runs have ended whose release is out: what stops their process then changes nothing of it.
ENDS: dict[str, Outcome] = {}


def take(charge: Reservation) -> None:
    """Let a charge pay for a run: for one, and only in the process that made it.

    No other process can tell whether its run was released before whoever made it was stopped.
    """
    try:
        _UNUSED.remove((os.getpid(), charge.identity))
    except KeyError:
        words = "that charge has paid for a run, or was made in another process: charge this run anew."
        raise ReleaseError(words) from None


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

    Raises:
        LedgerError: if the file is missing or damaged.

    Example:
        >>> ledger = pmc.Ledger.create("books.db")
        >>> balance = ledger.declare("survey-2026", pmc.Target(epsilon=5.0, delta=1e-6))
        >>> price = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=4.0)
        >>> with ledger.charge("survey-2026", price, purpose="mean income"):
        ...     pass  # draw and release here
        >>> ledger.history()[0].outcome
        'released'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = LedgerFile(Path(path))
        self.state()

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Ledger:
        """A new file, readable by its owner only."""
        LedgerFile(Path(path)).create()
        return cls(path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def checkpoint_key(self) -> bytes:
        """The secret by which a checkpoint is known from one that somebody changed."""
        with self._file.opened() as transaction:
            return hmac.new(transaction.key, b"checkpoint", hashlib.sha256).digest()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @clean_errors
    def declare(self, name: str, target: Target, *, unit: str | None = None) -> DataSet:
        """Declare a data set, its adjacency and its budget, once and for good.

        Args:
            name: the owner's name for it.
            target: adjacency and total ``(ε, δ)`` of everything that will ever be released on it.
            unit: name of the column of identifiers, where persons are protected and not rows.
        """
        for one in (name,) if unit is None else (name, unit):
            if not one or one != one.strip() or not one.isprintable() or "/" in one:
                raise DeclarationError(
                    f"name {one!r}: not empty, without '/', spaces at its ends and unprintable signs."
                )
        budget = Filter.of(target).to_dict()
        with self._file.opened(writing=True) as transaction:
            if name in transaction.state.datasets:
                raise LedgerError(f"{self.path}: {name!r} is declared already; a budget is never changed.")
            transaction.append("dataset", name=name, adjacency=target.adjacency, filter=budget, unit=unit)
            return transaction.state.dataset(name)

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
        with self._file.opened(writing=True) as transaction:
            cost = affordable(transaction.state.dataset(dataset), statement, unit)
            _recognise(transaction, dataset, data)
            said = {"purpose": purpose, "model": model, "staged": staged, "unit": unit}
            paid = {"identity": uuid.uuid4().hex, "dataset": dataset, "cost": str(cost)}
            transaction.append("reserve", **paid, **said, statement=statement.to_dict())
            made = transaction.state.reservations[paid["identity"]]
        _UNUSED.add((os.getpid(), made.identity))
        return made

    def stage(self, reservation: Reservation, statement: Statement) -> None:
        """Charge one stage of an open reservation, before it touches a row. On disk when this returns.

        Raises:
            BudgetExceeded: for more than is left of what was set aside.
            LedgerError: if the reservation is settled or not for stages, or for any trouble with the file.
        """
        with self._file.opened(writing=True) as transaction:
            current = self._open(transaction, reservation.identity, staged=True)
            dataset = transaction.state.dataset(current.dataset)
            cost, left = dataset.cost(statement, current.unit), current.cost - current.charged
            if not cost <= left:
                shown, rest = dataset.filter.describe(cost), dataset.filter.describe(left, left=True)
                raise BudgetExceeded(f"the stage costs {shown}, and of what was set aside {rest} is left.")
            price = statement.to_dict()
            transaction.append("stage", identity=current.identity, cost=str(cost), statement=price)

    def _open(self, transaction: Transaction, charge: str, staged: bool = False) -> Reservation:
        found = transaction.state.reservations.get(charge)
        if found is None or found.outcome != "reserved" or (staged and not found.staged):
            raise LedgerError(f"{self.path}: this charge is not open{' for stages' if staged else ''}.")
        return found

    @clean_errors
    def recognise(self, dataset: str, data: Columns | None) -> None:
        """Refuse data that ``dataset`` does not stand for; the first ones to come are kept in mind.

        Raises:
            LedgerError: for other data than before, or those of another name.
        """
        with self._file.opened(writing=True) as transaction:
            _recognise(transaction, dataset, data)

    def settle(self, reservation: Reservation, outcome: Outcome = "released") -> None:
        """Record how a reserved release ended; what was charged stays spent either way.

        What was released must be where it cannot be lost before this is called.

        Raises:
            LedgerError: if it is unknown or settled already.
        """
        if outcome not in ("released", "stopped", "kept"):
            raise DeclarationError(f"outcome {outcome!r}: 'released', 'stopped' or 'kept'.")
        with self._file.opened(writing=True) as transaction:
            current = self._open(transaction, reservation.identity)
            transaction.append("settle", identity=current.identity, outcome=outcome)

    def know(self, charge: str, fingerprint: str) -> None:
        """Keep the fingerprint of a dossier of a charge, by which it is known from one that was changed.

        Raises:
            LedgerError: for a charge that is not in the ledger, or any trouble with the file.
        """
        with self._file.opened(writing=True) as transaction:
            found = transaction.state.reservations.get(charge)
            if found is None:
                raise LedgerError(f"{self.path}: there is no such charge.")
            if fingerprint not in found.dossiers:
                transaction.append("dossier", identity=charge, fingerprint=fingerprint)

    @clean_errors
    def charge(self, dataset: str, statement: Statement, **said: Any) -> AbstractContextManager[Reservation]:
        """:meth:`reserve` now; settle on leaving, as ``released`` or, after an exception, as ``kept``.

        What stops a run whose release is out changes nothing of it. A charge whose release could not be
        written where it was to be stays open. What was run is not lost for a ledger that cannot be written
        any more, which gives a warning: one that is not settled is spent as well.
        """
        return self.settled(self.reserve(dataset, statement, **said))

    def reopen(self, charge: str) -> Reservation:
        """An open charge of a run in stages, to pay for more of them from this process.

        Each stage that it pays for is charged, whoever else does the same.

        Raises:
            LedgerError: for any other charge.
        """
        with self._file.opened() as transaction:
            found = self._open(transaction, charge, staged=True)
        _UNUSED.add((os.getpid(), charge))
        return found

    @contextlib.contextmanager
    def settled(self, reservation: Reservation) -> Iterator[Reservation]:
        """Settle on leaving, as :meth:`charge` does; one that was settled meanwhile is left as it is."""
        name = reservation.identity
        try:
            yield reservation
        except BaseException:
            # The run's own error matters more than a ledger that cannot be written now: an unsettled
            # reservation is spent as well.
            if not (name in ENDS and name in UNSAVED):
                with contextlib.suppress(LedgerError):
                    self.settle(reservation, ENDS.get(name, "kept"))
            raise
        if name in UNSAVED:
            return
        try:
            if self.state().reservations[name].outcome == "reserved":
                self.settle(reservation, ENDS.get(name, "released"))
        except LedgerError as error:
            warn_of_what_was_paid(f"the charge stays open, and spent: {error}")

    def state(self) -> LedgerState:
        """All data sets and reservations, after checking the whole file."""
        with self._file.opened() as transaction:
            return transaction.state

    def balance(self, dataset: str) -> DataSet:
        """A data set with its charges: spent and remaining."""
        return self.state().dataset(dataset)

    def history(self, dataset: str | None = None) -> tuple[Reservation, ...]:
        """Charges in order, of one data set or of all."""
        state = self.state()
        return tuple(state.reservations.values() if dataset is None else state.dataset(dataset).charges)

    def verify(self, head: str | None = None) -> Head:
        """Check the file, every charge against its statement, and that nothing after ``head`` is missing.

        Args:
            head: an earlier return value, as text, kept where nobody could change it with the file.

        Raises:
            LedgerError: for whatever is wrong; what is charged stays charged.
        """
        with self._file.opened() as transaction:
            if head is not None:
                transaction.refuse_without(head)
            transaction.state.recheck()
            return transaction.head


def affordable(dataset: DataSet, statement: Statement, unit: str | None) -> Fraction:
    """What a statement costs a data set; raises ``BudgetExceeded`` where that does not fit any more."""
    cost = dataset.cost(statement, unit)
    if not cost <= dataset.remaining:
        raise BudgetExceeded(too_little_left(dataset, cost))
    return cost


def _recognise(transaction: Transaction, name: str, data: Columns | None) -> None:
    known = {one.name: one.fingerprint for one in transaction.state.datasets.values()}
    if data is None:
        return
    mark = data_mark(transaction.key, data)
    if known[name] is None:
        if other := next((one for one, found in known.items() if found == mark), None):
            raise LedgerError(
                f"these are the data that this ledger knows as {other!r}: under a second name a second "
                "budget would be spent on the same people. Charge them to that name."
            )
        transaction.append("fingerprint", dataset=name, fingerprint=mark)
    elif mark != known[name]:
        raise LedgerError(
            f"these are not the data that {name!r} stands for. If rows came or went, this is a new data set; "
            "people in both are charged in both."
        )
