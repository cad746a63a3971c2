"""Profiles of people that predictions are stated for, in the table's own words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from private_mcmc.data.design import Design
from private_mcmc.data.effects import Array
from private_mcmc.data.fields import Field, plain_number
from private_mcmc.data.readers import source_of
from private_mcmc.data.table import encoded
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.records import Record

Codes: TypeAlias = Mapping[str, float]
Profile: TypeAlias = Mapping[str, str | float]
Means: TypeAlias = Callable[[Codes], Array]
# A list of profiles, or whatever is a table in memory.
People: TypeAlias = Any


def read_people(people: object) -> list[Profile]:
    """Profiles from a list of them, a data frame (pandas, Polars, Arrow), or a dict of columns.

    An empty cell is a field that is left out.
    """
    if isinstance(people, list | tuple):
        return [_one_profile(each) for each in people]
    columned = not isinstance(people, Mapping) or all(
        np.ndim(each) == 1 and not isinstance(each, str) for each in people.values()
    )
    if not columned or isinstance(people, str | Path) or getattr(people, "ndim", 2) == 1:
        return [_one_profile(people)]
    try:
        source = source_of(people)
    except DataSchemaError:
        raise _no_profiles(people) from None
    lines = (
        zip(source.names, cells, strict=True)
        for chunk in source.chunks(source.names)
        for cells in zip(*(chunk[name] for name in source.names), strict=True)
    )
    return [{name: cell for name, cell in line if cell} for line in lines]


def _one_profile(profile: object) -> Profile:
    """A dict, or a row of a pandas frame."""
    if isinstance(profile, str | bytes) or not hasattr(profile, "keys"):
        raise _no_profiles(profile)
    return {str(name): profile[name] for name in profile.keys()}  # type: ignore[index]  # noqa: SIM118


def _no_profiles(given: object) -> DeclarationError:
    return DeclarationError(
        "profile: a dict, as {'age': 60, 'sex': 'male'}; several are a list of them or a data frame, for "
        f"predictions and average. A {type(given).__name__} was given."
    )


def read_profile(
    design: Design, profile: Mapping[str, str | float]
) -> tuple[dict[str, float], dict[str, str], tuple[str, ...]]:
    """Numbers of the row domain by field, the same in words, and the fields that were left out.

    Left out, a number is in the middle of its range and a category at its first level; a group is not there.
    """
    profile = _one_profile(profile)
    codes, shown, assumed = {}, {}, []
    read = [
        name for name in design.formula.fields if name not in (design.formula.outcome, design.formula.trials)
    ]
    if unknown := sorted(set(profile) - set(read)):
        raise DeclarationError(f"profile: {unknown} are not in the formula; it reads {read}.")
    fixed = {name for effect in design.effects if not effect.term.group for name in effect.term.fields}
    groups = {effect.term.group for effect in design.effects} - fixed
    for name in read:
        field = design.schema[name]
        if name in profile:
            codes[name] = profile_value(field, str(profile[name]))
            shown[name] = str(profile[name])
            continue
        assumed.append(name)
        if name not in groups:
            codes[name] = 0.0 if field.is_category else sum(field.range) / 2
            shown[name] = field.shown(codes[name])
    return codes, shown, tuple(assumed)


def profile_value(field: Field, text: str) -> float:
    """A value that a profile states, as a number of the row domain: a level's index, or a number."""
    if field.is_category:
        names = {
            word: code for code, level in enumerate(field.all_levels) for word in (level.label, level.value)
        }
        if text in names:
            return float(names[text])
    wide = field
    if not field.is_category:
        fates: Record = {"missing": "refuse", "marginal": "", "otherwise": "refuse", "outside": "refuse"}
        wide = replace(field, minimum=-1e300, maximum=1e300, transform="", **fates)
    columns, whole = encoded(wide, [text])
    value = float(next(iter(columns.values()))[0])
    low, high = (-math.inf, math.inf) if field.is_category else field.range
    if not whole or not low <= value <= high:
        allowed = f"{[level.label for level in field.all_levels]}"
        if not field.is_category:
            allowed = f"{field.shown(low)} to {field.shown(high)}"
        raise DeclarationError(f"profile: {field.name!r}={text!r} is not declared; the schema has {allowed}.")
    return value


WEIGHT = "weight"


def read_margins(path: str | Path) -> tuple[list[dict[str, str]], list[float]]:
    """Profiles and weights from a table of public margins: fields, and ``weight`` where they differ."""
    source = source_of(path)
    names = [name for name in source.names if name]
    profiles = [
        {name: (cell or "").strip() for name, cell in zip(names, row, strict=True)}
        for chunk in source.chunks(names)
        for row in zip(*(chunk[name] for name in names), strict=True)
    ]
    weights = [plain_number(profile.pop(WEIGHT, "1")) for profile in profiles]
    if not profiles or not all(weight > 0 for weight in weights):
        raise DeclarationError(f"{path}: rows with fields of the formula, and a {WEIGHT} above 0.")
    return profiles, weights


class Margins:
    """Stated people, with weights that sum to one."""

    def __init__(self, design: Design, profiles: Sequence[Profile], weights: Sequence[float]) -> None:
        read = [read_profile(design, profile) for profile in profiles]
        self.design, self.people = design, [codes for codes, _, _ in read]
        self.assumed = tuple(dict.fromkeys(name for _, _, names in read for name in names))
        total = float(np.sum(weights))
        if len(weights) != len(self.people) or not (self.people and total > 0):
            raise DeclarationError("margins: a weight for every profile, and at least one of them.")
        self.weights = [weight / total for weight in weights]

    def average(self, of: Means, moved: Callable[[Codes], Codes] = dict) -> Array:
        """The average of ``of`` for every draw, each person ``moved`` first."""
        parts = zip(self.weights, self.people, strict=True)
        return np.asarray(sum(weight * of(moved(codes)) for weight, codes in parts))

    def effects(self, of: Means) -> list[tuple[str, str, Array]]:
        """By field, in words and for every draw: the average slope of a number, or the change to a level."""
        found = []
        for name in self.people[0]:
            field = self.design.schema[name]
            if field.is_category:
                base = self.average(of, lambda codes, name=name: {**codes, name: 0.0})  # type: ignore[misc]
                for code, each in enumerate(field.all_levels[1:], start=1):
                    to = self.average(of, lambda codes, n=name, c=code: {**codes, n: float(c)})  # type: ignore[misc]
                    found.append((name, f"{field.all_levels[0].label} → {each.label}", to - base))
                continue
            low, high = field.range
            step = (high - low) * 1e-4

            def slope(codes: Codes, name: str = name, ends: tuple[float, ...] = (low, high, step)) -> Array:
                low, high, step = ends
                a, b = max(codes[name] - step, low), min(codes[name] + step, high)
                return np.asarray((of({**codes, name: b}) - of({**codes, name: a})) / (b - a))

            unit = field.unit or ("day" if field.type == "date" else "unit")
            found.append((name, f"per {unit.removesuffix('s') or unit}", self.average(slope)))
        return found
