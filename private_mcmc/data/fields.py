"""Fields of a table: what a single cell says, what the cells of a field may be, and what becomes of others.

A field is read from and written as a field descriptor of Table Schema
(specs.frictionlessdata.io/table-schema): ``name``, ``type``, ``title``, ``format``, ``constraints``
(``minimum``, ``maximum``, ``enum``), ``categories`` (values with labels), ``missingValues``. ``unit`` stands
beside them; what Table Schema has no word for stands under the key ``private_mcmc``.
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, TypeAlias, get_args

from private_mcmc.arguments import construction_checked
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, normalized

# Table Schema's own words, and those of most questionnaires.
TRUE = ("true", "True", "TRUE", "1", "yes", "Yes", "YES")
FALSE = ("false", "False", "FALSE", "0", "no", "No", "NO")


def composed(text: str) -> str:
    """Letters with accents as one sign each: some systems write them as two, which look the same."""
    return text if text.isascii() else normalized("NFC", text)


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


Type: TypeAlias = Literal["number", "integer", "boolean", "string", "date"]
Otherwise: TypeAlias = Literal["refuse", "missing", "other"]
Outside: TypeAlias = Literal["refuse", "missing", "nearest"]
Role: TypeAlias = Literal["", "person", "ignored"]
Bounds: TypeAlias = Literal["", "private"]

KEY = "private_mcmc"
MISSING_LEVEL, OTHER_LEVEL = "(missing)", "(other)"
_FATES = ("refuse", "indicator", "marginal", "middle", "drop")
_MOST_LEVELS = 10_000
# Names that a model's source or a driver's `run` has for something else.
_TAKEN = re.compile(
    r"jax|jnp|numpyro|dist|model|piecewise|eta|present|rng_key|__debug__|(b|sd|raw|cor)\d+|(mean|sd|shares)_of_.*"
)


@dataclass(frozen=True)
class Level:
    """A declared value of a category and the words it is shown with.

    Example:
        >>> pmc.Level("f", "female").label
        'female'
    """

    value: str
    label: str


# Control signs other than white space; of the second block those that begin a sequence: the others are quotes
# and letters of Windows, read in another encoding, which terminals pass over.
_OBEYED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\x90\x98\x9b\x9d-\x9f]")


@construction_checked
@dataclass(frozen=True)
class Field:
    """What the cells of one column may be.

    Attributes:
        name: the header's word.
        type: ``number``, ``integer``, ``boolean``, ``string`` or ``date``.
        title: words for tables and figures.
        unit: of numbers, for example ``years``.
        minimum: public bound; of a date, days since 1970-01-01.
        maximum: public bound.
        levels: of a category, in order; the first is what others are compared with.
        missing_values: cells that say that the value is missing.
        missing: what such a cell counts as: ``refuse`` (the table is refused), ``indicator`` (the middle of
            the range and a column ``NAME_missing``, or a level of its own), ``marginal`` (whatever it may
            be, by a distribution that is modelled), ``middle``, a number, the value of a level, or ``drop``
            (its row counts for nothing; under ``zero_out``, or of persons with several rows).
        otherwise: what any other cell counts as, that is no declared value: ``refuse``, ``missing``, or
            ``other`` (a level of its own).
        outside: what a number outside its range counts as: ``refuse`` (the table is refused), ``missing``, or
            ``nearest`` (the bound that it is beyond).
        bounds_from: where the bounds are known from, other than the data.
        role: ``person`` (an identifier, never read), ``ignored``, or empty.
        bounds: ``private`` where the declared range is only an outer one, and a narrower one is bought.
        true_values: cells of a boolean that mean true.
        false_values: cells of a boolean that mean false.
        decimal: the sign before decimals.
        format: of dates, as ``strptime`` has it; ISO 8601 if empty.

    Raises:
        DeclarationError: for a declaration that leaves a cell without a fate; the message names the field.

    Example:
        >>> age = pmc.Field("age", "number", unit="years", minimum=0.0, maximum=120.0)
        >>> pmc.Schema((age,)).rows()
        Rows(age=Box(lo=0.0, hi=120.0))
    """

    name: str
    type: Type
    title: str = ""
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    levels: tuple[Level, ...] = ()
    missing_values: tuple[str, ...] = ("",)
    missing: str = "refuse"
    otherwise: Otherwise = "refuse"
    outside: Outside = "refuse"
    bounds_from: str = ""
    role: Role = ""
    bounds: Bounds = ""
    true_values: tuple[str, ...] = TRUE
    false_values: tuple[str, ...] = FALSE
    decimal: str = "."
    format: str = ""

    def __post_init__(self) -> None:
        if self.type not in get_args(Type):
            every = ", ".join(get_args(Type))
            raise self._wrong(
                f"type {self.type!r} is not one of {every}; levels are of a string, as constraints.enum"
            )
        for word, allowed in (
            ("otherwise", Otherwise),
            ("outside", Outside),
            ("role", Role),
            ("bounds", Bounds),
        ):
            if getattr(self, word) not in get_args(allowed):
                choices = ", ".join(choice for choice in get_args(allowed) if choice)
                raise self._wrong(f"{word} {getattr(self, word)!r} is not one of {choices}")
        words = (self.name, self.title, self.unit, self.bounds_from)
        labels = (word for level in self.levels for word in (level.value, level.label))
        if any(_OBEYED.search(word) for word in (*words, *labels)):
            raise self._wrong("has control signs in its words, which terminals obey: leave them out")
        if not self.is_used:
            return
        if self.is_category:
            self._check_category()
        else:
            self._check_number()

    @property
    def is_used(self) -> bool:
        """Whether the field may be part of a model."""
        return self.role not in ("person", "ignored")

    @property
    def is_category(self) -> bool:
        """Whether the field has levels rather than a range."""
        return self.type in ("string", "boolean") or bool(self.levels)

    @property
    def all_levels(self) -> tuple[Level, ...]:
        """The declared levels, and those that stand for other and missing cells."""
        extra = [Level(OTHER_LEVEL, "other")] if self.otherwise == "other" else []
        extra += [Level(MISSING_LEVEL, "missing")] if self.missing == "indicator" else []
        return (*self.levels, *extra)

    @property
    def range(self) -> tuple[float, float]:
        """The public bounds of a number.

        Raises:
            DeclarationError: if there are none.
        """
        if self.minimum is None or self.maximum is None:
            raise self._wrong("has no range: declare constraints.minimum and constraints.maximum")
        return self.minimum, self.maximum

    @property
    def stand_in(self) -> float:
        """What a missing cell counts as: the place of a level, or a number."""
        if self.is_category:
            value = MISSING_LEVEL if self.missing == "indicator" else self.missing
            return float(next((k for k, level in enumerate(self.all_levels) if level.value == value), 0))
        low, high = self.range
        if self.missing in ("indicator", "marginal", "middle", "drop"):
            middle = (low + high) / 2
            return float(round(middle)) if self.type == "integer" else middle
        return min(max(float(self.missing), low), high)

    @property
    def indicator(self) -> str | None:
        """Name of the column that says that a value is missing, if there is one."""
        own = self.missing == "marginal" or (self.missing == "indicator" and not self.is_category)
        return f"{self.name}_missing" if own else None

    @property
    def words(self) -> str:
        """Title, or name, with the unit."""
        return (self.title or self.name) + (f" ({self.unit})" if self.unit else "")

    def shown(self, value: float) -> str:
        """A number of the row domain as a reader knows it: a level's label, a date, or a number."""
        if self.is_category:
            return self.all_levels[int(value)].label
        if self.type == "date":
            return date_of(value).isoformat()
        return f"{value:z.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:zg}"

    def measured(self, value: float) -> str:
        """A number with its unit."""
        return f"{self.shown(value)} {self.unit}".rstrip()

    def _check_number(self) -> None:
        if self.otherwise == "other":
            raise self._wrong("otherwise 'other' is for categories; a number's is 'refuse' or 'missing'")
        ends = [end for end in (self.minimum, self.maximum) if end is not None]
        if len(ends) == 2 and not -math.inf < ends[0] < ends[1] < math.inf:
            low, high = map(self.shown, ends)
            raise self._wrong(f"constraints.minimum {low} is not below constraints.maximum {high}")
        if self.missing not in _FATES and not is_number(self.missing):
            raise self._wrong(f"missing {self.missing!r} is not {', '.join(_FATES)}, or a number")
        if self.bounds and (self.minimum is None or self.maximum is None):
            raise self._wrong(
                "bounds: private needs an outer range that anybody knows (constraints.minimum and maximum), "
                "inside which a narrower one is bought"
            )
        if self.bounds and self.outside == "missing":
            raise self._wrong(
                "outside: missing is for a range that is known; with bounds: private take nearest"
            )
        if self.type == "date" and self.format and "%" not in self.format:
            raise self._wrong(f"format {self.format!r}: as strptime has it, %d/%m/%Y for 31/12/1999")

    def _check_category(self) -> None:
        values = [composed(level.value.strip()) for level in self.levels]
        if twice := repeated(values):
            raise self._wrong(f"has levels {twice} twice")
        if taken := sorted({OTHER_LEVEL, MISSING_LEVEL} & set(values)):
            raise self._wrong(f"levels {taken} have names of the library's own")
        if not len(self.all_levels) >= 2 or len(values) > _MOST_LEVELS:
            raise self._wrong(
                "declare its values, at least two that differ, as constraints.enum or categories; a field of "
                "free text, or of the same value in every row, is given role: ignored"
            )
        if self.bounds or self.outside != "refuse":
            raise self._wrong("bounds and outside are for numbers")
        if both := sorted(set(self.true_values) & set(self.false_values)):
            raise self._wrong(f"{both} are trueValues and falseValues")
        if twice := repeated(level.label for level in self.levels):
            raise self._wrong(f"has labels {twice} for two levels each, which readers could not tell apart")
        fates = ("refuse", "indicator", "marginal", "drop")
        if self.missing not in (*fates, *(level.value for level in self.levels)):
            raise self._wrong(f"missing {self.missing!r} is not {', '.join(fates)}, or one of its levels")
        if clash := sorted(set(values) & set(self.missing_values)):
            raise self._wrong(f"{clash} are levels and missing values")

    def _wrong(self, words: str) -> DeclarationError:
        return DeclarationError(f"field {self.name!r}: {words}.")


