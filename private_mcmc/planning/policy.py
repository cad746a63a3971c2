"""``plan``: the staged policy for a model and a budget, made from public facts alone."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, overload

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.arguments import (
    OF_PLANS,
    Guarantee,
    arguments_checked,
    check_kind,
    checked_guarantee,
    remarks_on_delta,
)
from private_mcmc.data.source import is_written
from private_mcmc.domains import Ball, Rows
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.model import RowModel, read
from private_mcmc.planning.declared import DeclaredPlan, Hidden, plan_declared
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import Policy
from private_mcmc.planning.outcomes import Columns
from private_mcmc.planning.prediction import (
    GUESS,
    KNOWN,
    OF_SYNTHETIC,
    RUN,
    Coefficients,
    Named,
    Prediction,
    coefficient_table,
    prediction_of,
)
from private_mcmc.planning.simulate import simulate
from private_mcmc.planning.stages import History, PathStage, named
from private_mcmc.potential.potential import model_marks
from private_mcmc.preflight import known_of_posterior
from private_mcmc.preflight.certificates import certified_temper
from private_mcmc.records import Model, PublicArguments
from private_mcmc.report import Facts, Note, Report, Reported, at_most, number
from private_mcmc.report.document import say, telling
from private_mcmc.system import make_room
from private_mcmc.target import Target, check_count, check_positive

_OF_A_BALL = " (of a Ball an intercept and numbers above 0; of centred ones: Ball(…, centred=True))"
# More rows, or a larger ε, than seem enough; beyond so many times as much neither would do.
_MARGIN, _LARGEST = 1.2, 1e3
# Rows that stages are timed on.
_TIMED = 64


def gdp_budget(target: Target) -> float:
    """The largest ``m`` for which ``m``-GDP meets the target.

    Raises:
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if not target.delta > 0:
        raise DeclarationError(
            "delta=0: a plan releases paths with Gaussian noise, which is ε-DP for no ε, whatever its size. "
            "Choose delta > 0, far below 1/n, or release averages with Laplace noise, which are: "
            "PrivateMCMC(…, release=Expectations(…))."
        )
    return accounting.gdp.budget(target.epsilon, target.delta)


