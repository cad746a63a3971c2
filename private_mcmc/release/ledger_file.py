"""The ledger's file: lines that are only ever added, every entry chained to the one before by a keyed hash.

Three parts: who keeps the key; the *mark*, a line of fixed length with the number and the digest of the last
entry that was acknowledged; one line an entry, its digest and JSON. A charge is written behind the last entry
and synced, then the mark, then it is acknowledged. Nothing is ever undone: there is no journal that could
belong to another name or an older state of the file, so that hard links, mounts and moves of the one file are
all the same ledger. What a killed writer left behind the mark was never acknowledged: whole entries are kept,
since they can only cost budget, and a torn last line is cut off by the next writer.

Every transaction holds the kernel's lock on the file and first checks the whole chain.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import PRESENT, HostColumn, blank, holds_person, numeric_column
from private_mcmc.errors import LedgerError
from private_mcmc.records import Fields, Record, sync_folder

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


_FORMAT = "private_mcmc ledger 1"
MAGIC = b'{"format": "private_mcmc ledger'
# Of the mark's number of entries, and of a digest.
_DIGITS, _HEX = 15, 64
_MARK_BYTES = _DIGITS + 1 + _HEX + 1


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
        """Make a new empty file, which is refused until it is whole. ``LedgerError`` if one is there."""
        key = self._owner_key or secrets.token_bytes(32)
        held_by = "file" if self._owner_key is None else "owner"
        stored = key if self._owner_key is None else _check_of(key)
        first = json.dumps({"format": _FORMAT, "held_by": held_by, "key": stored.hex()}).encode()
        with self._errors():
            try:
                descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            except FileExistsError:
                raise LedgerError(
                    f"{self.path}: there is a file already; a ledger is never overwritten."
                ) from None
            try:
                _write_at(descriptor, first + b"\n" + _mark(Head(0, _genesis(key, first))), 0)
                os.fsync(descriptor)
                sync_folder(self.path.parent)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A checked, consistent view."""
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as (_, transaction):
            yield transaction

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A checked view that nobody else can change before what is appended here is on disk."""
        with self._locked(os.O_RDWR, fcntl.LOCK_EX) as (descriptor, transaction):
            yield transaction
            with self._errors():
                transaction.commit(descriptor)
            self._seen = transaction.head

    @contextlib.contextmanager
    def _locked(self, how: int, lock: int) -> Iterator[tuple[int, Transaction]]:
        with self._errors():
            descriptor = self._opened(how, lock)
        try:
            with self._errors():
                transaction = self._checked(descriptor)
            if self._seen is not None:
                transaction.refuse_without(str(self._seen))
            self._seen = transaction.head
            yield descriptor, transaction
        finally:
            os.close(descriptor)  # and with it the lock

    def _opened(self, how: int, lock: int) -> int:
        """The file, open and locked."""
        if not self.path.is_file():
            raise LedgerError(f"{self.path}: no such ledger; make one with `private-mcmc ledger init`.")
        descriptor = os.open(self.path, how | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, lock)  # for as long as others charge, which takes milliseconds
            here = os.fstat(descriptor)
            if not stat.S_ISREG(here.st_mode) or not os.path.samestat(here, os.stat(self.path)):
                raise LedgerError(f"{self.path}: another file took its place meanwhile. {_NOTHING}")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _checked(self, descriptor: int) -> Transaction:
        content = _read(descriptor)
        first, newline, rest = content.partition(b"\n")
        if not (first.startswith(MAGIC) and newline):
            raise LedgerError(f"{self.path}: not a ledger of this library, or damaged at its beginning.")
        key = self._key(first)
        return Transaction(key, self.path, _genesis(key, first), rest, len(first) + 1)

    def _key(self, first: bytes) -> bytes:
        try:
            record = json.loads(first)
            held_by, stored = record["held_by"], bytes.fromhex(record["key"])
            sound = record["format"] == _FORMAT and len(record) == 3 and len(stored) == 32
        except (ValueError, KeyError, TypeError, RecursionError):
            held_by, stored, sound = "", b"", False
        if not sound or held_by not in ("file", "owner"):
            raise _damaged(self.path, "its first line is not one that this version writes")
        if held_by == "file":
            if self._owner_key is not None:
                raise LedgerError(f"{self.path}: was made without an owner's key; open it without one.")
            return stored
        if self._owner_key is None:
            raise LedgerError(f"{self.path}: was made with an owner's key; give it (--key FILE).")
        if not hmac.compare_digest(stored, _check_of(self._owner_key)):
            raise LedgerError(f"{self.path}: this is not the key it was made with.")
        return self._owner_key

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """The system's errors in words; nothing may run."""
        try:
            yield
        except OSError as error:
            what = f"cannot be read or written ({error.strerror})"
            raise LedgerError(f"{self.path}: {what}. {_NOTHING}") from error


