"""Constants of a chain that are proved for every data set: what prices of hidden states rest on."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Curvature
from private_mcmc.accounting.rounding import UP_LONG
from private_mcmc.potential.families import times
from private_mcmc.potential.potential import Potential
from private_mcmc.schedule import Matrix, Schedule

# A clip at the proved bound itself is idle: the rounding of the bound is not part of it. Kernels scale no
# row whose norm is within that of the clip, as long as the rounding of the norm, too, is within CLIP_SLACK.
_BOUND_ROUNDING = 1e-11
_LARGEST_DIM = 100_000
# Designs are held at the radius but for rounding, up to 2e-9 of it.
_HELD = (1 + 2e-9) ** 2


def largest_eigenvalue(preconditioner: Matrix | None) -> float:
    """``λ_max(M)``, rounded up; 1 for the identity."""
    if preconditioner is None:
        return 1.0
    metric = np.asarray(preconditioner, dtype=np.float64)
    if metric.ndim == 1:
        return float(np.max(metric))
    return float(np.linalg.eigvalsh(metric)[-1]) + float(np.linalg.norm(metric)) * len(metric) * 2.0**-48


def never_clips(free: float, clip: float, row_model: Potential) -> bool:
    """Whether a row's gradients, of norm at most ``free``, pass a kernel's clip as they are."""
    entries = row_model.dim * (1 if row_model.unit is None else row_model.unit.rows)
    return free <= clip * (1 + _BOUND_ROUNDING) and entries <= _LARGEST_DIM


def curvature(row_model: Potential, schedule: Schedule) -> Curvature:
    """Constants of ``U_D``, for every ``D`` of the row domain, in the units of ``schedule.preconditioner``.

    The prior gives ``μ_K`` and ``L_K``; each of the rows that one step sums, with its public factor, adds
    at most ``λ_max(M)`` times its own curvature. A row of one affine predictor stays convex when its
    gradient is clipped (a Huberised loss), and its curvature falls. The clipped gradient of any other row is
    no gradient. Kernels hold designs at ``R``, so that nothing need be known of the longest row.
    Rows that are not convex may bend ``U`` down by as much as up.

    **Guarantee**: every field holds for every data set with at most ``schedule.num_rows`` rows and, for
    minibatches, for every batch, of what kernels run: it rests on the tables of families and priors.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1 and Theorem 5.2.
    """
    prior_mu, prior_smooth = row_model.prior.in_metric(schedule.preconditioner)
    if schedule.clips is not None:
        # Clipped coordinate by coordinate, the rows' terms are no gradients and need not be monotone.
        return Curvature(prior_smoothness=prior_smooth)
    rows, single = row_model.constants, row_model.predictor
    widest = largest_eigenvalue(schedule.preconditioner)
    longest = math.sqrt(widest) * UP_LONG
    gradient, bend = times(longest, rows.gradient_bound), times(widest * UP_LONG, rows.curvature_bound)
    if single is not None and rows.convex:
        radius = times(longest, single.radius)
        bend = min(bend, single.family.clipped_curvature(radius, schedule.clip))
    bend = times(bend, _HELD)
    idle = never_clips(gradient, schedule.clip, row_model)
    total = times(schedule.temper * _rows_of_a_step(schedule), bend)
    smooth = (prior_smooth + total) * UP_LONG
    if rows.convex and row_model.prior.convex and (idle or single is not None):
        return Curvature(prior_mu, smooth, prior_smooth)
    mu = prior_mu - total * UP_LONG if idle or single is not None else 0.0
    return Curvature(mu, smooth, prior_smooth) if mu > 0 else Curvature(prior_smoothness=prior_smooth)


# No data that a prior is meant for take a chain so many of its sds away from its mode.
_SDS = 100.0


def reach_of_prior(row_model: Potential, schedule: Schedule) -> tuple[float, float]:
    """A half-width of a box, in whitened coordinates, that chains have no reason to leave; and ``|∇K(0)|_*``.

    ``inf`` where no strong convexity of the prior is proved. The slope is an upper bound; any box would do.
    """
    prior, metric = row_model.prior, schedule.preconditioner
    with jax.enable_x64(True):
        slopes = np.abs(np.asarray(jax.grad(row_model.neg_log_prior)(jnp.zeros(row_model.dim))))
    mu = prior.in_metric(metric)[0]
    scales = np.ones(row_model.dim) if metric is None else np.asarray(metric, dtype=np.float64)
    if scales.ndim == 1:
        steepest = float(np.linalg.norm(np.sqrt(scales) * slopes))
    else:
        steepest = float(np.linalg.norm(slopes)) * math.sqrt(largest_eigenvalue(metric))
    if not mu > 0:
        return math.inf, steepest * UP_LONG
    if scales.ndim == 1 and prior.factorised:
        far = (slopes / prior.lower + _SDS / np.sqrt(prior.lower)) / np.sqrt(scales)
        return float(np.max(far)), steepest * UP_LONG
    return steepest / mu + _SDS / math.sqrt(mu), steepest * UP_LONG


def _rows_of_a_step(schedule: Schedule) -> float:
    """Number of rows that one gradient can sum, times the public factor of a minibatch."""
    return schedule.num_rows / (1.0 if schedule.rate is None else schedule.rate)
