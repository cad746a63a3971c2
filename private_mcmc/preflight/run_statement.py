"""The statement of the run itself beside the verdict on the posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.model import RowModel
from private_mcmc.potential.chain_constants import curvature
from private_mcmc.preflight.advice import is_sayable, rounded_down
from private_mcmc.preflight.certificates import Subject, meets
from private_mcmc.report import at_most
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
    """

    statement: Statement | None
    meets: bool
    text: str


def run_part(
    row_model: RowModel, schedule: Schedule, target: Target, verdict: VerdictWord, subject: Subject
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
    return RunPart(statement, fine, _words(statement, target, verdict, fine, subject))


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


def time_budget(clip: float, temper: float, target: Target) -> float | None:
    """Langevin time ``γT`` that a path may last, ``m² = γTΔ²/2``, rounded down; ``None`` if there is none."""
    m = accounting.gdp.budget(target.epsilon, target.delta)
    moved = accounting.row_sensitivity(clip, temper, target.adjacency)
    if not (m > 0 and 0 < moved < math.inf):
        return None
    time = 2 * (m / moved) * (m / moved) * (1 - 1e-6)
    return rounded_down(time) if is_sayable(time) else None
