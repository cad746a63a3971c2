"""Private rows of ``run``, into the columns that ``rows.toml`` declares: every field holds numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from private_mcmc.data.fields import Field, is_number
from private_mcmc.data.readers import source_of
from private_mcmc.data.table import encoded
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT, blank
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.records import Record

# Of numbers that no range is declared of here; their domain has one.
_RANGE: Record = {"minimum": -1e300, "maximum": 1e300, "outside": "missing"}


def read_fates(missing: Sequence[str], codes: Sequence[str]) -> dict[str, Field]:
    """What cells that hold no number count as, from ``FIELD=NUMBER`` and codes of it, ``FIELD=NUMBER,…``."""
    found = {}
    for item in missing:
        name, values = _declared("--missing", item)
        if len(values) != 1:
            raise DeclarationError(f"--missing {item!r}: one number, as in age=40.")
        found[name] = Field(name, "number", missing=values[0], otherwise="missing", **_RANGE)
    for item in codes:
        name, values = _declared("--missing-code", item)
        if name not in found:
            raise DeclarationError(
                f"--missing-code {item!r}: say what a missing value counts as, --missing {name}=…"
            )
        found[name] = replace(found[name], missing_values=("", *values))
    return found


def read_columns(
    path: Path,
    rows: Rows,
    mapping: Sequence[str],
    fates: Mapping[str, Field] | None = None,
    present: str | None = None,
) -> dict[str, np.ndarray]:
    """The declared columns of a CSV file with a header, every cell a finite number; identifiers are text.

    A scalar column is the field of its own name; a vector column needs ``NAME=field,field,…``. ``present``
    names the field that is 1 where a slot holds a person; another number in it marks a hole, whose other
    cells are not read.

    A cell that is no finite number (blank, a word, ``nan``, or a cell of a row with more or fewer cells than
    the header) has a declared fate: the file is refused, or ``fates`` say what it counts as. A refusal
    looks at values, as in :mod:`private_mcmc.data.table`, before anything is charged, and names fields alone.
    """
    known, fields = fates or {}, _fields(rows, mapping)
    if present is not None:
        fields[PRESENT] = [present]
    used = list(dict.fromkeys(name for names in fields.values() for name in names))
    if unknown := sorted(set(known) - set(used)):
        raise DeclarationError(f"--missing: {unknown} are not among the fields that are read, {used}.")
    who = [] if rows.unit is None else [rows.unit.name]
    cells = _cells(path, [*used, *who])
    numbers = {}
    for name in used:
        (values,) = encoded(known.get(name, Field(name, "number", **_RANGE)), cells[name])[0].values()
        numbers[name] = np.where(np.isfinite(values), values, np.nan)
    if present is not None:
        flags = np.where(np.isnan(numbers[present]), 1.0, numbers[present])
        numbers |= {name: blank(numbers[name], flags) for name in used if name != present}
    if wrong := [name for name in used if np.isnan(numbers[name]).any()]:
        raise DataSchemaError(
            f"{path}: fields {wrong} hold something other than numbers in some rows, or some rows have more "
            "or fewer cells than the header. No row was used. Give words numbers of their own in the file; "
            f"for missing values declare what they count as, --missing {wrong[0]}=NUMBER."
        )
    persons = {name: np.array([cell or "" for cell in cells[name]], dtype=np.object_) for name in who}
    return persons | {
        name: numbers[names[0]]
        if name == PRESENT or rows.columns[name].event_shape == ()
        else np.stack([numbers[each] for each in names], axis=1)
        for name, names in fields.items()
    }


def _cells(path: Path, wanted: Sequence[str]) -> dict[str, list[str | None]]:
    """The cells of the fields; a first line that looks like a person's record is refused, never quoted."""
    source = source_of(path)
    given = [name for name in source.names if name]
    absent = [name for name in wanted if name not in given]
    if absent or len(set(given)) < len(given) or any(map(is_number, given)):
        raise DataSchemaError(
            f"{path}: its first line is not a header with the fields {list(wanted)}"
            + (f" ({absent} are not there)" if absent else " (names are numbers, or given twice)")
            + ". The line is not shown: it may be a person's record."
        )
    found: dict[str, list[str | None]] = {name: [] for name in wanted}
    for chunk in source.chunks(wanted):
        for name in wanted:
            found[name] += chunk[name]
    return found


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


def _declared(option: str, item: str) -> tuple[str, list[str]]:
    name, equals, text = item.partition("=")
    values = [part.strip() for part in text.split(",")]
    if not equals or not all(map(is_number, values)):
        raise DeclarationError(f"{option} {item!r}: FIELD=NUMBER, as in age=40.")
    return name.strip(), values
