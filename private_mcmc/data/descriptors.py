"""A field as a descriptor of Table Schema, in both directions."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from private_mcmc.data.cells import FALSE, TRUE, composed, date_of, days, plain_number, truth_of
from private_mcmc.data.fields import KEY, Field, Level, boolean_levels
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record

_OURS = {"bounds", "bounds_from", "marginal", "missing", "otherwise", "transform", "role", "suggested"}
# Of Table Schema, and `unit`; other words may stand beside them, as the standard has it.
_WORDS = (
    *(
        "name",
        "title",
        "type",
        "unit",
        "format",
        "constraints",
        "categories",
        "categoriesOrdered",
        "description",
    ),
    *("missingValues", "trueValues", "falseValues", "bareNumber", "decimalChar", "groupChar", "example", KEY),
)
_LIMITS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "enum", "required", "unique", "pattern"),
    *("minLength", "maxLength", "jsonSchema"),
)
_MEANT = {
    **{"min": "minimum", "lower": "minimum", "low": "minimum", "max": "maximum", "upper": "maximum"},
    **{"high": "maximum", "levels": "enum", "values": "enum", "na": "missingValues", "label": "title"},
}


def check_spelling(where: str, record: Fields, words: Sequence[str]) -> None:
    """Refuse what is nearly a word of the standard: it would be read as nothing, and codes as values."""
    plain = {_plain(word): word for word in words}
    for given in set(map(str, record)) - set(words):
        meant = _MEANT.get(_plain(given))
        near = difflib.get_close_matches(_plain(given), plain, n=1, cutoff=0.85)
        if meant in words or near:
            meant = meant if meant in words else plain[near[0]]
            raise DeclarationError(f"{where}: {given!r} is no word of a Table Schema; write {meant!r}.")


def check_ours(where: str, record: Fields, words: Collection[str]) -> None:
    """Refuse this library's own words beside ``KEY``: they would be read as nothing, and protect nobody."""
    if stray := sorted(set(words) & set(record)):
        raise DeclarationError(f"{where}: {stray} belong under {KEY}, as in {KEY}: {{{stray[0]}: …}}.")


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()


def field_from_dict(record: Fields, missing_values: Sequence[str] = ("",)) -> Field:
    """A field of a Table Schema descriptor whose scalars are texts; ``missing_values`` are the table's."""
    name = record.get("name") if isinstance(record, Mapping) else None
    if not isinstance(name, str) or not name.strip():
        raise DeclarationError("schema: every field needs a name.")
    name = composed(name)
    check_spelling(f"field {name!r}", record, _WORDS)
    check_ours(f"field {name!r}", record, _OURS)
    ours = _mapping(name, record, KEY)
    limits = _mapping(name, record, "constraints")
    check_spelling(f"field {name!r}: constraints", limits, _LIMITS)
    if unknown := sorted(set(ours) - _OURS):
        raise DeclarationError(
            f"field {name!r}: {KEY} has unknown words {unknown}; it takes {sorted(_OURS)}."
        )
    if stray := sorted({"minimum", "maximum", "enum"} & set(record)):
        raise DeclarationError(f"field {name!r}: {stray} belong under constraints, as Table Schema has it.")
    kind = {"year": "integer", "datetime": "date", "any": "string"}.get(
        text := str(record.get("type", "string")), text
    )
    true, false = _words(name, record, "trueValues", TRUE), _words(name, record, "falseValues", FALSE)
    if ours.get("role") in ("person", "ignored"):
        kind = "string"
    levels = boolean_levels(true, false) if kind == "boolean" else _levels(name, record, limits)
    ends = [_limit(name, kind, record, word, limits) for word in ("minimum", "maximum")]
    return Field(
        name=name,
        type=kind,  # type: ignore[arg-type]
        title=str(record.get("title", "")),
        unit=str(record.get("unit", "")),
        minimum=ends[0],
        maximum=ends[1],
        levels=levels,
        missing_values=tuple(_marks(name, record.get("missingValues", missing_values))),
        missing=str(ours.get("missing", "refuse")),
        marginal=str(ours.get("marginal", "")),
        otherwise=str(ours.get("otherwise", "refuse")),  # type: ignore[arg-type]
        bounds_from=str(ours.get("bounds_from", "")),
        transform=str(ours.get("transform", "")),  # type: ignore[arg-type]
        role=str(ours.get("role", "")),  # type: ignore[arg-type]
        suggested=_truth(name, "suggested", ours.get("suggested", "false")),
        bounds=str(ours.get("bounds", "")),  # type: ignore[arg-type]
        true_values=true,
        false_values=false,
        bare=_truth(name, "bareNumber", record.get("bareNumber", "true")),
        decimal=str(record.get("decimalChar", ".")),
        thousands=str(record.get("groupChar", "")),
        format="" if (form := str(record.get("format", ""))) in ("default", "any") else form,
    )


