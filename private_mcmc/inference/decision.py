"""May this run happen? Decided from public declarations only, before any private row is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from private_mcmc import accounting
from private_mcmc.accounting import Curvature, Statement
from private_mcmc.accounting.langevin.moduli import noise_sd
from private_mcmc.accounting.langevin.sensitivity import noise_ratio
from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError, NotPrivate, check_kind
from private_mcmc.kernels import ChainRunner, LangevinKernel, chain_runner, langevin_program
from private_mcmc.kernels.devices import ONE_DEVICE, Layout
from private_mcmc.kernels.step import LangevinProgram, Observable
from private_mcmc.kernels.streamed_chain import StreamedRunner, streamed_runner
from private_mcmc.model import RowModel, read
from private_mcmc.preflight import PreflightReport, curvature, examine
from private_mcmc.preflight.certificates import reach_of_prior
from private_mcmc.records import Model, PublicArguments
from private_mcmc.release import Expectations, ExpectationsPlan, plan_expectations
from private_mcmc.schedule import ROUNDING, Release, Schedule
from private_mcmc.target import Guarantee, Target, check_count, checked_guarantee


@dataclass(frozen=True, kw_only=True, eq=False)
class Declaration:
    """Everything public about a run; ``n`` where the number of rows was declared."""

    kernel: LangevinKernel
    rows: Rows
    target: Target
    release: Release | Expectations
    num_steps: int
    num_chains: int
    guarantee: Guarantee
    num_warmup: int
    n: int | None
    model_args: PublicArguments
    layout: Layout = ONE_DEVICE

    def __post_init__(self) -> None:
        checked_guarantee(self.guarantee)
        if not isinstance(self.kernel, LangevinKernel):
            raise DeclarationError(
                f"kernel: {type(self.kernel).__name__} is not a private kernel; "
                "use PrivateULA, PrivateSGLD or AnisotropicLangevin."
            )
        check_kind("rows", self.rows, Rows)
        check_kind("target", self.target, Target)
        check_kind("model_args", self.model_args, Mapping)
        if self.n is not None:
            check_count("n", self.n)

    @property
    def model(self) -> Model:
        """The user's model."""
        return self.kernel.model

    @property
    def temper(self) -> float:
        """Weight of the likelihood."""
        return self.kernel.temper


@dataclass(frozen=True, eq=False)
class Decision:
    """A run that may happen."""

    reading: RowModel
    schedule: Schedule
    report: PreflightReport
    statement: Statement
    expectations: ExpectationsPlan | None
    layout: Layout = ONE_DEVICE

    @cached_property
    def runner(self) -> ChainRunner:
        """The schedule's chain, compiled at its first run; it holds no data."""
        return chain_runner(self._program, self.schedule, self._observable, self.layout)

    @cached_property
    def streamed_runner(self) -> StreamedRunner:
        """The same chain over rows that stay outside the device."""
        return streamed_runner(self._program, self.schedule, self.reading.rows, self._observable)

    @property
    def _program(self) -> LangevinProgram:
        return langevin_program(self.reading, self.schedule, self.layout.one_by_one)

    @property
    def _observable(self) -> Observable | None:
        return None if self.expectations is None else self.expectations.observable


