"""A record's text is read here, and nowhere else: its size, its types and its numbers are checked first."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from private_mcmc.arguments import checked_guarantee
from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Domain, Person, Real, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.system import RECORDED, read_whole
from private_mcmc.target import Target, check_adjacency, check_count

RECORD = "study.json"
# JSON has no infinity.
Number = float | Literal["inf", "-inf", "nan"]


# Of fields that hold more than their type says: names with a kind each, a list of one, or one of several.
_COEFFICIENT = {"name": str, "error": Number, "sd": Number}
_PREDICTED = {
    **dict.fromkeys(("rms", "bias", "monte_carlo", "discretisation"), Number),
    "coefficients": [_COEFFICIENT],
}
_CHARGE = {
    **dict.fromkeys(
        ("file", "charge", "dataset", "purpose", "budget", "before", "cost", "after", "left"), str
    ),
    **dict.fromkeys(("epsilon", "delta"), float),
}
INSIDE: Record = {
    "predicted": (_PREDICTED, NoneType),
    "expected": (_PREDICTED, NoneType),
    "stages": [{"name": str, "gdp": float}],
    "ledger": (_CHARGE, NoneType),
    # Of every site numbers in nested lists, which are checked below.
    "expectations": {...: {"value": Any, "noise_sd": Any}},
}
# Lists and tables in one record: each takes more memory than its two signs in the text.
_CONTAINERS = 2**22
_LARGEST = 2**53


def read_raw(path: str | Path) -> Record:
    """The record as it stands in ``study.json``, or in the folder that it is in: whatever it holds.

    Raises:
        DeclarationError: for what is no JSON, holds a name twice, or would take too much memory.
    """
    place = Path(path) / RECORD if Path(path).is_dir() else Path(path)
    try:
        content = read_whole(place, RECORDED, links=False)
        if content.count(b"[") + content.count(b"{") > _CONTAINERS:
            raise DeclarationError("holds too many lists to be a record.")
        record: object = json.loads(content.decode(), object_pairs_hook=_once)
    except (FileNotFoundError, NotADirectoryError):
        raise DeclarationError(f"{path}: no dossier; name a folder that private-mcmc wrote.") from None
    except OSError as error:
        raise DeclarationError(f"{place}: cannot be read ({error.strerror}).") from None
    except DeclarationError as error:
        raise DeclarationError(f"{place}: {error}") from None
    except (ValueError, RecursionError):
        raise DeclarationError(f"{place}: is not the record of a study: no JSON.") from None
    if not isinstance(record, dict):
        raise DeclarationError(f"{place}: is not the record of a study.")
    return record


def _once(pairs: list[tuple[str, object]]) -> Record:
    """What JSON leaves to its readers: which of two values of one name holds."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DeclarationError("a name is given twice: readers would see different values.")
    return found


def check_types(kind: type, record: Record) -> None:
    """Raise ``DeclarationError`` unless ``record`` has the fields of a dataclass, each of its type."""
    hints = {**get_type_hints(kind), **INSIDE}
    names = [field.name for field in dataclasses.fields(kind)]
    if missing := [name for name in names if name not in record]:
        raise DeclarationError(f"without {missing}.")
    if unknown := sorted(set(record) - set(names)):
        raise DeclarationError(f"{len(unknown)} fields that no record has.")
    for name in names:
        if not _fits(record[name], hints[name]):
            raise DeclarationError(f"{name}: of the wrong type.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) or isinstance(hint, tuple):
        return any(_fits(value, one) for one in inside or hint)
    if origin is Literal:
        return type(value) is str and value in inside
    if origin is tuple or isinstance(hint, list):
        kind = inside[0] if inside else hint[0]
        return isinstance(value, list) and all(_fits(one, kind) for one in value)
    if origin is Mapping or isinstance(hint, dict):
        every = inside[1] if inside else hint.get(...)
        if not isinstance(value, dict) or every is not None:  # names may be anybody's words
            return isinstance(value, dict) and all(_fits(one, every) for one in value.values())
        return all(name in value and _fits(value[name], kind) for name, kind in hint.items())
    return hint in (Any, object) or _is(value, hint)


def _is(value: Any, kind: Any) -> bool:
    if kind is float:
        return type(value) in (int, float) and abs(value) <= np.finfo(float).max
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST
    return value is None if kind is NoneType else type(value) is kind


def check_values(record: Record) -> None:
    """Raise ``DeclarationError`` for a target, counts or draws that no run has."""
    Target(record["epsilon"], record["delta"], check_adjacency(record["adjacency"]))
    check_count("n", record["n"])
    if "draws" in record:
        _check_draws(record)


def _check_draws(record: Record) -> None:
    check_count("chains", record["chains"])
    checked_guarantee(record["guarantee"])
    if not 0 < record["temper"] < math.inf:
        raise DeclarationError("temper: not a positive number.")
    lengths = {len(_numbers(f"draws of {name!r}", values)) for name, values in record["draws"].items()}
    if len(lengths) > 1 or any(count % record["chains"] or not count for count in lengths):
        raise DeclarationError(f"draws: not equally many of every site in {record['chains']} chains.")
    for name, one in record["expectations"].items():
        what = f"expectations: {name!r}"
        value = np.ravel(_numbers(what, one["value"]))
        noise = np.ravel(_numbers(what, one["noise_sd"], empty=True))
        if len(noise) not in (1, len(value)) or not len(value):
            raise DeclarationError(f"{what}: {len(noise)} sds for {len(value)} values.")


def _numbers(what: str, values: object, empty: bool = False) -> Any:
    """Nested lists of numbers as an array of one dimension or more."""
    try:
        made = np.atleast_1d(np.asarray(values))
    except (ValueError, OverflowError):  # lists of different lengths
        made = np.asarray([""])
    if made.dtype.kind not in "iuf" and not (empty and all(one is None for one in made.flat)):
        raise DeclarationError(f"{what}: numbers in equal lists are needed.")
    return made


_COLUMNS: Mapping[str, type[Domain | Person]] = {
    kind.__name__.lower(): kind for kind in (Ball, Box, Binary, Categories, Counts, Real, Person)
}


def declared_column(record: object) -> Domain | Person:
    """A column as ``Rows.to_dict`` writes it: ``{"ball": {"radius": 1.0, "dim": 9}}``.

    A bare name where there are no arguments. ``DeclarationError`` for an unknown name or wrong arguments.
    """
    entry = {record: {}} if isinstance(record, str) else record
    one = list(entry.items()) if isinstance(entry, Mapping) else []
    if len(one) != 1 or one[0][0] not in _COLUMNS or not isinstance(one[0][1], Mapping):
        raise DeclarationError(f"row domain {record!r}: one of {', '.join(_COLUMNS)} with its arguments.")
    try:
        return _COLUMNS[one[0][0]](**one[0][1])
    except TypeError as error:
        raise DeclarationError(f"row domain {one[0][0]!r}: {error}.") from error


def declared_rows(record: Fields) -> Rows:
    """Inverse of ``Rows.to_dict``."""
    return Rows(**{name: declared_column(record[name]) for name in record})
