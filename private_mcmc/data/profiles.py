"""Profiles of people that predictions are stated for, in the table's own words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from private_mcmc.data.cells import Encoder
from private_mcmc.data.design import Design
from private_mcmc.data.fields import Field
from private_mcmc.errors import DeclarationError


def read_profile(
    design: Design, profile: Mapping[str, str | float]
) -> tuple[dict[str, float], dict[str, str], tuple[str, ...]]:
    """Numbers of the row domain by field, the same in words, and the fields that were left out.

    Left out, a number is in the middle of its range and a category at its first level; a group is not there.

    Raises:
        DeclarationError: for a field that the formula does not read, or a value that is not declared.
    """
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
    """A value that a profile states, as a number of the row domain: a level's index, or a number.

    Raises:
        DeclarationError: for one that is not declared; nothing is moved into a range here.
    """
    if field.is_category:
        names = {
            word: code for code, level in enumerate(field.all_levels) for word in (level.label, level.value)
        }
        if text in names:
            return float(names[text])
    wide = field
    if not field.is_category and field.missing_values:
        wide = replace(
            field, minimum=-1e300, maximum=1e300, transform="", missing="refuse", otherwise="refuse"
        )
    columns, whole = Encoder(wide).columns([text])
    value = float(next(iter(columns.values()))[0])
    low, high = (-math.inf, math.inf) if field.is_category else field.range
    if not whole or not low <= value <= high:
        allowed = f"{[level.value for level in field.levels]}"
        if not field.is_category:
            allowed = f"{field.shown(low)} to {field.shown(high)}"
        raise DeclarationError(f"profile: {field.name!r}={text!r} is not declared; the schema has {allowed}.")
    return value
