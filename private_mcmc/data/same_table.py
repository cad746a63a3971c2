"""Which table is it? What it is known by, and whether it is still the one that was read."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.data.readers import source_of
from private_mcmc.data.table import cells_in_words
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.records import Fields


def check_apart(table: object, public_rows: object) -> None:
    """Refuse the private table itself in the place of public rows: the same file, object or memory.

    Rows are not compared: whether private ones equal public ones is nothing that an error may tell.
    """
    same = table is public_rows or _share_columns(table, public_rows)
    if isinstance(table, str | Path) and isinstance(public_rows, str | Path):
        with suppress(OSError):
            same = same or Path(table).samefile(public_rows)
    if same:
        raise DeclarationError(
            "public_rows: this is the private table itself. What public rows say is shown and paid for by "
            "nobody: give rows that are published, chosen without the private ones, or leave them out."
        )


def _share_columns(table: Any, other: Any) -> bool:
    """Whether two tables in memory have a column, or a part of one, in common."""
    if any(one is None or isinstance(one, str | Path) for one in (table, other)):
        return False
    names, others = source_of(table).names, source_of(other).names
    return any(is_part(table[name], other[name]) for name in names if name in others)


def is_part(one: object, other: object) -> bool:
    """Whether these are one object, or arrays that share memory; no value is looked at."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return one is other or (arrays and np.shares_memory(one, other))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class Marks:
    """What a ledger knows a table by, private; and a digest, by which a change of the table shows."""

    known_by: Fields
    digest: bytes


def data_marks(table: Any) -> Marks:
    """The marks of a table, whatever is read of it: a file's bytes, or a hash of every column.

    A ledger keeps only a keyed hash of them. Files may be larger than memory.
    """
    if isinstance(table, str | Path):
        with open(table, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        return Marks({"file": np.memmap(table, np.uint8, "r")}, digest)
    source = source_of(table)
    marks, whole = {}, hashlib.sha256()
    for name in source.names:
        hashed = hashlib.sha256()
        # What is no column of cells, beside the declared ones, is no part of the table.
        with suppress(DataSchemaError), cells_in_words(source.where):
            for chunk in source.chunks([name]):
                for cell in chunk[name]:
                    hashed.update(f"{len(cell or '')}:{cell}".encode())
            marks[name] = np.frombuffer(hashed.digest(), np.uint8)
            whole.update(f"{len(name)}:{name}".encode() + hashed.digest())
    return Marks(marks, whole.digest())


def refuse_changed(table: Any, marks: Marks) -> None:
    """Refuse a table that is no longer the one that ``marks`` are of: what is charged is what is read.

    Raises:
        DataSchemaError: saying nothing of what changed.
    """
    if data_marks(table).digest != marks.digest:
        where = str(table) if isinstance(table, str | Path) else "the table"
        raise DataSchemaError(
            f"{where}: it was changed while it was read, or since. Nothing more is done with it: start again."
        )
