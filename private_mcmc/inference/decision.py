"""May this run happen? Decided from public declarations only, before any private row is touched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.inference.declared import Declaration
from private_mcmc.model import RowModel, read
from private_mcmc.preflight import PreflightReport, examine
from private_mcmc.records import Record
from private_mcmc.release import Expectations, ExpectationsPlan
from private_mcmc.release.price import price
from private_mcmc.report import at_most
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target


@dataclass(frozen=True, eq=False)
class Decision:
    """A run that may happen: what runs, its own statement, and how averages, if released, are noised."""

    declared: Declaration
    reading: RowModel
    schedule: Schedule
    statement: Statement
    expectations: ExpectationsPlan | None
    preflight: Callable[[], PreflightReport]

    @cached_property
    def report(self) -> PreflightReport:
        """What preflight knows of the posterior; asked when somebody reads it, for no price rests on it."""
        return self.preflight()


def decide(declared: Declaration, n: int) -> Decision:
    """Read the model, compute the run's price; under ``guarantee="posterior"`` ask preflight as well.

    ``n`` is the number of rows, or the public ``n_max`` under ``add_remove``.
    """
    reading = read(declared.model, declared.rows, n=n, model_args=declared.model_args)
    rows, unit = declared.rows, declared.rows.unit
    if (reading.rows, reading.unit) != (rows if unit is None else rows.persons, unit):
        raise DeclarationError("the model was read on other rows than those that are declared.")
    expectations = declared.release if isinstance(declared.release, Expectations) else None
    release = expectations.average(declared.num_steps) if expectations else declared.release
    if isinstance(release, Expectations):
        raise DeclarationError("an expectation's own release is an average over steps.")
    asked: Record = {
        "adjacency": declared.target.adjacency,
        "num_rows": n,
        "dim": reading.dim,
        "num_steps": declared.num_steps,
        "num_chains": declared.num_chains,
        "release": release,
        "unit": reading.unit,
    }
    schedule = declared.kernel.schedule(**asked)
    if others := [name for name, value in asked.items() if getattr(schedule, name) != value]:
        raise DeclarationError(f"kernel: its schedule has another {', '.join(others)} than was asked for.")
    if schedule.clips is not None and declared.guarantee == "posterior":
        raise DeclarationError(
            "clips=…: no posterior belongs to rows that are clipped coordinate by coordinate; the run's own "
            "statement is what holds: guarantee='run'."
        )

    @cache
    def preflight() -> PreflightReport:
        return examine(
            reading,
            declared.target,
            n=n,
            clip=schedule.clip,
            temper=schedule.temper,
            metric=schedule.preconditioner,
            model_name=getattr(declared.model, "__name__", "model"),
        )

    if declared.guarantee == "posterior" and preflight().verdict != "private":
        raise NotPrivate(_posterior_refusal(preflight()), preflight())
    priced = price(reading, schedule, declared.target, expectations)
    if not priced.statement.delta(declared.target.epsilon) <= declared.target.delta:
        raise NotPrivate(_run_refusal(priced.statement, priced.schedule, declared.target), preflight())
    return Decision(declared, reading, priced.schedule, priced.statement, priced.expectations, preflight)


def _posterior_refusal(report: PreflightReport) -> str:
    changes = "; ".join(item.text for item in report.advice if item.concerns == "posterior")
    return (
        f"refused under guarantee='posterior': preflight answers {report.verdict!r}, because "
        f"{'; '.join(report.reasons)}. What would change that: "
        f"{changes or 'nothing that this library can compute'}. Or rely on the run alone: guarantee='run'."
    )


def _run_refusal(statement: Statement, schedule: Schedule, target: Target) -> str:
    found = statement.epsilon(target.delta)
    message = (
        f"the run itself is ε = {at_most(found)} at δ = {at_most(target.delta)}, above the target "
        f"ε = {at_most(target.epsilon)} ({statement.argument.theorem})."
    )
    if statement.gdp is not None and target.delta > 0:
        share = (accounting.gdp.budget(target.epsilon, target.delta) / statement.gdp) ** 2
        steps = math.floor(schedule.num_steps * share)
        message += (
            f" On a path the budget pays for Langevin time {schedule.total_time * share:.4g} instead of "
            f"{schedule.total_time:.4g}: num_steps={steps} at this step size, or a clip "
            f"{math.sqrt(share):.3g} times as large."
        )
    return message
