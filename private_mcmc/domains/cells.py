"""Cells of private tables, of whatever format: the one door through which readers hand rows on.

A reader (``private_mcmc/data``) knows a format: the names of a table's columns, and some of its rows after
others, each column as its library has it. What statements of rows and of persons rest on is decided here: the
cells at one place of columns of one length are one row's; a cell has the text that a CSV file would have for
it, so that a table in any format is the same table; and a cell without one is no error of the others. What a
reader gets wrong before, as two rows for one, makes another table, which the statement then is of.
"""

from __future__ import annotations

import csv
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import in_words, without_cells
from private_mcmc.domains.persons import check_wide, spelling
from private_mcmc.errors import DataSchemaError
from private_mcmc.records import Fields, as_seen, text_of_bytes


class Texts(list[str | None]):
    """Cells that are texts, as those of CSV files; ``None`` where a line has no such cell."""


@dataclass(frozen=True, eq=False, repr=False)
class Numbers:
    """Cells that are whole or floating numbers, from which codes need no texts; read one by one, texts."""

    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[str | None]:
        return map(as_text, self.values.astype(object).tolist())


Cells: TypeAlias = Sequence[str | None] | Numbers
Chunk: TypeAlias = dict[str, Cells]

# Characters of a cell; a C long has 32 bits on some systems.
_LONGEST = 2**31 - 1
MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Source:
    """A table: where it is, the names of its columns, and how some of them are read.

    Attributes:
        path: empty for a table in memory; of several files that of their folder, or their pattern.
        names: of its columns.
        frames: ``names ↦`` some rows after others, as mappings from names to columns of any library.
        kind: the type that a column has there, ``None`` where none is told.
        encoding: as declared.
    """

    path: str
    names: tuple[str, ...]
    frames: Callable[[list[str]], Iterator[Any]]
    kind: Callable[[str], object] = lambda name: None
    encoding: str = ""

    @property
    def where(self) -> str:
        """For messages."""
        return self.path or "the table"

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Cells of these columns, some rows after others; all columns of a chunk have the same rows.

        ``DataSchemaError`` for columns that are none of cells, or have different numbers of rows.
        """
        frames = self.frames(list(names))
        while True:
            # Only while a chunk is made: whoever asked for it has warnings and limits of their own.
            with quiet(self.where, self.encoding):
                frame = next(frames, None)
                if frame is None:
                    return
                chunk = self._rows({name: _one_each(frame[name]) for name in names})
            yield chunk

    def _rows(self, columns: Mapping[str, Any]) -> Chunk:
        if wrong := [name for name, column in columns.items() if _axes(column) != 1]:
            raise DataSchemaError(f"{self.where}: columns {wrong} do not have one value for each row.")
        if masked := [name for name, column in columns.items() if np.ma.isMaskedArray(column)]:
            raise DataSchemaError(
                f"{self.where}: columns {masked} are masked; fill them (.filled(…)) with a missing code."
            )
        if len({len(column) for column in columns.values()}) > 1:
            raise DataSchemaError(f"{self.where}: its columns have different numbers of rows.")
        return {name: _cells(column) for name, column in columns.items()}

    def identifiers(self, name: str, missing: Sequence[str]) -> Iterator[str]:
        """The texts of the column that tells persons apart, row by row; empty for a code of ``missing``.

        Rows without an identifier are those of nobody, and not all of one person.
        """
        check_wide(name, self.kind(name))
        marks = {spelling(mark) for mark in missing}

        @lru_cache(MOST_REMEMBERED)
        def told(cell: str | None) -> str:
            text = as_seen(cell or "")
            return "" if spelling(text) in marks else text

        for chunk in self.chunks([name]):
            cells = chunk[name]
            check_wide(name, cells.values.dtype if isinstance(cells, Numbers) else None)
            yield from map(told, cells)


@contextmanager
def quiet(where: object, encoding: str) -> Iterator[None]:
    """Libraries warn of cells: whether they do is not heard, what they raise is told in words without cells.

    One cell longer than the module ``csv`` allows would refuse a table whose schema gives it a fate.
    """
    before = csv.field_size_limit(_LONGEST)
    try:
        with warnings.catch_warnings(), in_words(where, encoding):
            warnings.simplefilter("ignore")
            yield
    finally:
        csv.field_size_limit(before)


def as_text(value: Any) -> str | None:
    """A value of a typed column as the text of a cell; an absent one is empty, ``None`` if it has no text.

    What a value is made of decides that: such a cell has the fate that is declared for every other.
    """
    try:
        value = value.as_py() if hasattr(value, "as_py") else value
        if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
            return ""
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < 1e15:
            return str(int(value))
        if isinstance(value, np.datetime64):
            seconds = value.astype("datetime64[s]")
            return str(seconds if seconds == value else value)
        if isinstance(value, datetime | date):
            return value.isoformat()
        return text_of_bytes(value) if isinstance(value, bytes) else str(value)
    except Exception:
        return None


def _one_each(column: Any) -> Any:
    """A column that is a list as an array: what shape NumPy takes lists in it for follows from its cells."""
    if isinstance(column, Texts) or not isinstance(column, list | tuple):
        return column
    found = np.empty(len(column), dtype=object)
    for place, value in enumerate(column):
        found[place] = value
    return found


def _axes(column: Any) -> int:
    """How many axes a column has; those of Arrow, which NumPy would read whole to tell, have one."""
    return 1 if isinstance(column, Texts) or hasattr(column, "to_pylist") else len(np.shape(column))


def _cells(column: Any) -> Cells:
    """The cells of a typed column, each by itself: of Polars' by Arrow, to which objects are addresses.

    Asked for objects, a column of whole numbers with gaps gives floats, in which persons are one whose
    identifiers differ beyond 2^53.
    """
    if isinstance(column, Texts):
        return column
    if hasattr(column, "to_arrow"):
        listed = str(column.dtype) in ("Object", "Int128", "UInt128")  # of which Arrow has no others
        try:
            column = _one_each(column.to_list()) if listed else column.to_arrow()
        except ImportError:  # one date beyond its calendar stops Polars' own reader, which tells of it
            raise DataSchemaError("columns of Polars need pyarrow: install private-mcmc[scale].") from None
    held = getattr(column, "array", column)
    if type(getattr(held, "dtype", None)).__name__ == "ArrowDtype":
        column = held.__arrow_array__()  # pandas refuses all cells for one date beyond Python's calendar
    return _numbers(column) or _texts(column)


def _numbers(column: Any) -> Numbers | None:
    """A column that has a type of numbers in NumPy, without a cell of which it has none."""
    told = str(column.type) if hasattr(column, "to_pylist") else ""
    whole = told.strip("u123468") == "int" and not column.null_count
    kind = getattr(column, "dtype", None)
    if not (whole or told in ("float", "double") if told else isinstance(kind, np.dtype)):
        return None
    values = np.asarray(column)
    return Numbers(values) if values.dtype.kind in "iuf" and values.dtype.itemsize <= 8 else None


def _texts(column: Any) -> list[str | None]:
    if hasattr(column, "to_pylist"):
        with suppress(Exception):
            return [as_text(value) for value in column.to_pylist()]
        # One cell that Python has no value for (a date beyond its calendar) is no error of the others.
        return [as_text(scalar) for scalar in column]
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        return [as_text(value) for value in column]  # finer than microseconds, objects are whole numbers
    # As an array, whole numbers that are categories of pandas become floats where one cell is missing.
    found = column if hasattr(column, "to_numpy") else np.asarray(column, dtype=object)
    return [as_text(value) for value in found.tolist()]


@dataclass(frozen=True, eq=False, repr=False)
class Marks:
    """What a ledger knows a table by, private; and a digest, by which a change of the table shows."""

    known_by: Fields
    digest: bytes

    @classmethod
    def of_files(cls, path: Path, files: Sequence[Path]) -> Marks:
        """Hashes of the files' bytes, and of folders' names, which may tell cells.

        A ledger knows those between the files; of those around them, too, a change shows.
        """
        whole = hashlib.sha256()
        root = os.path.commonpath(places := [one.parent for one in files])
        for one in files:
            with in_words(without_cells(one)), open(one, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
                if len(files) == 1 and not file.tell():
                    raise DataSchemaError(f"{path}: is empty.")
            whole.update(os.fsencode(one.parent.relative_to(root)) + b"\0" + digest)
        return cls({"file": np.frombuffer(whole.digest(), np.uint8)}, whole.digest() + str(places).encode())

    @classmethod
    def of_cells(cls, source: Source) -> Marks:
        """Hashes of every column's cells, in whichever order the columns are."""
        columns = []
        for name in source.names:
            hashed = hashlib.sha256()
            # What is no column of cells, beside the declared ones, is no part of the table.
            with suppress(DataSchemaError):
                for chunk in source.chunks([name]):
                    for cell in chunk[name]:
                        # Half a pair of surrogates is no UTF-8: such a cell is one of the table all the same.
                        hashed.update(f"{len(cell or '')}:{cell}".encode(errors="surrogatepass"))
                columns.append(f"{len(name)}:{name}".encode() + hashed.digest())
        # Under no name of theirs, which could mean something to a run.
        digest = hashlib.sha256(b"".join(sorted(columns))).digest()
        return cls({"columns": np.frombuffer(digest, np.uint8)}, digest)


