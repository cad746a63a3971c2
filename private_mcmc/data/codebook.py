"""Codebooks: Table Schema (JSON, YAML), DDI (XML), and the labels of Stata and SPSS files.

Only declarations are read, never a value: of a Stata or SPSS file its dictionary of variables and labels.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from private_mcmc.data.descriptors import field_from_dict
from private_mcmc.data.fields import Field, Type, boolean_levels
from private_mcmc.data.schema import Schema, read_declaration
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

_DICTIONARIES = (".dta", ".sav", ".zsav", ".por")


def has_dictionary(path: str | Path) -> bool:
    """Whether a table of this kind brings labels of its own."""
    return Path(path).suffix.lower() in _DICTIONARIES


def read_codebook(path: str | Path) -> Schema:
    """What a codebook declares: fields, and where it has the words for it persons and the file's encoding."""
    ending = Path(path).suffix.lower()
    if not Path(path).is_file():
        raise DeclarationError(f"{path}: there is no such codebook.")
    if ending == ".xml":
        records = _ddi(path)
    elif ending == ".dta":
        records = _stata(path)
    elif ending in (".sav", ".zsav", ".por"):
        records = _spss(path)
    else:
        return _table_schema(read_declaration(path))
    origin = f"codebook {Path(path).name}"
    return Schema(tuple(_field(record, origin) for record in records))


def _table_schema(record: Any) -> Schema:
    """A schema, or that of the first resource of a data package."""
    if isinstance(record, Mapping) and "resources" in record:
        resources = record["resources"]
        first = resources[0] if isinstance(resources, list) and resources else {}
        record = first.get("schema", {}) if isinstance(first, Mapping) else {}
    if isinstance(record, Mapping) and isinstance(fields := record.get("fields"), list):
        record = {**record, "fields": [_completed(field) for field in fields]}
    return Schema.from_dict(record)


def _completed(field: Any) -> Any:
    """A codebook's free text and identifiers, which have no levels, are no part of models."""
    if not isinstance(field, Mapping) or "private_mcmc" in field:
        return field
    limits = field.get("constraints", {})
    levels = field.get("categories") or (isinstance(limits, Mapping) and limits.get("enum"))
    kind = field.get("type", "string")
    ignored = kind not in ("number", "integer", "boolean", "date", "year", "datetime") and not levels
    if ignored:
        return {**field, "type": "string", "private_mcmc": {"role": "ignored"}}
    return {**field, "private_mcmc": {"bounds_from": "the codebook"}}


def _field(record: Record, origin: str) -> Field:
    ours: dict[str, str] = {"bounds_from": origin}
    if record["type"] == "string" and len(record.get("categories", [])) < 2:
        ours = {"role": "ignored"}
        record.pop("categories", None)
    return field_from_dict({**record, "private_mcmc": ours})


def _ddi(path: str | Path) -> list[Record]:
    try:
        text = Path(path).read_bytes()
        # Entities may expand without end.
        if b"<!ENTITY" in text or b"<!DOCTYPE" in text:
            raise DeclarationError(f"{path}: a codebook with a DOCTYPE is not read; remove it.")
        root = Xml.fromstring(text)
    except (OSError, Xml.ParseError):
        raise DeclarationError(f"{path}: is not a DDI codebook in XML.") from None
    found = [_ddi_variable(each) for each in root.iter() if _tag(each) == "var"]
    if not found:
        raise DeclarationError(f"{path}: has no variables (`var`); DDI Codebook 2.x is read.")
    return found


def _ddi_variable(variable: Xml.Element) -> Record:
    record: Record = {"name": variable.get("name", ""), "title": _text(variable, "labl")}
    categories, marks = [], [""]
    for each in variable:
        if _tag(each) != "catgry":
            continue
        value = _text(each, "catValu")
        if each.get("missing") == "Y":
            marks.append(value)
        else:
            categories.append({"value": value, "label": _text(each, "labl") or value})
    ends = [each for part in variable if _tag(part) == "valrng" for each in part if _tag(each) == "range"]
    numeric = variable.get("intrvl") == "contin" or bool(ends and not categories)
    record["type"] = "number" if numeric else "string"
    if ends and numeric:
        limits = {"minimum": ends[0].get("min"), "maximum": ends[0].get("max")}
        record["constraints"] = {word: value for word, value in limits.items() if value is not None}
        record["unit"] = ends[0].get("UNITS", "")
    elif not numeric:
        record["categories"] = categories
    marks += [item.get("VALUE", "") for part in variable if _tag(part) == "invalrng" for item in part]
    return {**record, "missingValues": list(dict.fromkeys(marks))}


def _tag(element: Xml.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: Xml.Element, tag: str) -> str:
    found = next((each for each in element if _tag(each) == tag), None)
    return "" if found is None or found.text is None else " ".join(found.text.split())


