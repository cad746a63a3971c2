"""Where a run is charged and saved: charged before it touches a row, taken up again, settled once.

**Why a resumed run is no second mechanism.** A checkpoint holds the run's keys and the state that it has come
to. What was computed after that state and lost was never released; so whoever resumes goes on with one draw
of the one mechanism that was charged. A copy of the file, or a second process, could release another draw, or
the same noise on other rows: hence a run is saved only under a ledger, whose charge stays open until the run
settles it, once and before anything leaves, and which knows the rows. Whoever changes the file would choose
what is resumed: it is authenticated under a key of that ledger (HMAC-SHA-256), and a changed one is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.accounting.statement import NOT_PRIVATE
from private_mcmc.arguments import check_kind, construction_checked
from private_mcmc.errors import (
    DeclarationError,
    LedgerError,
    PrivateMCMCError,
    ReleaseError,
    warn_of_what_was_paid,
)
from private_mcmc.inference.columns import Columns, HostColumns
from private_mcmc.kernels import Provenance, RunKeys, Streams
from private_mcmc.kernels.chain import ChainState
from private_mcmc.kernels.keys import implementation
from private_mcmc.records import Fields, Record, sync_folder
from private_mcmc.release import Ledger, Reservation
from private_mcmc.release.ledger import is_saved, note_copy, take


@dataclass(frozen=True)
class Checkpoint:
    """Save a run in ``path`` about every so many ``seconds``, and once before its first step.

    **The file is as secret as the rows**: it holds hidden states and the keys of the noise. It is readable
    by its owner only, is no pickle, and is removed when the run has released. A file that cannot be written
    is found out before the charge if it can be; later (a full disk) it is a warning, and the run goes on.

    Example:
        >>> pmc.Checkpoint("run.ckpt", seconds=300)
        Checkpoint(path='run.ckpt', seconds=300)
    """

    path: str | os.PathLike[str]
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise DeclarationError(f"Checkpoint seconds={self.seconds}: must not be negative.")

    def begin(self) -> None:
        """Take the file's place, with nothing in it; refuse that of a run that was saved."""
        path = Path(self.path)
        try:
            if os.path.lexists(path) and path.stat().st_size:
                raise ReleaseError(
                    f"{path} is the checkpoint of an earlier run: resume() goes on with it. To start another "
                    "run, which is charged again, move the file away."
                )
            self._write(b"")
        except OSError as error:
            raise ReleaseError(f"{path}: the checkpoint cannot be written ({error.strerror}).") from error

    def remove(self) -> None:
        """Remove the file, whose run has released, and what was left of one half-written."""
        try:
            for path in (self._draft, Path(self.path)):
                path.unlink(missing_ok=True)
        except OSError as error:
            warn_of_what_was_paid(
                f"{self.path}: the run has released, and this file with its keys could not be removed "
                f"({error.strerror}): delete it."
            )

    def load(self, key: bytes) -> Saved:
        """The run in the file; raises ``ReleaseError`` where there is none that was saved under ``key``."""
        path = Path(self.path)
        if not (path.is_file() and path.stat().st_size):
            raise ReleaseError(f"{path}: there is no checkpoint of a run to resume.")
        whole = path.read_bytes()
        code, content = whole[:_CODE_BYTES], whole[_CODE_BYTES:]
        if not hmac.compare_digest(code, _code(key, content)):
            raise ReleaseError(
                f"{path}: damaged, changed, or no checkpoint of a run that this ledger was charged for; it "
                "is not resumed."
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        record = dict(json.loads(arrays.pop("record").tobytes()))
        provenance = Provenance(**record["provenance"])
        streams = Streams(*(_key(arrays[name], provenance.generator) for name in Streams._fields))
        state = ChainState(record["done"], arrays["u"], arrays["total"], arrays["kept"])
        return Saved(record["run"], record["charge"], provenance, streams, state)

    def save(self, run: Saved, key: bytes) -> None:
        """Replace the file at once, by one authenticated under ``key``: a crash leaves one of both."""
        state, content = run.state, io.BytesIO()
        record = {"run": run.run, "charge": run.charge, "provenance": run.provenance.to_dict()}
        keys = {
            name: np.zeros(0, np.uint32) if key is None else np.asarray(jax.random.key_data(key))
            for name, key in run.streams._asdict().items()
        }
        arrays: Mapping[str, Any] = {"u": state.u, "total": state.total, "kept": state.kept, **keys}
        text = np.frombuffer(json.dumps(record | {"done": state.done}).encode(), np.uint8)
        np.savez(content, record=text, **arrays)
        self._write(_code(key, content.getvalue()) + content.getvalue())

    @property
    def _draft(self) -> Path:
        path = Path(self.path)
        return path.with_name(f"{path.name}.part")

    def _write(self, content: bytes) -> None:
        self._draft.unlink(missing_ok=True)
        descriptor = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._draft, self.path)
        except BaseException:
            self._draft.unlink(missing_ok=True)
            raise
        sync_folder(Path(self.path).parent)


