"""How numbers are written in a report: short, and never rounded to something they are not."""

from __future__ import annotations

import math

from private_mcmc.report.blocks import Cell, Table


def number(value: float, digits: int = 4) -> str:
    """``value`` with ``digits`` significant digits, plain where short, scientific where not."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−") if value < 0 and "e" not in text else text


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


def is_number(value: Cell) -> bool:
    """Whether a cell is right-aligned."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def right_aligned(table: Table, column: int) -> bool:
    """Whether every cell of a column is a number or empty."""
    return bool(table.rows) and all(is_number(row[column]) or row[column] is None for row in table.rows)
