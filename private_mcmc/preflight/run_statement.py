"""The statement of the run itself beside the verdict on the posterior, and the answer in one or two lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.model import RowModel
from private_mcmc.preflight.advice import is_sayable, rounded_down
from private_mcmc.preflight.certify.certificates import Subject, curvature, meets
from private_mcmc.preflight.records import Advice, Findings, Refutation, RunPart, VerdictWord
from private_mcmc.preflight.refute.run_refutation import interim_lower_bound
from private_mcmc.report import Block, Verdict, number
from private_mcmc.report.blocks import Tone
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target


def run_part(
    row_model: RowModel,
    schedule: Schedule,
    target: Target,
    verdict: VerdictWord,
    refutation: Refutation | None,
    subject: Subject,
    unclipped: Statement | None = None,
) -> RunPart:
    """The run's own statement; a private posterior does not make a finite run private, nor the reverse.

    Source: Heller, Fetaya 2023 (a private posterior, a run that is not); Bertazzi, Johnston, Roberts,
    Durmus, Prop. 3.4 (the opposite case).
    """
    known = curvature(row_model, schedule)
    if isinstance(schedule.release, Average):
        moved = accounting.average_sensitivity(schedule, known)
        size = f"at most {number(moved)}·ℓ" if math.isfinite(moved) else "by an amount that is not bounded"
        text = f"an average of hidden states, moved by one row {size}: its noise decides its price"
        return RunPart(None, math.isfinite(moved), text)
    statement = accounting.langevin_statement(schedule, known)
    fine = meets(statement, target)
    distance = _distance(refutation, statement) if verdict == "not private" else None
    interim = interim_lower_bound(row_model.each or row_model, schedule, target)
    text = _words(statement, target, verdict, fine, subject)
    if unclipped is not None and not fine:
        text = "the posterior without clipping is private, " + text.replace(" either", "")
    text += _far(distance) + _unfinished(interim, target)
    refuted = interim is not None and interim > target.epsilon
    return RunPart(statement, fine, text, distance, interim, _by_steps(schedule, known, target), refuted)


def _words(statement: Statement, target: Target, verdict: VerdictWord, fine: bool, subject: Subject) -> str:
    price = f"ε = {number(statement.epsilon(target.delta))} at δ = {number(target.delta)}"
    if verdict == "private" and not fine:
        return f"posterior private, this run not: it costs {price} (a finite run is a mechanism of its own)"
    if not fine:
        return f"this run does not meet the target either: {price}"
    if verdict == "private":
        return f"posterior private, and so is this run: {price}"
    if subject == "no posterior":
        return f"this run is private: {price}; no posterior belongs to its clipped rows"
    known = "is not" if verdict == "not private" else "is not known to be"
    return f"this run is private ({price}), the posterior {known}"


def _far(distance: float | None) -> str:
    if distance is None:
        return ""
    return (
        f"; for one of two adjacent data sets its last state is more than {number(distance)} in total "
        "variation away from the posterior"
    )


def _unfinished(interim: float | None, target: Target) -> str:
    if not interim:
        return ""
    shown = f"({number(interim)}, {number(target.delta)})-DP"
    if interim > target.epsilon:
        return f"; on two explicit data sets a released state of it is provably not {shown}"
    return f"; no accountant could show it to be {shown}"


def _by_steps(
    schedule: Schedule, known: accounting.Curvature, target: Target
) -> tuple[tuple[int, float, float], ...]:
    """``(steps, ε of the path, ε of the last state)`` for full-batch runs of several lengths."""
    if schedule.batch is not None or isinstance(schedule.step_size, tuple) or not target.delta > 0:
        return ()
    top = 2 * schedule.num_steps
    lengths = sorted({*(round(top ** (k / 14)) for k in range(15)), schedule.num_steps})
    found = []
    for steps in lengths:
        both = [replace(schedule, num_steps=steps, release=release) for release in ("path", "last")]
        path, last = (accounting.langevin_statement(one, known).epsilon(target.delta) for one in both)
        found.append((steps, path, last))
    return tuple(found)


def _distance(refutation: Refutation | None, statement: Statement) -> float | None:
    """``(δ − δ_n)e^{−ε}/(1 + e^{−ε})``, largest over ε for the refuting event; ``None`` if not positive."""
    if refutation is None or refutation.kind != "event":
        return None
    best = 0.0
    top = max(0.0, math.log(max(refutation.p_low, 1e-300) / refutation.q_high))
    for level in np.linspace(0.0, top, 41).tolist():
        posterior, run = refutation.p_low - math.exp(level) * refutation.q_high, statement.delta(level)
        if run < posterior:
            best = max(best, accounting.run_distance_at_least(level, posterior, run))
    return best * (1 - 1e-9) if best > 0 else None


def run_advice(row_model: RowModel, schedule: Schedule, target: Target) -> tuple[Advice, ...]:
    """Fewer steps, or the last state instead of the path, where that is what certifies the run."""
    if isinstance(schedule.release, Average):
        return ()
    known = curvature(row_model, schedule)

    def holds(candidate: Schedule) -> bool:
        return meets(accounting.langevin_statement(candidate, known), target)

    if holds(schedule):
        return ()
    found = []
    steps = _most_steps(schedule, holds)
    if steps:
        what = "last state" if schedule.release == "last" else "path"
        text = f"at most {steps:,} steps of size {number(schedule.step_sizes[0])} for the {what}"
        found.append(Advice("steps", steps, text, "run"))
    if schedule.release != "last" and schedule.num_chains >= 1:
        last = replace(schedule, release="last")
        if holds(last):
            found.append(Advice("release", None, "release the last state instead of the path", "run"))
        elif known.strong_convexity > 0:
            most = _most_steps(last, holds)
            if most > steps:
                text = f"release the last state instead of the path, {most:,} steps"
                found.append(Advice("release", most, text, "run"))
    return tuple(found)


def _most_steps(schedule: Schedule, holds: Callable[[Schedule], bool]) -> int:
    """Largest number of steps of the schedule's own step size that meets the target; 0 if none does."""
    if isinstance(schedule.step_size, tuple) or isinstance(schedule.release, tuple | Average):
        return 0
    if not holds(replace(schedule, num_steps=1)):
        return 0
    low, high = 1, schedule.num_steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(replace(schedule, num_steps=middle)) else (low, middle)
    return low


