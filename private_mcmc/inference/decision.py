"""May this run happen? Decided from public declarations only, before any private row is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from private_mcmc.accounting import Statement, langevin_statement
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.inference.declared import Declaration, examined
from private_mcmc.model import RowModel, read
from private_mcmc.preflight import PreflightReport
from private_mcmc.preflight.verdict import refusal_of_posterior, refusal_of_run
from private_mcmc.records import Record
from private_mcmc.release import Expectations, ExpectationsPlan
from private_mcmc.release.price import price
from private_mcmc.schedule import Schedule
from private_mcmc.target import check_count


@dataclass(frozen=True, eq=False)
class Decision:
    """A run that may happen: what runs, its own statement, and how averages, if released, are noised."""

    declared: Declaration
    reading: RowModel
    schedule: Schedule
    statement: Statement
    expectations: ExpectationsPlan | None

    @cached_property
    def report(self) -> PreflightReport:
        """What preflight knows of the posterior; asked when somebody reads it, for no price rests on it."""
        return examined(self.declared, self.reading, self.schedule)


def decide(declared: Declaration, n: int) -> Decision:
    """Read the model, compute the run's price; under ``guarantee="posterior"`` ask preflight as well.

    ``n`` is the number of rows, or the public ``n_max`` under ``add_remove``.
    """
    reading = read(declared.model, declared.rows, n=n, model_args=declared.model_args)
    rows, unit = declared.rows, declared.rows.unit
    if (reading.rows, reading.unit) != (rows if unit is None else rows.persons, unit):
        raise DeclarationError("the model was read on other rows than those that are declared.")
    expectations, release = None, declared.release
    if isinstance(release, Expectations):
        expectations, release = release, release.average(declared.num_steps)
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
    if release == "path":
        made = Decision(declared, reading, schedule, langevin_statement(schedule), None)
    else:
        statement, schedule, averages = price(reading, schedule, declared.target, expectations)
        made = Decision(declared, reading, schedule, statement, averages)
    if declared.guarantee == "posterior" and made.report.verdict != "private":
        raise NotPrivate(refusal_of_posterior(made.report), made.report)
    if not made.statement.delta(declared.target.epsilon) <= declared.target.delta:
        raise NotPrivate(refusal_of_run(made.statement, made.schedule, declared.target), made.report)
    return made


@dataclass(frozen=True, eq=False)
class Decisions:
    """What is decided of a declaration, once for a number of rows: what it rests on are frozen copies."""

    declared: Declaration
    _decided: dict[int, Decision] = field(default_factory=dict, init=False)

    def decide(self, n: int | None = None) -> Decision:
        """The decision for ``n`` rows, or for the declared number."""
        rows = self.declared.n if n is None else n
        if rows is None:
            raise DeclarationError("decide(n): the number of rows is needed.")
        check_count("n", rows)
        if rows not in self._decided:
            self._decided[rows] = decide(self.declared, rows)
        return self._decided[rows]