def repeated(names: Iterable[str]) -> list[str]:
    """What is there more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def boolean_levels(true: tuple[str, ...] = TRUE, false: tuple[str, ...] = FALSE) -> tuple[Level, ...]:
    """The two values of a boolean, false first; shown by the first of their words that is no number."""

    def shown(value: str, words: tuple[str, ...]) -> Level:
        return Level(value, next((word for word in words if not is_number(word)), value))

    return shown("false", false), shown("true", true)


def identifier(name: str) -> str:
    """``name`` as a Python name, for arguments of a model: as Python itself reads it (NFKC)."""
    word = "".join(sign if f"_{sign}".isidentifier() else "_" for sign in normalized("NFKC", name))
    if not word.isidentifier():
        word = f"_{word}"
    return f"{word}_" if keyword.iskeyword(word) or _TAKEN.fullmatch(word) else word


def count_of(person: str) -> str:
    """A model's argument for the public number of persons, by the Python name of their identifiers."""
    return f"number_of_{person}"


# Where words stand that are often written elsewhere, and other programs' words.
_PLACES = {
    **dict.fromkeys(("bounds", "bounds_from", "role", "missing", "otherwise", "outside"), KEY),
    **dict.fromkeys(("person", "encoding"), KEY),
    **dict.fromkeys(("minimum", "maximum", "enum", "min", "max", "levels", "values"), "constraints"),
    **{"na": "missingValues", "label": "title"},
}
_TAKES = {"t": "takes a text or a number", "l": "takes a list", "m": "takes names and values"}


def check_words(where: str, record: Fields, words: Mapping[str, str], others: bool = True) -> None:
    """Refuse a word whose value is of another kind than is read, and what would be read as nothing.

    That is what is nearly one of the ``words``, or one of ours in the wrong place; without ``others`` any
    word that is none of them.
    """
    for word, value in record.items():
        if (kind := words.get(word)) is None:
            plain = {each.replace("_", "").lower(): each for each in words}
            near = difflib.get_close_matches(str(word).replace("_", "").lower(), plain, n=1, cutoff=0.8)
            if near or not others or word in _PLACES:
                place = f"; it belongs under {_PLACES[word]}" if word in _PLACES else ""
                meant = f"write {plain[near[0]]!r}" if near else f"there are {sorted(words)}"
                raise DeclarationError(f"{where}: {word!r} is unknown{place}; {meant}.")
            continue
        texts = isinstance(value, str | int | float)
        items = isinstance(value, list | tuple) and all(
            isinstance(each, str | int | float | Mapping) for each in value
        )
        if not {"t": texts, "l": items, "m": isinstance(value, Mapping)}.get(kind, True):
            raise DeclarationError(f"{where}: {word} {_TAKES[kind]}.")
