"""Tables in files and in memory as texts of cells, chunk by chunk; each format by the library that knows it.

A typed value becomes the text that a CSV file would have for it, so that a table in any format is the same
table. The first line of a CSV file is never quoted: without a header it is a person's record.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.data.fields import composed
from private_mcmc.domains.columns import in_words
from private_mcmc.domains.table_files import Arrow, Parquet, TableFiles, is_pattern
from private_mcmc.errors import DataSchemaError
from private_mcmc.records import text_of_bytes


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

_CHUNK = 65_536
# Characters of a cell; a C long has 32 bits on some systems.
_LONGEST = 2**31 - 1
_DELIMITERS = (",", ";", "\t", "|")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc", ".arrows")
# By pyreadstat's functions.
STATISTICAL = {".dta": "read_dta", ".sav": "read_sav", ".zsav": "read_sav"}
_NO_TABLES = (".yaml", ".yml", ".json", ".xml", ".toml", ".py", ".html")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")


@dataclass(frozen=True)
class Source:
    """A table: where it is, the names of its columns, and ``chunks(names)``, which reads some of them.

    ``path`` is empty for one in memory; of several files it is their folder's, or their pattern. ``kind`` is
    the type that a column has there, ``None`` where none is told.
    """

    path: str
    names: tuple[str, ...]
    chunks: Callable[[Sequence[str]], Iterator[Chunk]]
    kind: Callable[[str], object] = lambda name: None

    @property
    def where(self) -> str:
        """For messages."""
        return self.path or "the table"


def source_of(table: Any, encoding: str = "") -> Source:
    """The table at a path, or a data frame, an Arrow table, a structured array or a dict of columns."""
    where = table if isinstance(table, str | Path) else "the table"
    with _quiet(where, encoding):
        return _quietly(where, encoding, _source_of(table, encoding))


def source_of_files(files: TableFiles, first: int = 0, last: int | None = None) -> Source:
    """The rows ``first … last − 1`` of files."""
    end = files.num_rows if last is None else last
    batches = partial(files.batches, first=first, last=end, size=_CHUNK)
    return _quietly(files.path, "", _of_frames(files.path, tuple(files.types), batches, files.types.get))


@contextmanager
def _quiet(where: object, encoding: str) -> Iterator[None]:
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


def _quietly(where: object, encoding: str, found: Source) -> Source:
    """Only while a chunk is made: whoever asked for it has warnings and limits of their own."""

    def chunks(names: Sequence[str]) -> Iterator[Chunk]:
        parts = found.chunks(names)
        while True:
            with _quiet(where, encoding):
                chunk = next(parts, None)
            if chunk is None:
                return
            yield chunk

    return replace(found, chunks=chunks)


def _source_of(table: Any, encoding: str) -> Source:
    if not isinstance(table, str | Path):
        return _in_memory(table)
    path = Path(table)
    ending = path.suffix.lower()
    if ending in _NO_TABLES:
        raise DataSchemaError(
            f"{path}: no table. It comes first; codebooks and schemas are named by --codebook and --schema."
        )
    if ending in SPREADSHEETS:
        raise DataSchemaError(f"{path}: spreadsheets are not read; save the sheet as CSV (UTF-8).")
    if (files := files_at(path)) is not None:
        return source_of_files(files)
    if not path.is_file():
        raise DataSchemaError(f"{path}: cannot be read (there is no such file).")
    if ending in STATISTICAL:
        return _of_statistical(path, STATISTICAL[ending], encoding)
    return _of_csv(path, encoding)


def files_at(path: Path) -> TableFiles | None:
    """Parquet, a folder or a pattern of it, or Arrow; ``None`` for anything else."""
    if path.is_dir() or is_pattern(path) or (path.is_file() and path.suffix.lower() in PARQUET):
        return Parquet(path)
    return Arrow(path) if path.is_file() and path.suffix.lower() in ARROW else None


def as_text(value: Any) -> str | None:
    """A value of a typed column as the text of a cell; an absent one is empty, ``None`` if it has no text.

    What a value is made of decides that: such a cell has the fate that is declared for every other.
    """
    try:
        if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
            return ""
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < 1e15:
            return str(int(value))
        if isinstance(value, np.datetime64):
            return str(value.astype("datetime64[s]"))
        if isinstance(value, datetime | date):
            return value.isoformat()
        return text_of_bytes(value) if isinstance(value, bytes) else str(value)
    except Exception:
        return None


def _in_memory(table: Any) -> Source:
    if hasattr(table, "collect"):
        raise DataSchemaError(
            "the table: is lazy, and would be computed at every reading: .collect() it first."
        )
    names = getattr(getattr(table, "dtype", None), "names", None) or getattr(table, "column_names", None)
    names = names or getattr(table, "columns", None)
    if names is None or callable(names):
        names = table.keys() if hasattr(table, "keys") else None
    if names is None:
        raise DataSchemaError(
            f"a table is a path, a data frame, or a dict of columns; a {type(table).__name__} was given."
        )

    def chunks(wanted: Sequence[str]) -> Iterator[Chunk]:
        columns = {name: _one_each(table[name]) for name in wanted}
        if wrong := [name for name, column in columns.items() if _axes(column) != 1]:
            raise DataSchemaError(f"the table: columns {wrong} do not have one value for each row.")
        if masked := [name for name, column in columns.items() if np.ma.isMaskedArray(column)]:
            raise DataSchemaError(
                f"the table: columns {masked} are masked; fill them (.filled(…)) with a missing code."
            )
        if len({len(column) for column in columns.values()}) > 1:
            raise DataSchemaError("the table: its columns have different numbers of rows.")
        yield {name: _cells(column) for name, column in columns.items()}

    def kind(name: str) -> object:
        return getattr(table[name], "dtype", None) or getattr(table[name], "type", None)

    return Source("", tuple(str(name) for name in names), chunks, kind)


def _one_each(column: Any) -> Any:
    """A column that is a list as an array: what shape NumPy takes lists in it for follows from its cells."""
    if not isinstance(column, list | tuple):
        return column
    found = np.empty(len(column), dtype=object)
    for place, value in enumerate(column):
        found[place] = value
    return found


def _axes(column: Any) -> int:
    """How many axes a column has; those of Arrow, which NumPy would read whole to tell, have one."""
    return 1 if hasattr(column, "to_pylist") else len(np.shape(column))


def _cells(column: Any) -> Cells:
    """The cells of a typed column, each by itself: of Polars' by Arrow, to which objects are addresses.

    Asked for objects, a column of whole numbers with gaps gives floats, in which persons are one whose
    identifiers differ beyond 2^53.
    """
    if hasattr(column, "to_arrow"):
        try:
            column = column.to_list() if str(column.dtype) == "Object" else column.to_arrow()
        except Exception:  # without Arrow
            column = column.to_list()
        column = _one_each(column)
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
        return [_text_of_scalar(scalar) for scalar in column]
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        column = column.astype("datetime64[s]")  # finer ones become whole numbers as objects
    # As an array, whole numbers that are categories of pandas become floats where one cell is missing.
    found = column if hasattr(column, "to_numpy") else np.asarray(column, dtype=object)
    return [as_text(value) for value in found.tolist()]


def _text_of_scalar(scalar: Any) -> str | None:
    try:
        return as_text(scalar.as_py())
    except Exception:
        return None


def _of_frames(
    path: Path,
    names: Sequence[str],
    frames: Callable[[list[str]], Iterator[Any]],
    kind: Callable[[str], object] = lambda name: None,
) -> Source:
    """Of a reader of pandas frames, or of Arrow's batches."""

    def chunks(wanted: Sequence[str]) -> Iterator[Chunk]:
        for frame in frames(list(wanted)):
            yield {name: _cells(frame[name]) for name in wanted}

    return Source(str(path), tuple(str(name) for name in names), chunks, kind)


