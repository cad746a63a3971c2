"""Codebooks: Table Schema (JSON, YAML), dictionaries (CSV), what a file says of its own columns.

Only declarations are read, never a value: of a Stata or SPSS file its dictionary of variables and labels, of
a Parquet or Arrow file the types of its columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from private_mcmc.data.fields import Field, Type, is_number
from private_mcmc.data.readers import ARROW, PARQUET, STATISTICAL, source_of
from private_mcmc.data.schema import Schema, field_from_dict, read_declaration
from private_mcmc.domains.table_files import arrow_table, parquet_table
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

_MOST_CODES = 1000
_DICTIONARIES = (*STATISTICAL, *PARQUET, *ARROW)


def has_dictionary(path: str | Path) -> bool:
    """Whether a table of this kind says of itself what its columns are."""
    return Path(path).suffix.lower() in _DICTIONARIES


def read_codebook(path: str | Path) -> Schema:
    """What a codebook declares: fields, and where it has the words for it persons and the file's encoding."""
    ending = Path(path).suffix.lower()
    if not Path(path).is_file():
        raise DeclarationError(f"{path}: there is no such codebook.")
    if ending in (".csv", ".tsv"):
        records = _dictionary(Path(path))
    elif ending in STATISTICAL:
        records = _statistical(path, STATISTICAL[ending])
    elif ending in (*PARQUET, *ARROW):
        records = _typed(Path(path))
    elif ending in (".json", ".yaml", ".yml"):
        return _table_schema(read_declaration(path))
    else:
        raise DeclarationError(
            f"{path}: a codebook is a Table Schema (JSON, YAML), a dictionary with a line for every variable "
            "(CSV; save Excel's as one), or a file with one of its own (Stata, SPSS, Parquet, Arrow)."
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


# Words of a dictionary's header, by what they tell; REDCap's export has the longer ones.
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "variable", "variable / field name", "variable name", "field", "field name", "column"),
    "title": ("title", "label", "field label", "variable label", "description"),
    "type": ("type", "field type", "data type", "format"),
    "form": ("text validation type or show slider number",),
    "unit": ("unit", "units"),
    "minimum": ("min", "minimum", "lower", "text validation min"),
    "maximum": ("max", "maximum", "upper", "text validation max"),
    "levels": (
        *("values", "levels", "codes", "choices", "categories", "value labels", "enum"),
        "choices, calculations, or slider labels",
    ),
    "missing": ("missing", "missing values", "missing codes", "missingvalues"),
}
# Types by the beginning of their words.
_KINDS: Mapping[str, Type] = {
    **dict.fromkeys(("yesno", "truefalse", "bool", "logical"), "boolean"),
    **dict.fromkeys(("int", "count", "year"), "integer"),
    **dict.fromkeys(("num", "float", "double", "real", "dec", "cont", "slider"), "number"),
    **dict.fromkeys(("date", "time"), "date"),
}
# Of REDCap: fields that hold no value of their own.
_NO_VALUES = ("descriptive", "calc", "file", "sql", "signature", "checkbox")
_CHOICE = re.compile(r"\s*([^\s=,:|;][^=,:|;]*?)\s*[=,:]\s*(.+?)\s*")


def _dictionary(path: Path) -> list[Record]:
    """Of a table of variables: one line for each, with its name, label, type, range and values."""
    lines = _comma_separated(path)
    header = [" ".join(cell.lower().replace("_", " ").split()) for cell in (lines or [[]])[0]]
    places = {
        what: next((header.index(word) for word in words if word in header), None)
        for what, words in _HEADERS.items()
    }
    told = [places[what] for what in ("type", "levels", "minimum", "maximum")]
    if places["name"] is None or len(lines) < 2 or all(place is None for place in told):
        raise DeclarationError(
            f"{path}: a dictionary has a line for every variable, and columns such as name, label, type, "
            "unit, min, max, values (0=no, 1=yes), or those of REDCap's export."
        )

    def cell(line: Sequence[str], what: str) -> str:
        place = places[what]
        return "" if place is None or place >= len(line) else " ".join(line[place].split())

    said = [{what: cell(line, what) for what in places} for line in lines[1:]]
    return [_said(each) for each in said if each["name"]]


def _said(said: Mapping[str, str]) -> Record:
    """One line of a dictionary as a field's descriptor."""
    kind = said["type"].lower()
    # REDCap tells text from numbers by their validation.
    words = said["form"].lower() if kind == "text" else kind
    levels = [] if kind in ("slider", "calc") else _choices(said["levels"])
    found = next((type for start, type in _KINDS.items() if words.startswith(start)), "string")
    ends = {word: said[word] for word in ("minimum", "maximum") if said[word]}
    if found == "string" and len(ends) == 2 and all(map(is_number, ends.values())):
        found = "number"
    record: Record = {"name": said["name"], "title": said["title"], "unit": said["unit"], "type": found}
    record["missingValues"] = [
        "",
        *(mark.strip() for mark in re.split(r"[,;|]", said["missing"]) if mark.strip()),
    ]
    if kind in _NO_VALUES:
        return {**record, "type": "string"}
    if len(levels) >= 2:
        return {**record, "type": "string", "categories": levels}
    return {**record, "constraints": ends} if found not in ("string", "boolean") else record


def _choices(text: str) -> list[Record]:
    """``0=no, 1=yes``, or REDCap's ``0, No | 1, Yes``; nothing where it is neither."""
    sign = next((sign for sign in ("|", ";") if sign in text), ",")
    parts = [_CHOICE.fullmatch(part) for part in text.split(sign) if part.strip()]
    if not parts or not all(parts):
        bare = [part.strip() for part in text.split(sign) if part.strip()]
        return [{"value": each, "label": each} for each in bare] if len(bare) > 1 and "=" not in text else []
    return [{"value": part[1], "label": part[2]} for part in parts if part is not None]


def _comma_separated(path: Path) -> list[list[str]]:
    source = source_of(path)
    columns = range(len(source.names))
    rows = [
        [cells[place] or "" for place in columns]
        for chunk in source.chunks(source.names)
        for cells in zip(*(chunk[name] for name in source.names), strict=True)
    ]
    return [list(source.names), *rows]


def _statistical(path: str | Path, function: str) -> list[Record]:
    """Of a Stata or SPSS file."""
    try:
        import pyreadstat
    except ImportError:
        raise DeclarationError(f"{path}: its labels need pyreadstat: pip install pyreadstat.") from None
    told = {"user_missing": True} if function == "read_sav" else {}
    try:
        _, facts = getattr(pyreadstat, function)(str(path), metadataonly=True, **told)
    except (OSError, ValueError, pyreadstat.ReadstatError):
        raise DeclarationError(f"{path}: is not a Stata or SPSS file whose labels can be read.") from None
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


_DATES = re.compile(r"%t[dc]|[AEJS]?DATE|DATETIME|YMDHMS|MMDDYY|DDMMYY|YYMMDD")


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