def is_part(one: object, other: object) -> bool:
    """Whether these are one object, or columns that share memory; no value is looked at.

    Columns are those of NumPy, what frames of pandas hold, Arrow's and Polars'.
    """
    if one is other:
        return True
    return any(np.shares_memory(here, there) for here in _memory(one) for there in _memory(other))


def _memory(column: Any) -> list[npt.NDArray[np.generic]]:
    """What a column is made of, without a copy; of a slice of Arrow the whole one."""
    if isinstance(column, np.ndarray):
        return [column]
    if hasattr(column, "iloc"):
        # A column of pandas has one type, and a frame those of its columns.
        types = set(column.dtypes) if np.ndim(column) == 2 else {column.dtypes}
        plain = len(types) == 1 and isinstance(types.pop(), np.dtype)
        return [np.asarray(column.to_numpy())] if plain else []
    if hasattr(column, "__arrow_c_stream__"):
        with suppress(ImportError):  # without it Polars' memory is not seen
            import pyarrow

            column = pyarrow.chunked_array(column)
    chunks = getattr(column, "chunks", None)
    parts = [part for part in (chunks if isinstance(chunks, list) else [column]) if hasattr(part, "buffers")]
    buffers = [buffer for part in parts for buffer in part.buffers() if buffer is not None and buffer.size]
    return [np.frombuffer(buffer, np.uint8) for buffer in buffers]