@dataclass(frozen=True, eq=False)
class Plan(Reported):
    """A policy that meets ``target`` whatever the data: every number here is public.

    Attributes:
        model: the user's model.
        reading: the model as it was read.
        rows: the row declaration.
        target: what the policy meets.
        n: the number of rows, or its public bound.
        model_args: the model's public arguments.
        guarantee: what the target is met by: the run alone, or the posterior as well.
        temper: the weight of the likelihood in the posterior that is approximated; 1 under ``"run"``.
        policy: names the stages.
        certificate: of one exact draw of that posterior, under ``guarantee="posterior"``.
        prediction: the error to expect, from synthetic rows of the declared domain.
        coefficients: what users read of the draws.
        max_passes: the most passes over the rows of all stages, if they are limited.
        people: public columns of ``SYNTHETIC_ROWS`` rows that predictions are for; others are synthetic.
        before: statements of what was released before the stages, within the same target.
        seconds: what a run takes on this machine, about, as measured while the plan was made; 0 if unknown.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> target = pmc.Target(epsilon=3.0, delta=1e-6)
        >>> plan = pmc.plan(logistic, logistic_rows(2), target, n=1000, guarantee="run")
        >>> isinstance(plan, pmc.Plan), round(plan.budget, 3), plan.temper
        (True, 0.648, 1.0)
    """

    model: Model
    reading: RowModel = field(repr=False)
    rows: Rows
    target: Target
    n: int
    model_args: PublicArguments
    guarantee: Guarantee
    temper: float
    policy: Policy = field(repr=False)
    certificate: Statement | None = field(repr=False)
    prediction: Prediction
    coefficients: Named | None = None
    max_passes: int | None = None
    people: Columns | None = field(default=None, repr=False)
    before: tuple[Statement, ...] = ()
    seconds: float = 0.0

    @property
    def budget(self) -> float:
        """What the stages may cost together, in Gaussian DP."""
        return gdp_budget(self.target)

    @cached_property
    def statement(self) -> Statement:
        """The whole policy's statement, known before anything is spent; what the ledger is charged."""
        return self.statement_of(self.before)

    def statement_of(self, parts: tuple[Statement, ...]) -> Statement:
        """The policy's statement, whatever of its stages has run, with those of the stages that have."""
        return accounting.adaptive(self.budget, self.target.adjacency, parts, self.reading.unit, self.n)

    @cached_property
    def posterior(self) -> str:
        """What is known of the posterior itself, whatever the guarantee: quickly, in a few words."""
        if self.certificate is not None:
            return "certified at this target"
        return known_of_posterior(self.reading, self.target, self.n)

    @property
    def opening(self) -> str:
        """The run's first line: what is promised, what of the posterior itself, and how long it takes."""
        return opening(self.target, self.n, self.guarantee, self.posterior) + (
            f" Expected time: {in_minutes(self.seconds)}." if self.seconds > 0 else ""
        )

    def predict(self, epsilon: float, n: int) -> Prediction:
        """The error that the same plan would promise at another ε or with another number of rows."""
        target = replace(self.target, epsilon=epsilon)
        temper = certified_temper(self.reading, target, n, self.guarantee)[0]
        policy = self._of_people(gdp_budget(target), n, temper)
        known = policy.known(*policy.foreseen())
        return prediction_of(self.read, known, GUESS[policy.facts.likelihood.few])

    def pace(self) -> float:
        """How many seconds a row takes, of synthetic rows, twice."""
        policy, pace = self._of_people(self.budget, self.n, self.temper), math.inf
        with jax.enable_x64(True):
            rows = self.reading.rows.synthetic(3, _TIMED)
        for seed in range(2):
            say("planning: the stages are timed on synthetic rows")
            began = time.perf_counter()
            simulate(policy, rows, np.full(_TIMED, self.n / _TIMED), seed)
            pace = min(pace, (time.perf_counter() - began) / _TIMED)
        return pace

    def _of_people(self, budget: float, n: int, temper: float) -> Policy:
        """What is bought rests on no ``people``: errors were larger so."""
        facts = facts_of(self.reading, n, self.target.adjacency, budget, temper, self.people)
        return Policy(facts, self.policy.most_passes)

    @cached_property
    def read(self) -> Coefficients:
        """What is read of the draws."""
        return Coefficients(self.reading, self.coefficients)

    @property
    def mark(self) -> str:
        """A hash of the model's program and of the row declaration."""
        marks = [*model_marks(self.reading), self.reading.rows.fingerprint]
        return hashlib.sha256(" ".join(marks).encode()).hexdigest()

    def report(self, units: Mapping[str, str] | None = None) -> Report:
        """The plan in words and numbers; ``units`` are those of coefficients by name."""
        expected, unit = self.prediction, self.reading.unit
        whom = self.target.adjacency if unit is None else f"{self.target.adjacency} of {unit}"
        items: list[tuple[str, str]] = [
            ("guarantee", self.guarantee),
            ("the posterior itself", self.posterior),
            ("target", f"ε = {at_most(self.target.epsilon)} at δ = {at_most(self.target.delta)}, {whom}"),
            ("rows" if unit is None else "persons", f"{self.n:,}"),
            ("budget of all stages", f"{at_most(self.budget)}-GDP"),
            ("predicted error of posterior means", f"{number(expected.rms, 2)} posterior sds"),
            ("of it, bounding rows' influence", number(expected.bias, 2)),
            ("of it, the noise that buys privacy", number(expected.monte_carlo, 2)),
            ("a step's share of a posterior sd", f"at most {number(expected.discretisation, 2)}"),
        ]
        words = (*remarks_on_delta(self.target.delta, self.n), *self.policy.assumed)
        notes = tuple(map(Note, words))
        if self.seconds > 0:
            items.insert(-4, ("expected time of a run here", in_minutes(self.seconds)))
        if expected.high > 0:
            low, high = number(expected.low, 2), number(expected.high, 2)
            items.insert(-3, ("on nine in ten real tables", f"{low} to {high}"))
        if self.temper < 1:
            weight, wider = number(self.temper), number(self.temper**-0.5, 2)
            items.append(("weight of the likelihood", weight))
            said = f"The certified posterior weights the likelihood by {weight}: its sds are about {wider} "
            notes = (*notes, Note(said + "times those of the model's own, and errors are in its sds."))
        ball = any(isinstance(domain, Ball) and not domain.centred for _, domain in self.reading.rows.items)
        of = OF_SYNTHETIC + _OF_A_BALL * ball if self.people is None else "on people as described"
        each = (coefficient_table(expected, units or {}, of),) if expected.coefficients else ()
        return Report("A plan", (Facts(tuple(items)), *each, *notes))


