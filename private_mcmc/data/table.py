"""A private table, from a file or from memory, into the columns that a schema declares.

**A table is checked against its schema before anything in it is read as a person.** A cell without a
declared fate refuses the table. That looks at values, which no error of a mechanism may (`theory.md`, section
6): it stands before the mechanism, only the curator, who has the table, sees it, nothing has been charged or
released, and it names fields and nothing else: no row, no count, no cell. What a statement says holds between
tables that pass. Who must not even learn that a table was refused declares a fate for missing and for other
cells in every field: then no check fails because of a cell. A file that is none of its format (bytes of
another encoding, a quotation that is not closed) is refused all the same.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.data.fields import OTHER_LEVEL, Field, composed, days, identifier, plain_number
from private_mcmc.data.files import TableFiles, column_of, files_of
from private_mcmc.data.readers import STATISTICAL, files_at, source_of, source_of_files
from private_mcmc.data.schema import Schema
from private_mcmc.domains.cells import MOST_REMEMBERED, Chunk, Marks, Numbers, Source
from private_mcmc.domains.columns import PRESENT, HostColumn, Spool, in_words
from private_mcmc.errors import DataSchemaError, DeclarationError

Array: TypeAlias = npt.NDArray[np.float64]

# What a cell may be besides a number: both are no numbers of any domain.
REFUSED, MISSING = math.nan, math.inf
_SINGLE = 2.0**-23


@np.errstate(all="ignore")
def encoded(field: Field, cells: Iterable[str | None]) -> tuple[dict[str, Array], bool]:
    """Columns of the row domain, and whether every cell has a place in them.

    ``None`` stands for a cell that is not there. A NaN that signals, as R's ``NA``, is one like others.
    """
    codes = _codes(field, cells)
    missing = np.isposinf(codes)
    if field.missing == "refuse":
        return {identifier(field.name): codes}, not (missing.any() or np.isnan(codes).any())
    columns = {identifier(field.name): np.where(missing, field.stand_in, codes)}
    if field.missing == "drop":
        columns[PRESENT] = 1.0 - missing
    if field.indicator:
        columns[identifier(field.indicator)] = missing.astype(np.float64)
    return columns, not np.isnan(codes).any()


def _codes(field: Field, cells: Iterable[str | None]) -> Array:
    """What cells count as: their numbers in the row domain, ``REFUSED`` or ``MISSING``."""
    read = lru_cache(MOST_REMEMBERED)(_reader(field))
    if not isinstance(cells, Numbers):
        found = np.fromiter(map(read, cells), np.float64)
    elif field.is_category or field.type == "date" or field.decimal != ".":
        values, places = np.unique(cells.values, return_inverse=True)
        found = np.fromiter(map(read, Numbers(values)), np.float64)[places]
    else:
        # A zero has no sign, as in words; what is no finite number may be a code.
        found = cells.values.astype(np.float64) + 0.0
        beyond = ~np.isfinite(found)
        found[beyond] = [read(cell) for cell in Numbers(found[beyond])]
    return found if field.is_category else _placed(field, found)


def _placed(field: Field, numbers: Array) -> Array:
    """Codes of numbers, of which NaN is none and ``MISSING`` stands."""
    (low, high), fate = field.range, {"missing": MISSING}.get(field.otherwise, REFUSED)
    missing = np.isposinf(numbers)
    if field.type != "date":
        missing |= np.isin(numbers, [*_mark_numbers(field)])
    nearest = np.clip(numbers, low, high)
    # A bound of 0.1 that was written with 32 bits is a little more than 0.1.
    far = np.abs(numbers - nearest) > _SINGLE * max(abs(low), abs(high))
    beyond = {"refuse": REFUSED, "missing": MISSING}
    found = np.where(far, beyond.get(field.outside, nearest), nearest)
    wrong = np.isnan(numbers) | ((field.type == "integer") & (numbers != np.floor(numbers)))
    return np.where(missing, MISSING, np.where(wrong, fate, found))


def _mark_numbers(field: Field) -> set[float]:
    # -9.0 for -9 says missing too: other programs write whole numbers so beside empty cells.
    marks = {composed(mark.strip()) for mark in field.missing_values}
    numbers = {read(mark) for mark in marks for read in (partial(_number, field), plain_number)}
    return {number for number in numbers if not math.isnan(number)}


def _reader(field: Field) -> Callable[[str | None], float]:
    """The code of a category's cell; of a number's or a date's the number, NaN, or ``MISSING``."""
    places = {level.value: float(index) for index, level in enumerate(field.all_levels)}
    marks = {composed(mark.strip()) for mark in field.missing_values}
    otherwise = {"refuse": REFUSED, "missing": MISSING, "other": places.get(OTHER_LEVEL, REFUSED)}
    fate = otherwise[field.otherwise] if field.is_category else math.nan
    # Of cells, what stands around them does not matter; nor of levels.
    declared = {composed(level.value.strip()): places[level.value] for level in field.levels}
    if field.type == "boolean":
        declared = {word: 0.0 for word in field.false_values} | dict.fromkeys(field.true_values, 1.0)
    codes = _mark_numbers(field)

    def of_category(text: str) -> float:
        found, number = declared.get(text), plain_number(text)
        if found is None and number.is_integer():
            # 1.0 for 1, as other programs write whole numbers.
            found = declared.get(f"{number:.0f}", MISSING if number in codes else None)
        return fate if found is None else found

    read = of_category if field.is_category else partial(_number, field)

    def one(cell: str | None) -> float:
        if cell is None:
            return fate
        text = composed(cell.strip())
        return MISSING if text in marks else read(text)

    return one


