"""A staged policy, fixed before any private row is read: second moments first, then the run they shape.

Stage one buys ``XᵀX`` of the rows' designs with a share of the squared GDP budget; stage two gets the
rest. Both are charged their declared share, whatever stage one releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.errors import DeclarationError, NotPrivate, NotYetSupported
from private_mcmc.modeling import Predictor, RowModel, Rows, read
from private_mcmc.plan.run_stage import Problem, RunStage, best_stage, run_schedule
from private_mcmc.release import SecondMoments, SecondMomentsPlan, plan_second_moments
from private_mcmc.target import Target

Array = npt.NDArray[np.float64]

MOMENTS_SHARE = 0.1
_MADE_UP_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy that meets ``target`` whatever the data: every number here is public.

    Attributes:
        problem: the model as it was read, with the budget of stage two.
        rows: the row declaration.
        target: what the policy meets.
        model_args: the model's public arguments.
        moments: stage one's mechanism.
        statement: the whole policy's statement, known before anything is spent.
        expected: stage two as it would be planned for made-up rows of the declared domain.
    """

    problem: Problem
    rows: Rows
    target: Target
    model_args: Mapping[str, Any]
    moments: SecondMomentsPlan
    statement: accounting.Statement
    expected: RunStage

    @property
    def guarantee(self) -> Literal["run"]:
        """The run's own statement is what the policy rests on."""
        return "run"

    @property
    def n(self) -> int:
        """The public number of rows."""
        return self.problem.num_rows

    def run_stage(self, moments: SecondMoments) -> RunStage:
        """Stage two for the released moments: post-processing, free."""
        return best_stage(self.problem, moments.matrix, moments.noise_sd)


def plan(
    model: Callable[..., Any],
    rows: Rows,
    target: Target,
    *,
    n: int,
    guarantee: Literal["run"] = "run",
    model_args: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a private path for a model whose rows enter through one affine predictor.

    **Guarantee**: for every outcome of stage one, stage two costs at most its declared share, so the
    policy is ``m``-GDP with ``m`` the largest that meets the target (fully adaptive composition: Smith,
    Thakurta 2022).

    Raises:
        NotYetSupported: for other models, a prior without a constant precision, or another guarantee.
        NotPrivate: for unbounded designs.
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if guarantee != "run":
        raise NotYetSupported(
            f"guarantee={guarantee!r}: plans rest on the run's own statement so far; for the posterior's "
            "use preflight's temper with PrivateMCMC(PrivateULA(model, temper=…), …)."
        )
    if not target.delta > 0:
        raise DeclarationError("delta=0: a path carries Gaussian noise; choose delta > 0 or Expectations.")
    reading = read(model, rows, n=n, model_args=model_args)
    predictor = _bounded_predictor(reading)
    budget = accounting.gdp.budget(target.epsilon, target.delta)
    moments_gdp = budget * math.sqrt(MOMENTS_SHARE)
    moments = plan_second_moments(
        moments_gdp, radius=predictor.radius, dim=reading.dim, num_rows=n, adjacency=target.adjacency
    )
    problem = Problem(
        model=model,
        reading=reading,
        predictor=predictor,
        precision=_precision(reading),
        num_rows=n,
        adjacency=target.adjacency,
        budget=math.sqrt(budget**2 - moments_gdp**2) * (1 - 1e-12),
    )
    expected = best_stage(problem, _guessed_moments(problem), moments.noise.sd)
    stages = (moments.statement, accounting.run(run_schedule(problem, expected.kernel, expected.num_steps)))
    statement = accounting.adaptive(budget, target.adjacency, stages)
    return Plan(problem, rows, target, dict(model_args or {}), moments, statement, expected)


def _bounded_predictor(reading: RowModel) -> Predictor:
    if reading.predictor is None:
        raise NotYetSupported(
            "plans cover models whose rows enter through one affine predictor so far; run this one with "
            "PrivateMCMC(PrivateULA(model, step_size=…, clip=…), …)."
        )
    if not reading.predictor.radius < math.inf:
        raise NotPrivate(
            "the rows' design vectors are unbounded: declare Ball(radius, dim) or Box(lo, hi) for the "
            "covariates."
        )
    return reading.predictor


def _precision(reading: RowModel) -> Array:
    if reading.prior.hessian is None or not reading.prior.strong_convexity > 0:
        raise NotYetSupported("plans need a Normal prior so far (a constant, positive prior precision).")
    hessian = np.asarray(reading.prior.hessian, dtype=np.float64)
    return np.diag(hessian) if hessian.ndim == 1 else hessian


def _guessed_moments(problem: Problem) -> Array:
    rows = problem.reading.rows
    with jax.enable_x64(True):
        made_up = rows.project(rows.synthetic(jax.random.key(0), _MADE_UP_ROWS))
        design = np.asarray(jax.vmap(problem.predictor.design)(made_up), dtype=np.float64)
    return np.asarray(design.T @ design * (problem.num_rows / _MADE_UP_ROWS))
