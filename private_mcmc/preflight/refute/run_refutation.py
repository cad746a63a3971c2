"""How much a run provably reveals: exact laws of its states on two data sets of one-dimensional Normal rows.

Without clipping the states are Gaussian, with moments by recursion; clipping changes a law by no more than
the probability that it ever binds. Far from convergence the laws may lie much further apart than the
posteriors (Heller, Fetaya 2023, Section IV).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import jax
import numpy as np
from scipy.special import log_ndtr

from private_mcmc.accounting.posterior.normal import gaussian_pair
from private_mcmc.model import RowModel
from private_mcmc.preflight.certify.normal import normal_facts
from private_mcmc.preflight.refute.pairs import extreme_rows, stacked
from private_mcmc.preflight.refute.peaks import Array
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target

_MOST_STEPS = 200_000
_MOST_KINDS = 5
_DOWN = 1 - 1e-6


@dataclass(frozen=True)
class Pull:
    """The gradient of a row's loss, ``slope·θ + constant``."""

    slope: float
    constant: float


@dataclass(frozen=True)
class States:
    """Means and variances of the states after every step, and a bound on the probability of a clip."""

    mean: Array
    variance: Array
    clipped: float


def interim_lower_bound(row_model: RowModel, schedule: Schedule, target: Target) -> float | None:
    """An ``ε`` at which a released state of this run, started at zero, is not ``(ε, δ)``-DP; 0 if none.

    All rows are alike but one, at two extremes of the domain. ``None`` where the states' laws are not known:
    other models, random batches, projections, other noise, very long runs.

    Source: Heller, Fetaya 2023, Section IV; here for any extremes, with exact Gaussian divergences.
    """
    facts = normal_facts(row_model)
    if facts is None or not _is_linear(schedule) or not schedule.num_steps <= _MOST_STEPS:
        return None
    if isinstance(schedule.release, Average) or target.adjacency == "add_remove":
        return None
    pulls = _pulls(row_model)
    laws = {
        (common, odd): _states(schedule, facts.precision, facts.mean, common, odd)
        for common in pulls
        for odd in [*pulls, Pull(0.0, 0.0)]
    }
    found = 0.0
    for common in pulls:
        others = pulls if target.adjacency == "replace_one" else [Pull(0.0, 0.0), common]
        for first, second in permutations(others, 2):
            found = max(found, _reached(laws[common, first], laws[common, second], schedule, target.delta))
    return found * _DOWN


def _is_linear(schedule: Schedule) -> bool:
    batch = schedule.batch
    whole = batch is None or (batch.scheme == "cyclic" and schedule.num_rows % (batch.size or 1) == 0)
    free = math.isinf(schedule.diameter) and schedule.box is None
    return whole and free and schedule.noise is None and schedule.preconditioner is None


def _pulls(row_model: RowModel) -> list[Pull]:
    """The different gradients of rows at the extremes, the steepest first."""
    columns = stacked(extreme_rows(row_model.rows))
    with jax.enable_x64(True):
        slopes = jax.jit(lambda t: jax.vmap(lambda row: jax.grad(row_model.row_loss)(t, row))(columns))
        at_zero = np.asarray(slopes(np.zeros(1)))[:, 0]
        # Far enough out that the slope is not lost in the rounding of the constant.
        far = 1 + float(np.max(np.abs(at_zero)))
        at_far = np.asarray(slopes(np.full(1, far)))[:, 0]
    found = {Pull(float((b - a) / far), float(a)) for a, b in zip(at_zero, at_far, strict=True)}
    ranked = sorted(found, key=lambda pull: (-abs(pull.constant), -pull.slope, pull.constant))
    return ranked[:_MOST_KINDS]


def _states(schedule: Schedule, precision: float, center: float, common: Pull, odd: Pull) -> States:
    """The states on ``n − 1`` rows of one kind and, in the last batch of a pass, one of another."""
    size = schedule.num_rows if schedule.batch is None else int(schedule.batch.size or 1)
    passes = schedule.num_rows // size
    weight = schedule.temper * passes
    mean, variance = 0.0, 0.0
    means, variances = [], []
    for step, gamma in enumerate(schedule.step_sizes):
        last = (step + 1) % passes == 0
        alike = size - 1 if last else size
        slope = alike * common.slope + (odd.slope if last else 0.0)
        constant = alike * common.constant + (odd.constant if last else 0.0)
        keep = 1 - gamma * (precision + weight * slope)
        mean = keep * mean + gamma * (precision * center - weight * constant)
        variance = keep * keep * variance + 2 * gamma
        means.append(mean)
        variances.append(variance)
    # The gradient of a step is that at the state before it; the first one is at the start, zero.
    before = np.array([0.0, *means[:-1]]), np.sqrt(np.array([0.0, *variances[:-1]]))
    clipped = math.fsum(_beyond(pull, *before, schedule.clip) for pull in {common, odd})
    return States(np.array(means), np.array(variances), clipped)


def _beyond(pull: Pull, mean: Array, sd: Array, clip: float) -> float:
    """``Σ_k P(|slope·θ_k + constant| > clip)``."""
    middle, spread = pull.slope * mean + pull.constant, np.maximum(abs(pull.slope) * sd, 1e-300)
    with np.errstate(over="ignore"):
        tails = np.exp(log_ndtr((-clip - middle) / spread)) + np.exp(log_ndtr((middle - clip) / spread))
    return float(np.sum(tails))


def _reached(first: States, second: States, schedule: Schedule, delta: float) -> float:
    """The largest ``ε`` at which a released state of the first law violates ``(ε, δ)`` against the second."""
    if not (np.all(np.isfinite(first.mean)) and np.all(np.isfinite(second.mean))):
        return 0.0
    gaps = (first.mean - second.mean) ** 2 / np.maximum(first.variance, second.variance)
    steps: Sequence[int] = (schedule.num_steps,) if schedule.release == "last" else ()
    if isinstance(schedule.release, tuple):
        steps = schedule.release
    elif schedule.release == "path":
        steps = (int(np.argmax(gaps)) + 1,)
    return max(_epsilon(first, second, step - 1, delta) for step in steps)


def _epsilon(first: States, second: States, at: int, delta: float) -> float:
    narrow, wide = sorted((s.variance[at], s.mean[at]) for s in (first, second))
    shift = abs(narrow[1] - wide[1]) / math.sqrt(wide[0])
    extra = max(wide[0] / narrow[0] - 1, 1e-12)

    def violates(epsilon: float) -> bool:
        exact = float(gaussian_pair(np.array(shift), np.array(extra), epsilon)) * (1 - 1e-9) - 1e-13
        clipped = first.clipped + second.clipped
        return exact - (1 + math.exp(epsilon)) * clipped > delta

    low, high = 0.0, 700.0
    if not violates(low):
        return 0.0
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if violates(middle) else (low, middle)
    return low
