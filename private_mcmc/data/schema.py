"""The schema of a table: public declarations, from which every row domain is made; as a Table Schema."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from private_mcmc.data.fields import (
    FALSE,
    KEY,
    TRUE,
    Field,
    Level,
    boolean_levels,
    check_words,
    composed,
    count_of,
    date_of,
    days,
    identifier,
    plain_number,
    repeated,
)
from private_mcmc.errors import DeclarationError, clean_errors
from private_mcmc.records import Fields, Record
from private_mcmc.system import read_whole

if TYPE_CHECKING:
    from private_mcmc.domains import Domain, Rows


# What Table Schema has no word for, under ``KEY``: of a field with what is usual, of the whole table.
_OURS = {
    **dict.fromkeys(("bounds", "bounds_from", "role"), ""),
    **dict.fromkeys(("missing", "otherwise", "outside"), "refuse"),
}
# What stands behind each word that is read: a text or number "t", a list of them or of values with labels
# "l", names and values "m". Other words may stand beside those of Table Schema, as the standard has it.
_LIMITS = {"minimum": "t", "maximum": "t", "enum": "l"}
_FIELD = {
    **dict.fromkeys(("name", "title", "type", "unit", "format", "decimalChar"), "t"),
    **dict.fromkeys(("categories", "missingValues", "trueValues", "falseValues"), "l"),
    **{"constraints": "m", KEY: "m"},
}
_UNREAD = dict.fromkeys(("required", "unique", "pattern", "minLength", "maxLength", "jsonSchema"), "")
_OWN = dict.fromkeys(_OURS, "t")
_OF_ALL = {"person": "m", "encoding": "t"}
_PERSON = {"field": "", "at_most": "t"}


def field_from_dict(record: Fields, missing_values: Sequence[str] = ("",)) -> Field:
    """A field of a Table Schema descriptor whose scalars are texts; ``missing_values`` are the table's."""
    name = record.get("name") if isinstance(record, Mapping) else None
    if not isinstance(name, str) or not name.strip():
        raise DeclarationError("schema: every field needs a name.")
    name = composed(name)
    limits, ours = record.get("constraints", {}), record.get(KEY, {})
    check_words(f"field {name!r}", record, _FIELD)
    check_words(f"field {name!r}: constraints", limits, _LIMITS | _UNREAD, others=False)
    check_words(f"field {name!r}: {KEY}", ours, _OWN, others=False)
    kind = str(record.get("type", "string"))
    kind = {"year": "integer", "datetime": "date", "any": "string"}.get(kind, kind)
    kind = "string" if ours.get("role") in ("person", "ignored") else kind
    form = str(record.get("format", ""))
    words = {
        word: tuple(composed(str(each)) for each in record.get(word, usual))
        for word, usual in (("trueValues", TRUE), ("falseValues", FALSE))
    }
    if empty := [word for word, found in words.items() if not found]:
        raise DeclarationError(f"field {name!r}: {empty[0]} is empty.")
    levels = boolean_levels(*words.values()) if kind == "boolean" else _levels(name, record, limits)
    if kind == "boolean" and record.get("categories"):
        # A boolean with labels is a category of these values, what is true last.
        true, kind = words["trueValues"], "string"
        levels = tuple(sorted(_levels(name, record, limits), key=lambda level: level.value in true))
    marks = [_value(mark) for mark in record.get("missingValues", missing_values)]
    ends: Record = {
        word: _limit(name, kind, form, word, str(limits[word]))
        for word in ("minimum", "maximum")
        if word in limits and kind in ("number", "integer", "date")
    }
    own: Record = {word: str(ours.get(word, usual)) for word, usual in _OURS.items()}
    return Field(
        name=name,
        type=kind,  # type: ignore[arg-type]
        title=str(record.get("title", "")),
        unit=str(record.get("unit", "")),
        levels=levels,
        missing_values=tuple(marks),
        true_values=words["trueValues"],
        false_values=words["falseValues"],
        decimal=str(record.get("decimalChar", ".")),
        format="" if form in ("default", "any") else form,
        **ends,
        **own,
    )


def field_to_dict(field: Field) -> Record:
    """The descriptor of a field; what is as usual is left out."""
    limits: Record = {word: _shown(field, getattr(field, word)) for word in ("minimum", "maximum")}
    own = () if field.type == "boolean" else field.levels
    if field.is_category:
        limits = {"enum": [level.value for level in own]}
    fates = ("outside",) * field.is_category if field.is_used else ("missing", "otherwise", "outside")
    labelled = any(level.label != level.value for level in own)
    record: Record = {
        "name": field.name,
        "title": field.title,
        "type": field.type,
        "unit": field.unit,
        "format": field.format,
        "constraints": {word: value for word, value in limits.items() if value not in (None, [])},
        "categories": [vars(level) for level in own] if labelled else [],
        "missingValues": list(field.missing_values),
        "trueValues": [] if field.true_values == TRUE else list(field.true_values),
        "falseValues": [] if field.false_values == FALSE else list(field.false_values),
        "decimalChar": "" if field.decimal == "." else field.decimal,
        KEY: {word: found for word in _OURS if word not in fates and (found := getattr(field, word))},
    }
    return {word: value for word, value in record.items() if value not in ("", [], {})}