def field_to_dict(field: Field) -> Record:
    """The descriptor of a field; what is as usual is left out."""
    limits: Record = {}
    if not field.is_category:
        limits = {word: _shown(field, getattr(field, word)) for word in ("minimum", "maximum")}
        limits = {word: value for word, value in limits.items() if value is not None}
    elif field.type != "boolean" and field.levels:
        limits = {"enum": [level.value for level in field.levels]}
    labelled = any(level.label != level.value for level in field.levels) and field.type != "boolean"
    ours = {word: getattr(field, word) for word in ("bounds", "bounds_from", "marginal", "transform", "role")}
    if field.is_used:
        ours |= {"missing": field.missing, "otherwise": field.otherwise}
    suggested = {"suggested": True} if field.suggested else {}
    record: Record = {
        "name": field.name,
        "title": field.title,
        "type": field.type,
        "unit": field.unit,
        "format": field.format,
        "constraints": limits,
        "categories": [{"value": level.value, "label": level.label} for level in field.levels]
        if labelled
        else [],
        "missingValues": list(field.missing_values),
        "trueValues": [] if field.true_values == TRUE else list(field.true_values),
        "falseValues": [] if field.false_values == FALSE else list(field.false_values),
        "bareNumber": None if field.bare else False,
        "decimalChar": "" if field.decimal == "." else field.decimal,
        "groupChar": field.thousands,
        KEY: {word: value for word, value in ours.items() if value} | suggested,
    }
    return {word: value for word, value in record.items() if value not in ("", None, [], {})}


def _levels(name: str, record: Fields, limits: Fields) -> tuple[Level, ...]:
    labels: dict[str, str] = {}
    for item in _list(name, "categories", record.get("categories", [])):
        value = item.get("value") if isinstance(item, Mapping) else item
        if value is None:
            raise DeclarationError(f"field {name!r}: each of its categories needs a value.")
        labels[str(value)] = str(item.get("label", value)) if isinstance(item, Mapping) else str(value)
    values = [str(value) for value in _list(name, "constraints.enum", limits.get("enum", []))]
    if labels and values and (unknown := sorted(set(labels) - set(values))):
        raise DeclarationError(f"field {name!r}: categories {unknown} are not in constraints.enum.")
    return tuple(Level(value, labels.get(value, value)) for value in (values or list(labels)))


def _limit(name: str, kind: str, record: Fields, word: str, limits: Fields) -> float | None:
    outside = f"exclusive{word.capitalize()}"
    text = limits.get(word, limits.get(outside))
    if text is None or kind not in ("number", "integer", "date"):
        return None
    value = days(str(text), str(record.get("format", ""))) if kind == "date" else plain_number(str(text))
    if math.isnan(value):
        what = "date, as 1999-12-31 or in the field's format" if kind == "date" else "number, without a unit"
        raise DeclarationError(f"field {name!r}: constraints.{word} {text!r} is no {what}.")
    # Of numbers the end itself is let in: a wider range is a range too.
    next_one = word not in limits and kind != "number"
    return value + next_one * (1 if word == "minimum" else -1)


def _shown(field: Field, bound: float | None) -> float | int | str | None:
    if bound is None:
        return None
    if field.type == "date":
        day = date_of(bound)
        return day.strftime(field.format) if field.format else day.isoformat()
    return int(bound) if bound == int(bound) else bound


def _mapping(name: str, record: Fields, word: str) -> Fields:
    found = record.get(word, {})
    if not isinstance(found, Mapping):
        raise DeclarationError(f"field {name!r}: {word} takes names and values.")
    return found


def _list(name: str, word: str, found: Any) -> Sequence[Any]:
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise DeclarationError(f"field {name!r}: {word} takes a list.")
    return found


def _marks(name: str, found: Any) -> list[str]:
    marks = [
        item["value"] if isinstance(item, Mapping) else item for item in _list(name, "missingValues", found)
    ]
    return [str(mark) for mark in marks]


def _words(name: str, record: Fields, word: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(composed(str(each)) for each in _list(name, word, record.get(word, usual)))
    if not found:
        raise DeclarationError(f"field {name!r}: {word} is empty.")
    return found


def _truth(name: str, word: str, value: Any) -> bool:
    found = truth_of(str(value))
    if found is None:
        raise DeclarationError(f"field {name!r}: {word} is true or false.")
    return found == "true"