class Transaction:
    """Entries of a checked chain, and appending to it.

    Args:
        genesis: the digest that the first entry follows.
        content: the mark and the entries' lines.
        start: where in the file ``content`` begins.
    """

    def __init__(self, key: bytes, path: Path, genesis: str, content: bytes, start: int) -> None:
        self.key = key
        self._path = path
        self._start = start
        self._added: list[bytes] = []
        marked = _head_in(content[:_MARK_BYTES])
        if marked is None:
            raise _damaged(path, "the mark of its last entry is missing")
        self._digests, entries, end = [genesis], [], _MARK_BYTES
        *lines, _ = content[_MARK_BYTES:].split(b"\n")
        for line in lines:
            entry = _entry_in(key, self._digests[-1], line)
            if entry is None:
                break
            self._digests.append(entry[0])
            entries.append(entry[1])
            end += len(line) + 1
        # All that was acknowledged must be there.
        if not (marked.number < len(self._digests) and _same(self._digests[marked.number], marked.digest)):
            number = len(self._digests)
            raise _damaged(path, f"entry {number} was changed or is missing")
        self.entries: tuple[Record, ...] = tuple(entries)
        self._end = start + end
        self._behind = len(entries) > marked.number or len(content) > end

    @property
    def head(self) -> Head:
        """The last entry."""
        return Head(len(self.entries), self._digests[-1])

    def append(self, entry: Entry) -> None:
        """Add an entry; on disk when the transaction ends."""
        body = json.dumps(entry, sort_keys=True, allow_nan=False)
        self._digests.append(_chain(self.key, self._digests[-1], body))
        self._added.append(f"{self._digests[-1]} {body}\n".encode())
        self.entries = (*self.entries, json.loads(body))

    def commit(self, descriptor: int) -> None:
        """Write what was appended and then the mark, each synced."""
        if not (self._added or self._behind):
            return
        lines = b"".join(self._added)
        try:
            os.ftruncate(descriptor, self._end)
            _write_at(descriptor, lines, self._end)
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._end)
            raise
        _write_at(descriptor, _mark(self.head), self._start)
        os.fsync(descriptor)

    def refuse_without(self, head: str) -> None:
        """Raise ``LedgerError`` unless the chain passes through ``head``, an earlier one."""
        count, _, digest = head.partition(":")
        known = count.isdecimal() and len(count) < 16 and int(count) < len(self._digests)
        if not (known and _same(self._digests[int(count)], digest)):
            raise LedgerError(
                f"{self._path}: entries that were recorded are gone: it was replaced by an older or another "
                "file."
            )


_NOTHING = "Nothing was recorded, and nothing is begun without that."


def _read(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 2**20):
        parts.append(part)
    return b"".join(parts)


def _write_at(descriptor: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, place)
        content, place = content[written:], place + written


def _mark(head: Head) -> bytes:
    return f"{head.number:0{_DIGITS}d}:{head.digest}\n".encode()


def _head_in(line: bytes) -> Head | None:
    number, colon, digest = line[:_DIGITS], line[_DIGITS : _DIGITS + 1], line[_DIGITS + 1 : -1]
    sound = len(line) == _MARK_BYTES and colon == b":" and number.isdigit() and line.endswith(b"\n")
    return Head(int(number), digest.decode(errors="replace")) if sound else None


def _entry_in(key: bytes, previous: str, line: bytes) -> tuple[str, Record] | None:
    """The digest and the entry of a line, if it follows the ``previous`` one."""
    try:
        digest, body = line[:_HEX].decode(), line[_HEX + 1 :].decode()
        if not _same(digest, _chain(key, previous, body)) or line[_HEX : _HEX + 1] != b" ":
            return None
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return (digest, entry) if isinstance(entry, dict) and isinstance(entry.get("kind"), str) else None


def _same(first: str, second: str) -> bool:
    # A head given on a command line may hold bytes that are no text.
    return hmac.compare_digest(first.encode(errors="replace"), second.encode(errors="replace"))


def _chain(key: bytes, previous: str, body: str) -> str:
    return hmac.new(key, f"{previous}\n{body}".encode(), hashlib.sha256).hexdigest()


def _genesis(key: bytes, first: bytes) -> str:
    return hmac.new(key, first, hashlib.sha256).hexdigest()


def _check_of(key: bytes) -> bytes:
    return hashlib.sha256(b"check" + key).digest()


def _damaged(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{path}: damaged or tampered with ({what}). It is not repaired and nothing is run against it: "
        "restore a copy that is known to be complete, or treat the data sets' budgets as spent."
    )
