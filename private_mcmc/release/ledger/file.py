"""The ledger's file: SQLite, append-only, every entry chained to the one before by a keyed hash.

Nothing is ever updated or repaired. Every transaction first checks the whole chain, so that a damaged
file stops work before anything is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import PRESENT, HostColumn, blank, holds_person, numeric_column
from private_mcmc.errors import LedgerError
from private_mcmc.records import Fields, Record
from private_mcmc.release.ledger.journal import is_of_another

Columns = Mapping[str, npt.ArrayLike | HostColumn]
NumericColumn = npt.NDArray[np.generic]
# An entry of the ledger, as JSON holds it.
Entry = Fields

_ROWS = 2**16


def data_mark(key: bytes, data: Columns) -> str:
    """A keyed hash of the columns: names, shapes and values, block by block, and the numbers of the holes.

    What lies in a hole does not matter, and without holes it does not matter how their absence was told.
    """
    mark = hmac.new(key, b"data", hashlib.sha256)
    values = {
        name: column if isinstance(column, HostColumn) else numeric_column(name, column)
        for name, column in data.items()
    }
    flags = values.pop(PRESENT, None)
    for name in sorted(values):
        mark.update(f"\n{name} {values[name].shape}\n".encode())
        blocks = _blocks(values[name])
        for block in blocks if flags is None else map(blank, blocks, _blocks(flags)):
            # One type for all numbers, so that a narrower copy of the same data is recognised.
            mark.update(np.ascontiguousarray(block, dtype=np.float64).tobytes())
    for holes in [] if flags is None else _holes(flags):
        mark.update(holes.astype("<i8").tobytes())
    return mark.hexdigest()


def _holes(flags: HostColumn | NumericColumn) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers of the empty slots, in order."""
    first = 0
    for block in _blocks(flags):
        yield first + np.flatnonzero(~holds_person(block))
        first += len(block)


def _blocks(values: HostColumn | NumericColumn) -> Iterator[NumericColumn]:
    if isinstance(values, HostColumn):
        return values.blocks(_ROWS)
    if values.ndim == 0:
        return iter([values])
    return (values[first : first + _ROWS] for first in range(0, len(values), _ROWS))


_APPLICATION = 0x504D4C31  # "PML1"
_GENESIS = "private_mcmc ledger 1"
_BUSY_SECONDS = 120.0

_SCHEMA = """
CREATE TABLE keys (id INTEGER PRIMARY KEY CHECK (id = 1), held_by TEXT NOT NULL, key BLOB NOT NULL);
CREATE TABLE entries (sequence INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
# What SQLite keeps of these lines. A trigger or a view of somebody else could lose what is written.
_MADE = sorted(line.removesuffix(";") for line in _SCHEMA.strip().splitlines())


class Head(NamedTuple):
    """Number of entries and digest of the last one; kept elsewhere, it shows that nothing was removed."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


