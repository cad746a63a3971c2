"""A private table, from a file or from memory, into the columns that a schema declares.

**A table is checked against its schema before anything in it is read as a person.** A cell without a
declared fate refuses the table. That looks at values, which no error of a mechanism may (`theory.md`, section
6): it stands before the mechanism, only the curator, who has the table, sees it, nothing has been charged or
released, and it names fields and nothing else: no row, no count, no cell. What a statement says holds between
tables that pass. Who must not even learn that a table was refused declares a fate for missing and for other
cells in every field: then no check fails because of a cell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.data.cells import Array, Encoder
from private_mcmc.data.fields import Field, is_number
from private_mcmc.data.readers import Source, source_of
from private_mcmc.data.schema import Schema
from private_mcmc.domains.numeric import PRESENT
from private_mcmc.errors import DataSchemaError, PrivateMCMCError
from private_mcmc.records import Fields


def read_table(table: Any, schema: Schema, names: Sequence[str]) -> dict[str, Array]:
    """Columns of ``schema.rows(names)`` from a path, a data frame, or a dict of columns.

    Where a field drops rows, a column ``present`` tells which rows count.

    Raises:
        DataSchemaError: if the table cannot be read, lacks a declared field, or has a cell without a fate.
    """
    fields = [schema[name] for name in names]
    for field in fields:
        field.check_confirmed()
    source = source_of(table, schema.encoding)
    _check_names(source, list(names))
    parts: dict[str, list[Array]] = {}
    refused: set[str] = set()
    with _in_words(source.where):
        for chunk in source.chunks(list(names)):
            present: list[Array] = []
            for field in fields:
                columns, whole = Encoder(field).columns(chunk[field.name])
                if not whole:
                    refused.add(field.name)
                present += [columns.pop(PRESENT)] if field.missing == "drop" else []
                for name, values in columns.items():
                    parts.setdefault(name, []).append(values)
            if present:
                parts.setdefault(PRESENT, []).append(np.min(present, axis=0))
    if refused:
        raise DataSchemaError(_refusal(source.where, [field for field in fields if field.name in refused]))
    found = {name: np.concatenate(values) for name, values in parts.items()}
    if not found or not len(next(iter(found.values()))):
        raise DataSchemaError(f"{source.where}: has a header and no rows.")
    return found


def read_present(table: object, schema: Schema, names: Sequence[str]) -> dict[str, Array]:
    """As :func:`read_table`, of a table that is public: rows that count for nothing are left out."""
    columns = read_table(table, schema, names)
    there = columns.pop(PRESENT, None)
    return columns if there is None else {name: each[there > 0] for name, each in columns.items()}


def read_identifiers(table: Any, schema: Schema) -> npt.NDArray[np.str_]:
    """The texts of the field that tells persons apart, shape ``(rows,)``; empty where there is none.

    Raises:
        DataSchemaError: if the table cannot be read, or lacks the field.
    """
    source = source_of(table, schema.encoding)
    _check_names(source, [schema.person])
    with _in_words(source.where):
        cells = [cell or "" for chunk in source.chunks([schema.person]) for cell in chunk[schema.person]]
        return np.array([cell.strip() for cell in cells], dtype=np.str_)


def read_header(path: str | Path, declared: Collection[str] = (), encoding: str = "") -> list[str]:
    """The names in the first line of a CSV file, or in another file's own dictionary; no row is read.

    A name that is a number, such as ``2019``, is taken for one only if it is among the ``declared``.

    Raises:
        DataSchemaError: if there is no header; the line is not quoted, since it may be a person's record.
    """
    names = list(source_of(path, encoding).names)
    given = [name for name in names if name]
    if not given or any(is_number(name) and name not in declared for name in given):
        raise DataSchemaError(
            f"{path}: its first line is not a header (it is empty, or names are numbers, which only a "
            "codebook makes names). The line is not shown: it may be a person's record."
        )
    if len(set(given)) < len(given):
        raise DataSchemaError(
            f"{path}: its first line has a name twice: give each column a name of its own. The line is not "
            "shown: it may be a person's record."
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


def data_marks(table: Any) -> Fields:
    """What a ledger knows a table by, whatever is read of it: a file's bytes, or a hash of every column.

    Private; a ledger keeps only a keyed hash of it.
    """
    if isinstance(table, str | Path):
        return {"file": np.memmap(table, np.uint8, "r")}
    source = source_of(table)
    marks = {}
    for name in source.names:
        hashed = hashlib.sha256()
        # What is no column of cells, beside the declared ones, is no part of the table.
        with suppress(DataSchemaError), _in_words(source.where):
            for chunk in source.chunks([name]):
                for cell in chunk[name]:
                    hashed.update(f"{len(cell or '')}:{cell}".encode())
            marks[name] = np.frombuffer(hashed.digest(), np.uint8)
    return marks


def _refusal(where: str, fields: Sequence[Field]) -> str:
    names = [field.name for field in fields]
    first = fields[0]
    remedy = "otherwise: missing" if not first.is_category else "otherwise: other"
    return (
        f"{where}: fields {names} have cells that the schema leaves without a fate. No row was used. "
        "Declare all levels and the codes of missing values (missingValues), signs in numbers (decimalChar, "
        "groupChar, bareNumber), and what other cells count as, "
        f"for {first.name!r} for example private_mcmc: {{missing: indicator, {remedy}}}."
    )


def _check_names(source: Source, wanted: Sequence[str]) -> None:
    absent = [name for name in wanted if name not in source.names]
    if absent and not source.path:
        raise DataSchemaError(f"the table: has no columns {absent}; it has {list(source.names)}.")
    if absent:
        raise DataSchemaError(
            f"{source.where}: has no fields {absent}. Is this the schema's table, and its first line the "
            "header? The names that it has are not shown: the first line may be a person's record."
        )
    if twice := [name for name in wanted if source.names.count(name) > 1]:
        raise DataSchemaError(f"{source.where}: fields {twice} are there twice; give each a name of its own.")
