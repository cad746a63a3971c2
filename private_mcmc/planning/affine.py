"""The policy for rows that enter through one affine predictor.

Second moments, refined until no direction hides in the noise; a warm-up in their metric, in segments, until
it stops moving; the curvature where it arrived; counts of rows by their influence in its metric; and the run
that they shape, which gets what is left of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.errors import NotPrivate, NotYetSupported
from private_mcmc.model import Predictor, RowModel
from private_mcmc.planning.estimates import (
    Estimate,
    calibrated_draws,
    drift_corrected_mean,
    first_estimate,
    next_estimate,
    query,
    root_of,
    without_inflation,
)
from private_mcmc.planning.influence import CELLS, Bound, Influence, InfluenceCounts, cell_of
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    Conclusion,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Prediction,
    Row,
    Stage,
    remaining,
)
from private_mcmc.planning.synthetic import possible_outcomes
from private_mcmc.release import Counts, SecondMoments, plan_counts, plan_second_moments
from private_mcmc.schedule import Schedule
from private_mcmc.target import Adjacency

MOMENTS, WARM_UP, CURVATURE, RUN = "second moments", "warm-up", "curvature", "run"
COUNTS: Mapping[Bound, str] = {"weights": "influence of rows", "clip": "influence of slopes"}
# Shares of the squared budget. What is not asked for is left to the run.
FIRST_SHARE, REFINING_SHARE, COUNTS_SHARE = 0.02, 0.03, 0.01
SEGMENT_SHARE, WARM_UP_SHARE = 0.0875, 0.35
_MOST_ROUNDS = 3
# An estimate with less noise than this in its least certain direction is not refined.
_LITTLE_NOISE = 0.1
# The warm-up clips at half a row's typical norm: bought time grows faster than speed falls.
_WARM_UP_CLIP = 0.5
_SEGMENT_TIME, _WARM_UP_STEP, _RUN_STEP = 15.0, 0.3, 0.1
_FEWEST_STEPS, MOST_STEPS = 20, 6000
# A longer run has steps beyond 0.5: unstable where curvature is underestimated fourfold.
_LONGEST = 0.5 * MOST_STEPS
_BURN_IN = 0.15
# Draws are widened as if the curvature changed twice as unevenly: errors have heavier tails than estimates.
_CAUTION = 2.0


@dataclass(frozen=True, eq=False)
class AffinePolicy:
    """A policy for one affine predictor.

    Attributes:
        reading: the model as it was read.
        predictor: its one predictor, of bounded design.
        influence: of rows on the gradient, and how it may be bounded.
        precision: the prior's, shape ``(p, p)``.
        num_rows: ``n`` or its public bound.
        budget: of all stages, in Gaussian DP.
        temper: weight of the likelihood.
    """

    reading: RowModel
    predictor: Predictor
    influence: Influence
    precision: Array
    num_rows: int
    adjacency: Adjacency
    budget: float
    temper: float = 1.0

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.reading.dim

    @property
    def typical_norm(self) -> float:
        """``√(p/n)``: root mean square norm of a row's gradient at the mode, in the posterior's metric."""
        return math.sqrt(self.dim / self.num_rows)

    @property
    def curvature_bound(self) -> float:
        """Largest curvature of a row's loss in its predictor, or 1 where it has no bound."""
        bound = self.predictor.family.curvature_bound
        return bound if 0 < bound < math.inf else 1.0

    def next(self, history: History) -> Stage | None:
        """The next stage, from what was released so far."""
        moments, warm_up = _named(history, MOMENTS), _named(history, WARM_UP)
        curvature = _named(history, CURVATURE)
        if not moments:
            return self._first_moments()
        before = self._moments(moments)
        if len(moments) < _MOST_ROUNDS and before.noise_share > _LITTLE_NOISE and not warm_up:
            root = root_of(before.matrix + self._prior)
            return self._query(MOMENTS, partial(self.influence.design, root))
        if not self._arrived(warm_up):
            return self._segment(self._root(before), warm_up)
        centre = _late_mean(warm_up[-1])
        root = self._hessian_root(before, curvature)
        if len(curvature) < self._curvature_rounds:
            return self._query(CURVATURE, partial(self.influence.curvature, self.temper, centre, root))
        for bound in self.influence.bounds:
            if not _named(history, COUNTS[bound]):
                return self._count(centre, root, bound)
        if not _named(history, RUN):
            return self._run(root, centre, history)
        return None

    def _segment(self, root: Array, before: History) -> PathStage:
        """The warm-up's next one, from where the last one ended."""
        start = np.asarray(before[-1].value)[-1] if before else np.zeros(self.dim)
        budget, bound, clip = math.sqrt(SEGMENT_SHARE) * self.budget, self.influence.bounds[0], _WARM_UP_CLIP
        if bound == "clip" and not self.influence.symmetric:
            # Such a clip moves what the path converges to: what no segment can use buys a wider one.
            clip = max(clip, math.sqrt(self._time_of(root, budget)(1.0) / _SEGMENT_TIME))
        return self._path(WARM_UP, root, clip, bound, budget, start, _WARM_UP_STEP, _SEGMENT_TIME)

    def _run(self, root: Array, centre: Array, history: History) -> PathStage:
        """The run at the bound and the clip with the smallest predicted error."""
        left = remaining(self.budget, history)
        completed = self._time_of(root, left)

        def time(clip: float) -> float:
            return min(completed(clip), _LONGEST)

        distance = self._left_by_warm_up(history)
        counts = {bound: self._influence(history, bound) for bound in self.influence.bounds}
        clips = {bound: each.best_clip(time, distance) for bound, each in counts.items()}
        bound = min(counts, key=lambda bound: counts[bound].error(clips[bound], time(clips[bound]), distance))
        # What no step can use buys a wider clip.
        clip = clips[bound] * max(1.0, math.sqrt(completed(clips[bound]) / _LONGEST))
        return self._path(RUN, root, clip, bound, left, centre, _RUN_STEP, math.inf)

    def _left_by_warm_up(self, history: History) -> float:
        """About how many posterior sds from the mode the clip of the warm-up led, where clips lead astray."""
        stage = _named(history, WARM_UP)[-1].stage
        unbiased = self.influence.symmetric or "clip" not in self.influence.bounds
        if unbiased or not isinstance(stage, PathStage):
            return 0.0
        return self._influence(history, "clip").bias(stage.schedule.clip / self.unit)

    def conclude(self, history: History) -> Conclusion:
        """Drift-corrected mean; the curvature's inverse, widened by what is not known, as covariance."""
        before = self._moments(_named(history, MOMENTS))
        root = self._hessian_root(before, _named(history, CURVATURE))
        run = _named(history, RUN)[0]
        if not isinstance(run.stage, PathStage):
            raise TypeError("the last stage is a path")
        schedule = run.stage.schedule
        clip = schedule.clip / self.unit
        counts = self._influence(history, "clip" if run.stage.reading is None else "weights")
        curvature = counts.curvature_share(clip)
        states = np.linalg.solve(root, np.vstack([run.stage.start, np.asarray(run.value)]).T).T
        burn = int(_BURN_IN * schedule.num_steps)
        step = max(schedule.step_sizes)
        time = step * (schedule.num_steps - burn)
        mean = drift_corrected_mean(states[burn:], step, curvature * np.eye(self.dim))
        # The correction is as uncertain as the share of the curvature that is not known.
        corrected = mean - states[burn:-1].mean(axis=0)
        drift = math.sqrt(np.mean(corrected**2)) * counts.curvature_uncertainty(clip, _CAUTION)
        monte_carlo, bias = math.sqrt(2 / time) / curvature, math.hypot(counts.bias(clip), drift)
        spread = np.eye(self.dim) * (1 + monte_carlo**2 + bias**2)
        draws = calibrated_draws(states[burn + 1 :], mean, spread, curvature * time) @ root.T
        return Conclusion(draws, Prediction(math.hypot(bias, monte_carlo), bias, monte_carlo, step / 4))

    @property
    def unit(self) -> float:
        """Of clips: the typical norm of a gradient, which is clipped before it is tempered."""
        return self.typical_norm / math.sqrt(self.temper)

    @property
    def _prior(self) -> Array:
        return self.precision / (self.curvature_bound * self.temper)

    @property
    def _curvature_rounds(self) -> int:
        return 1 if self.predictor.family.curvature_bound < math.inf else 2

    def _first_moments(self) -> MomentsStage:
        mechanism = plan_second_moments(
            math.sqrt(FIRST_SHARE) * self.budget,
            radius=self.predictor.radius,
            dim=self.dim,
            num_rows=self.num_rows,
            adjacency=self.adjacency,
        )
        return MomentsStage(MOMENTS, mechanism, self.predictor.design)

    def _moments(self, rounds: History) -> Estimate:
        """``XᵀX`` from all rounds so far, each read in the metric of the one before."""
        estimate = first_estimate(_moments_of(rounds[0]), self._prior)
        for completed in rounds[1:]:
            estimate = next_estimate(_moments_of(completed), root_of(estimate.matrix + self._prior), 0.5)
        return estimate

    def _root(self, moments: Estimate) -> Array:
        return root_of(self.temper * self.curvature_bound * moments.matrix + self.precision)

    def _hessian_root(self, moments: Estimate, rounds: History) -> Array:
        """The root of the inverse Hessian at the warm-up's end, from all rounds so far."""
        root = self._root(moments)
        for completed in rounds:
            released = _moments_of(completed)
            hessian = next_estimate(released, root, 0.05).matrix
            seen = root.T @ (hessian + self.precision) @ root
            back = np.linalg.inv(root)
            root = root_of(back.T @ without_inflation(seen, released.noise_sd) @ back)
        return root

    def _query(self, name: str, vector: Callable[[Row], jax.Array]) -> MomentsStage:
        mechanism = query(
            math.sqrt(REFINING_SHARE) * self.budget,
            dim=self.dim,
            num_rows=self.num_rows,
            adjacency=self.adjacency,
        )
        return MomentsStage(name, mechanism, vector)

    def _count(self, centre: Array, root: Array, bound: Bound) -> CountsStage:
        """How many rows have how much influence at ``centre``, in units of their typical norm."""
        mechanism = plan_counts(math.sqrt(COUNTS_SHARE) * self.budget, cells=CELLS, adjacency=self.adjacency)
        size = partial(self.influence.size, bound, centre, root)
        return CountsStage(COUNTS[bound], mechanism, lambda row: cell_of(size(row) / self.unit))

    def _influence(self, history: History, bound: Bound) -> InfluenceCounts:
        counts = _named(history, COUNTS[bound])[0].value
        if not isinstance(counts, Counts):
            raise TypeError("the rows are counted by their influence")
        if bound == "clip":
            return InfluenceCounts(counts, self.num_rows, self.influence.symmetric)
        both = "clip" in self.influence.bounds
        dispersion = self._influence(history, "clip").mean_square if both else 1.0
        return InfluenceCounts(counts, self.num_rows, True, max(1.0, dispersion))

    def _arrived(self, segments: History) -> bool:
        """The last segment moved less than twice the chain's own spread, or nothing is left for another."""
        cost = sum((completed.stage.statement.gdp or math.inf) ** 2 for completed in segments)
        if cost + SEGMENT_SHARE * self.budget**2 > WARM_UP_SHARE * self.budget**2 * (1 + 1e-6):
            return True
        if len(segments) < 2:
            return False
        earlier, later = (np.asarray(completed.value) for completed in segments[-2:])
        moved = later.mean(axis=0) - earlier.mean(axis=0)
        spread = np.cov(later.T).reshape(self.dim, self.dim)
        # Means over a few relaxation times are themselves about a spread apart.
        return bool(moved @ np.linalg.pinv(spread) @ moved <= 4 * self.dim)

    def _schedule(self, root: Array, clip: float, step_size: float, num_steps: int) -> Schedule:
        metric = root @ root.T
        metric = (metric + metric.T) / 2
        return Schedule(
            adjacency=self.adjacency,
            num_rows=self.num_rows,
            dim=self.dim,
            step_size=step_size,
            num_steps=num_steps,
            clip=clip * self.unit,
            temper=self.temper,
            preconditioner=tuple(tuple(row) for row in metric.tolist()),
            release="path",
        )

    def _time_of(self, root: Array, budget: float) -> Callable[[float], float]:
        """``clip ↦`` the Langevin time that ``budget`` buys: a path's squared price is proportional to it."""
        unit = accounting.langevin_statement(self._schedule(root, 1.0, 1.0, 1)).gdp or math.inf
        return lambda clip: (budget / (unit * clip)) ** 2 * (1 - 1e-9)

    def _path(
        self,
        name: str,
        root: Array,
        clip: float,
        bound: Bound,
        budget: float,
        start: Array,
        step: float,
        longest: float,
    ) -> PathStage:
        time = min(self._time_of(root, budget)(clip), longest)
        num_steps = min(max(math.ceil(time / step), _FEWEST_STEPS), MOST_STEPS)
        schedule = self._schedule(root, clip, time / num_steps, num_steps)
        if bound == "clip":
            return PathStage(name, schedule, start)
        return PathStage(
            name,
            schedule,
            start,
            reading=self.influence.weighted,
            derived=self.influence.slope_cap(root, schedule.clip),
        )