def _number(field: Field, text: str) -> float:
    if field.type == "date":
        return days(text, field.format)
    if field.decimal != ".":
        if "." in text:
            return math.nan
        text = text.replace(field.decimal, ".")
    return plain_number(text)


def read_table(table: Any, schema: Schema, names: Sequence[str]) -> dict[str, Array]:
    """Columns of ``schema.rows(names)`` from a path, a data frame, or a dict of columns.

    Where a field drops rows, a column ``present`` tells which rows count.
    """
    parts = [*_encoded_parts(source_of(table, schema.encoding), schema, names)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def spooled_table(table: Any, schema: Schema, names: Sequence[str]) -> dict[str, HostColumn]:
    """As :func:`read_table`, of a table that may be larger than memory."""
    spools: defaultdict[str, Spool] = defaultdict(Spool)
    for part in _encoded_parts(source_of(table, schema.encoding), schema, names):
        for name, values in part.items():
            spools[name].append(values)
    files = files_at(Path(table)) if isinstance(table, str | Path) else None
    moved = files is not None and files.ordered_by_cells
    return {name: spool.column(moved) for name, spool in spools.items()}


def coded_table(table: Any, schema: Schema, names: Sequence[str]) -> dict[str, HostColumn]:
    """As :func:`read_table`, of files, read and coded by whoever holds a part of them, when it is wanted."""
    files = files_at(Path(table)) if isinstance(table, str | Path) else None
    if files is None:
        raise DeclarationError("engine: workers read Parquet, a folder of it, or Arrow; no other table.")
    _check_names(source_of_files(files), list(names))
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        for column in encoded(schema[name], ())[0]:
            found[column].append(name)
    return {name: column_of(files, partial(_coded, files, schema, of, name)) for name, of in found.items()}


def _coded(
    files: TableFiles, schema: Schema, fields: Sequence[str], name: str, first: int, last: int, size: int
) -> Iterator[Array]:
    """Rows of a column that is made of these fields."""
    for part in _encoded_parts(source_of_files(files, first, last), schema, fields):
        yield part[name]


def _encoded_parts(source: Source, schema: Schema, names: Sequence[str]) -> Iterator[dict[str, Array]]:
    """Some rows after others, beginning with none; refused at the end if a cell has no fate."""
    fields = [schema[name] for name in names]
    _check_names(source, list(names))
    refused: set[str] = set()
    # Of no row as well the columns there would be: whether there is one may be private.
    none: Chunk = {name: () for name in names}
    for chunk in chain([none], source.chunks(list(names))):
        found: dict[str, Array] = {}
        for field in fields:
            with in_words(source.where):
                columns, whole = encoded(field, chunk[field.name])
            if not whole:
                refused.add(field.name)
            if field.missing == "drop":
                columns[PRESENT] = np.minimum(found.get(PRESENT, 1.0), columns[PRESENT])
            found |= columns
        yield found
    if refused:
        raise DataSchemaError(_refusal(source.where, [field for field in fields if field.name in refused]))


def read_identifiers(table: Any, schema: Schema) -> Iterator[str]:
    """The texts of the field that tells persons apart, row by row; empty where one is missing."""
    source, field = source_of(table, schema.encoding), schema.by_name[schema.person]
    _check_names(source, [field.name])
    with in_words(source.where):
        yield from source.identifiers(field.name, field.missing_values)


def _refusal(where: str, fields: Sequence[Field]) -> str:
    first, category = fields[0], fields[0].is_category
    read = {
        "boolean": "its words for true and false (trueValues, falseValues)",
        "date": "the form of its dates (format, as %d/%m/%Y)",
    }.get(first.type, "its numbers' decimal sign (decimalChar)")
    if category and first.type != "boolean":
        of_codes = Path(where).suffix.lower() in STATISTICAL
        read = "all its levels, as they are written in the table (constraints.enum)"
        read += " (the codes, where the file has labels for them)" * of_codes
    # What was declared is public.
    codes = "all codes of missing values (missingValues)"
    if first.missing == "refuse":
        codes = (
            "what missing values, empty cells too, count as (private_mcmc: {missing: indicator}; of an "
            "outcome {missing: drop}, with adjacency='zero_out'), their codes (missingValues)"
        )
    other = "otherwise: other" if category else "otherwise: missing; beyond the range outside: nearest"
    return (
        f"{where}: fields {[field.name for field in fields]} have cells that the schema leaves without a "
        f"fate. No row was used. Of {first.name!r} declare {codes}, {read}, and what any other cell counts "
        f"as ({other})."
    )


def _check_names(source: Source, wanted: Sequence[str]) -> None:
    here = Counter(source.names)
    absent = [name for name in wanted if name not in here]
    if absent and not source.path:
        raise DataSchemaError(f"the table: has no columns {absent}; it has {list(source.names)}.")
    if absent:
        raise DataSchemaError(
            f"{source.where}: has no fields {absent}. Is this the schema's table, and its first line the "
            "header? The names that it has are not shown: the first line may be a person's record."
        )
    if twice := [name for name in wanted if here[name] > 1]:
        raise DataSchemaError(f"{source.where}: fields {twice} are there twice; give each a name of its own.")


def data_marks(table: Any) -> Marks:
    """The marks of a table, whatever is read of it: of its files' bytes, or of every column's cells."""
    if isinstance(table, str | Path):
        return Marks.of_files(Path(table), files_of(Path(table)))
    return Marks.of_cells(source_of(table))


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
