"""A record's text is read here, and nowhere else: its size, its types and its numbers are checked first."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.files import RECORDED, read_whole
from private_mcmc.records import Record
from private_mcmc.target import Target, check_adjacency, check_count, checked_guarantee

# JSON has no infinity.
Number = float | Literal["inf", "-inf", "nan"]


class Coefficient(TypedDict):
    """What was predicted of one."""

    name: str
    error: Number
    sd: Number


class Predicted(TypedDict):
    """An error, and its parts."""

    rms: Number
    bias: Number
    monte_carlo: Number
    discretisation: Number
    unit: str
    coefficients: tuple[Coefficient, ...]


class Stage(TypedDict):
    """One that was bought."""

    name: str
    gdp: float


class Risk(TypedDict):
    """Fields of ``accounting.risk.Risk``."""

    right: float
    usual: float
    rare: float
    chance: float


class Privacy(TypedDict):
    """A statement's numbers at a target."""

    epsilon_at_delta: float
    delta_at_epsilon: float
    gdp: float | None
    risk: Risk


class Charge(TypedDict):
    """Where a data set's budget stood when a release was charged to it."""

    file: str
    charge: str
    dataset: str
    purpose: str
    epsilon: float
    delta: float
    budget: str
    before: str
    epsilon_before: float
    cost: str
    after: str
    epsilon_after: float
    left: str


class Expectation(TypedDict):
    """A released value and its noise, in nested lists."""

    value: Any
    noise_sd: Any


# Of fields that hold more than a type says of them.
INSIDE = {
    "predicted": Predicted | None,
    "expected": Predicted | None,
    "stages": tuple[Stage, ...],
    "privacy": Privacy,
    "ledger": Charge | None,
    "expectations": Mapping[str, Expectation],
}
# Lists and tables in one record: each takes more memory than its two signs in the text.
_CONTAINERS = 2**22
_LARGEST = 2**53


def read_text(place: Path) -> Record:
    """The record in a file as a table of names and values.

    Raises:
        DeclarationError: for what is no JSON, holds a name twice, or would take too much memory.
        OSError: as :func:`private_mcmc.files.read_whole`.
    """
    content = read_whole(place, RECORDED, links=False)
    if content.count(b"[") + content.count(b"{") > _CONTAINERS:
        raise DeclarationError(f"{place}: holds too many lists to be a record.")
    try:
        record: object = json.loads(content.decode(), object_pairs_hook=_once)
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
        if (at := _unlike(record[name], hints[name])) is not None:
            raise DeclarationError(f"{name}{at}: of the wrong type.")


def _unlike(value: Any, hint: Any) -> str | None:
    """Where a value is not of a type; ``None`` if it is nowhere."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        found = [_unlike(value, one) for one in inside]
        return None if None in found else max((at for at in found if at is not None), key=len)
    if origin is Literal:
        return None if type(value) is str and value in inside else ""
    if is_typeddict(hint):
        if not isinstance(value, dict):
            return ""
        fields = get_type_hints(hint)
        bad = (f".{name}" for name in fields if name not in value)
        deep = (
            f".{name}{at}" for name in fields if (at := _unlike(value.get(name), fields[name])) is not None
        )
        return next(bad, None) or next(deep, None)
    if origin is tuple:
        if not isinstance(value, list):
            return ""
        at_each = (f"[{k}]{at}" for k, one in enumerate(value) if (at := _unlike(one, inside[0])) is not None)
        return next(at_each, None)
    if origin is Mapping:
        if not isinstance(value, dict):
            return ""
        return next((at for one in value.values() if (at := _unlike(one, inside[1])) is not None), None)
    if hint in (Any, object):
        return None
    return None if _is(value, hint) else ""


def _is(value: Any, kind: Any) -> bool:
    if kind is float:
        return type(value) in (int, float) and abs(value) <= np.finfo(float).max
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST
    return value is None if kind is NoneType else type(value) is kind


def check_values(record: Record) -> None:
    """Raise ``DeclarationError`` for a target, counts, probabilities or draws that no run has."""
    Target(record["epsilon"], record["delta"], check_adjacency(record["adjacency"]))
    check_count("n", record["n"])
    told = record["privacy"]["risk"]
    if not (0 <= told["right"] <= 1 and 0 <= told["chance"] <= 1):
        raise DeclarationError("privacy: a probability is not between 0 and 1.")
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