def affine_policy(
    reading: RowModel, n: int, adjacency: Adjacency, budget: float, temper: float = 1.0
) -> AffinePolicy:
    """The policy for a model that has one.

    Raises:
        NotYetSupported: for several predictors, or a prior without a constant precision.
        NotPrivate: for unbounded designs.
    """
    predictor, hessian = reading.predictor, reading.prior.hessian
    if predictor is None:
        raise NotYetSupported("this policy is for models whose rows enter through one affine predictor.")
    if not predictor.radius < math.inf:
        raise NotPrivate(
            "the rows' design vectors are unbounded: declare Ball(radius, dim) or Box(lo, hi) for the "
            "covariates."
        )
    if hessian is None or not reading.prior.strong_convexity > 0:
        raise NotYetSupported("plans need a Normal prior so far (a constant, positive prior precision).")
    precision = np.asarray(hessian, dtype=np.float64)
    precision = np.diag(precision) if precision.ndim == 1 else precision
    influence = Influence(reading, predictor, possible_outcomes(reading))
    return AffinePolicy(reading, predictor, influence, precision, n, adjacency, budget, temper)


def _named(history: History, name: str) -> History:
    return tuple(completed for completed in history if completed.stage.name == name)


def _moments_of(completed: CompletedStage) -> SecondMoments:
    if not isinstance(completed.value, SecondMoments):
        raise TypeError(f"the stage {completed.stage.name!r} releases second moments")
    return completed.value


def _late_mean(path: CompletedStage) -> Array:
    states = np.asarray(path.value, dtype=np.float64)
    mean: Array = states[len(states) // 2 :].mean(axis=0)
    return mean
