"""What single cells say: numbers, dates, and words for true and false."""

from __future__ import annotations

import math
import unicodedata
from datetime import date, datetime

# Table Schema's own words, and those of most questionnaires.
TRUE = ("true", "True", "TRUE", "1", "yes", "Yes", "YES")
FALSE = ("false", "False", "FALSE", "0", "no", "No", "NO")


def composed(text: str) -> str:
    """Letters with accents as one sign each: some systems write them as two, which look the same."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def is_number(text: str) -> bool:
    """Whether ``text`` is a finite number."""
    return not math.isnan(plain_number(text))


def plain_number(text: str) -> float:
    """A finite number, or NaN. Python's own underscores are no part of a number in a file."""
    try:
        # Typesetting has a minus of its own.
        value = float(text.replace("\u2212", "-"))
    except ValueError:
        return math.nan
    return value if math.isfinite(value) and "_" not in text else math.nan


_EPOCH = date(1970, 1, 1)


def days(text: str, form: str) -> float:
    """Days from 1970-01-01 to a date in the declared form, or ISO 8601 as typed columns have it; or NaN."""
    if form:
        try:
            return float((datetime.strptime(text, form).date() - _EPOCH).days)
        except ValueError:
            pass
    try:
        day = datetime.fromisoformat(text).date()
    except ValueError:
        return math.nan
    return float((day - _EPOCH).days)


def date_of(days_since: float) -> date:
    """The date of so many days since 1970-01-01."""
    return date.fromordinal(_EPOCH.toordinal() + int(days_since))


def truth_of(cell: str, true: tuple[str, ...] = TRUE, false: tuple[str, ...] = FALSE) -> str | None:
    """``true`` or ``false`` for the spellings of a boolean."""
    return "true" if cell in true else "false" if cell in false else None
