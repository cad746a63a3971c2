"""From the cells of a table to numbers of the row domain: every cell has a declared fate.

One function of one cell and the field's declaration, so that no cell's fate depends on another row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.data.fields import (
    MISSING_LEVEL,
    OTHER_LEVEL,
    Field,
    days,
    identifier,
    plain_number,
    truth_of,
)
from private_mcmc.domains.numeric import PRESENT

Array: TypeAlias = npt.NDArray[np.float64]

# What a cell may be besides a number: both are no numbers of any domain.
REFUSED, MISSING = math.nan, math.inf
_AROUND = re.compile(r"^[^\d+\-.,]*|[^\d]*$")
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Encoder:
    """Reads the cells of one field."""

    field: Field

    def columns(self, cells: Iterable[str | None]) -> tuple[dict[str, Array], bool]:
        """Columns of the row domain, and whether every cell has a place in them.

        ``None`` stands for a cell that is not there.
        """
        read, seen = self._reader(), dict[str | None, float]()

        def code(cell: str | None) -> float:
            found = seen.get(cell)
            if found is None:
                found = read(cell)
                if len(seen) < _MOST_REMEMBERED:
                    seen[cell] = found
            return found

        codes = np.fromiter((code(cell) for cell in cells), np.float64)
        missing, field = np.isposinf(codes), self.field
        if field.missing == "refuse":
            return {identifier(field.name): codes}, not (missing.any() or np.isnan(codes).any())
        columns = {identifier(field.name): np.where(missing, self._stand_in(), codes)}
        if field.missing == "drop":
            columns[PRESENT] = 1.0 - missing
        if field.indicator:
            columns[identifier(field.indicator)] = missing.astype(np.float64)
        return columns, not np.isnan(codes).any()

    def _stand_in(self) -> float:
        if not self.field.is_category:
            return self.field.stand_in
        if self.field.missing in ("drop", "marginal"):
            return 0.0
        value = MISSING_LEVEL if self.field.missing == "indicator" else self.field.missing
        return float([level.value for level in self.field.all_levels].index(value))

    def _reader(self) -> Callable[[str | None], float]:
        field = self.field
        places = {level.value: float(index) for index, level in enumerate(field.all_levels)}
        marks = {mark.strip() for mark in field.missing_values}
        otherwise = {"refuse": REFUSED, "missing": MISSING, "other": places.get(OTHER_LEVEL, REFUSED)}
        fate = otherwise[field.otherwise]
        # Of cells, what stands around them does not matter; nor of levels.
        declared = {level.value.strip(): places[level.value] for level in field.levels}
        truths = field.type == "boolean"
        low, high = (0.0, 0.0) if field.is_category else field.range

        def of_category(text: str) -> float:
            value = truth_of(text, field.true_values, field.false_values) if truths else text
            found = declared.get(value or "")
            if found is None and (number := plain_number(text)).is_integer():
                # 1.0 for 1, as other programs write whole numbers.
                value = truth_of(f"{number:.0f}", field.true_values, field.false_values)
                found = declared.get((value or "") if truths else f"{number:.0f}")
            return fate if found is None else found

        def of_number(text: str) -> float:
            number = days(text, field.format) if field.type == "date" else self._number(text)
            if math.isnan(number) or (field.type == "integer" and number != int(number)):
                return fate
            return min(max(number, low), high)

        read = of_category if field.is_category else of_number

        def one(cell: str | None) -> float:
            if cell is None:
                return fate
            text = cell.strip()
            return MISSING if text in marks else read(text)

        return one

    def _number(self, text: str) -> float:
        field = self.field
        if not field.bare:
            text = _AROUND.sub("", text)
        if field.thousands:
            # One that does not stand between groups of digits is another sign: 1.5 is not 15.
            text = " ".join(text.split()) if field.thousands.isspace() else text
            sign = re.escape(" " if field.thousands.isspace() else field.thousands)
            whole = text.partition(field.decimal)[0]
            if re.search(sign, text) and not re.fullmatch(
                rf"[-+]?\d{{1,3}}({sign}\d{{2,3}})*{sign}\d{{3}}", whole
            ):
                return math.nan
            text = re.sub(sign, "", text)
        if field.decimal != ".":
            if "." in text:
                return math.nan
            text = text.replace(field.decimal, ".")
        return plain_number(text)