def _reading(model: Model, rows: Rows, n: int, public: PublicArguments) -> RowModel:
    """The model as it is read; of a formula's model the same object each time, so that programs are shared.

    Another model may read what has changed since.
    """
    same = is_written(model) and all(isinstance(value, int) for value in public.values())
    return (_read if same else _read.__wrapped__)(model, rows, n, tuple(public.items()))


@lru_cache(maxsize=8)
def _read(model: Model, rows: Rows, n: int, public: tuple[tuple[str, Any], ...]) -> RowModel:
    return read(model, rows, n=n, model_args=dict(public))


@overload
def plan(
    model: Model, rows: Rows, target: Target, *, n: int, release: Literal["path"] = ..., **others: Any
) -> Plan: ...
@overload
def plan(
    model: Model, rows: Rows, target: Target, *, n: int, release: Hidden, **others: Any
) -> DeclaredPlan: ...
@arguments_checked  # type: ignore[misc]  # of the others every signature has all
def plan(
    model: Model,
    rows: Rows,
    target: Target,
    *,
    n: int,
    guarantee: Guarantee = OF_PLANS,
    model_args: PublicArguments | None = None,
    max_error: float | None = None,
    max_passes: int | None = None,
    coefficients: Named | None = None,
    release: Hidden | Literal["path"] = "path",
    people: Columns | None = None,
    progress_bar: bool = True,
) -> Plan | DeclaredPlan:
    """Plan a private path: for one affine predictor under a Normal prior, or for any model that can be read.

    With another ``release`` one run of hidden states: :class:`private_mcmc.planning.declared.DeclaredPlan`.

    **Guarantee**: whatever the stages release, those that run cost at most the budget, so the policy is
    ``m``-GDP with ``m`` the largest that meets the target (fully adaptive composition: Smith, Thakurta
    2022). Under ``guarantee="posterior"`` the posterior that is approximated is certified at the target
    too: its likelihood is weighted by the largest weight that a certificate is known for.

    Args:
        model: a NumPyro model.
        rows: columns and domains of one row.
        target: (ε, δ) and the adjacency.
        n: the number of rows, or its public bound.
        guarantee: ``"posterior"`` or ``"run"``.
        model_args: the model's public arguments.
        max_error: refuse a plan that predicts a larger error of posterior means, in posterior sds.
        max_passes: the most passes over the rows of all stages together. What fewer cost in error is no
            part of the prediction: it is measured in ``benchmarks/measured/scale.md``.
        coefficients: from draws of the sites by name to draws ``(draws,)`` of what is read of them, whose
            errors are predicted one by one; the sites' elements if left out.
        people: columns of 512 public people, for whom errors are predicted in the place of synthetic ones;
            what is bought is the same.
        release: ``"path"``; ``"last"``, one draw; or ``Expectations(…)``, whose noise may be Laplace's.
        progress_bar: say on a terminal what is being tried.

    Raises:
        NotYetSupported: for a prior that cannot be drawn from.
        NotPrivate: for unbounded designs, a posterior without certificate, or a predicted error above
            ``max_error``; the message says how many rows or how much ε would do.
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets; for fewer passes than
            any plan takes.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> target = pmc.Target(epsilon=3.0, delta=1e-6)
        >>> chosen = pmc.plan(logistic, logistic_rows(2), target, n=30_000, guarantee="run")
        >>> chosen.statement.epsilon(1e-6) <= 3.0
        True
        >>> chosen.prediction.rms < 1
        True
    """
    checked_guarantee(guarantee)
    check_kind("target", target, Target)
    if max_error is not None:
        check_positive("max_error", max_error)
    if max_passes is not None:
        check_count("max_passes", max_passes)
    make_room()
    if release != "path":
        if any(one is not None for one in (max_error, max_passes, coefficients, people)):
            raise DeclarationError(
                "max_error, max_passes, coefficients, people: only plans of a path take them."
            )
        public = copy.deepcopy(dict(model_args or {}))
        reading = _reading(model, rows, n, public)
        temper, _ = certified_temper(reading, target, n, guarantee)
        return plan_declared(reading, rows, target, n, release, guarantee, temper)
    made = without_prediction(model, rows, target, n, guarantee, model_args or {}, coefficients, max_passes)
    made = replace(made, people=people)
    if max_passes is not None and max_passes < made.policy.least_passes:
        least = f"a plan of this model takes {made.policy.least_passes:,} passes over the rows, or more"
        raise DeclarationError(f"{max_passes=}: {least}.")
    with telling(progress_bar):
        # All that is compiled is compiled again for the rows; each takes what a synthetic one took.
        began = time.perf_counter()
        prediction, of_row = made.predict(target.epsilon, n), made.pace()
        seconds = time.perf_counter() - began + n * of_row
    if max_error is not None and not prediction.rms <= max_error:
        raise NotPrivate(_too_little(made, prediction.rms, max_error))
    return replace(made, prediction=prediction, seconds=seconds)


