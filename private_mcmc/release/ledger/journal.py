"""Whether the rollback journal that lies beside a ledger is one of that file as it stands.

A writer that is killed leaves a journal, by its name, and whoever opens the ledger next undoes what it began.
Where the file was moved, copied back or used under another name (a hard link) in between, that would undo the
charges of others as well, and leave an older chain without a flaw.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from pathlib import Path
from urllib.parse import quote

# SQLite's file format: a journal's first bytes, and where a database counts its transactions.
_MAGIC = bytes.fromhex("d9d505f920a163d7")
_COUNTER = slice(24, 28)


def is_of_another(path: Path) -> bool:
    """Whether a journal lies beside ``path`` that began before charges which the file holds, or after it.

    A transaction counts up by one. While one is undone or made, the journal has the count of before it and
    the file that or the next one; the file is read before and after, since others may write meanwhile.
    """
    before = _counted(path)
    began = _began(Path(f"{os.path.realpath(path)}-journal"))
    if began is None or before is None:
        return False
    after = _counted(path)
    return before > began + 1 or (after is not None and after < began)


def _began(journal: Path) -> int | None:
    """The count of transactions in the first page that the journal keeps; ``None`` if it keeps none."""
    try:
        content = journal.read_bytes()
    except OSError:
        return None
    if len(content) < 28 or not content.startswith(_MAGIC):
        return None
    sector, page = struct.unpack(">II", content[20:28])
    # A number, the page as it was, and a checksum.
    for start in range(sector, len(content) - page - 7, page + 8) if sector > 0 and page > 0 else ():
        if content[start : start + 4] == b"\0\0\0\1":
            return int.from_bytes(content[start + 4 :][_COUNTER])
    return None


def _counted(path: Path) -> int | None:
    """The count of transactions in the file, whatever lies beside it.

    Read by SQLite: closing a file that is opened in another way would drop the locks of this process on it.
    """
    address = f"file:{quote(os.path.realpath(path))}?mode=ro&immutable=1"
    with (
        contextlib.suppress(sqlite3.Error, AttributeError),
        contextlib.closing(sqlite3.connect(address, uri=True)) as connection,
    ):
        return int.from_bytes(connection.serialize()[_COUNTER])
    return None
