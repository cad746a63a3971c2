"""The statement of the run itself beside the verdict on the posterior, and what a run provably reveals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal

import jax
import numpy as np
from scipy.special import log_ndtr

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.accounting.normal import gaussian_pair
from private_mcmc.model import RowModel
from private_mcmc.preflight.advice import Advice, is_sayable, rounded_down
from private_mcmc.preflight.certificates import Subject, curvature, meets
from private_mcmc.preflight.conjugates import normal_facts
from private_mcmc.preflight.refute.pairs import extreme_rows, stacked
from private_mcmc.preflight.refute.quadrature_1d import Array
from private_mcmc.preflight.refute.refutation import Refutation
from private_mcmc.report import at_least, at_most, number
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target

VerdictWord = Literal["private", "not private", "unknown"]

_MOST_STEPS = 200_000
_MOST_KINDS = 5
_DOWN = 1 - 1e-6


@dataclass(frozen=True)
class RunPart:
    """The statement of a run by the given schedule, and what it means beside the posterior's verdict.

    Attributes:
        statement: the run's statement; ``None`` for an average, whose noise decides.
        meets: whether it certifies the target.
        text: what that means beside the posterior's verdict.
        distance: the total variation that the law of the run keeps from the posterior for one of two
            adjacent data sets, where a refuted posterior and a private run make one necessary.
        interim: an ε at which a released state of this run is provably not (ε, δ)-DP, whatever the posterior
            is; ``None`` where the laws of its states are not known.
        refuted: whether ``interim`` is above the target's ε: the run is provably not private.
        by_steps: ``(steps, ε of the path, ε of the last state)`` for several lengths of the run.
    """

    statement: Statement | None
    meets: bool
    text: str
    distance: float | None = None
    interim: float | None = None
    by_steps: tuple[tuple[int, float, float], ...] = ()
    refuted: bool = False


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

    Without clipping the states are Gaussian, with moments by recursion; clipping changes a law by no more
    than the probability that it ever binds. Far from convergence the laws may lie much further apart than
    the posteriors.

    Source: Heller, Fetaya 2023, Section IV; here for any extremes, with exact Gaussian divergences.
    """
    facts, batch = normal_facts(row_model), schedule.batch
    if facts is None or isinstance(schedule.release, Average) or target.adjacency == "add_remove":
        return None
    known = batch is None or (batch.scheme == "cyclic" and schedule.num_rows % (batch.size or 1) == 0)
    free = math.isinf(schedule.diameter) and schedule.box is None
    plain = schedule.noise is None and schedule.preconditioner is None
    if not (known and free and plain and schedule.num_steps <= _MOST_STEPS):
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
    clipped = 0.0
    for pull in {common, odd}:
        # Σ_k P(|slope·θ_k + constant| > clip)
        middle = pull.slope * before[0] + pull.constant
        spread = np.maximum(abs(pull.slope) * before[1], 1e-300)
        with np.errstate(over="ignore"):
            ends = (-schedule.clip - middle) / spread, (middle - schedule.clip) / spread
            clipped += float(np.sum(np.exp(log_ndtr(ends))))
    return States(np.array(means), np.array(variances), clipped)


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


def run_part(
    row_model: RowModel,
    schedule: Schedule,
    target: Target,
    verdict: VerdictWord,
    refutation: Refutation | None,
    subject: Subject,
    unclipped: Statement | None = None,
) -> RunPart:
    """The run's own statement; a private posterior does not make a finite run private, nor the reverse.

    Source: Heller, Fetaya 2023 (a private posterior, a run that is not); Bertazzi, Johnston, Roberts,
    Durmus, Prop. 3.4 (the opposite case).
    """
    known = curvature(row_model, schedule)
    if isinstance(schedule.release, Average):
        moved = accounting.average_sensitivity(schedule, known)
        size = f"at most {at_most(moved)}·ℓ" if math.isfinite(moved) else "by an amount that is not bounded"
        text = f"an average of hidden states, moved by one row {size}: its noise decides its price"
        return RunPart(None, math.isfinite(moved), text)
    statement = accounting.langevin_statement(schedule, known)
    fine = meets(statement, target)
    distance = _distance(refutation, statement) if verdict == "not private" else None
    interim = interim_lower_bound(row_model.each or row_model, schedule, target)
    text = _words(statement, target, verdict, fine, subject)
    if unclipped is not None and not fine:
        text = "the posterior without clipping is private, " + text.replace(" either", "")
    if distance is not None:
        text += (
            f"; for one of two adjacent data sets its last state is more than {at_least(distance)} in total "
            "variation away from the posterior"
        )
    refuted = interim is not None and interim > target.epsilon
    if interim:
        shown = f"({at_least(interim)}, {at_least(target.delta)})-DP"
        text += (
            f"; on two explicit data sets a released state of it is provably not {shown}"
            if refuted
            else f"; no accountant could show it to be {shown}"
        )
    return RunPart(statement, fine, text, distance, interim, _by_steps(schedule, known, target), refuted)


