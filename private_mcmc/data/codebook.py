"""Codebooks: Table Schema (JSON, YAML), DDI (XML), and what a table's own file says of its columns.

Only declarations are read, never a value: of a Stata, SPSS or SAS file its dictionary of variables and
labels, of a Parquet or Arrow file the types of its columns.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from private_mcmc.data.fields import Field, Type, plain_number
from private_mcmc.data.readers import ARROW, PARQUET, STATISTICAL
from private_mcmc.data.schema import Schema, field_from_dict, read_declaration
from private_mcmc.domains.columns import arrow_table, parquet_table
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

_MOST_CODES = 1000
_DICTIONARIES = (".dta", *STATISTICAL, *PARQUET, *ARROW)


def has_dictionary(path: str | Path) -> bool:
    """Whether a table of this kind says of itself what its columns are."""
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
    elif ending in STATISTICAL:
        records = _statistical(path, STATISTICAL[ending])
    elif ending in (*PARQUET, *ARROW):
        records = _typed(Path(path))
    elif ending in (".json", ".yaml", ".yml"):
        return _table_schema(read_declaration(path))
    else:
        raise DeclarationError(
            f"{path}: a codebook is a Table Schema (JSON, YAML), a DDI codebook (XML), or a file with a "
            "dictionary of its own (Stata, SPSS, SAS, Parquet, Arrow). Of another one: private-mcmc init "
            "TABLE --ask asks what fields may be, column by column."
        )
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
    forms = [each.get("type") for each in variable if _tag(each) == "varFormat"]
    numeric = variable.get("intrvl") == "contin" or bool((ends or "numeric" in forms) and not categories)
    # In DDI, UNITS may be the type of numbers.
    unit = ends[0].get("UNITS", "") if ends else ""
    record["type"] = ("integer" if unit == "INT" else "number") if numeric else "string"
    if ends and numeric:
        limits = {"minimum": ends[0].get("min"), "maximum": ends[0].get("max")}
        record["constraints"] = {word: value for word, value in limits.items() if value is not None}
        record["unit"] = "" if unit in ("INT", "REAL") else unit
    elif not numeric:
        record["categories"] = categories
    for item in (item for part in variable if _tag(part) == "invalrng" for item in part):
        if _tag(item) == "range":
            marks += _between(plain_number(item.get("min", "")), plain_number(item.get("max", "")))
        else:
            marks.append(item.get("VALUE", ""))
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
            # Strings have their length as type.
            texts = [isinstance(kind, int) for kind in reader._typlist]
            dates = [form.startswith(("%td", "%tc")) for form in reader._fmtlist]
    except (OSError, ValueError, AttributeError):
        raise DeclarationError(f"{path}: is not a Stata file whose labels can be read.") from None
    kinds = [
        "string" if text else "date" if date else "number" for text, date in zip(texts, dates, strict=True)
    ]
    return [
        _labelled(name, title, labels.get(sets[name], {}), kind)
        for (name, title), kind in zip(titles.items(), kinds, strict=True)
    ]


def _statistical(path: str | Path, function: str) -> list[Record]:
    """Of an SPSS or SAS file."""
    try:
        import pyreadstat
    except ImportError:
        raise DeclarationError(
            f"{path}: labels of SPSS and SAS files need pyreadstat: pip install pyreadstat."
        ) from None
    told = {"user_missing": True} if function == "read_sav" else {}
    try:
        _, facts = getattr(pyreadstat, function)(str(path), metadataonly=True, **told)
    except (OSError, ValueError, pyreadstat.ReadstatError):
        raise DeclarationError(f"{path}: is not an SPSS or SAS file whose labels can be read.") from None
    labels, titles = facts.variable_value_labels, facts.column_names_to_labels

    def variable(name: str) -> Record:
        ends = [(part["lo"], part["hi"]) for part in facts.missing_ranges.get(name, [])]

        def no_answer(value: Any) -> bool:
            return any(type(low) is type(value) and low <= value <= high for low, high in ends)

        form = str(facts.original_variable_types.get(name) or "")
        kind = "string" if facts.readstat_variable_types.get(name) == "string" else "number"
        kind = "date" if _DATES.match(form) else kind
        found = _labelled(name, titles.get(name) or "", labels.get(name, {}), kind, no_answer)
        # Codes without a label are as missing as those with one.
        bare = [code for low, high in ends for code in ([low] if low == high else _between(low, high))]
        marks = [*found["missingValues"], *map(_code, bare)]
        return {**found, "missingValues": list(dict.fromkeys(marks))}

    return [variable(name) for name in facts.column_names]


def _between(low: float, high: float) -> list[str]:
    """The whole numbers of a range of codes; none of one that is open or very long."""
    if not isinstance(low, float | int) or not 0 <= high - low <= _MOST_CODES:
        return []
    return [str(code) for code in range(math.ceil(low), math.floor(high) + 1)]


_DATES = re.compile(r"[AEJS]?DATE|DATETIME|YMDHMS|MMDDYY|DDMMYY|YYMMDD")


def _typed(path: Path) -> list[Record]:
    """Of a Parquet or Arrow file, by the names of Arrow's types."""
    with (parquet_table if path.suffix.lower() in PARQUET else arrow_table)(path) as table:
        return [{"name": name, "type": _arrow_type(str(kind))} for name, kind in table.types.items()]


def _arrow_type(kind: str) -> Type:
    starts: dict[str, Type] = {"int": "integer", "uint": "integer", "bool": "boolean", "date": "date"}
    starts |= {"timestamp": "date", "float": "number", "double": "number", "half": "number"}
    starts |= {"decimal": "number"}
    return next((each for start, each in starts.items() if kind.startswith(start)), "string")


_NO_ANSWER = re.compile(
    r"missing|refus|don'?t know|\bdk\b|no answer|not (applicable|asked|stated|ascertained)|\bn/?a\b", re.I
)


def _labelled(
    name: str,
    title: str,
    labels: Mapping[Any, str],
    kind: str,
    no_answer: Callable[[Any], bool] = lambda value: False,
) -> Record:
    """A variable with labelled values is a category, another number has a range that is not known yet.

    Codes for no answer are missing values, by the file's own word or by their label.
    """
    codes = {_code(value): (str(label), no_answer(value)) for value, label in labels.items()}
    missing = [code for code, (label, told) in codes.items() if told or _NO_ANSWER.search(label)]
    values = [{"value": code, "label": label} for code, (label, _) in codes.items() if code not in missing]
    kind = "string" if len(values) >= 2 else kind
    found = {"name": name, "title": title, "type": kind, "missingValues": ["", *missing]}
    return {**found, "categories": values if len(values) >= 2 else []}


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