class LedgerFile:
    """Transactions on one ledger file. ``key`` is the owner's secret; without one the file holds its own."""

    def __init__(self, path: Path, key: bytes | None) -> None:
        self.path = path
        self._owner_key = key
        # An older copy in its place is as valid as the file was then: this process knows better.
        self._seen: Head | None = None

    def create(self) -> None:
        """Make a new empty file. Raises ``LedgerError`` if one is there."""
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            if self.path.exists():
                raise LedgerError(f"{self.path}: there is a file already; a ledger is never overwritten.")
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with self._errors(), contextlib.closing(self._connect(draft)) as connection:
                self._initialise(connection)
            # A link appears complete or not at all, and never replaces another process's ledger.
            os.link(draft, self.path)
        except FileExistsError:
            raise LedgerError(f"{self.path}: another process created it meanwhile.") from None
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot be created ({error.strerror}).") from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def _initialise(self, connection: sqlite3.Connection) -> None:
        key = self._owner_key or secrets.token_bytes(32)
        held_by = "file" if self._owner_key is None else "owner"
        stored = key if self._owner_key is None else hashlib.sha256(b"check" + key).digest()
        connection.executescript(f"PRAGMA application_id = {_APPLICATION}; BEGIN EXCLUSIVE; {_SCHEMA}")
        connection.execute("INSERT INTO keys VALUES (1, ?, ?)", (held_by, stored))
        connection.execute("INSERT INTO head VALUES (1, 0, ?)", (_genesis(key),))
        connection.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A checked, consistent view."""
        with self._transaction("BEGIN") as transaction:
            yield transaction

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A checked view that nobody else can change before what is appended here is on disk."""
        with self._transaction("BEGIN IMMEDIATE") as transaction:
            yield transaction

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Transaction]:
        with self._errors(), contextlib.closing(self._existing()) as connection:
            connection.execute(begin)
            try:
                transaction = Transaction(connection, self._key(connection), self.path)
                if self._seen is not None:
                    transaction.refuse_without(str(self._seen))
                yield transaction
                connection.execute("COMMIT")
                self._seen = transaction.head
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _existing(self) -> sqlite3.Connection:
        if not self.path.is_file():
            raise LedgerError(f"{self.path}: no such ledger; make one with `private-mcmc ledger init`.")
        if is_of_another(self.path):
            raise LedgerError(
                f"{self.path}: the journal beside it ({self.path.name}-journal) is of this ledger as it was "
                "at another time, before it was moved, copied or charged under another name: to undo what a "
                "killed process began would undo the charges of others. Nothing is run against it. Where no "
                "later copy of the ledger is, move that journal away, and check: private-mcmc ledger verify."
            )
        return self._connect(self.path)

    def _connect(self, path: Path) -> sqlite3.Connection:
        address = f"file:{quote(str(path.absolute()))}?mode=rw"
        connection = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            # One file and a rollback journal: a killed writer is undone by the next reader. EXTRA makes a
            # commit survive a power cut too. A write-ahead log, to which a tool may have turned the file, is
            # turned back: charges in that second file would be lost with it, without a trace. Another
            # program's file stays as it is.
            if connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION:
                connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def _key(self, connection: sqlite3.Connection) -> bytes:
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise LedgerError(f"{self.path}: not a ledger of this library.")
        laid = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")]
        if not all(isinstance(sql, str) for sql in laid) or sorted(laid) != _MADE:
            raise _damaged(self.path, "its tables or triggers are not those that it was made with")
        found = connection.execute("SELECT held_by, key FROM keys").fetchall()
        if len(found) != 1 or found[0][0] not in ("file", "owner") or not isinstance(found[0][1], bytes):
            raise _damaged(self.path, "its key is missing")
        held_by, stored = found[0]
        if held_by == "file":
            if self._owner_key is not None:
                raise LedgerError(f"{self.path}: was made without an owner's key; open it without one.")
            return bytes(stored)
        if self._owner_key is None:
            raise LedgerError(f"{self.path}: was made with an owner's key; give it (--key FILE).")
        if not hmac.compare_digest(stored, hashlib.sha256(b"check" + self._owner_key).digest()):
            raise LedgerError(f"{self.path}: this is not the key it was made with.")
        return self._owner_key

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's and the system's errors in words; the transaction is undone and nothing may run."""
        try:
            yield
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot be read ({error.strerror}).") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged schema breaks its own error message
            raise LedgerError(
                f"{self.path}: {_in_words(error)} Nothing was recorded, and nothing is begun without that."
            ) from error


class Transaction:
    """Entries of a checked chain, and appending to it."""

    def __init__(self, connection: sqlite3.Connection, key: bytes, path: Path) -> None:
        self._connection = connection
        self.key = key
        self._path = path
        self.entries, self.head = self._checked()

    def append(self, entry: Entry) -> None:
        """Add an entry; on disk when the transaction ends."""
        body = json.dumps(entry, sort_keys=True, allow_nan=False)
        digest = _chain(self.key, self.head.digest, body)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (self.head.number + 1, body, digest))
        self.head = Head(self.head.number + 1, digest)
        self._connection.execute("UPDATE head SET count = ?, digest = ?", self.head)
        self.entries = (*self.entries, json.loads(body))

    def refuse_without(self, head: str) -> None:
        """Raise ``LedgerError`` unless the chain passes through ``head``, an earlier one."""
        if not self._contains(head):
            raise LedgerError(
                f"{self._path}: entries that were recorded are gone: it was replaced by an older or another "
                "file."
            )

    def _contains(self, head: str) -> bool:
        count, _, digest = head.partition(":")
        if not (count.isdecimal() and len(count) < 16):
            return False
        rows = self._connection.execute(
            "SELECT digest FROM entries WHERE sequence = ?", (int(count),)
        ).fetchall()
        found = rows[0][0] if rows else _genesis(self.key) if int(count) == 0 else ""
        return _same(found, digest)

    def _checked(self) -> tuple[tuple[Record, ...], Head]:
        problems = self._connection.execute("PRAGMA integrity_check").fetchall()
        if problems != [("ok",)]:
            raise _damaged(self._path, "SQLite finds it inconsistent")
        heads = self._connection.execute("SELECT count, digest FROM head").fetchall()
        rows = self._connection.execute(
            "SELECT sequence, body, digest FROM entries ORDER BY sequence"
        ).fetchall()
        digest = _genesis(self.key)
        entries = []
        for number, (sequence, body, stored) in enumerate(rows, start=1):
            if sequence != number or not isinstance(body, str) or not isinstance(stored, str):
                raise _damaged(self._path, f"entry {number} is missing")
            digest = _chain(self.key, digest, body)
            if not _same(digest, stored):
                raise _damaged(self._path, f"entry {number} was changed")
            entries.append(_parsed(self._path, number, body))
        if heads != [(len(rows), digest)]:
            raise _damaged(self._path, "entries at its end are missing")
        return tuple(entries), Head(len(rows), digest)


def _parsed(path: Path, number: int, body: str) -> Record:
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        raise _damaged(path, f"entry {number} is not JSON") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise _damaged(path, f"entry {number} has no kind")
    return entry


def _same(first: str, second: str) -> bool:
    # A head given on a command line may hold bytes that are no text.
    return hmac.compare_digest(first.encode(errors="replace"), second.encode(errors="replace"))


def _chain(key: bytes, previous: str, body: str) -> str:
    return hmac.new(key, f"{previous}\n{body}".encode(), hashlib.sha256).hexdigest()


def _genesis(key: bytes) -> str:
    return hmac.new(key, _GENESIS.encode(), hashlib.sha256).hexdigest()


def _damaged(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{path}: damaged or tampered with ({what}). It is not repaired and nothing is run against it: "
        "restore a copy that is known to be complete, or treat the data sets' budgets as spent."
    )


def _in_words(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL"):
        return "the disk is full."
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN")):
        return "the file or its folder cannot be written."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"other processes kept it locked for {_BUSY_SECONDS:.0f} s."
    if name.startswith("SQLITE_IOERR"):
        return "reading or writing it failed (disk full or broken?)."
    return "it is damaged, or not a ledger. It is not repaired: restore a complete copy."
