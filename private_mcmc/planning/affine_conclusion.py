"""What the releases of the policy for one affine predictor amount to: draws, and the error to expect."""

from __future__ import annotations

import math

import numpy as np

from private_mcmc.planning.affine_releases import (
    CURVATURE,
    MOMENTS,
    RUN,
    Releases,
    named,
    path_of,
    reading_of,
)
from private_mcmc.planning.estimates import calibrated_draws, inverse_of, root_of, settled_average
from private_mcmc.planning.stages import Conclusion, History, Prediction

# Draws are widened as if the curvature changed twice as unevenly: errors have heavier tails than estimates.
_CAUTION = 2.0
_FEW_PEOPLE = 1.5  # where counts of rows are hidden: of the predicted error


def concluded(releases: Releases, said: float, history: History) -> Conclusion:
    """The mode that the run's mean score implies, and the covariance of what is known of it.

    Its width without privacy is an average over the curvatures that the noise of their release allows: the
    released one alone is too large in some directions, and draws would be too narrow there.

    Args:
        releases: in whose light they are read.
        said: the error that the plan predicts; of few people draws say no less.
        history: all stages.
    """
    estimate, _ = releases.moments(named(history, MOMENTS))
    hessian = releases.hessian(estimate, named(history, CURVATURE))
    run = named(history, RUN)[0]
    schedule, states = path_of(run)
    clip, dim = releases.clip_of(schedule), releases.dim
    counts = releases.influence_on(history, "clip" if reading_of(run) is None else "weights")
    share = counts.curvature_share(clip)
    curvature = share * hessian
    average = settled_average(states, schedule, releases.temper, releases.prior_score, curvature)

    # The rows' own posterior knows the mode as well as the Hessian says; the releases know it less well.
    both = inverse_of(inverse_of(average.information(curvature)) + inverse_of(hessian))
    covariance, mode = inverse_of(releases.precision + both), average.root(curvature)
    mean = mode - covariance @ releases.prior_score(mode)
    root = root_of(hessian + releases.precision)
    inside = np.linalg.inv(root)
    # Newton's step is as uncertain as the share of the curvature that is not known.
    moved = math.sqrt(np.mean((inside @ (mode - average.centre)) ** 2))
    drift = moved * counts.curvature_uncertainty(clip, _CAUTION)
    bias = math.hypot(counts.bias(clip), drift)
    spread = inside @ (covariance - root @ root.T) @ inside.T + bias**2 * np.eye(dim)
    monte_carlo = math.sqrt(max(float(np.trace(spread)) / dim - bias**2, 0.0))
    rms, step = math.hypot(bias, monte_carlo), max(schedule.step_sizes)
    said *= _FEW_PEOPLE if counts.synthetic else 1.0
    covariance = covariance + bias**2 * root @ root.T
    if said > rms:
        # Of few rows the releases tell too little of their own error. No prior leaves a larger one.
        unseen = (releases.level(history) * hessian + releases.precision) / (said**2 - rms**2)
        covariance = covariance + inverse_of(unseen + releases.precision)
    # Without privacy it is as wide as the curvature says, which noise makes too large in some directions.
    allowed = releases.curvatures(estimate, named(history, CURVATURE))
    own = np.mean([inverse_of(one + releases.precision) for one in allowed], axis=0)
    covariance = covariance - root @ root.T + own
    draws = calibrated_draws(states[1:], mean, covariance, share * schedule.total_time)
    found = Prediction(rms, bias, monte_carlo, step / 4)
    found = found.scaled_to(max(rms, said)) if counts.synthetic else found
    return Conclusion(draws, found, few=counts.synthetic)
