"""What a column may be, by its name, title and type: guesses for a person to confirm, made of no value."""

from __future__ import annotations

import re
from typing import NamedTuple

from private_mcmc.data.fields import Field, Type, boolean_levels


class _Usual(NamedTuple):
    names: str
    type: Type
    minimum: float
    maximum: float
    unit: str


# Ranges that hold for nearly every person, wide enough not to be learnt from any table; by English words.
_USUAL = (
    _Usual(r"age(_(at|of|in|yrs|years)\w*)?|(\w+_)?age", "number", 0, 120, "years"),
    _Usual(r"birth_?year|year_?of_?birth|yob", "integer", 1900, 2030, ""),
    _Usual(r"year", "integer", 1900, 2100, ""),
    _Usual(r"month", "integer", 1, 12, ""),
    _Usual(r"weight|weight_kg|kg", "number", 0, 300, "kg"),
    _Usual(r"height|height_cm|cm", "number", 0, 250, "cm"),
    _Usual(r"bmi", "number", 10, 80, "kg/m²"),
    _Usual(r"sbp|systolic\w*", "number", 50, 300, "mmHg"),
    _Usual(r"dbp|diastolic\w*", "number", 20, 200, "mmHg"),
    _Usual(r"heart_?rate|pulse", "number", 20, 300, "1/min"),
    _Usual(r"temp|temperature", "number", 30, 45, "°C"),
    _Usual(r"\w*(percent|pct)", "number", 0, 100, "%"),
    _Usual(r"\w*hours?(_per_week|_week)?", "number", 0, 168, "hours a week"),
    _Usual(r"(n_?)?children|kids", "integer", 0, 20, ""),
    _Usual(r"(education|school)_?(years|num)|yrs_?school", "number", 0, 30, "years"),
)
_PERSON = r"id|\w+_id|pid|person|patient|subject|ssn|insurance_?number"
_DATE = r"(\w+_)?(date|dt|dob)|date_\w+"
_WORDS = r"name|\w+_name|address|street|email|phone|notes?|comment\w*|text"
_YES_NO = r"is_\w+|has_\w+|dead|death|died|alive|female|male|smok\w*|diabet\w*|married"


def suggestion(name: str, title: str = "", kind: Type | None = None) -> Field:
    """A field that a column of this name, title and type may be; to be ignored where nothing is suggested."""
    for words, origin in ((name, "name"), (title, "title")):
        # ageAtEntry as age_at_entry.
        apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words.strip())
        word = re.sub(r"\W+", "_", apart).strip("_").lower()
        usual = next((each for each in _USUAL if re.fullmatch(each.names, word)), None)
        if usual is not None and kind in (None, "number", "integer"):
            return Field(
                name,
                usual.type,
                title=title,
                unit=usual.unit,
                minimum=usual.minimum,
                maximum=usual.maximum,
                bounds_from=f"suggested by the column's {origin}",
                suggested=True,
            )
        if re.fullmatch(_DATE, word) and kind in (None, "date"):
            return Field(name, "date", title=title, suggested=True)
        if re.fullmatch(_PERSON, word):
            return Field(name, "string", title=title, role="person", suggested=True)
        if re.fullmatch(_WORDS, word):
            return Field(name, "string", title=title, role="ignored", suggested=True)
        if re.fullmatch(_YES_NO, word) and kind != "string":
            return Field(name, "boolean", title=title, levels=boolean_levels(), suggested=True)
    if kind == "boolean":
        return Field(name, "boolean", title=title, levels=boolean_levels(), suggested=True)
    if kind not in (None, "string"):
        # Its range is to be declared.
        return Field(name, kind, title=title, suggested=True)
    return Field(name, "string", title=title, role="ignored", suggested=True)