def _value(item: Any) -> str:
    """Of a missing value or a category, which may have a label."""
    return str(item.get("value", "") if isinstance(item, Mapping) else item)


def _levels(name: str, record: Fields, limits: Fields) -> tuple[Level, ...]:
    items = record.get("categories", [])
    if any(isinstance(item, Mapping) and "value" not in item for item in items):
        raise DeclarationError(f"field {name!r}: each of its categories needs a value.")
    labels = {
        _value(item): str(item.get("label", _value(item))) if isinstance(item, Mapping) else str(item)
        for item in items
    }
    values = [str(value) for value in limits.get("enum", [])]
    if values and (unknown := sorted(set(labels) - set(values))):
        raise DeclarationError(f"field {name!r}: categories {unknown} are not in constraints.enum.")
    return tuple(Level(value, labels.get(value, value)) for value in (values or labels))


def _limit(name: str, kind: str, form: str, word: str, text: str) -> float:
    value = days(text, form) if kind == "date" else plain_number(text)
    if math.isnan(value):
        what = "date, as 1999-12-31 or in the field's format" if kind == "date" else "number, without a unit"
        raise DeclarationError(f"field {name!r}: constraints.{word} {text!r} is no {what}.")
    return value


def _shown(field: Field, bound: float | None) -> float | int | str | None:
    if bound is None or field.type != "date":
        return int(bound) if bound is not None and bound == int(bound) else bound
    day = date_of(bound)
    return day.strftime(field.format) if field.format else day.isoformat()


_STANDARD = "https://datapackage.org/profiles/2.0/tableschema.json"