def time_budget(clip: float, temper: float, target: Target) -> float | None:
    """Langevin time ``γT`` that a path may last, ``m² = γTΔ²/2``, rounded down; ``None`` if there is none."""
    m = accounting.gdp.budget(target.epsilon, target.delta)
    moved = accounting.row_sensitivity(clip, temper, target.adjacency)
    if not (m > 0 and 0 < moved < math.inf):
        return None
    time = 2 * (m / moved) * (m / moved) * (1 - 1e-6)
    return rounded_down(time) if is_sayable(time) else None


TONES: dict[str, Tone] = {"private": "good", "not private": "bad", "unknown": "unsure"}


def verdicts(found: Findings) -> list[Block]:
    """The answer; what is known of the run comes first where it differs from that of the posterior."""
    if found.run is None or not (found.run.refuted or (found.run.meets and found.verdict != "private")):
        return [Verdict(found.verdict, _line(found), TONES[found.verdict], found.reasons), *_own(found)]
    words = found.run.text[0].upper() + found.run.text[1:] + "."
    known = "not private" if found.run.refuted else "private"
    ran = Verdict(f"the run is {known}", words, TONES[known])
    tone: Tone = "good" if found.verdict == "private" else "unsure"
    alone = Verdict(f"the posterior alone: {found.verdict}", _line(found), tone, found.reasons)
    return [ran, *(_own(found) or (alone,))]


def _own(found: Findings) -> list[Block]:
    """The posterior without clipping, where that is private and what clipping leaves is not known."""
    if found.unclipped is None:
        return []
    epsilon = number(found.unclipped.epsilon(found.target.delta))
    words = (
        f"One exact draw from the posterior that the model states has ε = {epsilon} at "
        f"δ = {number(found.target.delta)}, by {found.unclipped.argument.theorem}."
    )
    clipped = "Whether what clipping leaves of it is private is not decided."
    return [Verdict("the posterior, unclipped: private", words, "good", (clipped,))]


def _line(found: Findings) -> str:
    target = (
        f"({number(found.target.epsilon)}, {number(found.target.delta)})-DP under {found.target.adjacency}"
        + ("" if found.unit is None else f" of {found.unit}")
    )
    if found.verdict == "private":
        return f"One exact draw from the {found.subject} is {target}, whatever the data."
    if found.verdict == "not private":
        return f"The {found.subject} is not {target}: there is a proof."
    if found.subject == "no posterior":
        return f"There is no target posterior to ask about {target}; only the run can be."
    return f"Whether the {found.subject} is {target} is not decided."
