"""The statement of the run itself beside the verdict on the posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.model import RowModel
from private_mcmc.potential.chain_constants import curvature
from private_mcmc.preflight.advice import Advice, is_sayable, rounded_down
from private_mcmc.preflight.certificates import Subject, meets
from private_mcmc.preflight.refutation import Refutation
from private_mcmc.report import at_least, at_most, number
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target

VerdictWord = Literal["private", "not private", "unknown"]


@dataclass(frozen=True)
class RunPart:
    """The statement of a run by the given schedule, and what it means beside the posterior's verdict.

    Attributes:
        statement: the run's statement; ``None`` for an average, whose noise decides.
        meets: whether it certifies the target.
        text: what that means beside the posterior's verdict.
        distance: the total variation that the law of the run keeps from the posterior for one of two
            adjacent data sets, where a refuted posterior and a private run make one necessary.
    """

    statement: Statement | None
    meets: bool
    text: str
    distance: float | None = None


def run_part(
    row_model: RowModel,
    schedule: Schedule,
    target: Target,
    verdict: VerdictWord,
    refutation: Refutation | None,
    subject: Subject,
) -> RunPart:
    """The run's own statement; a private posterior does not make a finite run private, nor the reverse.

    Source: Heller, Fetaya 2023 (a private posterior, a run that is not); Bertazzi, Johnston, Roberts,
    Durmus, Prop. 3.4 (the opposite case).
    """
    known = curvature(row_model, schedule)
    if isinstance(schedule.release, Average):
        moved = accounting.average_sensitivity(schedule, known)
        size = f"at most {at_most(moved)}·ℓ" if math.isfinite(moved) else "by an amount that is not bounded"
        text = f"an average of hidden states, moved by one row {size}: its noise decides its price"
        return RunPart(None, math.isfinite(moved), text)
    statement = accounting.langevin_statement(schedule, known)
    fine = meets(statement, target)
    distance = _distance(refutation, statement) if verdict == "not private" else None
    text = _words(statement, target, verdict, fine, subject)
    if distance is not None:
        text += (
            f"; for one of two adjacent data sets its last state is more than {at_least(distance)} in total "
            "variation away from the posterior"
        )
    return RunPart(statement, fine, text, distance)


def _words(statement: Statement, target: Target, verdict: VerdictWord, fine: bool, subject: Subject) -> str:
    price = f"ε = {at_most(statement.epsilon(target.delta))} at δ = {at_most(target.delta)}"
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
