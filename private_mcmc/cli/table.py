"""Private rows from a CSV file, into the columns that ``rows.toml`` declares."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.modeling import Rows
from private_mcmc.modeling.presence import PRESENT


def read_columns(
    path: Path, rows: Rows, mapping: list[str], present: str | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The declared columns of a CSV file with a header.

    A scalar column is the field of its own name; a vector column needs ``NAME=field,field,…``. What is
    not a number (an empty cell, a word) becomes NaN, which the row domain maps silently. ``present`` names
    the field that is 1 where a slot holds a person; anything else in it marks a hole.

    Raises:
        DataSchemaError: if the file cannot be read, or a field is missing; never about values.
        DeclarationError: if ``mapping`` does not fit the declared rows.
    """
    fields = _fields(rows, mapping)
    if present is not None:
        fields[PRESENT] = [present]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataSchemaError(f"{path}: cannot be read as CSV ({type(error).__name__}).") from error
    if not table:
        raise DataSchemaError(f"{path}: empty; a header and rows are needed.")
    header = {name.strip(): index for index, name in enumerate(table[0])}
    missing = sorted({field for names in fields.values() for field in names} - set(header))
    if missing:
        raise DataSchemaError(f"{path}: no fields {missing}; its header has {sorted(header)}.")
    columns = {}
    for name, names in fields.items():
        values = np.array([[_number(row, header[field]) for field in names] for row in table[1:]])
        scalar = name == PRESENT or rows.columns[name].event_shape == ()
        columns[name] = (
            values.reshape(len(table) - 1) if scalar else values.reshape(len(table) - 1, len(names))
        )
    return columns


def _fields(rows: Rows, mapping: list[str]) -> dict[str, list[str]]:
    given = {}
    for item in mapping:
        name, equals, names = item.partition("=")
        if not equals or name not in rows.columns:
            raise DeclarationError(f"--column {item!r}: NAME=field,field,… with a declared NAME.")
        given[name] = [field.strip() for field in names.split(",")]
    for name, domain in rows.columns.items():
        fields = given.setdefault(name, [name])
        wanted = int(np.prod(domain.event_shape, dtype=int))
        if len(fields) != wanted:
            raise DeclarationError(
                f"column {name!r} takes {wanted} fields of the file; give --column {name}=field,field,…"
            )
    return given


def _number(row: list[str], index: int) -> float:
    try:
        return float(row[index])
    except (ValueError, IndexError):
        return float("nan")
