"""Persons with several rows: rows grouped by an identifier, each person in a block of a public size.

Which rows a person keeps, and in which order, is a function of that person's own rows: neither other persons
nor the order of the file has a part in it. Identifiers tell persons apart and say which slot a person has;
nothing whose law depends on the slot may be run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.arguments import construction_checked
from private_mcmc.domains.columns import PRESENT, HostColumn, check_unmasked, holds_person
from private_mcmc.domains.domain import Domain, whole
from private_mcmc.errors import DataSchemaError
from private_mcmc.records import Record, as_seen, text_of_bytes

Columns = Mapping[str, np.ndarray]
Numbers = npt.NDArray[np.int64]

# The column that tells which of a person's rows there are; no argument of a model has this name.
OWN_ROWS = "rows of the person"


@construction_checked
@dataclass(frozen=True)
class Person:
    """A column of identifiers: rows with equal ones are one person, who is protected as a whole.

    Of a person with more rows, ``at_most`` are kept: the choice looks at the contents of that person's rows
    and at nothing else, so that it is the same in whichever order a file has them. Identifiers may be whole
    numbers, text or floats of 64 bits (which tell whole numbers apart up to ``2^53``), in any order; rows
    without one (missing, blank) are left out. The type of the column is public.

    Raises:
        DeclarationError: unless ``at_most`` is a whole number from 1 to 2^31 − 1.

    Example:
        >>> rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), patient=pmc.Person(at_most=4))
        >>> rows.unit.rows
        4
    """

    at_most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_most", whole("Person at_most", self.at_most, 1))


@dataclass(frozen=True)
class Several(Domain):
    """``count`` values of one domain, stacked: what the rows of a person have in one column."""

    each: Domain
    count: int

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of a person's values."""
        return (self.count, *self.each.event_shape)

    @property
    def dtype(self) -> np.dtype:  # type: ignore[override]
        """That of one value."""
        return self.each.dtype

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The same bounds for every value."""
        low, high = self.each.interval()
        return np.broadcast_to(low, self.event_shape), np.broadcast_to(high, self.event_shape)

    def mapped(self, values: jax.Array) -> jax.Array:
        """Map every value by itself."""
        inside = self.each.mapped(values.reshape(-1, *self.each.event_shape))
        return inside.reshape(-1, *self.event_shape)

    def to_dict(self) -> Record:
        """What one value is, and how many there are."""
        return {"several": {"each": self.each.to_dict(), "count": self.count}}


def grouped(columns: Columns, codes: Numbers, persons: int, at_most: int) -> Record:
    """Columns ``(rows, …)`` as ``(persons, at_most, …)``, with ``OWN_ROWS`` and who has any rows.

    ``codes`` are those of ``identified``. Slots that no person has are zeros, like rows that a person lacks;
    with more identifiers than slots, persons are left out.
    """
    order = np.lexsort((_contents(columns), codes))
    order = order[(codes[order] >= 0) & (codes[order] < persons)]
    slots = codes[order]
    place = np.arange(len(slots)) - np.searchsorted(slots, slots)
    order, slots, place = (array[place < at_most] for array in (order, slots, place))
    found: Record = {}
    for column, values in columns.items():
        block = np.zeros((persons, at_most, *values.shape[1:]), values.dtype)
        block[slots, place] = values[order]
        found[column] = block
    own = np.zeros((persons, at_most), np.int64)
    own[slots, place] = 1
    return {**found, OWN_ROWS: own, PRESENT: own[:, 0] == 1}


@dataclass(frozen=True, eq=False, repr=False)
class Slots:
    """Which rows of a data set stand where: partitions of slots, each with the rows that lie in them.

    Attributes:
        size: how many slots there are.
        rows: numbers of the rows that have one, increasing.
        places: their slots, shape as of ``rows``; all rows of a person have one.
        at_most: rows of a person; 0 where a slot holds one row and no person.
    """

    size: int
    rows: Numbers
    places: Numbers
    at_most: int = 0

    @classmethod
    def of(cls, who: Numbers, order: Numbers, at_most: int = 0) -> Slots:
        """The rows of number ``order[s]`` in ``who``, shape ``(rows,)``, in slot ``s``; of −1 in none."""
        places = np.where(who < 0, -1, np.argsort(order)[who]) if len(order) else who
        rows = np.flatnonzero(places >= 0)
        return cls(len(order), rows, places[rows], at_most)

    def part(self, first: int, last: int) -> Slots:
        """The slots ``first … last − 1``."""
        here = (self.places >= first) & (self.places < last)
        return replace(self, size=last - first, rows=self.rows[here], places=self.places[here] - first)

    def filled(self, columns: Mapping[str, HostColumn]) -> dict[str, np.ndarray]:
        """The columns' rows in these slots, and ``PRESENT``; of persons as ``grouped`` has them."""
        found = {name: column.at(self.rows) for name, column in columns.items()}
        there = holds_person(found.pop(PRESENT, np.ones(len(self.rows))))
        rows, at_most = {name: values[there] for name, values in found.items()}, max(self.at_most, 1)
        placed = grouped(rows, self.places[there], self.size, at_most)
        if self.at_most:
            return placed
        return {name: placed[name][:, 0] for name in rows} | {PRESENT: placed[PRESENT]}