@dataclass(frozen=True, eq=False)
class Saved:
    """What the file of an unfinished run holds.

    Attributes:
        run: a mark of what must be the same for the same run.
        charge: that pays for it.
        provenance: where its keys came from.
    """

    run: str
    charge: str
    provenance: Provenance
    streams: Streams = field(repr=False)
    state: ChainState = field(repr=False)


@dataclass(eq=False)
class Saver:
    """Writes the states of one run, of which all but the state is in ``run`` already."""

    checkpoint: Checkpoint
    run: Fields = field(repr=False)
    key: bytes = field(repr=False)
    _last: float = field(default_factory=time.monotonic)

    def due(self) -> bool:
        """Whether so many seconds have passed since the last time."""
        return time.monotonic() - self._last >= self.checkpoint.seconds

    def save(self, state: ChainState) -> None:
        """Replace the file by one with this state; where that fails, warn and keep the older one."""
        self._last = time.monotonic()
        try:
            self.checkpoint.save(Saved(**self.run, state=state), self.key)
        except OSError as error:
            # The run is paid for: its result is worth more than being able to take it up again.
            warn_of_what_was_paid(
                f"{self.checkpoint.path}: the run could not be saved at step {state.done} "
                f"({error.strerror}); it goes on, and would be resumed from an earlier step."
            )


_CODE_BYTES = hashlib.sha256().digest_size


