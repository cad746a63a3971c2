"""Proved constants of a model's potential in the metric of a schedule, clipping taken into account."""

from __future__ import annotations

import math

import numpy as np

from private_mcmc.accounting import Curvature
from private_mcmc.modeling import RowModel
from private_mcmc.schedule import Matrix, Schedule

_UP = 1 + 1e-12


def largest_eigenvalue(preconditioner: Matrix | None) -> float:
    """``λ_max(M)``, rounded up; 1 for the identity."""
    if preconditioner is None:
        return 1.0
    metric = np.asarray(preconditioner, dtype=np.float64)
    if metric.ndim == 1:
        return float(np.max(metric))
    return float(np.linalg.eigvalsh(metric)[-1]) + float(np.linalg.norm(metric)) * len(metric) * 2.0**-48


def curvature(row_model: RowModel, schedule: Schedule) -> Curvature:
    """Constants of ``U_D``, for every ``D`` of the row domain, in the units of ``schedule.preconditioner``.

    The prior gives ``μ_K`` and ``L_K``. A row that enters through one affine predictor adds convexity
    if its loss is convex, and at most ``w‖x‖²ψ''`` of curvature, ``‖M^{1/2}x‖ ≤ λ_max(M)^{1/2} R``;
    clipping its gradient leaves it convex (a Huberised loss) and can only lower its curvature. For
    other rows clipping bounds the gradient and nothing else, so ``L`` is infinite unless it is proved.

    **Guarantee**: every field holds for every data set with at most ``schedule.num_rows`` rows and, for
    minibatches, for every batch. **Assumptions**: the proofs of ``modeling`` about prior and predictor.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1 and Theorem 5.2.
    """
    prior_mu, prior_smooth = row_model.prior.in_metric(schedule.preconditioner)
    weight = schedule.temper * _weight_of_rows(schedule)
    bound = weight * schedule.clip
    mu, smooth, convex, source = 0.0, math.inf, False, "the prior's own constants"
    predictor = row_model.predictor
    if predictor is not None:
        family = predictor.family
        radius = predictor.radius * math.sqrt(largest_eigenvalue(schedule.preconditioner)) * _UP
        row_curvature = family.clipped_curvature(radius, schedule.clip)
        smooth = (prior_smooth + weight * row_curvature) * _UP
        convex = family.convex and row_model.prior.convex
        mu = prior_mu if convex else 0.0
        bound = min(bound, _product(weight, _product(radius, family.score_bound)))
        source = f"one affine predictor with {family.why}; ‖x‖ ≤ {predictor.radius:.6g}"
    return Curvature(
        strong_convexity=mu,
        smoothness=smooth,
        prior_strong_convexity=prior_mu,
        prior_smoothness=prior_smooth,
        convex=convex,
        gradient_bound=bound * _UP,
        source=source,
    )


def _weight_of_rows(schedule: Schedule) -> float:
    """Number of rows that one gradient can sum, times the public factor of a minibatch."""
    batch = schedule.batch
    if batch is None:
        return float(schedule.num_rows)
    count = schedule.num_rows if batch.size is None else min(schedule.num_rows, batch.size)
    if batch.rate is not None:
        return count / batch.rate
    return float(count) * schedule.num_rows / count


def _product(first: float, second: float) -> float:
    """``first·second`` for bounds: 0 times an unknown bound is unknown."""
    value = first * second
    return math.inf if math.isnan(value) else value