def one_row_each(columns: Mapping[str, HostColumn], codes: Numbers) -> Numbers:
    """The number of the row that ``grouped`` keeps of each person where it is one, in the order of codes."""
    rows = np.flatnonzero(codes >= 0)
    who = codes[rows]
    several, contents = np.bincount(who)[who] > 1, np.zeros(len(rows), np.uint64)
    if several.any():
        contents[several] = _contents({name: one.at(rows[several]) for name, one in columns.items()})
    order = np.lexsort((contents, who))
    return rows[order[np.unique(who[order], return_index=True)[1]]]


def identified(name: str, column: object) -> Numbers:
    """A number for each row, shape ``(rows,)``: equal for equal identifiers, −1 where there is none.

    They are numbered as they come, so that a ledger knows persons whatever the type of the column.
    Of objects and text the :func:`spelling` counts: who is split in two is protected half.
    """
    check_unmasked(name, column)
    check_wide(name, getattr(column, "dtype", None))
    plain = isinstance(getattr(column, "dtype", None), np.dtype)
    try:
        # Categories' whole numbers stay what they are whoever else has none, and are no floats.
        array = np.asarray(column if plain else column.astype(object).to_numpy())  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: identifiers are an array or a pandas Series."
        ) from None
    if array.ndim != 1 or array.dtype.kind not in "biufUSOT":
        raise DataSchemaError(
            f"column {name!r}: identifiers are one column of whole numbers, text or floats, shape (rows,)."
        )
    if array.dtype.kind in "USOT":
        return numbered(array.tolist())
    there, codes = np.isfinite(array), np.full(len(array), -1, np.int64)
    _, first, found = np.unique(array[there], return_index=True, return_inverse=True)
    codes[there] = np.argsort(np.argsort(first))[found]
    return codes


def numbered(identifiers: Iterable[object]) -> Numbers:
    """Those of ``identified``; each is held in memory once."""
    places: dict[str, int] = {"": -1}
    return np.fromiter((places.setdefault(spelling(one), len(places) - 1) for one in identifiers), np.int64)


def check_wide(name: str, dtype: object) -> None:
    """Raise ``DataSchemaError`` for floats of less than 64 bits, the usual type of numbers in Stata.

    Of two persons whose digits were dropped one is not protected by himself where it counts who is there.
    """
    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    narrow = isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize < 8
    # Of ``Sparse[float32, nan]`` and ``dictionary<values=float, …>`` too.
    if narrow or not _NARROW.isdisjoint(re.findall(r"\w+", str(dtype).lower())):
        raise DataSchemaError(
            f"column {name!r}: identifiers are floats of less than 64 bits, which tell whole numbers apart "
            "up to 2^24 at most: several persons may have become one. Make them text or integers."
        )