@dataclass(frozen=True)
class Schema:
    """A Table Schema with public bounds: ``Schema.load("schema.yaml").rows()``.

    Nothing in it may have been chosen by looking at the private table.

    Attributes:
        fields: the columns that are declared; other columns of a table are never read.
        person: the field that identifies a person, or empty if every row is another person.
        at_most: rows of one person that may enter; others are left out.
        encoding: of a CSV file, where it is not UTF-8.

    Raises:
        DeclarationError: for names that are given twice.

    Example:
        >>> schema = pmc.Schema.from_dict({"fields": [
        ...     {"name": "age", "type": "number", "constraints": {"minimum": "0", "maximum": "120"}},
        ...     {"name": "died", "type": "boolean"},
        ... ]})
        >>> schema.rows()
        Rows(age=Box(lo=0.0, hi=120.0), died=Binary())
    """

    fields: tuple[Field, ...]
    person: str = ""
    at_most: int = 1
    encoding: str = ""

    def __post_init__(self) -> None:
        names = [identifier(name) for field in self.fields for name in (field.name, field.indicator) if name]
        # Models of persons' effects have an argument of that name.
        names += [count_of(identifier(self.person))] if self.at_most > 1 else []
        if twice := repeated(names):
            raise DeclarationError(f"schema: names {twice} are given twice (or are equal as Python names).")
        if self.person and self.person not in self.by_name:
            both = " One whose numbers begin anew in every place: make a column of both in the table."
            raise DeclarationError(
                f"schema: person {self.person!r} is not among the fields.{both * self.person.startswith('[')}"
            )
        if self.person and self.by_name[self.person].role != "person":
            raise DeclarationError(
                f"schema: {self.person!r} tells persons apart: it has role: person, and is no part of models."
            )
        try:
            "".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            raise DeclarationError(
                f"schema: encoding {self.encoding!r} is not known; spreadsheets often write cp1252."
            ) from None
        if not 1 <= self.at_most < 2**31 or (self.at_most > 1 and not self.person):
            raise DeclarationError(
                "schema: person.at_most is a whole number, at least 1, of a person's field."
            )

    @classmethod
    @clean_errors
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from YAML or JSON.

        Raises:
            DeclarationError: for a file that is no schema. The message never quotes the file: a table may
                have been named by mistake.
        """
        record = read_declaration(path)
        if not isinstance(record, Mapping) or "fields" not in record:
            raise DeclarationError(
                f"{path}: no schema (a Table Schema has a list `fields`). private-mcmc init TABLE --out "
                "schema.yaml writes one."
            )
        return cls.from_dict(record)

    @classmethod
    def from_dict(cls, record: Any) -> Schema:
        """From a Table Schema descriptor.

        Raises:
            DeclarationError: if it is none.
        """
        fields = record.get("fields") if isinstance(record, Mapping) else None
        if not isinstance(fields, Sequence) or isinstance(fields, str) or not fields:
            raise DeclarationError("schema: a Table Schema has a list `fields`; this has none.")
        check_words("schema", record, {"fields": "l", "missingValues": "l", KEY: "m"})
        marks, ours = record.get("missingValues", [""]), record.get(KEY, {})
        check_words(f"schema: {KEY}", ours, _OF_ALL, others=False)
        person = ours.get("person", {})
        check_words(f"schema: {KEY}: person", person, _PERSON, others=False)
        who = str(person.get("field", ""))
        read = tuple(field_from_dict(_told_apart(field, who), marks) for field in fields)
        count = plain_number(str(person.get("at_most", "1")))
        return cls(read, who, int(count) if count.is_integer() else 0, str(ours.get("encoding", "")))

    def to_dict(self) -> Record:
        """The descriptor; ``from_dict`` reads it again."""
        person: Record = {"field": self.person, "at_most": self.at_most} if self.person else {}
        ours = {word: said for word, said in (("person", person), ("encoding", self.encoding)) if said}
        record = {"$schema": _STANDARD, "fields": [field_to_dict(each) for each in self.fields]}
        return record | ({KEY: ours} if ours else {})

    def to_yaml(self) -> str:
        """The text of ``schema.yaml``."""
        return as_yaml(self.to_dict())

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the declaration before anything is spent."""
        people = [field.name for field in self.fields if field.role == "person"]
        if not people or self.at_most > 1:
            return ()
        enters = f"Of all rows of one {self.person!r} one enters"
        taken = enters if self.person else "Every row is taken to be another person's"
        return (
            f"{taken}. If persons of {people[0]!r} may have several rows, say how many in the schema, at its "
            f"end: {KEY}: {{person: {{field: {people[0]}, at_most: …}}}}; then persons are protected.",
        )

    @property
    def unit(self) -> str:
        """The column that tells the persons apart who are protected; empty where rows are."""
        return identifier(self.person) if self.person else ""

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Fields by their names."""
        return {field.name: field for field in self.fields}

    def __getitem__(self, name: str) -> Field:
        field = self.by_name.get(name)
        if field is None:
            lower = {each.lower(): each for each in self.by_name}
            near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
            meant = lower[near[0]] if near else ""
            shown = f"{meant!r}" if re.fullmatch(r"[\w.]*", meant) else f"`{meant}`, in backticks"
            hint = f" Did you mean {shown}?" if near else ""
            raise DeclarationError(
                f"{name!r} is not a field of the schema; it has {list(self.by_name)}.{hint}"
            )
        if not field.is_used:
            remedy = (
                "To use it declare its type and its range (constraints) or levels, and leave the role out."
            )
            if field.role == "person":
                remedy = (
                    f"An effect of each is (1 | {name}), where the schema says how many rows a person may "
                    f"have: person: {{field: {name}, at_most: …}}."
                )
            raise DeclarationError(f"field {name!r} has role {field.role!r}: it is in no model. {remedy}")
        return field

    def rows(self, names: Sequence[str] | None = None) -> Rows:
        """What one row can be: a domain for every field, and for every indicator of missing numbers.

        Column names are those of the fields, with signs that Python does not take in names replaced by
        ``_``. ``names`` are the fields wanted; all that may be part of a model if left out. Where a
        person may have several rows, the field that tells persons apart is among them.

        Raises:
            DeclarationError: for a name that is no field, or a field without range.
        """
        from private_mcmc.domains import Binary, Person, Rows

        wanted = [field.name for field in self.fields if field.is_used] if names is None else names
        columns: dict[str, Domain | Person] = {}
        for name in wanted:
            field = self[name]
            columns[identifier(name)] = domain(field)
            if field.indicator:
                columns[identifier(field.indicator)] = Binary()
        if self.at_most > 1:
            columns[identifier(self.person)] = Person(self.at_most)
        return Rows(**columns)


def _told_apart(record: Any, person: str) -> Any:
    """A descriptor; of what tells persons apart as an identifier, whatever else is declared of it."""
    if not (person and isinstance(record, Mapping) and record.get("name") == person):
        return record
    ours = record.get(KEY, {})
    return {**record, KEY: {**ours, "role": "person"}} if isinstance(ours, Mapping) else record


def domain(field: Field) -> Domain:
    """The row domain of a field: ``Binary`` for two values, ``Categories``, ``Counts`` or ``Box``."""
    from private_mcmc.domains import Binary, Box, Categories, Counts

    if field.is_category:
        count = len(field.all_levels)
        return Binary() if count == 2 else Categories(count)
    low, high = field.range
    if field.type == "integer" and low == 0 and high < 2**31:
        return Binary() if high == 1 else Counts(int(high))
    return Box(low, high)


def as_yaml(record: Record) -> str:
    """The text of a declaration."""
    import yaml

    return str(yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=100))


def read_declaration(path: str | Path) -> Any:
    """A YAML or JSON file whose scalars are kept as texts: ``no`` is a word and ``01`` has two digits."""
    import yaml

    try:
        text = read_whole(path).decode("utf-8-sig")
        return yaml.load(text, yaml.BaseLoader)
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise DeclarationError(f"{path}: not a YAML or JSON file in UTF-8{where}.") from None
