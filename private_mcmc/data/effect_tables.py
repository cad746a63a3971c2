"""Averages and effects at stated profiles, as tables for reports."""

from __future__ import annotations

from collections.abc import Sequence

from private_mcmc.data.answers import ASSUMED, Answers
from private_mcmc.data.figures import between
from private_mcmc.data.profiles import Profile, read_profile
from private_mcmc.report import Table


def effects_table(answers: Answers, profiles: Sequence[Profile], weights: Sequence[float] = ()) -> Table:
    """Effects at a profile, or averages over several, as a table for a report."""
    levels = answers.levels or ("",)
    rows: list[tuple[str | float, ...]] = []
    for level in levels:
        for one in answers.average_effects(profiles, weights, level):
            moved = tuple(part for pair in one.profile.items() for part in pair)
            rows.append((*moved, *([level] if level else []), one.mean, between(one.low, one.high)))
    if len(profiles) == 1:
        _, shown, assumed = read_profile(answers.design, profiles[0])
        stars = {name: "*" * (name in assumed) for name in shown}
        title = "At " + ", ".join(f"{name} {value}{stars[name]}" for name, value in shown.items())
        title += answers.of_whom + ASSUMED * bool(assumed)
    else:
        title = f"Averages over {len(profiles)} stated profiles" + answers.of_whom
    change = f"change in the {answers.design.family.mean} of {answers.outcome}"
    columns = (
        "field",
        "moved",
        *(["level"] if answers.levels else []),
        change,
        f"{answers.prob:.0%} interval",
    )
    return Table(columns, tuple(rows), title=title)


def average_table(answers: Answers, profiles: Sequence[Profile], weights: Sequence[float] = ()) -> Table:
    """Averages over stated people as a table for a report."""
    rows = []
    for level in answers.levels or ("",):
        one = answers.average(profiles, weights, level)
        rows.append((level or answers.outcome, one.mean, between(one.low, one.high)))
    columns = ("outcome", f"average {answers.design.family.mean}", f"{answers.prob:.0%} interval")
    return Table(columns, tuple(rows), title=f"Over {len(profiles)} stated profiles{answers.of_whom}")
