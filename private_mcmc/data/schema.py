"""The schema of a table: public declarations, from which every row domain is made."""

from __future__ import annotations

import codecs
import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from private_mcmc.data.descriptors import check_ours, check_spelling, field_from_dict, field_to_dict
from private_mcmc.data.fields import KEY, Field, count_of, identifier
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

if TYPE_CHECKING:
    from private_mcmc.domains import Domain, Rows

_OURS = {"person", "encoding"}
_STANDARD = "https://datapackage.org/profiles/2.0/tableschema.json"


_DECLARE = " To use it declare its type and its range (constraints) or its levels, and leave the role out."


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
        if twice := sorted({name for name in names if names.count(name) > 1}):
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
        if self.encoding:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise DeclarationError(
                    f"schema: encoding {self.encoding!r} is not known; spreadsheets often write cp1252."
                ) from None
        if not self.at_most >= 1 or (self.at_most > 1 and not self.person):
            raise DeclarationError(f"schema: at_most={self.at_most}: at least 1, of a person's field.")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from YAML or JSON.

        Raises:
            DeclarationError: for a file that is no schema. The message never quotes the file: a table may
                have been named by mistake.
        """
        record = read_declaration(path)
        if not isinstance(record, Mapping) or "fields" not in record:
            raise DeclarationError(
                f"{path}: no schema (a Table Schema has a list `fields`). private-mcmc init TABLE --output "
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
        check_spelling("schema", record, ("fields", "missingValues", KEY))
        check_ours("schema", record, _OURS)
        marks = record.get("missingValues", [""])
        ours = record.get(KEY, {})
        ours = ours if isinstance(ours, Mapping) else {"?": ours}
        person = ours.get("person", {})
        known = isinstance(person, Mapping) and not set(person) - {"field", "at_most"}
        if not known or set(ours) - _OURS:
            raise DeclarationError(f"schema: {KEY} takes person: {{field: …, at_most: …}}, and encoding.")
        who = str(person.get("field", ""))
        read = tuple(field_from_dict(_told_apart(field, who), marks) for field in fields)
        count = str(person.get("at_most", "1"))
        if not count.isdigit():
            raise DeclarationError("schema: person.at_most must be a whole number.")
        return cls(read, who, int(count), str(ours.get("encoding", "")))

    def to_dict(self) -> Record:
        """The descriptor; ``from_dict`` reads it again."""
        record: Record = {
            "$schema": _STANDARD,
            "fields": [field_to_dict(each) for each in self.fields],
        }
        ours: Record = {"person": {"field": self.person, "at_most": self.at_most}} if self.person else {}
        if ours := ours | ({"encoding": self.encoding} if self.encoding else {}):
            record[KEY] = ours
        return record

    def to_yaml(self) -> str:
        """The text of ``schema.yaml``."""
        import yaml

        return str(yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=100))

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
    def fingerprint(self) -> str:
        """A hash of the declaration."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

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
            latent = (
                f" An effect of each is (1 | {name}), where the schema says how many rows a person may have: "
                f"person: {{field: {name}, at_most: …}}."
            )
            raise DeclarationError(
                f"field {name!r} has role {field.role!r}: it is not part of any model."
                f"{latent if field.role == 'person' else _DECLARE}"
            )
        return field

    def rows(self, names: Sequence[str] | None = None) -> Rows:
        """What one row can be: a domain for every field, and for every indicator of missing numbers.

        Column names are those of the fields, with signs that Python does not take in names replaced by
        ``_``. ``names`` are the fields wanted; all that may be part of a model if left out. Where a
        person may have several rows, the field that tells persons apart is among them.

        Raises:
            DeclarationError: for a name that is no field, a field without range, or one that was only
                suggested.
        """
        from private_mcmc.domains import Binary, Person, Rows

        wanted = [field.name for field in self.fields if field.is_used] if names is None else names
        columns: dict[str, Domain | Person] = {}
        for name in wanted:
            field = self[name]
            field.check_confirmed()
            columns[identifier(name)] = domain(field)
            if field.indicator:
                columns[identifier(field.indicator)] = Binary()
        if self.person:
            self.by_name[self.person].check_confirmed()
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


def read_declaration(path: str | Path) -> Any:
    """A YAML or JSON file whose scalars are kept as texts: ``no`` is a word and ``01`` has two digits."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        return yaml.load(text, yaml.BaseLoader)
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise DeclarationError(f"{path}: not a YAML or JSON file in UTF-8{where}.") from None
