"""A staged policy, fixed before any private row is read: second moments first, then the run they shape.

Stage one buys ``XᵀX`` of the rows' designs with a share of the squared GDP budget. Its inverse becomes the
preconditioner, and the clip, the burn-in and the step size of stage two are the ones whose predicted
error on made-up rows with those moments is smallest. Both stages are charged their declared share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.errors import DeclarationError, NotPrivate, NotYetSupported
from private_mcmc.kernels import PrivateULA
from private_mcmc.modeling import RowModel, Rows, read
from private_mcmc.plan.outcomes import possible_outcomes
from private_mcmc.plan.pilot import Pilot, Prediction, make_pilot
from private_mcmc.release import SecondMoments, SecondMomentsPlan, plan_second_moments
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

Array = npt.NDArray[np.float64]

MOMENTS_SHARE = 0.1
CLIP_MULTIPLES = (0.5, 0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0, 3.0)
# Steps this long, in units of the inverse curvature bound, inflate variances by about two per cent.
_STEP_TIMES_CURVATURE = 0.1
_MOST_STEPS = 20_000
_FEWEST_STEPS = 50
_PILOT_SEED = 0


@dataclass(frozen=True, eq=False)
class RunStage:
    """Stage two: what to run, and what to expect of it."""

    kernel: PrivateULA
    num_steps: int
    num_warmup: int
    prediction: Prediction


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy that meets ``target`` whatever the data: every number here is public.

    Attributes:
        moments: stage one's mechanism.
        run_gdp: stage two's budget, in GDP.
        statement: the whole policy's statement, known before anything is spent.
        expected: stage two as it would be planned for made-up rows of the declared domain.
    """

    model: Callable[..., Any]
    rows: Rows
    target: Target
    n: int
    model_args: Mapping[str, Any]
    reading: RowModel
    moments: SecondMomentsPlan
    run_gdp: float
    statement: accounting.Statement
    expected: RunStage

    @property
    def guarantee(self) -> Literal["run"]:
        """The run's own statement is what the policy rests on."""
        return "run"

    def run_stage(self, moments: SecondMoments) -> RunStage:
        """Stage two for the released moments: post-processing, free."""
        return _best_stage(self, moments.floored(_noise_floor(moments.noise_sd, self.reading.dim)))


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
        NotYetSupported: for other models, unbounded designs, a prior without a constant precision, or
            another guarantee.
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
    radius = _checked_radius(reading)
    budget = accounting.gdp.budget(target.epsilon, target.delta)
    moments_gdp = budget * math.sqrt(MOMENTS_SHARE)
    moments = plan_second_moments(
        moments_gdp, radius=radius, dim=reading.dim, num_rows=n, adjacency=target.adjacency
    )
    run_gdp = math.sqrt(budget**2 - moments_gdp**2) * (1 - 1e-12)
    draft = Plan(
        model=model,
        rows=rows,
        target=target,
        n=n,
        model_args=dict(model_args or {}),
        reading=reading,
        moments=moments,
        run_gdp=run_gdp,
        statement=moments.statement,
        expected=None,  # type: ignore[arg-type]
    )
    noise_floor = _noise_floor(moments.noise.sd, reading.dim)
    expected = _best_stage(draft, _guessed_moments(rows, reading, n) + noise_floor * np.eye(reading.dim))
    statement = accounting.adaptive(budget, target.adjacency, (moments.statement, _run_statement(draft, expected)))
    return replace(draft, expected=expected, statement=statement)


def _checked_radius(reading: RowModel) -> float:
    if reading.predictor is None:
        raise NotYetSupported(
            "plans cover models whose rows enter through one affine predictor so far; run this one with "
            "PrivateMCMC(PrivateULA(model, step_size=…, clip=…), …)."
        )
    radius = float(reading.predictor.radius)
    if not radius < math.inf:
        raise NotPrivate(
            "the rows' design vectors are unbounded: declare Ball(radius, dim) or Box(lo, hi) for the covariates."
        )
    if reading.prior.hessian is None or not reading.prior.strong_convexity > 0:
        raise NotYetSupported("plans need a Normal prior so far (a constant, positive prior precision).")
    return radius


def _precision(reading: RowModel) -> Array:
    hessian = np.asarray(reading.prior.hessian, dtype=np.float64)
    return np.diag(hessian) if hessian.ndim == 1 else hessian


def _noise_floor(noise_sd: float, dim: int) -> float:
    """Size of the noise matrix's spectral norm: directions below it are not told apart from noise."""
    return noise_sd * math.sqrt(2.0 * dim)


def _guessed_moments(rows: Rows, reading: RowModel, n: int) -> Array:
    with jax.enable_x64(True):
        made_up = rows.project(rows.synthetic(jax.random.key(_PILOT_SEED), 1024))
        design = np.asarray(jax.vmap(reading.predictor.design)(made_up))
    return design.T @ design * (n / len(design))


def _best_stage(policy: Plan, moments: Array) -> RunStage:
    reading = policy.reading
    precision = _precision(reading)
    # A flat direction of the data is as wide as the prior: 4 undoes the logistic curvature's scale.
    curvature = min(float(reading.predictor.family.curvature_bound), 1e6)
    metric = np.linalg.inv(moments + precision / curvature)
    metric = (metric + metric.T) / 2
    pilot = make_pilot(
        moments,
        policy.n,
        policy.reading.predictor.radius,
        precision,
        np.linalg.cholesky(metric),
        reading.predictor.loss,
        possible_outcomes(policy.rows),
        jax.random.key(_PILOT_SEED),
    )
    typical = math.sqrt(max(float(np.trace(metric @ moments)), 0.0) / policy.n)
    stages = [_stage(policy, pilot, metric, multiple * typical) for multiple in CLIP_MULTIPLES]
    return min(stages, key=lambda stage: stage.prediction.rms)


def _stage(policy: Plan, pilot: Pilot, metric: Array, clip: float) -> RunStage:
    curvature = float(policy.reading.predictor.family.curvature_bound)
    matrix = tuple(tuple(row) for row in metric.tolist())
    draft = PrivateULA(policy.model, step_size=1.0, clip=clip, preconditioner=matrix)
    unit = accounting.run(_schedule(policy, draft, 1)).gdp
    if unit is None:
        raise NotPrivate("a path of Langevin states has a Gaussian statement, and this one has none.")
    time = (policy.run_gdp / unit) ** 2 * (1 - 1e-9)
    num_steps = min(max(math.ceil(time * curvature / _STEP_TIMES_CURVATURE), _FEWEST_STEPS), _MOST_STEPS)
    prediction = pilot.predict(clip, time)
    return RunStage(
        kernel=replace(draft, step_size=time / num_steps),
        num_steps=num_steps,
        num_warmup=min(round(prediction.burn_in_share * num_steps), num_steps - 1),
        prediction=prediction,
    )


def _schedule(policy: Plan, kernel: PrivateULA, num_steps: int) -> Schedule:
    return kernel.schedule(
        adjacency=policy.target.adjacency,
        num_rows=policy.n,
        dim=policy.reading.dim,
        num_steps=num_steps,
        num_chains=1,
        release="path",
    )


def _run_statement(policy: Plan, stage: RunStage) -> accounting.Statement:
    return accounting.run(_schedule(policy, stage.kernel, stage.num_steps))
