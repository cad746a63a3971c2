"""The policy for rows that enter through one affine predictor: second moments, then the run they shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import NotPrivate, NotYetSupported
from private_mcmc.modeling import Predictor, RowModel
from private_mcmc.plan.run_stage import Problem, RunStage, best_stage, run_schedule
from private_mcmc.plan.stages import Conclusion, History, MomentsStage, PathStage, Prediction, Stage
from private_mcmc.release import SecondMoments, plan_second_moments
from private_mcmc.target import Adjacency

Array = npt.NDArray[np.float64]

MOMENTS_SHARE = 0.1
_MADE_UP_ROWS = 1024


@dataclass(frozen=True, eq=False)
class AffinePolicy:
    """Second moments with a tenth of the squared budget, then a path preconditioned by their inverse."""

    problem: Problem
    moments: MomentsStage

    def next(self, history: History) -> Stage | None:
        """Moments, path, nothing."""
        if not history:
            return self.moments
        if len(history) > 1:
            return None
        stage = self._run_stage(history)
        schedule = run_schedule(self.problem, stage.kernel, stage.num_steps)
        return PathStage("path", schedule, np.zeros(self.problem.dim))

    def conclude(self, history: History) -> Conclusion:
        """The path after its burn-in."""
        stage = self._run_stage(history)
        return Conclusion(np.asarray(history[1].value)[stage.num_warmup :], _prediction(stage))

    def _run_stage(self, history: History) -> RunStage:
        moments = history[0].value
        if not isinstance(moments, SecondMoments):
            raise TypeError("the first stage releases second moments")
        return best_stage(self.problem, moments.matrix, moments.noise_sd)


def affine_policy(
    model: Callable[..., Any], reading: RowModel, n: int, adjacency: Adjacency, budget: float
) -> tuple[AffinePolicy, Prediction]:
    """The policy and the error to expect of it.

    Raises:
        NotYetSupported: for several predictors, or a prior without a constant precision.
        NotPrivate: for unbounded designs.
    """
    predictor = _bounded_predictor(reading)
    moments_gdp = budget * math.sqrt(MOMENTS_SHARE)
    moments = plan_second_moments(
        moments_gdp, radius=predictor.radius, dim=reading.dim, num_rows=n, adjacency=adjacency
    )
    problem = Problem(
        model=model,
        reading=reading,
        predictor=predictor,
        precision=_precision(reading),
        num_rows=n,
        adjacency=adjacency,
        budget=math.sqrt(budget**2 - moments_gdp**2) * (1 - 1e-12),
    )
    expected = best_stage(problem, _guessed_moments(problem), moments.noise.sd)
    stage = MomentsStage("second moments", moments, predictor.design)
    return AffinePolicy(problem, stage), _prediction(expected)


def _prediction(stage: RunStage) -> Prediction:
    return Prediction(stage.prediction.rms, stage.prediction.bias, stage.prediction.monte_carlo, 0.0)


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
