"""Where a run is charged and saved: reserved in the ledger, begun once, taken up again, settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

from private_mcmc.accounting import Statement
from private_mcmc.accounting.assumptions import NOT_PRIVATE
from private_mcmc.arguments import check_kind, construction_checked
from private_mcmc.errors import (
    DeclarationError,
    LedgerError,
    PrivateMCMCError,
    ReleaseError,
    warn_of_what_was_paid,
)
from private_mcmc.inference.checkpoint import (
    Checkpoint,
    Head,
    Saver,
    check_place,
    header,
    in_file,
    remove_leftovers,
    saved_run,
)
from private_mcmc.kernels import Provenance, RunKeys, Streams
from private_mcmc.kernels.chain import ChainState
from private_mcmc.records import Fields, Record
from private_mcmc.release import Ledger, Reservation
from private_mcmc.release.ledger.ledger import is_saved, note_copy, take

Charge = TypeVar("Charge", Reservation, AbstractContextManager[Reservation])


@construction_checked
@dataclass(frozen=True)
class Bookkeeping:
    """Where runs are charged and saved; without a ledger nothing is charged.

    Attributes:
        ledger: charged before the first step, once all that may fail has been tried; see
            :class:`private_mcmc.Ledger`.
        dataset: the ledger's name for the data set.
        purpose: the owner's words for the ledger's history.
        checkpoint: save the run as it goes, in a secret file from which ``resume`` goes on.
        known_by: private columns by which the ledger recognises the data set, where runs use parts of it;
            the run's own if left out.
        person: the column of identifiers, where one row of each person enters.
        keep: given what a plan has released and the charge, after every stage and before the charge is
            settled; ``None`` leaves it in memory alone. Where it fails, the charge stays open, and spent.
        reserved: the open charge of ``fit``, which pays for the bounds that it bought and for this one run.

    Raises:
        DeclarationError: for a ledger without a data set, or a data set without a ledger.

    Example:
        >>> pmc.Bookkeeping(checkpoint=pmc.Checkpoint("run.ckpt")).ledger is None
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
            raise DeclarationError(
                "give both a ledger and the dataset= that it knows the rows by, or neither."
            )
        if self.reserved is not None and self.checkpoint is not None:
            raise DeclarationError("a run that an open charge has paid for cannot be saved in a checkpoint.")
        if self.ledger is not None:
            check_kind("ledger", self.ledger, Ledger)
        if self.checkpoint is not None:
            check_kind("checkpoint", self.checkpoint, Checkpoint)

    def hand_on(self, outcome: object, charge: Fields | None, warn: bool = True) -> bool:
        """Hand on what is released so far; whether that worked: the result is worth more than its copy."""
        if self.keep is None:
            return True
        saved, warn = False, warn and (charge is None or is_saved(str(charge["charge"])))
        try:
            self.keep(outcome, charge)
            saved = True
        except Exception as error:
            what = str(error) if isinstance(error, PrivateMCMCError) else type(error).__name__
            paid = "" if charge is None else ", and its charge stays open, and spent"
            if warn:
                warn_of_what_was_paid(f"what was released is in memory and not on disk ({what}){paid}.")
        finally:
            if charge is not None:
                note_copy(str(charge["charge"]), saved)
        return saved

    def pay(self, stage: Statement) -> None:
        """Charge a stage to the open charge, before it touches a row."""
        if self.reserved is not None and self.ledger is not None:
            self.ledger.stage(self.reserved, stage)

    def settled(self) -> AbstractContextManager[None]:
        """Settle the open charge on leaving."""
        if self.reserved is None or self.ledger is None:
            return nullcontext()
        return self.ledger.settled(self.reserved)

    def standing(self, charge: Reservation | None) -> Record | None:
        """What was spent before a charge and is left after it: read at once, since ledgers may go away."""
        if charge is None or self.ledger is None:
            return None
        return standing_in(self.ledger, charge.identity)

    def charged(
        self, how: Callable[..., Charge], price: Statement, words: str, columns: Fields, staged: bool = False
    ) -> Charge | None:
        """What a ledger's ``charge`` or ``reserve`` makes of a price; ``None`` without a ledger."""
        if self.ledger is None or self.dataset is None:
            return None
        data: dict[str, Any] = dict(columns if self.known_by is None else self.known_by)
        if self.reserved is not None:
            # As the ledger has it. What stages have not charged is free again at the end, so that a run
            # which charges none would be.
            wanted = (self.reserved.identity, "reserved", price.to_dict(), staged)
            if not any(
                (one.identity, one.outcome, one.statement, one.staged) == wanted
                for one in self.ledger.history(self.dataset)
            ):
                raise ReleaseError("reserved=…: that charge is settled, or was made for another run.")
            # Whoever made it may have had other rows, or none.
            self.ledger.recognise(self.dataset, data)
            # Whoever made the charge settles it.
            return nullcontext(self.reserved)  # type: ignore[return-value]
        more = {"purpose": self.purpose, "model": words, "data": data, "staged": staged}
        more["unit"] = self.person or None
        return how(self.ledger, self.dataset, price, **more)

    def know(self, charge: Fields | None, fingerprint: str) -> None:
        """Tell the ledger, if it can be written, the fingerprint of a record of this charge."""
        if self.ledger is None or charge is None:
            return
        try:
            self.ledger.know(str(charge["charge"]), fingerprint)
        except (LedgerError, KeyboardInterrupt) as error:
            why = str(error) or "interrupted"
            warn_of_what_was_paid(f"against the ledger this record will not be verified: {why}")


