"""Private rows from a CSV file, into the columns that ``rows.toml`` declares.

**Every field is declared to hold numbers**, and a file is checked against that before anything in it is read
as a person. A cell that is no finite number (blank, a word, ``nan``, or a cell of a row with more or fewer
cells than the header) has a declared fate: by default the file is refused; with ``missing={field: number}``
the cell counts as that number.

A refusal looks at values, which no error of a mechanism may (`theory.md`, section 6). It stands before the
mechanism: only the curator, who has the file, sees it; nothing has been charged or released; and it names
fields and nothing else, no row, no count, no cell. What a statement says holds between tables that pass. Who
must not even learn that a table was refused declares a number for every field: then no check fails because
of a cell.

**No message quotes the file**, its first line included: without a header that line is a person's record.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from private_mcmc.data.readers import without_blank_lines
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT, blank
from private_mcmc.errors import DataSchemaError, DeclarationError

_NO_NUMBER = math.nan


@dataclass(frozen=True)
class Missing:
    """The fate of cells that hold no number, by field of the file.

    Attributes:
        numbers: what such a cell counts as; a field that is not here is refused if it has one.
        codes: numbers that stand for a missing value, such as 999, and are treated as such a cell.
    """

    numbers: Mapping[str, float] = field(default_factory=dict)
    codes: Mapping[str, frozenset[float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, missing: Sequence[str], codes: Sequence[str]) -> Missing:
        """From ``FIELD=NUMBER`` and ``FIELD=NUMBER,NUMBER,…``."""
        numbers, marks = {}, {}
        for item in missing:
            name, values = _declared("--missing", item)
            if len(values) != 1:
                raise DeclarationError(f"--missing {item!r}: one number, as in age=40.")
            numbers[name] = values[0]
        for item in codes:
            name, values = _declared("--missing-code", item)
            if name not in numbers:
                raise DeclarationError(
                    f"--missing-code {item!r}: say what a missing value counts as, --missing {name}=…"
                )
            marks[name] = frozenset(values)
        return cls(numbers, marks)


def read_columns(
    path: Path, rows: Rows, mapping: Sequence[str], missing: Missing | None = None, present: str | None = None
) -> dict[str, np.ndarray]:
    """The declared columns of a CSV file with a header, every cell a finite number; identifiers are text.

    A scalar column is the field of its own name; a vector column needs ``NAME=field,field,…``. Lines that
    are blank are skipped, as readers of CSV do, but in a file of one column, where each is an empty cell. ``present`` names the field that is 1 where a slot holds a
    person; another number in it marks a hole, whose other cells are not read.
    """
    fate = Missing() if missing is None else missing
    fields = _fields(rows, mapping)
    if present is not None:
        fields[PRESENT] = [present]
    used = list(dict.fromkeys(name for names in fields.values() for name in names))
    if unknown := sorted({*fate.numbers, *fate.codes} - set(used)):
        raise DeclarationError(f"--missing: {unknown} are not among the fields that are read, {used}.")
    table = _lines(path)
    if not table:
        raise DataSchemaError(f"{path}: empty; a header and rows are needed.")
    unit = [] if rows.unit is None else [rows.unit.name]
    header = _header(path, table[0], used + unit)
    if len(table) == 1:
        raise DataSchemaError(f"{path}: has a header and no rows.")
    width = len(table[0])
    numbers = {name: _numbers(table[1:], header[name], width, name, fate) for name in used}
    if present is not None:
        flags = np.where(np.isnan(numbers[present]), 1.0, numbers[present])
        read = (name for name in used if name != present)
        numbers |= {name: blank(numbers[name], flags) for name in read}
    if wrong := [name for name in used if np.isnan(numbers[name]).any()]:
        raise DataSchemaError(
            f"{path}: fields {wrong} hold something other than numbers in some rows, or some rows have more "
            "or fewer cells than the header. No row was used. Give words numbers of their own in the file; "
            f"for missing values declare what they count as, --missing {wrong[0]}=NUMBER."
        )
    persons = {name: _identifiers(table[1:], header[name], width) for name in unit}
    return persons | {
        name: numbers[names[0]]
        if name == PRESENT or rows.columns[name].event_shape == ()
        else np.stack([numbers[each] for each in names], axis=1)
        for name, names in fields.items()
    }


def _lines(path: Path) -> list[list[str]]:
    try:
        # Spreadsheets begin a file in UTF-8 with a mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(without_blank_lines(csv.reader(file)))
    except OSError as error:
        raise DataSchemaError(f"{path}: cannot be read ({error.strerror}).") from None
    except (UnicodeDecodeError, csv.Error):
        raise DataSchemaError(f"{path}: is not a CSV file in UTF-8.") from None


def _header(path: Path, line: list[str], wanted: list[str]) -> dict[str, int]:
    """Where each name stands. What looks like a person's record is refused, and never quoted."""
    names = [name.strip() for name in line]
    given = [name for name in names if name]
    absent = [name for name in wanted if name not in names]
    if absent or len(set(given)) < len(given) or any(not math.isnan(_number(name)) for name in given):
        raise DataSchemaError(
            f"{path}: its first line is not a header with the fields {wanted}"
            + (f" ({absent} are not there)" if absent else " (names are numbers, or given twice)")
            + ". Names are separated by commas. The line is not shown: it may be a person's record."
        )
    return {name: index for index, name in enumerate(names)}


def _fields(rows: Rows, mapping: Sequence[str]) -> dict[str, list[str]]:
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


def _numbers(
    lines: list[list[str]], index: int, width: int, name: str, fate: Missing
) -> npt.NDArray[np.float64]:
    read = (_number(line[index]) if len(line) == width else _NO_NUMBER for line in lines)
    values = np.fromiter(read, np.float64, len(lines))
    values[np.isin(values, list(fate.codes.get(name, ())))] = _NO_NUMBER
    return np.where(np.isnan(values), fate.numbers.get(name, _NO_NUMBER), values)


def _identifiers(lines: list[list[str]], index: int, width: int) -> npt.NDArray[np.object_]:
    """As they are written; none in a row with more or fewer cells than the header."""
    return np.array([line[index] if len(line) == width else "" for line in lines], dtype=np.object_)


def _number(cell: str) -> float:
    """A finite number, or NaN. Python's own underscores are no part of a number in a file."""
    try:
        value = float(cell)
    except ValueError:
        return _NO_NUMBER
    return value if math.isfinite(value) and "_" not in cell else _NO_NUMBER


def _declared(option: str, item: str) -> tuple[str, list[float]]:
    name, equals, text = item.partition("=")
    values = [_number(part) for part in text.split(",")]
    if not equals or any(math.isnan(value) for value in values):
        raise DeclarationError(f"{option} {item!r}: FIELD=NUMBER, as in age=40.")
    return name.strip(), values
