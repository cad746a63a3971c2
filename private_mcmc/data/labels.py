"""Names and units of a design's coefficients, as users read them; draws are not looked at."""

from __future__ import annotations

from itertools import pairwise

from private_mcmc.data.design import INTERCEPT, THRESHOLDS, Design
from private_mcmc.data.effects import Effect


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
        return schema[design.formula.outcome].unit if name == "sigma" and design.family.is_linear else ""
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
