"""The dossier's section on errors: what was predicted before anything was spent, and what came of it."""

from __future__ import annotations

import math

from private_mcmc.dossier.record import StudyRecord
from private_mcmc.planning.coefficients import elements
from private_mcmc.records import Fields
from private_mcmc.report import Block, Note, Table, Text, number
from private_mcmc.report.blocks import Cell

_WHOLE = (
    ("error of posterior means", "rms"),
    ("of it, bounding rows' influence", "bias"),
    ("of it, the noise that buys privacy", "monte_carlo"),
    ("a step's share of a posterior sd, at most", "discretisation"),
)
# Intervals that are so many times as wide tell more of the noise than of the people.
_DOMINATED = 2.0
_UNITS = (
    "The columns have different units: each is a multiple of the sds that the posterior without privacy has, "
    "for synthetic people in the first, for these people as far as the releases tell in the second."
)


def accuracy(study: StudyRecord) -> list[Block]:
    """The whole, then every coefficient, then where the budget went."""
    if study.predicted is None:
        declared = "No plan: steps, clip and weight were declared. Nothing predicted the error."
        return [Text(declared), _passes(study)]
    before, after = study.predicted, study.expected
    # General plans learn nothing of their error from what they release.
    judged = None if after is None or all(after[key] == before[key] for _, key in _WHOLE) else after
    columns = [f"predicted before anything was spent, in {before['unit']} of synthetic people"]
    columns += [] if judged is None else ["judged from the releases, in posterior sds as they tell them"]
    rows: list[tuple[Cell, ...]] = [
        (name, *(_two(found, key) for found in (before, judged) if found is not None)) for name, key in _WHOLE
    ]
    blocks: list[Block] = [Table(("", *columns), tuple(rows))]
    if judged is not None:
        blocks.append(Text(_UNITS))
    if before.get("coefficients"):
        blocks.append(_of_each(study, before["coefficients"]))
    if study.stages:
        squares: dict[str, float] = {}
        for stage in study.stages:
            squares[stage["name"]] = squares.get(stage["name"], 0.0) + stage["gdp"] ** 2
        total = sum(squares.values())
        parts = "; ".join(f"{name} {100 * square / total:.0f} %" for name, square in squares.items())
        blocks.append(Text(f"What was used went to: {parts}."))
    return [*blocks, _passes(study)]


def widening(study: StudyRecord) -> list[Block]:
    """How much wider the intervals are than they would be without privacy, in plain words."""
    judged = study.expected or study.predicted
    if judged is None or study.guarantee != "run" or judged["unit"] != "posterior sds":
        return []
    times = math.hypot(1.0, float(judged["rms"]))
    said = "The intervals hold privacy's noise, which by estimate makes them about "
    said += f"{number(times, 2)} times as wide."
    if times < _DOMINATED:
        return [Text(said)]
    return [
        Note(
            f"{said} Most of what they show is noise: more rows, fewer terms or a larger ε would tell more.",
            "unsure",
        )
    ]


def _passes(study: StudyRecord) -> Text:
    return Text(f"Passes over the data, by the public schedule: {number(study.passes)}.")


def _of_each(study: StudyRecord, predicted: list[Fields]) -> Table:
    """Predicted error and sd of every coefficient beside the sd that was released, which holds both."""
    draws = study.answers().by_name if study.formula else elements(study.arrays)
    rows: list[tuple[Cell, ...]] = []
    for one in predicted:
        both = math.hypot(one["error"], one["sd"])
        released = draws.get(one["name"])
        shown = None if released is None or len(released) < 2 else number(float(released.std(ddof=1)), 2)
        rows.append((one["name"], _two(one, "error"), _two(one, "sd"), number(both, 2), shown))
    columns = ("coefficient", "predicted error", "sd without privacy", "both together", "sd released")
    title = "Of each coefficient, in its own unit: predicted on synthetic people, and released"
    return Table(columns, tuple(rows), title=title)


def _two(record: Fields, key: str) -> str:
    return number(float(record[key]), 2)
