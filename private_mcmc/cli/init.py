"""``private-mcmc init people.csv --codebook codebook.json > schema.yaml``: declare a table, unread."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from private_mcmc.cli.common import JsonOption, echo

if TYPE_CHECKING:
    from private_mcmc.data.fields import Field, Type

_HEAD = """\
# Check every field and remove its `suggested: true`: nothing runs on a suggestion. A field looks like one of
#   {name: age, type: number, unit: years, constraints: {minimum: 0, maximum: 120}}
#   {name: sex, type: string, constraints: {enum: [f, m]}}            the first level is the reference
#   {name: pay, type: number, groupChar: ",", bareNumber: false, constraints: {…}}     for $1,234.50 or 12.5 %
#   {name: dead, type: boolean, trueValues: ["1"], falseValues: ["0"]}
#   {name: admitted, type: date, constraints: {minimum: 2000-01-01, maximum: 2030-12-31}}
# with missingValues: ["", NA] and private_mcmc: {missing: indicator} where values are missing.
# Bounds and levels are what anybody knows, never what this table has.
# Of rows with one identifier (person: field) `at_most` enter; all of them together are protected.
"""
_PERSONS = """\
# If {0!r} tells persons apart who may have several rows, give it private_mcmc: {{role: person}} and declare
# private_mcmc: {{person: {{field: {0}, at_most: …}}}}
# with the number of rows of one person that enter: of at_most: 1 all others are left out.
"""


def init(
    table: Annotated[
        Path, typer.Argument(help="CSV, Parquet, Arrow, Stata or SPSS file; only its header is read")
    ],
    codebook: Annotated[
        Path | None,
        typer.Option(
            help="Table Schema (JSON, YAML), a dictionary (CSV), or a Stata or SPSS file with labels"
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="write the schema here, in place of printing it")
    ] = None,
    encoding: Annotated[str, typer.Option(help="of a CSV file that is not in UTF-8, such as cp1252")] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a schema of public declarations from a codebook, and from names. No value is ever read.

    What the program suggests is marked `suggested: true` until a person has confirmed it, and nothing runs
    on a suggestion.
    """
    from dataclasses import replace

    from private_mcmc.data.codebook import has_dictionary, read_codebook
    from private_mcmc.data.schema import Schema
    from private_mcmc.data.table import read_header
    from private_mcmc.files import write_whole

    Schema((), encoding=encoding)  # refuses one that nobody knows
    book = Schema(()) if codebook is None else read_codebook(codebook)
    if has_dictionary(table) and (codebook is None or codebook.samefile(table)):
        # Whoever wrote the file may have taken its labels from the rows.
        book = Schema(tuple(replace(field, suggested=True) for field in read_codebook(table).fields))
    declared, encoding = book.by_name, encoding or book.encoding
    header = [name for name in read_header(table, declared, encoding) if name]
    fields = [_field(name, declared.get(name)) for name in header]
    people = [field.name for field in fields if field.role == "person"]
    person = book.person if book.person in people else "".join(people[:1])
    schema = Schema(tuple(fields), person, book.at_most if person == book.person else 1, encoding)
    # First what leaves rows out.
    for words in schema.notes:
        _say(words)
    _say(
        f"{table}: read the header only ({len(header)} columns), no row. Bounds and levels are public facts: "
        "take them from a codebook or from what anybody knows, never from the table."
    )
    absent = sorted(set(declared) - set(header))
    if absent:
        _say(f"The codebook also declares {absent}, which are not in the header and are left out.")
    open_ones = [field.name for field in fields if field.suggested]
    if guessed := [field.name for field in fields if field.suggested and field.is_used]:
        _say(
            f"To be confirmed before use: {guessed}. They are guessed from English names and titles, and "
            "from types and labels that the file states: check each and remove `suggested: true`."
        )
    if from_file := [name for name in open_ones if name in declared and declared[name].levels]:
        _say(
            f"Labels of {from_file} stand in the table's own file, whose writer may have made them from its "
            "rows: a level that one person alone has would tell of that person. Keep those of a codebook."
        )
    if unknown := [field.name for field in fields if field.suggested and not field.is_used]:
        _say(f"Ignored until they are declared, as the schema's first lines show: {unknown}.")
    numbers = [] if person else [field.name for field in fields if field.suggested and is_identifier(field)]
    if numbers:
        _say(
            f"{numbers} may tell persons, or groups of them, apart; nothing is declared of them. The "
            "schema's last lines show how, if one person has several rows."
        )
    text = _HEAD * bool(open_ones) + schema.to_yaml() + "".join(_PERSONS.format(name) for name in numbers[:1])
    if output is not None:
        write_whole(output, text)
        _say(f"Wrote {output}.")
    if as_json:
        found = {
            "schema": schema.to_dict(),
            "to_confirm": open_ones,
            "left_out": absent,
            "output": None if output is None else str(output),
        }
        echo(json.dumps(found, ensure_ascii=False))
    elif output is None:
        echo(text, nl=False)


def _field(name: str, declared: Field | None) -> Field:
    """A column as a codebook declares it; otherwise what it may be, for a person to confirm."""
    from dataclasses import replace

    if declared is None:
        return suggestion(name)
    if declared.is_category and declared.levels and declared.is_used:
        return declared
    found = suggestion(name, declared.title, declared.type)
    if declared.suggested:
        # Of the table's own dictionary.
        return replace(found, missing_values=declared.missing_values)
    if not declared.is_used or declared.maximum is not None:
        return declared
    return replace(
        declared,
        minimum=found.minimum,
        maximum=found.maximum,
        unit=declared.unit or found.unit,
        bounds_from=found.bounds_from or declared.bounds_from,
        suggested=True,
    )


def _say(words: str) -> None:
    echo(words, err=True)


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
    from private_mcmc.data.fields import Field, boolean_levels

    def guess(type: Type, **more: Any) -> Field:
        return Field(name, type, title=title, suggested=True, **more)

    for words, origin in ((name, "name"), (title, "title")):
        word = _lower(words)
        usual = next((each for each in _USUAL if re.fullmatch(each.names, word)), None)
        if usual is not None and kind in (None, "number", "integer"):
            known = {"unit": usual.unit, "minimum": usual.minimum, "maximum": usual.maximum}
            return guess(usual.type, **known, bounds_from=f"suggested by the column's {origin}")
        if re.fullmatch(_DATE, word) and kind in (None, "date"):
            return guess("date")
        if re.fullmatch(f"{_PERSON}|{_WORDS}", word):
            return guess("string", role="ignored")
        if re.fullmatch(_YES_NO, word) and kind != "string":
            return guess("boolean", levels=boolean_levels())
    if kind == "boolean":
        return guess("boolean", levels=boolean_levels())
    # Without a range, which is to be declared, or a text.
    return guess("string", role="ignored") if kind in (None, "string") else guess(kind)


def is_identifier(field: Field) -> bool:
    """Whether a field's name or title is one that identifiers have."""
    return any(re.fullmatch(_PERSON, _lower(words)) for words in (field.name, field.title))


def _lower(words: str) -> str:
    """``ageAtEntry`` as ``age_at_entry``."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words.strip())
    return re.sub(r"\W+", "_", apart).strip("_").lower()
