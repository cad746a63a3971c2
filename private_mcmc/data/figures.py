"""Coefficients as records, their figure, and the names and units that users read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from private_mcmc.data.design import INTERCEPT, THRESHOLDS, Design
from private_mcmc.data.effects import Effect
from private_mcmc.data.families import STEPS
from private_mcmc.report import Interval, Plot, Rule, floats, number

_MOST_SHOWN = 40


@dataclass(frozen=True)
class Coefficient:
    """One coefficient in the user's units.

    Attributes:
        name: such as ``age`` or ``sex[male]``.
        per: what it is the effect of.
        mean: of the draws.
        sd: of the draws.
        low: lower end of the central interval.
        high: its upper end.
        ratio: odds or rate ratio: ``exp`` of the median, or ``None``.
        ratio_low: ``exp(low)``.
        ratio_high: ``exp(high)``.
    """

    name: str
    per: str
    mean: float
    sd: float
    low: float
    high: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


def forest_plot(shown: Sequence[Coefficient], title: str, label: str, *, ratio: bool) -> Plot:
    """An interval for every coefficient, the first on top; of its ratio on a logarithmic axis."""
    shown = shown[:_MOST_SHOWN]
    heights = [float(len(shown) - index) for index in range(len(shown))]
    low = [one.ratio_low or 0.0 if ratio else one.low for one in shown]
    high = [one.ratio_high or 0.0 if ratio else one.high for one in shown]
    middle = [one.ratio or 0.0 if ratio else one.mean for one in shown]
    # The first level that others are compared with is in the table.
    said = [", ".join(part for part in one.per.split(", ") if part[:3] != "vs ") for one in shown]
    names = [f"{one.name} ({unit})" if unit else one.name for one, unit in zip(shown, said, strict=True)]
    return Plot(
        title=title,
        x_label=label,
        y_label="",
        drawn=(
            Interval(floats(heights), floats(low), floats(middle), floats(high)),
            Rule("x", 1.0 if ratio else 0.0),
        ),
        description=f"{label[:1].upper()}{label[1:]}, of each coefficient; the table above has the numbers.",
        x_log=ratio,
        y_ticks=tuple(zip(heights, names, strict=True)),
        y_range=(0.4, len(shown) + 0.6),
    )


def between(low: float, high: float) -> str:
    """An interval in words."""
    count = digits(low, high)
    return f"{number(low, count)} to {number(high, count)}"


def digits(low: float, high: float) -> int:
    """Enough to tell the ends of an interval apart: a ratio per day may differ from 1 in its fifth digit."""
    if not 0 < high - low < math.inf:
        return 4
    return min(max(4, 2 + math.ceil(math.log10(max(abs(low), abs(high)) / (high - low)))), 12)


def outcome_levels(design: Design) -> tuple[str, ...]:
    """Labels of an outcome with more than two levels; empty for others."""
    several = design.family.kind in ("levels", "ordered")
    outcome = design.schema[design.formula.outcome]
    return tuple(level.label for level in outcome.all_levels) if several else ()


def labels(design: Design, name: str) -> tuple[str, ...]:
    """Names of a term's coefficients, or of intercept, thresholds, sds and parameters of the family."""
    effect = _effect(design, name)
    if effect is not None:
        return effect.coordinates()
    if name == THRESHOLDS:
        levels = outcome_levels(design)
        return tuple(f"{name}[{low}|{high}]" for low, high in pairwise(levels))
    if name == STEPS:
        ends = [*(f"{cut:g}" for cut in design.formula.cuts), ""]
        return tuple(f"{name}[{low} to {high}]".replace(" to ]", " on]") for low, high in pairwise(ends))
    if name == INTERCEPT and design.classes:
        return tuple(f"{name}[{label}]" for label in design.classes)
    return (name,)


def units(design: Design) -> dict[str, str]:
    """What each coefficient is per, or against."""
    names = [INTERCEPT, *(effect.name for effect in design.shared), *design.correlations]
    names += [*design.parameters, *([THRESHOLDS] if design.thresholds else [])]
    names += [effect.spread_name for effect in design.effects if effect.spread]
    return {label: unit(design, name) for name in names for label in labels(design, name)}


def unit(design: Design, name: str) -> str:
    """What the coefficients of a term are per, or against; of ``sigma`` the outcome's unit."""
    schema, effect = design.schema, _effect(design, name)
    if name == INTERCEPT:
        return "at 0 and first levels"
    if effect is None:
        of_group = next((one for one in design.effects if one.spread_name == name), None)
        own = unit(design, of_group.name) if of_group is not None else ""
        whole = design.family.is_linear and (name == "sigma" or of_group is not None)
        return own or schema[design.formula.outcome].unit * whole
    parts = []
    for each in effect.term.numbers:
        field = schema[next(iter(each.fields.values()))]
        plain = each.text == field.name and len(effect.term.numbers) == 1
        parts.append(each.per or (field.unit or "days" * (field.type == "date")) * plain)
    for field_name, reduced in effect.term.categories:
        if reduced:
            parts.append(f"vs {schema[field_name].all_levels[0].label}")
    return ", ".join(part for part in parts if part)


def _effect(design: Design, name: str) -> Effect | None:
    return next((effect for effect in design.effects if effect.name == name), None)
