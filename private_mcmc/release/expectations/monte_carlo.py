"""A data-free bound on the Monte Carlo error of an average: the chain's own numbers stay inside."""

from __future__ import annotations

import math

from private_mcmc.accounting import Curvature
from private_mcmc.schedule import Average, Schedule


def monte_carlo_sd(schedule: Schedule, curvature: Curvature) -> float:
    """``σ/((1 − ρ)√(Nc))``: bounds the sd of the average of a 1-Lipschitz function (in ``‖M^{-1/2}·‖``).

    The average is a Lipschitz function of the independent Gaussian noises, so its variance is at most
    the sum of squares of its slopes (Poincaré inequality). It says nothing about the bias of the
    burn-in and of the step size. ``inf`` unless the potential is strongly convex and smooth.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 3.8; Dalalyan, Karagulyan 2019 (``ρ``).
    """
    if not isinstance(schedule.release, Average) or schedule.batch is not None:
        return math.inf
    kept = schedule.num_steps - schedule.release.first + 1
    slopes: list[float] = []
    ahead = 0.0
    sizes = schedule.step_sizes
    for index in range(schedule.num_steps, 0, -1):
        step = sizes[index - 1]
        # Slope of the sum of kept states in the state after this step, then in this step's noise.
        ahead += 1.0 if index >= schedule.release.first else 0.0
        slopes.append(2 * step * ahead * ahead)
        ahead *= _contraction(step, curvature)
    variance = math.fsum(slopes) * _noise_factor(schedule) / kept**2 / schedule.num_chains
    return math.sqrt(variance) if variance < math.inf else math.inf


def _contraction(step: float, curvature: Curvature) -> float:
    low, high = curvature.strong_convexity, curvature.smoothness
    if not (low > 0 and high < math.inf):
        return math.inf
    return max(abs(1 - step * low), abs(1 - step * high))


def _noise_factor(schedule: Schedule) -> float:
    """Largest noise variance over ``2γ`` in the metric; only the isotropic case is known here."""
    return 1.0 if schedule.noise is None else math.inf