def spelling(value: object) -> str:
    """The text that an identifier is told apart by; empty where it is missing, or an object that has none.

    **What is merged**, and nothing else:

    1. signs that look alike, as in :func:`private_mcmc.records.as_seen`; bytes and their text, also as Python
       prints them (``b'7'``), and digits that a spreadsheet is kept from taking for a number (``'7``,
       ``="7"``);
    2. a whole number however a program writes it: ``7``, ``+7``, ``007``, ``7.0``, ``7,0``, ``7e+00``, and
       with separators of thousands, ``1,234``, ``1 234``, ``1'234`` and ``1.234.567``;
    3. a day, and its midnight: ``2020-01-01``, ``2020-01-01 00:00:00``, ``2020-01-01T00:00:00.000Z``;
    4. words for nobody: an empty text, ``nan``, ``NaN``, ``None``, ``<NA>``, ``NaT``.

    Capitals, dashes, points and spaces in words tell identifiers apart.
    """
    try:
        return _merged(value)
    except Exception:
        # What it raises may quote it.
        return ""


def _merged(value: object) -> str:
    # Whatever is no number, of decimals and NumPy's dates too, is not even equal to itself.
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return ""
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            return ""
        return str(int(value)) if value == int(value) else repr(float(value))
    text = as_seen(text_of_bytes(value) if isinstance(value, bytes) else str(value))
    for pattern, kept in _SAME:
        if found := pattern.fullmatch(text):
            text = found.expand(kept).strip()
    if grouped_digits := _THOUSANDS.fullmatch(text):
        text = re.sub(r"[,.' ]", "", grouped_digits[1])
    text = _written_out(text)
    number = _WHOLE.fullmatch(text)
    return text if number is None else number[1] + number[2] if number[2] else "0"


def _written_out(text: str) -> str:
    """A whole number in powers of ten without them: R writes 100000 as ``1e+05``, Python ``1e+16``."""
    found = _POWERS.fullmatch(text)
    if found is None:
        return text
    sign, whole, rest, power = found[1], found[2], (found[3] or "").rstrip("0"), int(found[4])
    # ``1500e-2`` is whole too, but no program writes it.
    return text if power < len(rest) else sign + whole + rest + "0" * (power - len(rest))


# Types of floats, as pandas, Arrow and others call them; Arrow's of 64 bits is ``double``.
_NARROW = frozenset(["bfloat16", "float16", "halffloat", "float32", "float"])
_SAME = (
    (re.compile(r"b'(.*)'|b\"(.*)\""), r"\1\2"),
    (re.compile(r"'(\d+)|=\"([^\"]+)\""), r"\1\2"),
    (re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?(?:Z|[+-]00:?00)?"), r"\1"),
    (re.compile(r"nan|NaN|None|<NA>|NaT"), ""),
)
# Digits of a group are three; with a single point the number may be one with decimals.
_THOUSANDS = re.compile(
    r"([+-]?[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+|(?:'\d{3})+|(?:\.\d{3}){2,}))(?:[.,]0{1,2})?", re.ASCII
)
_POWERS = re.compile(r"\+?(-?)(\d++)(?:[.,](\d*+))?[eE]\+?(\d{1,3})", re.ASCII)
# Behind a comma one or two zeros are decimals, as in ``5,0``; three are thousands.
_WHOLE = re.compile(r"\+?(-?)(?=\d)0*+(\d*+)(?:\.0*+|,00?)?", re.ASCII)


def _contents(columns: Columns) -> npt.NDArray[np.uint64]:
    """A number made of each row's contents, shape ``(rows,)``: it orders a person's rows, evenly enough."""
    total = np.zeros(len(next(iter(columns.values()))), np.uint64)
    with np.errstate(all="ignore"):
        for name in sorted(columns):
            values = np.asarray(columns[name], np.float64)
            for index in np.ndindex(values.shape[1:]):
                entry = np.ascontiguousarray(values[(slice(None), *index)]).view(np.uint64)
                # The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
                total = (total ^ entry) + np.uint64(0x9E3779B97F4A7C15)
                total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                total = total ^ (total >> np.uint64(31))
    return total