def decide(declared: Declaration, n: int) -> Decision:
    """Read the model, run preflight, compute the run's own statement.

    ``n`` is the number of rows, or the public ``n_max`` under ``add_remove``.
    """
    reading = read(declared.model, declared.rows, n=n, model_args=declared.model_args)
    expectations = declared.release if isinstance(declared.release, Expectations) else None
    release = expectations.average(declared.num_steps) if expectations else declared.release
    if isinstance(release, Expectations):
        raise DeclarationError("an expectation's own release is an average over steps.")
    schedule = declared.kernel.schedule(
        adjacency=declared.target.adjacency,
        num_rows=n,
        dim=reading.dim,
        num_steps=declared.num_steps,
        num_chains=declared.num_chains,
        release=release,
        sites=reading.sites,
        unit=reading.unit,
    )
    if schedule.clips is not None and declared.guarantee == "posterior":
        raise DeclarationError(
            "clips=…: no posterior belongs to rows that are clipped coordinate by coordinate; the run's own "
            "statement is what holds: guarantee='run'."
        )
    report = examine(
        reading,
        declared.target,
        n=n,
        clip=schedule.clip,
        temper=schedule.temper,
        schedule=schedule,
        model_name=getattr(declared.model, "__name__", "model"),
    )
    if declared.guarantee == "posterior" and report.verdict != "private":
        raise NotPrivate(_posterior_refusal(report), report)
    proved = curvature(reading, schedule)
    schedule, proved = _kept(schedule, proved, reading)
    if expectations is not None:
        _check_contraction(schedule, proved)
        priced = plan_expectations(expectations, reading, schedule, proved, declared.target)
        statement = priced.statement
    else:
        priced, statement = None, accounting.langevin_statement(schedule, proved)
    statement = accounting.capped(statement, n)
    if not statement.delta(declared.target.epsilon) <= declared.target.delta:
        raise NotPrivate(_run_refusal(statement, schedule, declared.target), report)
    return Decision(reading, schedule, report, statement, priced, declared.layout)


# The largest share of what one row moves that rounding may move a step.
_LARGEST_SHARE = 1e-3


def _kept(schedule: Schedule, proved: Curvature, reading: RowModel) -> tuple[Schedule, Curvature]:
    """The schedule with a box that hidden states are kept in, so that what rounding moves is charged.

    Where nothing says how wide, states are assumed to stay in a box that the statement names; such chains are
    not known to contract either, and are charged as paths.
    """
    if schedule.release == "path":
        return schedule, proved
    half, slope = reach_of_prior(reading, schedule)
    half = min(half, schedule.diameter / 2)
    smooth = math.isfinite(proved.prior_smoothness) and math.isfinite(slope)
    if not (smooth and math.isfinite(half) and noise_ratio(schedule)[1] and schedule.clips is None):
        _check_rounding(schedule)
        return schedule, proved
    proved, kept = replace(proved, prior_slope=slope), replace(schedule, within=half)
    share = accounting.kept_rounding(kept, proved)
    if not share <= _LARGEST_SHARE:
        raise _rounded_away(
            f"float64 rounds off {share:.3g} of what one row moves a step, where |θ| ≤ {half:.3g}"
        )
    return replace(kept, rounding=max(share, ROUNDING)), proved


def _check_rounding(schedule: Schedule) -> None:
    """Statements of hidden states rest on a box, in which float64 rounds little beside what a row moves."""
    size, noise = accounting.rounding_box(schedule), noise_sd(schedule, max(schedule.step_sizes))
    if not size >= noise:
        raise _rounded_away(
            f"the noise of a step, {noise:.3g}, takes hidden states out of |θ| ≤ {size:.3g}, where float64 "
            "rounds off little beside what one row moves"
        )


def _rounded_away(why: str) -> DeclarationError:
    return DeclarationError(
        f"{why}: nothing would be proved. Take a larger product of clip, temper and step_size, or "
        "release='path'."
    )


def _check_contraction(schedule: Schedule, proved: Curvature) -> None:
    """An average of a chain that does not contract has a sensitivity that grows without bound."""
    limit = 2 / proved.smoothness if proved.strong_convexity > 0 else math.inf
    if not max(schedule.step_sizes) < limit:
        raise DeclarationError(
            f"step_size={max(schedule.step_sizes):g}: the chain contracts only for step sizes below 2/L = "
            f"{limit:.4g} (L = {proved.smoothness:.4g}, for every data set of the declared rows)."
        )


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
        f"the run itself is ε = {found:.4g} at δ = {target.delta:g}, above the target ε = {target.epsilon:g} "
        f"({statement.argument.theorem})."
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
