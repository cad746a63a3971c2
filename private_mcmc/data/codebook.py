"""Codebooks: Table Schema (JSON, YAML) and dictionaries with a line for every variable (CSV); headers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from private_mcmc.data.fields import KEY, Field, Type, is_number
from private_mcmc.data.readers import source_of
from private_mcmc.data.schema import Schema, field_from_dict, read_declaration
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.records import Record


def read_codebook(path: str | Path) -> Schema:
    """What a codebook declares: fields, and where it has the words for it persons and the file's encoding."""
    ending = Path(path).suffix.lower()
    if not Path(path).is_file():
        raise DeclarationError(f"{path}: there is no such codebook.")
    if ending in (".json", ".yaml", ".yml"):
        record = read_declaration(path)
        if isinstance(record, Mapping) and isinstance(fields := record.get("fields"), list):
            record = {**record, "fields": [_completed(field) for field in fields]}
        return Schema.from_dict(record)
    if ending not in (".csv", ".tsv"):
        raise DeclarationError(
            f"{path}: a codebook is a Table Schema (JSON, YAML), or a dictionary with a line for every "
            "variable (CSV; save Excel's as one)."
        )
    return _dictionary(Path(path))


def _completed(field: Any) -> Any:
    """A codebook's free text and identifiers, which have no levels, are no part of models."""
    if not isinstance(field, Mapping) or KEY in field:
        return field
    limits = field.get("constraints", {})
    levels = field.get("categories") or (isinstance(limits, Mapping) and limits.get("enum"))
    kind = field.get("type", "string")
    ignored = kind not in ("number", "integer", "boolean", "date", "year", "datetime") and not levels
    if ignored:
        return {**field, "type": "string", KEY: {"role": "ignored"}}
    return {**field, KEY: {"bounds_from": "the codebook"}}


# Words of a dictionary's header, by what they tell, those that count first.
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "variable", "variable name", "field", "field name", "column"),
    "title": ("title", "label", "field label", "variable label", "description"),
    "type": ("type", "field type", "data type"),
    "unit": ("unit", "units"),
    "minimum": ("min", "minimum", "lower"),
    "maximum": ("max", "maximum", "upper"),
    "levels": ("values", "levels", "codes", "choices", "categories", "value labels", "enum"),
    "missing": ("missing", "missing values", "missing codes", "missingvalues"),
}
# Types by the beginning of their words.
_KINDS: Mapping[str, Type] = {
    **dict.fromkeys(("bool", "logical"), "boolean"),
    **dict.fromkeys(("int", "count", "year"), "integer"),
    **dict.fromkeys(("num", "float", "double", "real", "dec", "cont"), "number"),
    "date": "date",
}
_CHOICE = re.compile(r"\s*([^\s=,:|;][^=,:|;]*?)\s*[=:]\s*(.+?)\s*")


def _dictionary(path: Path) -> Schema:
    """Of a table of variables: one line for each, with its name, label, type, range and values."""
    said = []
    for line in lines_of(path):
        cells = {" ".join(name.lower().replace("_", " ").split()): cell for name, cell in line.items()}
        said.append(
            {
                what: next((" ".join(cells[word].split()) for word in words if word in cells), "")
                for what, words in _HEADERS.items()
            }
        )
    if not any(one["name"] and (one["type"] or one["levels"] or one["maximum"]) for one in said):
        raise DeclarationError(
            f"{path}: a dictionary has a line for every variable, and columns such as name, label, type, "
            "unit, min, max, values (0=no, 1=yes)."
        )
    return Schema(tuple(_variable(one, path.name) for one in said if one["name"]))


def _variable(said: Mapping[str, str], origin: str) -> Field:
    """One line of a dictionary as a field."""
    levels = _choices(said["levels"])
    found = next((type for start, type in _KINDS.items() if said["type"].lower().startswith(start)), "string")
    ends = {word: said[word] for word in ("minimum", "maximum") if said[word]}
    if found == "string" and len(ends) == 2 and all(map(is_number, ends.values())):
        found = "number"
    marks = [mark.strip() for mark in re.split(r"[,;|]", said["missing"]) if mark.strip()]
    record: Record = {"missingValues": ["", *marks], KEY: {"bounds_from": origin}}
    if len(levels) >= 2:
        found, record["categories"] = "string", levels
    elif found == "string":
        record[KEY] = {"role": "ignored"}
    elif found != "boolean":
        record["constraints"] = ends
    return field_from_dict(
        record | {word: said[word] for word in ("name", "title", "unit")} | {"type": found}
    )


def _choices(text: str) -> list[Record]:
    """``0=no, 1=yes``, or values alone; nothing where it is neither."""
    sign = next((sign for sign in ("|", ";") if sign in text), ",")
    words = [part.strip() for part in text.split(sign) if part.strip()]
    parts = [_CHOICE.fullmatch(word) for word in words]
    if all(parts):
        return [{"value": part[1], "label": part[2]} for part in parts if part is not None]
    return [{"value": each, "label": each} for each in words] if "=" not in text else []


def read_header(path: str | Path, declared: Collection[str] = (), encoding: str = "") -> list[str]:
    """The names in the first line of a CSV file, or in another file's own dictionary; no row is read.

    A name that is a number, such as ``2019``, is taken for one only if it is among the ``declared``.
    """
    names = list(source_of(path, encoding).names)
    given = [name for name in names if name]
    if not given or any(is_number(name) and name not in declared for name in given):
        raise DataSchemaError(
            f"{path}: its first line is not a header (it is empty, or names are numbers, which only a "
            "codebook makes names). The line is not shown: it may be a person's record."
        )
    if len(set(given)) < len(given):
        raise DataSchemaError(
            f"{path}: its first line has a name twice: give each column a name of its own. The line is not "
            "shown: it may be a person's record."
        )
    return names


def lines_of(table: Any) -> list[dict[str, str]]:
    """The rows of a small public table, its cells by name; an empty cell is left out."""
    source = source_of(table)
    cells = (
        zip(source.names, line, strict=True)
        for chunk in source.chunks(source.names)
        for line in zip(*(chunk[name] for name in source.names), strict=True)
    )
    return [{name: cell.strip() for name, cell in line if name and (cell or "").strip()} for line in cells]
