"""The ledger's file: lines that are only ever added, every entry chained to the one before by a hash.

Three parts: a secret key, for fingerprints of data and for checkpoints; the *mark*, a line of fixed length
with the number and the digest of the last entry that was acknowledged; one line an entry, its digest and
JSON. A charge is written behind the last entry and synced, then the mark, then it is acknowledged. Nothing is
ever undone: there is no journal that could belong to another name or an older state of the file, so that hard
links, mounts and moves of the one file are all the same ledger. What a killed writer left behind the mark was
never acknowledged: whole entries are kept, since they can only cost budget, and a torn last line is cut off
by the next writer.

Every transaction holds the kernel's lock on the file and first checks the whole chain.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from private_mcmc.errors import LedgerError
from private_mcmc.records import Record, sync_folder
from private_mcmc.release.ledger_state import LedgerState

MAGIC = b'{"format": "private_mcmc ledger'
_FIRST = MAGIC + b' 1", "key": "%s"}'
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
    """Transactions on one ledger file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # An older copy in its place is as valid as the file was then: this process knows better.
        self._seen: Head | None = None

    def create(self) -> None:
        """Make a new empty file, which is refused until it is whole. ``LedgerError`` if one is there."""
        first = _FIRST % secrets.token_bytes(32).hex().encode()
        with self._errors():
            try:
                descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            except FileExistsError:
                raise LedgerError(
                    f"{self.path}: there is a file already; a ledger is never overwritten."
                ) from None
            try:
                _write_at(descriptor, first + b"\n" + _mark(Head(0, _digest(b"", first))), 0)
                os.fsync(descriptor)
                sync_folder(self.path.parent)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def opened(self, writing: bool = False) -> Iterator[Transaction]:
        """A checked view; if it is for ``writing``, nobody else sees the file before what is appended here is
        on disk.
        """
        with self._errors():
            if not self.path.is_file():
                raise LedgerError(f"{self.path}: no such ledger; make one with `private-mcmc ledger init`.")
            descriptor = os.open(self.path, (os.O_RDWR if writing else os.O_RDONLY) | os.O_NONBLOCK)
        try:
            with self._errors():
                # For as long as others charge, which takes milliseconds.
                fcntl.flock(descriptor, fcntl.LOCK_EX if writing else fcntl.LOCK_SH)
                here = os.fstat(descriptor)
                if not stat.S_ISREG(here.st_mode) or not os.path.samestat(here, os.stat(self.path)):
                    raise LedgerError(f"{self.path}: another file took its place meanwhile. {_NOTHING}")
                with open(descriptor, "rb", closefd=False) as file:
                    transaction = Transaction(self.path, file.read())
            if self._seen is not None:
                transaction.refuse_without(str(self._seen))
            self._seen = transaction.head
            yield transaction
            with self._errors():
                transaction.commit(descriptor)
            self._seen = transaction.head
        finally:
            os.close(descriptor)  # and with it the lock

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """The system's errors in words; nothing may run."""
        try:
            yield
        except OSError as error:
            what = f"cannot be read or written ({error.strerror})"
            raise LedgerError(f"{self.path}: {what}. {_NOTHING}") from error


class Transaction:
    """Entries of a checked chain, and appending to it."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        first, _, rest = content.partition(b"\n")
        if not first.startswith(MAGIC):
            raise LedgerError(f"{path}: not a ledger of this library, or damaged at its beginning.")
        known = re.fullmatch(re.escape(_FIRST) % b"([0-9a-f]{64})", first)
        marked = _head_in(rest[:_MARK_BYTES])
        if known is None or marked is None:
            raise _damaged(path, "it does not begin as this version writes it")
        self.key = bytes.fromhex(known[1].decode())
        self._start, self._added = len(first) + 1, b""
        self._digests, entries, end = [_digest(b"", first)], [], _MARK_BYTES
        *lines, _ = rest[_MARK_BYTES:].split(b"\n")
        for line in lines:
            entry = _entry_in(self._digests[-1], line)
            if entry is None:
                break
            self._digests.append(line[:_HEX].decode())
            entries.append(entry)
            end += len(line) + 1
        # All that was acknowledged must be there.
        if not self._passes(marked):
            raise _damaged(path, f"entry {len(self._digests)} was changed or is missing")
        self.entries: tuple[Record, ...] = tuple(entries)
        self._end = self._start + end

    @property
    def head(self) -> Head:
        """The last entry."""
        return Head(len(self.entries), self._digests[-1])

    @property
    def state(self) -> LedgerState:
        """What all entries add up to."""
        return LedgerState(self.entries)

    def append(self, kind: str, **fields: object) -> None:
        """Add an entry at its time, UTC; on disk when the transaction ends."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        body = json.dumps({"kind": kind, "time": now, **fields}, sort_keys=True, allow_nan=False).encode()
        self._digests.append(_digest(self._digests[-1].encode(), body))
        self._added += self._digests[-1].encode() + b" " + body + b"\n"
        self.entries = (*self.entries, json.loads(body))

    def commit(self, descriptor: int) -> None:
        """Write what was appended and then the mark, each synced."""
        if not self._added:
            return
        try:
            os.ftruncate(descriptor, self._end)
            _write_at(descriptor, self._added, self._end)
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._end)
            raise
        _write_at(descriptor, _mark(self.head), self._start)
        os.fsync(descriptor)

    def refuse_without(self, head: str) -> None:
        """Raise ``LedgerError`` unless the chain passes through ``head``, an earlier one."""
        number, _, digest = head.partition(":")
        known = number.isdecimal() and len(number) <= _DIGITS
        if not (known and self._passes(Head(int(number), digest))):
            raise LedgerError(
                f"{self._path}: entries that were recorded are gone: it was replaced by an older or another "
                "file."
            )

    def _passes(self, head: Head) -> bool:
        return head.number < len(self._digests) and self._digests[head.number] == head.digest


_NOTHING = "Nothing was recorded, and nothing is begun without that."


def _write_at(descriptor: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, place)
        content, place = content[written:], place + written


def _mark(head: Head) -> bytes:
    return f"{head.number:0{_DIGITS}d}:{head.digest}\n".encode()


def _head_in(line: bytes) -> Head | None:
    found = re.fullmatch(rb"(\d{%d}):([0-9a-f]{%d})\n" % (_DIGITS, _HEX), line)
    return None if found is None else Head(int(found[1]), found[2].decode())


def _entry_in(previous: str, line: bytes) -> Record | None:
    """The entry of a line, if it follows the ``previous`` one."""
    digest, blank, body = line[:_HEX], line[_HEX : _HEX + 1], line[_HEX + 1 :]
    if digest != _digest(previous.encode(), body).encode() or blank != b" ":
        return None
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _digest(previous: bytes, body: bytes) -> str:
    return hashlib.sha256(previous + b"\n" + body).hexdigest()


def _damaged(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{path}: damaged or tampered with ({what}). It is not repaired and nothing is run against it: "
        "restore a copy that is known to be complete, or treat the data sets' budgets as spent."
    )