def _words(statement: Statement, target: Target, verdict: VerdictWord, fine: bool, subject: Subject) -> str:
    price = f"ε = {at_most(statement.epsilon(target.delta))} at δ = {at_most(target.delta)}"
    if verdict == "private" and not fine:
        return f"posterior private, this run not: it costs {price} (a finite run is a mechanism of its own)"
    if not fine:
        return f"this run does not meet the target either: {price}"
    if verdict == "private":
        return f"posterior private, and so is this run: {price}"
    if subject == "no posterior":
        return f"this run is private: {price}; no posterior belongs to its clipped rows"
    known = "is not" if verdict == "not private" else "is not known to be"
    return f"this run is private ({price}), the posterior {known}"


def _by_steps(
    schedule: Schedule, known: accounting.Curvature, target: Target
) -> tuple[tuple[int, float, float], ...]:
    """``(steps, ε of the path, ε of the last state)`` for full-batch runs of several lengths."""
    if schedule.batch is not None or isinstance(schedule.step_size, tuple) or not target.delta > 0:
        return ()
    top = 2 * schedule.num_steps
    lengths = sorted({*(round(top ** (k / 14)) for k in range(15)), schedule.num_steps})
    found = []
    for steps in lengths:
        both = [replace(schedule, num_steps=steps, release=release) for release in ("path", "last")]
        path, last = (accounting.langevin_statement(one, known).epsilon(target.delta) for one in both)
        found.append((steps, path, last))
    return tuple(found)


def _distance(refutation: Refutation | None, statement: Statement) -> float | None:
    """``(δ − δ_n)e^{−ε}/(1 + e^{−ε})``, largest over ε for the refuting event; ``None`` if not positive."""
    if refutation is None or refutation.kind != "event":
        return None
    best = 0.0
    top = max(0.0, math.log(max(refutation.p_low, 1e-300) / refutation.q_high))
    for level in np.linspace(0.0, top, 41).tolist():
        posterior, run = refutation.p_low - math.exp(level) * refutation.q_high, statement.delta(level)
        if run < posterior:
            best = max(best, accounting.run_distance_at_least(level, posterior, run))
    return best * (1 - 1e-9) if best > 0 else None


def run_advice(row_model: RowModel, schedule: Schedule, target: Target) -> tuple[Advice, ...]:
    """Fewer steps, or the last state instead of the path, where that is what certifies the run."""
    if isinstance(schedule.release, Average):
        return ()
    known = curvature(row_model, schedule)

    def holds(candidate: Schedule) -> bool:
        return meets(accounting.langevin_statement(candidate, known), target)

    if holds(schedule):
        return ()
    found = []
    steps = _most_steps(schedule, holds)
    if steps:
        what = "last state" if schedule.release == "last" else "path"
        text = f"at most {steps:,} steps of size {number(schedule.step_sizes[0])} for the {what}"
        found.append(Advice("steps", steps, text, "run"))
    if schedule.release != "last" and schedule.num_chains >= 1:
        last = replace(schedule, release="last")
        if holds(last):
            found.append(Advice("release", None, "release the last state instead of the path", "run"))
        elif known.strong_convexity > 0:
            most = _most_steps(last, holds)
            if most > steps:
                text = f"release the last state instead of the path, {most:,} steps"
                found.append(Advice("release", most, text, "run"))
    return tuple(found)


def _most_steps(schedule: Schedule, holds: Callable[[Schedule], bool]) -> int:
    """Largest number of steps of the schedule's own step size that meets the target; 0 if none does."""
    if isinstance(schedule.step_size, tuple) or isinstance(schedule.release, tuple | Average):
        return 0
    if not holds(replace(schedule, num_steps=1)):
        return 0
    low, high = 1, schedule.num_steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(replace(schedule, num_steps=middle)) else (low, middle)
    return low


def time_budget(clip: float, temper: float, target: Target) -> float | None:
    """Langevin time ``γT`` that a path may last, ``m² = γTΔ²/2``, rounded down; ``None`` if there is none."""
    m = accounting.gdp.budget(target.epsilon, target.delta)
    moved = accounting.row_sensitivity(clip, temper, target.adjacency)
    if not (m > 0 and 0 < moved < math.inf):
        return None
    time = 2 * (m / moved) * (m / moved) * (1 - 1e-6)
    return rounded_down(time) if is_sayable(time) else None