def _of_statistical(path: Path, function: str, encoding: str) -> Source:
    try:
        import pyreadstat
    except ImportError:
        raise DataSchemaError(f"{path}: this format needs pyreadstat: pip install pyreadstat.") from None
    read = getattr(pyreadstat, function)
    # Of Python's names these are those of iconv.
    told = {"encoding": codecs.lookup(encoding).name} if encoding else {}
    _, facts = read(str(path), metadataonly=True, **told)

    def frames(wanted: list[str]) -> Iterator[Any]:
        parts = pyreadstat.read_file_in_chunks(read, str(path), chunksize=_CHUNK, usecols=wanted, **told)
        yield from (frame for frame, _ in parts)

    return _of_frames(path, facts.column_names, frames, facts.readstat_variable_types.get)


def _of_csv(path: Path, encoding: str) -> Source:
    with _opened(path, encoding) as file:
        first = next((line for line in file if line.strip()), "")
    unquoted = "".join(first.split('"')[::2])
    delimiter = max(_DELIMITERS, key=lambda sign: (unquoted.count(sign), sign == ","))

    def lines() -> Iterator[list[str]]:
        with _opened(path, encoding) as file:
            yield from _without_blank_lines(csv.reader(file, delimiter=delimiter, strict=True))

    header = [composed(name.strip()) for name in next(lines(), [])]
    places, width = {name: place for place, name in reversed([*enumerate(header)])}, len(header)

    def chunks(wanted: Sequence[str]) -> Iterator[Chunk]:
        rows = islice(lines(), 1, None)
        while block := list(islice(rows, _CHUNK)):
            # Which cell is which is unknown in a line with more or fewer cells than the header.
            yield {
                name: [line[places[name]] if len(line) == width else None for line in block]
                for name in wanted
            }

    return Source(str(path), tuple(header), chunks)


def _without_blank_lines(lines: Iterable[list[str]]) -> Iterator[list[str]]:
    """The header, and every line after it that is a row.

    Of one column a blank line is a row whose cell is empty: whether a person has one must not be told by the
    number of rows.
    """
    header: list[str] | None = None
    for line in lines:
        if any(cell.strip() for cell in line) or len(line) > 1:
            header = header or line
            yield line
        elif header and len(header) == 1:
            yield line or [""]


def _opened(path: Path, encoding: str) -> Any:
    opened: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    if not encoding:
        with opened(path, "rb") as file:
            mark = file.read(2)
        # Spreadsheets begin a file with a mark of its encoding.
        encoding = "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return opened(path, "rt", newline="", encoding=encoding)


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
