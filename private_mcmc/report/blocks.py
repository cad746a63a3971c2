"""Plain blocks a report is made of: words and numbers only, no knowledge of where they came from."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal, TypeAlias

Tone = Literal["good", "bad", "unsure", "plain"]
Cell = str | int | float | bool | None
Floats = tuple[float, ...]


def floats(values: Iterable[float]) -> Floats:
    """Plain Python floats of any sequence or one-dimensional array of numbers."""
    return tuple(float(value) for value in values)


@dataclass(frozen=True)
class Heading:
    """A section heading."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph. Text between backticks is set in a fixed-width face."""

    text: str


@dataclass(frozen=True)
class Verdict:
    """The one line a reader must not miss, with up to a few lines of reasons below it."""

    word: str
    line: str
    tone: Tone
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """A remark set apart from the text: a limitation, a warning, something to do."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """Names and values, in order."""

    items: tuple[tuple[str, Cell], ...]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


def table_of(lines: Sequence[Mapping[str, Cell]], title: str = "") -> Table:
    """Lines with the same columns as a table."""
    return Table(tuple(lines[0]), tuple(tuple(line.values()) for line in lines), title)


def as_csv(lines: Sequence[Mapping[str, object]]) -> str:
    """Lines with the same columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


@dataclass(frozen=True)
class Line:
    """A curve through ``(x, y)``; ``marker`` dots it."""

    x: Floats
    y: Floats
    label: str = ""
    color: int = 0
    style: Literal["solid", "dashed", "dotted", "none"] = "solid"
    marker: bool = False


@dataclass(frozen=True)
class Interval:
    """Horizontal intervals ``[low, high]`` with a dot at ``middle``, at the heights ``y``."""

    y: Floats
    low: Floats
    middle: Floats
    high: Floats
    label: str = ""
    color: int = 0


@dataclass(frozen=True)
class Rule:
    """A straight reference line at one value of ``axis``, with its name written beside it."""

    axis: Literal["x", "y"]
    at: float
    label: str = ""


Drawn = Line | Interval | Rule


@dataclass(frozen=True)
class Plot:
    """A chart in plain numbers. ``description`` says in words what it shows (alternative text).

    ``y_ticks`` replace the numeric ticks by ``(position, name)`` pairs; ``x_range``/``y_range`` fix what is
    visible.
    """

    title: str
    x_label: str
    y_label: str
    drawn: tuple[Drawn, ...]
    description: str = ""
    x_log: bool = False
    y_log: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    y_ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Code:
    """Lines of a program or a command, as they are."""

    text: str


@dataclass(frozen=True)
class Form:
    """Sentences for a person to confirm, and lines to fill in by hand."""

    sentences: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Details:
    """Blocks that are folded away under a line of words: not shown on a terminal nor on paper."""

    summary: str
    blocks: tuple[Block, ...]


Block: TypeAlias = "Heading | Text | Verdict | Note | Facts | Table | Plot | Code | Form | Details"


def json_types(value: Any) -> Any:
    """Dictionaries, lists, strings and finite numbers only, of dataclasses, tuples, arrays and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: json_types(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__.lower(), **fields}
    if hasattr(value, "tolist"):
        return json_types(value.tolist())
    if isinstance(value, dict):
        return {str(key): json_types(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [json_types(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    number = float(value)
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else ("inf" if number > 0 else "-inf")


# Powers of ten from which on a number is written with one.
_LONG = 6


def number(value: float, digits: int = 4) -> str:
    """``value`` with ``digits`` significant digits, plain where short, scientific where not."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:z.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        # 26000, whatever the digits, is easier to read than 2.6e4: incomes are such numbers.
        plain = 0 < int(exponent) < _LONG
        text = f"{float(text):.0f}" if plain else f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−", 1) if value < 0 else text


def between(low: float, high: float) -> str:
    """An interval in words."""
    count = digits(low, high)
    return f"{number(low, count)} to {number(high, count)}"


def digits(low: float, high: float) -> int:
    """Enough to tell the ends of an interval apart: a ratio per day may differ from 1 in its fifth digit."""
    if not 0 < high - low < math.inf:
        return 4
    return min(max(4, 2 + math.ceil(math.log10(max(abs(low), abs(high)) / (high - low)))), 12)


# What bounds are rounded up by while they are computed; no digit more is shown for it.
_COMPUTED = 1e-9


def rounded_up(value: float, digits: int) -> float:
    """The least number of so many significant digits that is not below ``value``, but for 1e-9 of it."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> float:
    """The largest number of so many significant digits that is not above ``value``, but for 1e-9 of it."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, side: str) -> float:
    if not math.isfinite(value):
        return value
    nearest = float(f"{value:.{digits}g}")
    if math.isclose(nearest, value, rel_tol=_COMPUTED, abs_tol=0.0):
        return nearest
    return float(Context(digits, side).create_decimal_from_float(value))


def at_most(value: float, digits: int = 4) -> str:
    """As ``number``, rounded up: a loss that is claimed is never shown smaller than it is."""
    return number(rounded_up(value, digits), digits)


def at_least(value: float, digits: int = 4) -> str:
    """As ``number``, rounded down: of what is proved at least."""
    return number(rounded_down(value, digits), digits)


def cell(value: Cell) -> str:
    """The words for one cell: ``—`` for nothing, yes/no for truth values, short numbers."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    return value


def right_aligned(table: Table, column: int) -> bool:
    """Whether every cell of a column is a number or empty."""
    cells = [row[column] for row in table.rows]
    numbers = (isinstance(one, int | float) and not isinstance(one, bool) for one in cells if one is not None)
    return bool(cells) and all(numbers)
