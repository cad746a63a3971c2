"""Where a run is charged: before it touches a row, once, and settled when it has released."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.accounting.statement import NOT_PRIVATE
from private_mcmc.arguments import check_kind, construction_checked
from private_mcmc.domains.columns import data_mark
from private_mcmc.dossier.record import standing_in
from private_mcmc.errors import DeclarationError, PrivateMCMCError, ReleaseError
from private_mcmc.inference.checkpoint import Checkpoint, SavedRun
from private_mcmc.kernels import Provenance, Streams
from private_mcmc.records import Fields, Record
from private_mcmc.release import Ledger, Reservation
from private_mcmc.release.ledger import UNSAVED, take
from private_mcmc.system import warn_of_what_was_paid


@construction_checked
@dataclass(frozen=True)
class Bookkeeping:
    """Where runs are charged and saved; without a ledger nothing is charged.

    Attributes:
        ledger: charged before the first step, once all that may fail has been tried; see
            :class:`private_mcmc.Ledger`.
        dataset: the ledger's name for the data set.
        purpose: the owner's words for the ledger's history.
        checkpoint: save the run as it goes, in a secret file, from which ``resume`` goes on; with a ledger.
        known_by: private columns by which the ledger recognises the data set, where runs use parts of it;
            the run's own if left out.
        person: the column of identifiers, where one row of each person enters.
        keep: given what a plan has released and the charge, after every stage and before the charge is
            settled; ``None`` leaves it in memory alone. Where it fails, the charge stays open, and spent.
        reserved: the open charge that pays for what follows; of ``fit`` for the bounds that it buys and for
            one run.

    Raises:
        DeclarationError: for a ledger without a data set, or a data set or a checkpoint without a ledger.

    Example:
        >>> pmc.Bookkeeping().ledger is None
        True
    """

    ledger: Ledger | None = None
    dataset: str | None = None
    purpose: str = ""
    checkpoint: Checkpoint | None = None
    known_by: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
    person: str = ""
    reserved: Reservation | None = None
    keep: Callable[[Any, Fields | None], None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.ledger is None) != (self.dataset is None):
            raise DeclarationError("give both a ledger and its dataset=, or neither.")
        for name, kind in (("ledger", Ledger), ("checkpoint", Checkpoint)):
            if getattr(self, name) is not None:
                check_kind(name, getattr(self, name), kind)
        if self.checkpoint is not None and self.ledger is None:
            raise DeclarationError("checkpoint=…: give a ledger, too, by whose charge one copy releases.")

    @contextmanager
    def charge(self, bill: Bill) -> Iterator[Bookkeeping]:
        """These books with an open charge of the bill: made on entering and settled on leaving.

        An open charge that they have already pays, if it is of this price, and stays open.
        """
        if self.ledger is None or self.dataset is None:
            yield self
        elif self.reserved is not None:
            self._open(self.ledger, self.reserved.identity, bill)
            yield self
        else:
            with self.ledger.charge(self.dataset, bill.price, **self._said(bill)) as charge:
                yield replace(self, reserved=charge)

    def _said(self, bill: Bill) -> Record:
        data = dict(bill.columns if self.known_by is None else self.known_by)
        what = {"purpose": self.purpose, "model": bill.words, "staged": bill.staged}
        return {**what, "data": data, "unit": self.person or None}

    def _open(self, ledger: Ledger, charge: str, bill: Bill) -> Reservation:
        """That charge as the ledger has it, of a run in stages if this is: one that charges none is free."""
        wanted = (charge, "reserved", bill.price.to_dict(), bill.staged, self.person or None)
        for one in ledger.history(self.dataset):
            if (one.identity, one.outcome, one.statement, one.staged, one.unit) == wanted:
                ledger.recognise(one.dataset, self._said(bill)["data"])  # it may be of other rows, or none
                return one
        raise ReleaseError(
            "that charge is settled, or was made for another run, in another ledger or for another dataset=; "
            "a run that has released already is not resumed."
        )

    def _mark(self, bill: Bill, key: bytes) -> str:
        return bill.run + ("" if self.known_by is None else data_mark(key, bill.columns))

    def pay(self, stage: Statement) -> None:
        """Charge a stage to the open charge, before it touches a row."""
        if self.reserved is not None and self.ledger is not None:
            self.ledger.stage(self.reserved, stage)

    @property
    def standing(self) -> Record | None:
        """What was spent before the open charge and is left after it: read at once, since ledgers may go."""
        if self.reserved is None or self.ledger is None:
            return None
        return standing_in(self.ledger, self.reserved.identity)

    def hand_on(self, outcome: object, charge: Fields | None) -> None:
        """Hand on what is released so far; where that fails, warn: the result is worth more than a copy."""
        if self.keep is None:
            return
        name = "" if charge is None else str(charge["charge"])
        told = charge is not None and name in UNSAVED
        UNSAVED.add(name)
        try:
            self.keep(outcome, charge)
            UNSAVED.discard(name)
        except Exception as error:
            what = str(error) if isinstance(error, PrivateMCMCError) else type(error).__name__
            paid = "" if charge is None else ", and its charge stays open, and spent"
            if not told:
                warn_of_what_was_paid(f"what was released is in memory and not on disk ({what}){paid}.")

    @contextmanager
    def begun(self, bill: Bill, streams: Streams, provenance: Provenance) -> Iterator[Job]:
        """A new run, charged on entering; its cost stays spent if what follows fails.

        Under a checkpoint the charge stays open, since the run may go on after a failure: ``finish`` settles
        it.
        """
        # What is charged says it too, or a record that says it no longer could not be told from the charge.
        bill = replace(bill, price=marked(bill.price, provenance))
        if self.checkpoint is None or self.ledger is None or self.dataset is None:
            with self.charge(bill) as books:
                if books.reserved is not None:
                    take(books.reserved)
                yield Job(books, streams, provenance)
            return
        if self.reserved is not None:
            raise DeclarationError("a run that an open charge pays for cannot be saved in a checkpoint.")
        self.checkpoint.begin()
        charge = self.ledger.reserve(self.dataset, bill.price, **self._said(bill))
        take(charge)
        key = self.ledger.checkpoint_key
        saved = SavedRun(self.checkpoint, key, self._mark(bill, key), charge.identity, provenance, streams)
        yield Job(replace(self, reserved=charge), streams, provenance, saved)

    def resumed(self, bill: Bill) -> Job:
        """The run in the checkpoint, if it is this one and has not released."""
        if self.checkpoint is None or self.ledger is None:
            raise ReleaseError("resume: only a driver made with checkpoint=… saves its runs.")
        saved = self.checkpoint.load(self.ledger.checkpoint_key)
        if saved.run != self._mark(bill, saved.key):
            raise ReleaseError(
                "the checkpoint is of another run (schedule, model, rows or start). Resume with what it was "
                "started with; anything else is a new run, charged again."
            )
        bill = replace(bill, price=marked(bill.price, saved.provenance))
        charge = self._open(self.ledger, saved.charge, bill)
        return Job(replace(self, reserved=charge), saved.streams, saved.provenance, saved)


@dataclass(frozen=True, eq=False, repr=False)
class Bill:
    """What a run costs, in which words, in stages or not, and on which private columns.

    ``run``: a mark of what must be the same for the same run; of those that are never saved ``""``.
    """

    price: Statement
    words: str
    columns: Fields
    staged: bool = False
    run: str = ""


@dataclass(frozen=True, eq=False)
class Job:
    """One run that is paid for: its randomness, its place in the ledger, and where it is saved, if it is."""

    books: Bookkeeping = field(repr=False)
    streams: Streams = field(repr=False)
    provenance: Provenance
    saved: SavedRun | None = None

    def finish(self) -> None:
        """Settle the charge of a run that was saved, before its release leaves: no copy of it releases again.

        Raises:
            LedgerError: if the charge is settled, or the ledger cannot be written; the run can be resumed.
        """
        if self.saved is not None and self.books.ledger is not None and self.books.reserved is not None:
            self.books.ledger.settle(self.books.reserved)


def marked(statement: Statement, provenance: Provenance) -> Statement:
    """The statement, with a line that voids it when the caller chose the seed."""
    if not provenance.reproducible:
        return statement
    argument = statement.argument
    return replace(statement, argument=replace(argument, assumptions=(NOT_PRIVATE, *argument.assumptions)))
