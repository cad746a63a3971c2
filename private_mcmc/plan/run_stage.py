"""The second stage: preconditioner, clip, step size and burn-in with the smallest predicted error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.errors import NotPrivate
from private_mcmc.kernels import PrivateULA
from private_mcmc.modeling import Predictor, RowModel
from private_mcmc.plan.outcomes import possible_outcomes
from private_mcmc.plan.pilot import Pilot, Prediction, make_pilot
from private_mcmc.release import floored
from private_mcmc.schedule import Schedule
from private_mcmc.target import Adjacency

Array = npt.NDArray[np.float64]

# Multiples of the root mean square norm of a row's gradient, in the preconditioner's metric.
CLIP_MULTIPLES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 9.0)
# Steps this long, in units of the inverse curvature bound, inflate variances by about two per cent.
_STEP_TIMES_CURVATURE = 0.1
_FEWEST_STEPS, _MOST_STEPS = 50, 20_000
_PILOT_SEED = 0


@dataclass(frozen=True, eq=False)
class Problem:
    """What stage two has to solve: public facts and its Gaussian DP budget.

    Attributes:
        precision: the prior's precision matrix, shape ``(p, p)``.
        num_rows: ``n`` or its public bound.
        budget: stage two may cost this much, in GDP.
    """

    model: Callable[..., Any]
    reading: RowModel
    predictor: Predictor
    precision: Array
    num_rows: int
    adjacency: Adjacency
    budget: float

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.reading.dim

    @property
    def curvature(self) -> float:
        """Largest curvature of a row's loss in its predictor, or 1 where it has no bound."""
        bound = self.predictor.family.curvature_bound
        return bound if 0 < bound < math.inf else 1.0

    @property
    def effect(self) -> float:
        """Size of the predictors that is planned for: about the largest worth fitting.

        A mode far from the start is the expensive case. Where curvature is bounded 3 is large; where it
        grows with the predictor, as under a log link, 1 already multiplies rates by 3.
        """
        return 3.0 if self.predictor.family.curvature_bound < math.inf else 1.0


@dataclass(frozen=True, eq=False)
class RunStage:
    """What to run, and what to expect of it."""

    kernel: PrivateULA
    num_steps: int
    num_warmup: int
    prediction: Prediction


def best_stage(problem: Problem, noisy_moments: Array, noise_sd: float) -> RunStage:
    """The stage whose predicted error on made-up rows with about these second moments is smallest.

    Eigenvalues of ``noisy_moments`` below the noise's spectral norm are raised to it. ``M = (XᵀX +
    P/b)^{-1}`` with ``b`` the bound on a row's curvature: the metric in which the data's curvature is at
    most ``b`` and a flat direction is as wide as the prior.
    """
    moments = floored(noisy_moments, noise_sd * math.sqrt(2.0 * problem.dim))
    metric = np.linalg.inv(moments + problem.precision / problem.curvature)
    metric = (metric + metric.T) / 2
    pilot = make_pilot(
        moments,
        noise_sd,
        problem.num_rows,
        problem.predictor.radius,
        problem.precision,
        np.asarray(np.linalg.cholesky(metric), dtype=np.float64),
        problem.predictor.loss,
        possible_outcomes(problem.reading.rows),
        problem.effect,
        jax.random.key(_PILOT_SEED),
    )
    stages = [_stage(problem, pilot, metric, multiple * pilot.typical) for multiple in CLIP_MULTIPLES]
    return min(stages, key=lambda stage: stage.prediction.rms)


def run_schedule(problem: Problem, kernel: PrivateULA, num_steps: int) -> Schedule:
    """The record of one chain whose path is released."""
    return kernel.schedule(
        adjacency=problem.adjacency,
        num_rows=problem.num_rows,
        dim=problem.dim,
        num_steps=num_steps,
        num_chains=1,
        release="path",
    )


def _stage(problem: Problem, pilot: Pilot, metric: Array, clip: float) -> RunStage:
    matrix = tuple(tuple(row) for row in metric.tolist())
    draft = PrivateULA(problem.model, step_size=1.0, clip=clip, preconditioner=matrix)
    unit = accounting.run(run_schedule(problem, draft, 1)).gdp
    if unit is None:
        raise NotPrivate("a path of Langevin states has a Gaussian statement, and this one has none.")
    # The squared price of a path is proportional to its Langevin time.
    time = (problem.budget / unit) ** 2 * (1 - 1e-9)
    wanted = math.ceil(time * problem.curvature / _STEP_TIMES_CURVATURE)
    num_steps = min(max(wanted, _FEWEST_STEPS), _MOST_STEPS)
    prediction = pilot.predict(clip, time)
    return RunStage(
        kernel=replace(draft, step_size=time / num_steps),
        num_steps=num_steps,
        num_warmup=min(round(prediction.burn_in_share * num_steps), num_steps - 1),
        prediction=prediction,
    )
