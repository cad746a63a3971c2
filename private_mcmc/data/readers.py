"""Tables in files and in memory, some rows after others; each format by the library that knows it.

Columns are handed on as that library has them: what their cells are :mod:`private_mcmc.domains.cells` says.
The first line of a CSV file is never quoted: without a header it is a person's record.
"""

from __future__ import annotations

import codecs
import csv
import gzip
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from private_mcmc.data.fields import composed
from private_mcmc.data.files import Arrow, Parquet, TableFiles, is_pattern
from private_mcmc.domains.cells import Source, Texts, quiet
from private_mcmc.errors import DataSchemaError

_CHUNK = 65_536
_DELIMITERS = (",", ";", "\t", "|")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc", ".arrows")
# By pyreadstat's functions.
STATISTICAL = {".dta": "read_dta", ".sav": "read_sav", ".zsav": "read_sav"}
_NO_TABLES = (".yaml", ".yml", ".json", ".xml", ".toml", ".py", ".html")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")


def source_of(table: Any, encoding: str = "") -> Source:
    """The table at a path, or a data frame, an Arrow table, a structured array or a dict of columns."""
    where = table if isinstance(table, str | Path) else "the table"
    with quiet(where, encoding):
        return _source_of(table, encoding)


def source_of_files(files: TableFiles, first: int = 0, last: int | None = None) -> Source:
    """The rows ``first … last − 1`` of files."""
    end = files.num_rows if last is None else last
    batches = partial(files.batches, first=first, last=end, size=_CHUNK)
    return Source(str(files.path), tuple(files.types), batches, files.types.get)


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

    def kind(name: str) -> object:
        return getattr(table[name], "dtype", None) or getattr(table[name], "type", None)

    return Source("", tuple(str(name) for name in names), lambda wanted: iter([table]), kind)


def _of_statistical(path: Path, function: str, encoding: str) -> Source:
    try:
        import pyreadstat
    except ImportError:
        raise DataSchemaError(f"{path}: this format needs pyreadstat: pip install pyreadstat.") from None
    read = getattr(pyreadstat, function)
    # Of Python's names these are those of iconv.
    told = {"encoding": codecs.lookup(encoding).name} if encoding else {}
    _, facts = read(str(path), metadataonly=True, **told)

    def rows(wanted: list[str], first: int, size: int) -> Iterator[Any]:
        try:
            yield read(str(path), row_offset=first, row_limit=size, usecols=wanted, **told)[0]
        except OverflowError:  # one date beyond Python's calendar: found by halves, it is such a cell alone
            if size > 1:
                yield from rows(wanted, first, size // 2)
                yield from rows(wanted, first + size // 2, size - size // 2)
            elif len(wanted) > 1:
                yield {name: next(rows([name], first, 1))[name] for name in wanted}
            else:
                yield {wanted[0]: Texts([None])}

    def frames(wanted: list[str]) -> Iterator[Any]:
        for first in count(0, _CHUNK):
            parts = [*rows(wanted, first, _CHUNK)]
            yield from parts
            if sum(len(part[wanted[0]]) for part in parts) < _CHUNK:
                return

    return Source(str(path), tuple(facts.column_names), frames, facts.readstat_variable_types.get, encoding)


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

    def frames(wanted: list[str]) -> Iterator[dict[str, Texts]]:
        rows = islice(lines(), 1, None)
        while block := list(islice(rows, _CHUNK)):
            # Which cell is which is unknown in a line with more or fewer cells than the header.
            yield {
                name: Texts(line[places[name]] if len(line) == width else None for line in block)
                for name in wanted
            }

    return Source(str(path), tuple(header), frames, encoding=encoding)


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