def without_prediction(
    model: Model,
    rows: Rows,
    target: Target,
    n: int,
    guarantee: Guarantee,
    model_args: PublicArguments,
    coefficients: Named | None = None,
    max_passes: int | None = None,
) -> Plan:
    """As :func:`plan`, of a path, before anything is simulated: all that decides what is bought."""
    # A copy: what is stated of a run later is what was read.
    public, budget = copy.deepcopy(dict(model_args)), gdp_budget(target)
    reading = _reading(model, rows, n, public)
    temper, certificate = certified_temper(reading, target, n, guarantee)
    facts = facts_of(reading, n, target.adjacency, budget, temper)
    return Plan(
        model=model,
        reading=reading,
        rows=rows,
        target=target,
        n=n,
        model_args=public,
        guarantee=guarantee,
        temper=temper,
        policy=Policy(facts, math.inf if max_passes is None else max_passes),
        certificate=certificate,
        prediction=Prediction(math.nan, math.nan, math.nan, math.nan),
        coefficients=coefficients,
        max_passes=max_passes,
    )


def predict_after(plan: Plan, releases: History) -> Prediction:
    """The error to expect of ``plan``, were the stages that are still to be bought carried out.

    A function of releases and public facts alone: post-processing, free. Before the next stage is the run it
    is the plan's own prediction, which is a guess. Then it is computed from the curvature that was released,
    its noise, and what the rest of the budget buys of a path.

    Args:
        plan: what was planned.
        releases: the stages that were carried out, with what they released, in their order.

    Returns:
        Its ``low`` and ``high`` have nine in ten errors of tables that nobody chose between them.
    """
    done = named(releases, RUN)
    before = releases[: releases.index(done[0])] if done else releases
    run = done[0].stage if done else plan.policy.next(releases)
    if not isinstance(run, PathStage) or run.name != RUN:
        return plan.prediction
    known = plan.policy.known(before, run)
    return prediction_of(plan.read, known, KNOWN[plan.policy.facts.likelihood.few])


def _too_little(made: Plan, error: float, max_error: float) -> str:
    """A refusal's words: the noise of a mean falls as ``1/(εn)``, and a posterior sd as ``1/√n``."""
    what = f"the predicted error of posterior means is {number(error, 2)} posterior sds, above {max_error=:g}"
    epsilon, n, ratio = made.target.epsilon, made.n, _MARGIN * error / max_error
    for more in (ratio, 2 * ratio, 4 * ratio):
        other = (epsilon, math.ceil(n * more**2)), (epsilon * more, n)
        # Clips and lengths of paths have ends, so that what scales says is tried.
        if more <= _LARGEST and all(made.predict(*each).rms <= max_error for each in other):
            return (
                f"{what}. It would take about {other[0][1]:,} rows at ε = {at_most(epsilon, 6)}, "
                f"or about ε = {at_most(epsilon * more, 2)} with these {n:,} rows."
            )
    return f"{what}. More rows, or a larger ε, are not expected to do: allow a larger error."


def opening(target: Target, n: int, guarantee: Guarantee, posterior: str) -> str:
    """The first line of every run."""
    promised = f"ε = {at_most(target.epsilon)} at δ = {at_most(target.delta)} ({target.adjacency}, n = {n:,})"
    said = " ".join(("", *remarks_on_delta(target.delta, n)))
    return f"{promised}, guarantee='{guarantee}'; the posterior itself: {posterior}.{said}"


def in_minutes(seconds: float) -> str:
    """A rough time in words."""
    if seconds < 60:
        return "less than a minute"
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"about {hours} h {minutes} min" if hours else f"about {minutes} min"
