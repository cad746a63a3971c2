"""Profiles of people that predictions are stated for, in the table's own words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from private_mcmc.data.design import Design
from private_mcmc.data.fields import Field, plain_number
from private_mcmc.data.readers import source_of
from private_mcmc.data.table import encoded
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.records import Record

Profile: TypeAlias = Mapping[str, str | float]
# A list of profiles, or whatever is a table in memory.
People: TypeAlias = Any


def read_people(people: object) -> list[Profile]:
    """Profiles from a list of them, a file, a data frame (pandas, Polars, Arrow), or a dict of columns.

    An empty cell is a field that is left out.
    """
    if isinstance(people, list | tuple):
        return [_one_profile(each) for each in people]
    columned = not isinstance(people, Mapping) or all(
        np.ndim(each) == 1 and not isinstance(each, str) for each in people.values()
    )
    if not columned or isinstance(people, str) or getattr(people, "ndim", 2) == 1:
        return [_one_profile(people)]
    try:
        source = source_of(people)
    except DataSchemaError:
        if isinstance(people, Path):
            raise
        raise _no_profiles(people) from None
    lines = (
        zip(source.names, cells, strict=True)
        for chunk in source.chunks(source.names)
        for cells in zip(*(chunk[name] for name in source.names), strict=True)
    )
    return [{name: cell.strip() for name, cell in line if name and (cell or "").strip()} for line in lines]


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
    read = design.formula.covariates
    if unknown := sorted(set(profile) - set(read)):
        raise DeclarationError(f"profile: {unknown} are not in the formula; it reads {list(read)}.")
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
        fates: Record = {"missing": "refuse", "otherwise": "refuse", "outside": "refuse"}
        wide = replace(field, minimum=-1e300, maximum=1e300, **fates)
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


def read_margins(path: Path) -> tuple[list[Profile], list[float]]:
    """Profiles and weights from a table of public margins: fields, and ``weight`` where they differ."""
    profiles = [dict(profile) for profile in read_people(path)]
    weights = [plain_number(str(profile.pop(WEIGHT, "1"))) for profile in profiles]
    if not profiles or not all(weight > 0 for weight in weights):
        raise DeclarationError(f"{path}: rows with fields of the formula, and a {WEIGHT} above 0.")
    return list(profiles), weights
