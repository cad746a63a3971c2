"""A private table, from a CSV or Parquet file or from memory, into the columns that a schema declares.

**A table is checked against its schema before anything in it is read as a person.** A cell without a
declared fate refuses the table. That looks at values, which no error of a mechanism may (`theory.md`, section
6): it stands before the mechanism, only the curator, who has the table, sees it, nothing has been charged or
released, and it names fields and nothing else: no row, no count, no cell. What a statement says holds between
tables that pass. Who must not even learn that a table was refused declares a fate for missing and for other
cells in every field: then no check fails because of a cell. The first line of a file is never quoted: without
a header it is a person's record.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from private_mcmc.data.cells import Array, Encoder
from private_mcmc.data.fields import Field, is_number
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DataSchemaError, PrivateMCMCError

Cells: TypeAlias = Sequence[str | None]
Chunk: TypeAlias = dict[str, Cells]

_CHUNK = 65_536


def read_table(table: Any, schema: Schema, names: Sequence[str]) -> dict[str, Array]:
    """Columns of ``schema.rows(names)`` from a path, a data frame, or a dict of columns.

    Raises:
        DataSchemaError: if the table cannot be read, lacks a declared field, or has a cell without a fate.
    """
    fields = [schema[name] for name in names]
    for field in fields:
        field.check_confirmed()
    where = str(table) if isinstance(table, str | Path) else "the table"
    parts: dict[str, list[Array]] = {}
    refused: set[str] = set()
    with _in_words(where):
        for chunk in _chunks(table, list(names)):
            for field in fields:
                columns, whole = Encoder(field).columns(chunk[field.name])
                if not whole:
                    refused.add(field.name)
                for name, values in columns.items():
                    parts.setdefault(name, []).append(values)
    if refused:
        raise DataSchemaError(_refusal(where, [field for field in fields if field.name in refused]))
    found = {name: np.concatenate(values) for name, values in parts.items()}
    if not found or not len(next(iter(found.values()))):
        raise DataSchemaError(f"{where}: has a header and no rows.")
    return found


def read_header(path: str | Path) -> list[str]:
    """The names in the first line of a CSV file, or of a Parquet file's own schema; no row is read.

    Raises:
        DataSchemaError: if there is no header; the line is not quoted, since it may be a person's record.
    """
    if _is_parquet(path):
        return [str(name) for name in _parquet(path).schema_arrow.names]
    with _opened(path) as file:
        line = next(iter(_lines(path, file)), [])
    names = [name.strip() for name in line]
    given = [name for name in names if name]
    if not given or len(set(given)) < len(given) or any(is_number(name) for name in given):
        raise DataSchemaError(
            f"{path}: its first line is not a header (it is empty, or names are numbers or given twice). "
            "Names are separated by commas. The line is not shown: it may be a person's record."
        )
    return names


@contextmanager
def _in_words(where: str) -> Iterator[None]:
    """Errors of what reads cells without what they quote: a date that no calendar has, a broken object."""
    try:
        yield
    except PrivateMCMCError:
        raise
    except Exception as error:
        raise DataSchemaError(f"{where}: a cell cannot be read ({type(error).__name__}).") from None


def _refusal(where: str, fields: Sequence[Field]) -> str:
    names = [field.name for field in fields]
    first = fields[0]
    remedy = "otherwise: missing" if not first.is_category else "otherwise: other"
    return (
        f"{where}: fields {names} have cells that the schema leaves without a fate. No row was used. "
        "Declare all levels and the codes of missing values (missingValues), and what they count as, "
        f"for {first.name!r} for example private_mcmc: {{missing: indicator, {remedy}}}."
    )


def _chunks(table: Any, names: list[str]) -> Iterator[Chunk]:
    if isinstance(table, str | Path):
        yield from _of_parquet(table, names) if _is_parquet(table) else _of_csv(Path(table), names)
        return
    columns = {str(name) for name in (table.keys() if hasattr(table, "keys") else ())}
    _check_names("the table", names, columns)
    cells: Chunk = {}
    for name in names:
        column = np.asarray(table[name], dtype=object)
        if column.ndim != 1 or np.ma.isMaskedArray(table[name]):
            raise DataSchemaError(
                f"the table: field {name!r} is no column of single cells; fill a masked array (.filled(…)) "
                "with a code of missing values."
            )
        cells[name] = [_text(value) for value in column.tolist()]
    if len(set(map(len, cells.values()))) > 1:
        raise DataSchemaError(f"the table: fields {names} differ in their number of rows.")
    yield cells


def _of_csv(path: Path, names: list[str]) -> Iterator[Chunk]:
    header = read_header(path)
    _check_names(str(path), names, header)
    places, width = {name: header.index(name) for name in names}, len(header)
    with _opened(path) as file:
        lines = _lines(path, file)
        next(lines, None)
        while block := list(islice(lines, _CHUNK)):
            # Which cell is which is unknown in a line with more or fewer cells than the header.
            yield {
                name: [line[place] if len(line) == width else None for line in block]
                for name, place in places.items()
            }


def _of_parquet(path: str | Path, names: list[str]) -> Iterator[Chunk]:
    file = _parquet(path)
    _check_names(str(path), names, file.schema_arrow.names)
    for batch in file.iter_batches(batch_size=_CHUNK, columns=names):
        yield {name: [_text(value) for value in batch.column(name).to_pylist()] for name in names}


def _check_names(where: str, wanted: Sequence[str], given: Iterable[str]) -> None:
    present = set(given)
    if absent := [name for name in wanted if name not in present]:
        raise DataSchemaError(
            f"{where}: has no fields {absent}. The names that it has are not shown: the first line may be a "
            "person's record."
        )


def _text(value: Any) -> str | None:
    """A value of a typed column as the text of a cell; nothing for an absent one."""
    differs = value != value
    if not isinstance(differs, bool | np.bool_):
        # Whatever is asked of pandas' NA, it answers NA.
        return "" if differs is value else None
    if value is None or differs:
        return ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < 1e15:
        return str(int(value))
    return str(value)


def _opened(path: str | Path) -> Any:
    try:
        # Spreadsheets begin a file in UTF-8 with a mark.
        return Path(path).open(newline="", encoding="utf-8-sig")
    except OSError as error:
        raise DataSchemaError(f"{path}: cannot be read ({error.strerror}).") from None


def _lines(path: str | Path, file: Iterable[str]) -> Iterator[list[str]]:
    try:
        for line in csv.reader(file, strict=True):
            if any(cell.strip() for cell in line) or len(line) > 1:
                yield line
    except (UnicodeDecodeError, csv.Error, OSError):
        raise DataSchemaError(f"{path}: is not a CSV file in UTF-8.") from None


def _is_parquet(path: str | Path) -> bool:
    return str(path).lower().endswith((".parquet", ".pq"))


def _parquet(path: str | Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataSchemaError(
            f"{path}: Parquet files need pyarrow: pip install 'private-mcmc[scale]'."
        ) from None
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException):
        raise DataSchemaError(f"{path}: cannot be read as a Parquet file.") from None