def _stata(path: str | Path) -> list[Record]:
    try:
        from pandas.io.stata import StataReader
    except ImportError:
        raise DeclarationError(f"{path}: labels of Stata files need pandas.") from None
    try:
        with StataReader(path) as reader:
            titles, labels = reader.variable_labels(), reader.value_labels()
            sets = dict(zip(titles, reader._lbllist, strict=True))
    except (OSError, ValueError, AttributeError):
        raise DeclarationError(f"{path}: is not a Stata file whose labels can be read.") from None
    return [_labelled(name, title, labels.get(sets[name], {})) for name, title in titles.items()]


def _spss(path: str | Path) -> list[Record]:
    try:
        import pyreadstat
    except ImportError:
        raise DeclarationError(
            f"{path}: labels of SPSS files need pyreadstat: pip install pyreadstat."
        ) from None
    portable = str(path).lower().endswith(".por")
    read = pyreadstat.read_por if portable else pyreadstat.read_sav
    told = {} if portable else {"user_missing": True}
    try:
        _, facts = read(str(path), metadataonly=True, **told)
    except (OSError, ValueError, pyreadstat.ReadstatError):
        raise DeclarationError(f"{path}: is not an SPSS file whose labels can be read.") from None
    labels, titles = facts.variable_value_labels, facts.column_names_to_labels

    def variable(name: str) -> Record:
        ends = [(part["lo"], part["hi"]) for part in facts.missing_ranges.get(name, [])]

        def no_answer(value: Any) -> bool:
            return any(type(low) is type(value) and low <= value <= high for low, high in ends)

        return _labelled(name, titles.get(name) or "", labels.get(name, {}), no_answer)

    return [variable(name) for name in facts.column_names]


_NO_ANSWER = re.compile(
    r"missing|refus|don'?t know|\bdk\b|no answer|not (applicable|asked|stated|ascertained)|\bn/?a\b", re.I
)


def _labelled(
    name: str, title: str, labels: Mapping[Any, str], no_answer: Callable[[Any], bool] = lambda value: False
) -> Record:
    """A variable with labelled values is a category, one without has a range that is not known yet.

    Codes for no answer are missing values, by the file's own word or by their label.
    """
    codes = {_code(value): (str(label), no_answer(value)) for value, label in labels.items()}
    missing = [code for code, (label, told) in codes.items() if told or _NO_ANSWER.search(label)]
    values = [{"value": code, "label": label} for code, (label, _) in codes.items() if code not in missing]
    kind = "string" if len(values) >= 2 else "number"
    found = {"name": name, "title": title, "type": kind, "missingValues": ["", *missing]}
    return {**found, "categories": values if kind == "string" else []}


def _code(value: Any) -> str:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if whole else str(value)


def ends_alone(field: Field) -> str:
    """What to know of a category whose labels leave codes out, as those of a scale's ends do."""
    codes = [level.value for level in field.levels]
    if not codes or not all(re.fullmatch(r"-?\d{1,4}", code) for code in codes):
        return ""
    low, high = min(map(int, codes)), max(map(int, codes))
    if len(codes) > 3 or high - low < len(codes):
        return ""
    return (
        f"{field.name}: labels are known of {', '.join(codes)} alone. If codes between them are answers too, "
        f"declare type: integer, minimum: {low}, maximum: {high} in place of the categories, or every level."
    )


class _Usual(NamedTuple):
    names: str
    type: Type
    minimum: float
    maximum: float
    unit: str


# Ranges that hold for nearly every person, wide enough not to be learnt from any table.
_USUAL = (
    _Usual(r"age(_(at|of)_?\w+)?|(\w+_)?age|alter|edad", "number", 0, 120, "years"),
    _Usual(r"birth_?year|year_?of_?birth|yob", "integer", 1900, 2030, ""),
    _Usual(r"year|jahr", "integer", 1900, 2100, ""),
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
_WORDS = r"name|\w+_name|address|street|email|phone|notes?|comment\w*|text"
_YES_NO = r"is_\w+|has_\w+|dead|death|died|alive|female|male|smok\w*|diabet\w*|married"


def suggestion(name: str) -> Field:
    """A field that a column of this name may be; one to be ignored where nothing is suggested."""
    # ageAtEntry as age_at_entry.
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    word = re.sub(r"\W+", "_", apart).lower()
    for usual in _USUAL:
        if re.fullmatch(usual.names, word):
            return Field(
                name,
                usual.type,
                unit=usual.unit,
                minimum=usual.minimum,
                maximum=usual.maximum,
                bounds_from="suggested by the column's name",
                suggested=True,
            )
    if re.fullmatch(_PERSON, word):
        return Field(name, "string", role="person", suggested=True)
    if re.fullmatch(_WORDS, word):
        return Field(name, "string", role="ignored", suggested=True)
    if re.fullmatch(_YES_NO, word):
        return Field(name, "boolean", levels=boolean_levels(), suggested=True)
    return Field(name, "string", role="ignored", suggested=True)