def _code(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def _key(words: np.ndarray, generator: str) -> Any:
    """A key from its words; the one of batches may be missing."""
    return (
        jax.random.wrap_key_data(jnp.asarray(words), impl=implementation(generator)) if words.size else None
    )


@construction_checked
@dataclass(frozen=True)
class Bookkeeping:
    """Where runs are charged and saved; without a ledger nothing is charged.

    Attributes:
        ledger: charged before the first step, once all that may fail has been tried; see
            :class:`private_mcmc.Ledger`.
        dataset: the ledger's name for the data set.
        purpose: the owner's words for the ledger's history.
        checkpoint: save the run as it goes, in a secret file from which ``resume`` goes on; with a ledger,
            which lets one charge release once.
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
            raise DeclarationError(
                "give both a ledger and the dataset= that it knows the rows by, or neither."
            )
        if self.ledger is not None:
            check_kind("ledger", self.ledger, Ledger)
        if self.checkpoint is not None:
            check_kind("checkpoint", self.checkpoint, Checkpoint)
            if self.ledger is None:
                raise DeclarationError(
                    "checkpoint=…: give a ledger, too: its charge is what keeps two copies of the file from "
                    "releasing twice."
                )

    @contextmanager
    def charge(
        self, price: Statement, words: str, columns: Fields, staged: bool = False
    ) -> Iterator[Bookkeeping]:
        """These books with an open charge of ``price``: made on entering and settled on leaving.

        An open charge that they have already pays, if it is of this price, and stays open. ``words`` are the
        ledger's for what runs on ``columns``, in stages or not.
        """
        if self.ledger is None or self.dataset is None:
            yield self
        elif self.reserved is not None:
            self._check_open(price, columns, staged)
            yield self
        else:
            with self.ledger.charge(self.dataset, price, **self._said(words, columns, staged)) as charge:
                yield replace(self, reserved=charge)

    def _said(self, words: str, columns: Fields, staged: bool) -> Record:
        data = dict(columns if self.known_by is None else self.known_by)
        unit = self.person or None
        return {"purpose": self.purpose, "model": words, "data": data, "staged": staged, "unit": unit}

    def _check_open(self, price: Statement, columns: Fields, staged: bool) -> None:
        """The charge as the ledger has it. What stages have not charged is free again at the end, so that a
        run which charges none would be.
        """
        if self.ledger is None or self.dataset is None or self.reserved is None:
            return
        wanted = (self.reserved.identity, "reserved", price.to_dict(), staged)
        if not any(
            (one.identity, one.outcome, one.statement, one.staged) == wanted
            for one in self.ledger.history(self.dataset)
        ):
            raise ReleaseError("reserved=…: that charge is settled, or was made for another run.")
        # Whoever made it may have had other rows, or none.
        self.ledger.recognise(self.dataset, self._said("", columns, staged)["data"])

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

    def know(self, charge: Fields | None, fingerprint: str) -> None:
        """Tell the ledger, if it can be written, the fingerprint of a record of this charge."""
        if self.ledger is None or charge is None:
            return
        try:
            self.ledger.know(str(charge["charge"]), fingerprint)
        except (LedgerError, KeyboardInterrupt) as error:
            why = str(error) or "interrupted"
            warn_of_what_was_paid(f"against the ledger this record will not be verified: {why}")

    @contextmanager
    def begun(self, bill: Bill, keys: RunKeys) -> Iterator[Job]:
        """A new run, charged on entering; its cost stays spent if what follows fails.

        Under a checkpoint the charge stays open, since the run may go on after a failure: ``finish`` settles
        it.
        """
        provenance = keys.provenance
        streams = Streams(keys.take("start"), keys.take("steps"), keys.take("batches"))
        # What is charged says it too, or a record that says it no longer could not be told from the charge.
        price = marked(bill.price, provenance)
        if self.checkpoint is None or self.ledger is None or self.dataset is None:
            with self.charge(price, bill.words, bill.columns, bill.staged) as books:
                if books.reserved is not None:
                    take(books.reserved)
                yield Job(books, streams, provenance, books.standing)
            return
        if self.reserved is not None:
            raise DeclarationError("a run that an open charge pays for cannot be saved in a checkpoint.")
        self.checkpoint.begin()
        charge = self.ledger.reserve(self.dataset, price, **self._said(bill.words, bill.columns, False))
        take(charge)
        yield self._saved_job(charge, bill, streams, provenance)

    def resumed(self, bill: Bill) -> Job:
        """The run in the checkpoint, if it is this one and has not released."""
        if self.checkpoint is None or self.ledger is None:
            raise ReleaseError("resume: only a driver made with checkpoint=… saves its runs.")
        saved = self.checkpoint.load(self.ledger.checkpoint_key)
        if saved.run != bill.run:
            raise ReleaseError(
                "the checkpoint is of another run (schedule, model, rows or start). Resume with what it was "
                "started with; anything else is a new run, charged again."
            )
        history = self.ledger.history(self.dataset)
        charge = next((one for one in history if one.identity == saved.charge), None)
        if charge is None or charge.outcome != "reserved":
            raise ReleaseError(
                "this run has released already, or was charged elsewhere: resume it with the ledger and the "
                "dataset= that it was started with."
            )
        books = replace(self, reserved=charge)
        books._check_open(marked(bill.price, saved.provenance), bill.columns, bill.staged)
        return self._saved_job(charge, bill, saved.streams, saved.provenance, saved.state)

    def _saved_job(
        self,
        charge: Reservation,
        bill: Bill,
        streams: Streams,
        provenance: Provenance,
        state: ChainState | None = None,
    ) -> Job:
        books = replace(self, reserved=charge)
        run = {"run": bill.run, "charge": charge.identity, "provenance": provenance, "streams": streams}
        saver = None
        if self.checkpoint is not None and self.ledger is not None:
            saver = Saver(self.checkpoint, run, self.ledger.checkpoint_key)
        return Job(books, streams, provenance, books.standing, saver, state)


@dataclass(frozen=True, eq=False, repr=False)
class Bill:
    """What a run costs, in which words, in stages or not, and on which private columns.

    ``run``: a mark of what must be the same for the same run; of those that are never saved ``""``.
    """

    price: Statement
    words: str
    columns: Columns | HostColumns
    staged: bool = False
    run: str = ""


@dataclass(frozen=True, eq=False)
class Job:
    """One run that is paid for: its randomness, where it stands, and its place in the ledger.

    ``charge``: what was spent before it and is left.
    """

    books: Bookkeeping = field(repr=False)
    streams: Streams = field(repr=False)
    provenance: Provenance
    charge: Fields | None = None
    saver: Saver | None = None
    state: ChainState | None = field(default=None, repr=False)

    def finish(self) -> None:
        """Settle the charge of a run that was saved, before its release leaves: no copy of it releases again.

        Raises:
            LedgerError: if the charge is settled, or the ledger cannot be written; the run can be resumed.
        """
        if self.saver is not None and self.books.ledger is not None and self.books.reserved is not None:
            self.books.ledger.settle(self.books.reserved)

    def forget(self) -> None:
        """Remove the checkpoint of a run whose release is out."""
        if self.saver is not None:
            self.saver.checkpoint.remove()


def marked(statement: Statement, provenance: Provenance) -> Statement:
    """The statement, with a line that voids it when the caller chose the seed."""
    if not provenance.reproducible:
        return statement
    argument = statement.argument
    return replace(statement, argument=replace(argument, assumptions=(NOT_PRIVATE, *argument.assumptions)))


def standing_in(ledger: Ledger, charge: str) -> Record:
    """What was spent before a charge and is left after it, in a ledger's file.

    The name of the file without its folder: a path may tell who keeps it.
    """
    return {"file": ledger.path.name, **ledger.state().standing(charge)}