@dataclass(frozen=True, eq=False)
class RunKeysAndState:
    """The randomness of one run; ``finish`` is called once, with what keeps the release.

    ``charge`` is the run's place in the ledger: what was spent before it and is left. ``pay`` charges a stage
    of it before that touches a row.
    """

    streams: Streams = field(repr=False)
    provenance: Provenance
    saver: Saver | None = None
    state: ChainState | None = field(default=None, repr=False)
    finish: Callable[[Callable[[], None]], None] = lambda keep: keep()
    charge: Fields | None = None
    pay: Callable[[Statement], None] = lambda stage: None

    @classmethod
    def of(cls, keys: RunKeys) -> Self:
        """A run that is not saved."""
        streams = Streams(keys.take("start"), keys.take("steps"), keys.take("batches"))
        return cls(streams, keys.provenance)


@dataclass(frozen=True)
class ToSave:
    """What a checkpoint asks of a run.

    Attributes:
        identity: what must be the same for the same run; hashes only.
        size: bytes of its largest state.
    """

    identity: Mapping[str, str]
    size: int


def marked(statement: Statement, provenance: Provenance) -> Statement:
    """The statement, with a line that voids it when the caller chose the seed."""
    if not provenance.reproducible:
        return statement
    argument = statement.argument
    return replace(statement, argument=replace(argument, assumptions=(NOT_PRIVATE, *argument.assumptions)))


@dataclass(frozen=True, eq=False)
class ChargedRun:
    """One run at a price on private columns: begun, or taken up again, under these books.

    ``words`` are the ledger's for what runs, in stages or not; ``saved`` tells what a checkpoint asks of it,
    and refuses runs that none can hold.
    """

    books: Bookkeeping
    words: str
    price: Statement
    columns: Mapping[str, object]
    saved: Callable[[], ToSave]
    staged: bool = False

    def check_new(self) -> None:
        """Refuse to begin where a run is saved already, or nothing can be; before anything is charged."""
        if self.books.checkpoint is not None:
            check_place(self.books.checkpoint, self._to_save.size)

    @contextmanager
    def begun(self, keys: RunKeys) -> Iterator[RunKeysAndState]:
        """A new run, charged on entering; its cost stays spent if what follows fails.

        Under a checkpoint the charge stays open, since the run may go on after a failure; it is settled by
        ``finish``.
        """
        new = RunKeysAndState.of(keys)
        # What is charged says it too, or a record that says it no longer could not be told from the charge.
        seen = replace(self, price=marked(self.price, keys.provenance))
        if self.books.checkpoint is None:
            with seen._reserved(Ledger.charge) or nullcontext() as charge:
                if charge is not None:
                    take(charge)
                pay = replace(self.books, reserved=charge).pay
                yield replace(new, charge=self.books.standing(charge), pay=pay)
        else:
            head = header(self._to_save.identity, self.columns, keys.provenance)
            charge = seen._reserved(Ledger.reserve)
            if charge is not None:
                take(charge)
            paid = {"reservation": None if charge is None else charge.identity}
            about = replace(head, record={**head.record, **paid})
            saving = self._saving(self.books.checkpoint, about, new.streams, keys.provenance)
            yield replace(saving, charge=self.books.standing(charge))

    def resumed(self, checkpoint: Checkpoint) -> RunKeysAndState:
        """The run in the checkpoint, if it is this one and has not released."""
        saved = saved_run(in_file(checkpoint), checkpoint, self._to_save.identity, self.columns)
        charge = self._open(saved.head.record["reservation"])
        remove_leftovers(checkpoint)
        job = self._saving(checkpoint, saved.head, saved.streams, saved.provenance, saved.state)
        return replace(job, charge=self.books.standing(charge))

    def _reserved(self, how: Callable[..., Charge]) -> Charge | None:
        return self.books.charged(how, self.price, self.words, self.columns, self.staged)

    @cached_property
    def _to_save(self) -> ToSave:
        return self.saved()

    def _saving(
        self,
        checkpoint: Checkpoint,
        about: Head,
        streams: Streams,
        provenance: Provenance,
        state: ChainState | None = None,
    ) -> RunKeysAndState:
        saver = Saver(checkpoint, about, streams, saved=state is not None)

        def finish(keep: Callable[[], None]) -> None:
            reservation = self._open(about.record["reservation"])
            # The file gives the same release again, until the charge is settled and after.
            keep()
            if (
                reservation is not None
                and reservation.outcome == "reserved"
                and self.books.ledger is not None
            ):
                try:
                    self.books.ledger.settle(reservation)
                except LedgerError as error:
                    warn_of_what_was_paid(f"the charge stays open, and spent: {error}")
            saver.released()

        return RunKeysAndState(streams, provenance, saver, state, finish)

    def _open(self, identity: object) -> Reservation | None:
        """The open reservation of a run, ``None`` for one that was charged to no ledger.

        A run that its keys fix may have released: what it gives is that release.
        """
        if identity is None and self.books.ledger is None:
            return None
        charges = () if self.books.ledger is None else self.books.ledger.history(self.books.dataset)
        for charge in charges:
            if charge.identity == identity and charge.outcome in ("reserved", "released"):
                return charge
        raise ReleaseError(
            "this run has released already, or was charged elsewhere: resume it with the ledger and the "
            "dataset= that it was started with."
        )


def standing_in(ledger: Ledger, charge: str) -> Record:
    """What was spent before a charge and is left after it, in a ledger's file.

    The name of the file without its folder: a path may tell who keeps it.
    """
    return {"file": ledger.path.name, **ledger.state().standing(charge)}
