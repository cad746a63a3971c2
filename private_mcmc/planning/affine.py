"""The policy for rows that enter through one affine predictor.

Second moments, refined until no direction hides in the noise; short warm-up paths of large noisy Newton
steps, each followed by the curvature where it arrived; counts of rows by their influence in that metric; and
the run that they shape, which gets what is left of the budget.

A path of ``T`` steps of size ``γ`` costs what its time ``Tγ`` times the weight ``w`` of the likelihood costs,
in the metric ``(wH + K'')^{-1}``. A small budget therefore buys as many steps as a large one, of a flatter
posterior, whose mean score tells the mode as well as a long path of the posterior itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.errors import NotPrivate, NotYetSupported
from private_mcmc.model import Predictor, RowModel
from private_mcmc.planning.estimates import (
    LARGEST_MULTIPLE,
    USUAL_MULTIPLE,
    Estimate,
    calibrated_draws,
    first_estimate,
    inverse_of,
    next_estimate,
    query,
    query_share,
    root_of,
    score_average,
    settled_average,
)
from private_mcmc.planning.influence import (
    CELLS,
    LONGEST,
    SHORTEST,
    Bound,
    Influence,
    InfluenceCounts,
)
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
# Shares of the squared budget. Queries take what they need; what is not asked for is left to the run.
FIRST_SHARE, COUNTS_SHARE, WARM_UP_SHARE = 0.02, 0.01, 0.05
_MOST_ROUNDS = 4
# An estimate with less noise than this in its least certain direction is not refined.
_LITTLE_NOISE = 0.1
# Nor is one without much noise whose metric already left rows this share of the trace that they would have.
_SETTLED, _SETTLED_NOISE = 0.75, 0.5
# The warm-up clips at half a row's typical norm: bought time grows faster than speed falls.
_WARM_UP_CLIP, _WARM_UP_SPEED, _MOST_WARM_UP_STEPS = 0.5, 0.45, 30
_RUN_STEP = 0.5
_SKEWED = 0.13
# Of what slopes lose by a clip, so much may be on one side, even where the model says none is.
_ASYMMETRY = 0.1
# Draws are widened as if the curvature changed twice as unevenly: errors have heavier tails than estimates.
_CAUTION = 2.0


@dataclass(frozen=True)
class WarmUp:
    """How many paths, of how many steps of which size."""

    paths: int
    steps: int
    step: float


BOUNDED = WarmUp(paths=2, steps=6, step=0.7)
# The first metric is for the curvature at the start, which may be a fifth of that on the way.
UNBOUNDED = WarmUp(paths=3, steps=16, step=0.25)


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
        moments, warm_ups = _named(history, MOMENTS), _named(history, WARM_UP)
        curvatures = _named(history, CURVATURE)
        if not moments:
            return self._first_moments()
        estimate, settled = self._moments(moments)
        if not (settled or warm_ups):
            root = root_of(estimate.matrix + self._prior)
            return self._query(MOMENTS, partial(self.influence.design, root), estimate.trace_in(root))
        hessian = self._hessian(estimate, curvatures)
        centre = self._centre(estimate, warm_ups, curvatures)
        if len(curvatures) < len(warm_ups):
            root = root_of(hessian + self.precision)
            return self._query(CURVATURE, partial(self.influence.curvature, self.temper, centre, root))
        if len(warm_ups) < self._plan.paths:
            return self._warm_up(hessian, centre)
        root = root_of(hessian + self.precision)
        for bound in self.influence.bounds:
            if not _named(history, COUNTS[bound]):
                return self._count(centre, root, bound)
        if not _named(history, RUN):
            return self._run(hessian, centre, history)
        return None

    def _warm_up(self, hessian: Array, start: Array) -> PathStage:
        budget, bound, clip = math.sqrt(WARM_UP_SHARE) * self.budget, self.influence.bounds[0], _WARM_UP_CLIP
        plan = self._plan
        if bound == "clip" and not self.influence.symmetric:
            # Such a clip moves what the path converges to by about so much over the clip, and a wider one
            # adds noise in proportion.
            moves = _SKEWED * math.sqrt(self.num_rows)
            clip = max(clip, math.sqrt(moves / math.sqrt(2 / self._time_of(hessian, budget)(1.0))))
        time = self._time_of(hessian, budget)(clip)
        # Where more steps are to be had at weight 1, they start the next warm-up nearer to the mode.
        steps = min(max(int(time / plan.step), plan.steps), _MOST_WARM_UP_STEPS)
        weight = min(time / (steps * plan.step), 1.0)
        return self._path(WARM_UP, hessian, clip, bound, weight, budget, start, plan.step, steps)

    def _run(self, hessian: Array, centre: Array, history: History) -> PathStage:
        """The run at the bound and the clip with the smallest predicted error."""
        left = remaining(self.budget, history)
        time_of = self._time_of(hessian, left)
        distance = self._left_by_warm_up(history)
        counts = {bound: self._influence(history, bound) for bound in self.influence.bounds}
        clips = {bound: each.best_clip(time_of, distance) for bound, each in counts.items()}
        bound = min(
            counts, key=lambda bound: counts[bound].error(clips[bound], time_of(clips[bound]), distance)
        )
        bought = time_of(clips[bound])
        # At weight 1 where that fits; else of a flatter or a steeper posterior.
        time = min(max(bought, SHORTEST), LONGEST)
        num_steps = math.ceil(time / _RUN_STEP)
        return self._path(
            RUN, hessian, clips[bound], bound, bought / time, left, centre, time / num_steps, num_steps
        )

    def _left_by_warm_up(self, history: History) -> float:
        """About how many posterior sds from the mode the clip of the warm-up led, where clips lead astray."""
        stage = _named(history, WARM_UP)[-1].stage
        unbiased = self.influence.symmetric or "clip" not in self.influence.bounds
        if unbiased or not isinstance(stage, PathStage):
            return 0.0
        return self._influence(history, "clip").bias(self._clip_of(stage.schedule))

    def conclude(self, history: History) -> Conclusion:
        """The mode that the run's mean score implies, and the covariance of what is known of it."""
        estimate, _ = self._moments(_named(history, MOMENTS))
        hessian = self._hessian(estimate, _named(history, CURVATURE))
        run = _named(history, RUN)[0]
        schedule, states = _path_of(run)
        clip = self._clip_of(schedule)
        counts = self._influence(history, "clip" if _reading_of(run) is None else "weights")
        share = counts.curvature_share(clip)
        curvature = share * hessian
        average = settled_average(states, schedule, self.temper, self._prior_score, curvature)
        known = average.information(curvature)
        # The rows' own posterior knows the mode as well as the Hessian says; the releases know it less well.
        both = inverse_of(inverse_of(known) + inverse_of(hessian))
        precision = self.precision + both
        mode = average.root(curvature)
        mean = mode - inverse_of(precision) @ self._prior_score(mode)
        root = root_of(hessian + self.precision)
        inside = np.linalg.inv(root)
        # Newton's step is as uncertain as the share of the curvature that is not known.
        moved = math.sqrt(np.mean((inside @ (mode - average.centre)) ** 2))
        drift = moved * counts.curvature_uncertainty(clip, _CAUTION)
        bias = math.hypot(counts.bias(clip), drift)
        covariance = inverse_of(precision) + bias**2 * root @ root.T
        spread = inside @ (covariance - root @ root.T) @ inside.T
        monte_carlo = math.sqrt(max(float(np.trace(spread)) / self.dim - bias**2, 0.0))
        step = max(schedule.step_sizes)
        draws = calibrated_draws(states[1:], mean, covariance, share * schedule.total_time)
        return Conclusion(draws, Prediction(math.hypot(bias, monte_carlo), bias, monte_carlo, step / 4))

    @property
    def unit(self) -> float:
        """Of clips: the typical norm of a gradient, which is clipped before it is tempered."""
        return self.typical_norm / math.sqrt(self.temper)

    @property
    def _plan(self) -> WarmUp:
        return BOUNDED if self.predictor.family.curvature_bound < math.inf else UNBOUNDED

    @property
    def _prior(self) -> Array:
        return self.precision / (self.curvature_bound * self.temper)

    def _clip_of(self, schedule: Schedule) -> float:
        """In units of a row's typical norm in the posterior's metric."""
        return schedule.clip * math.sqrt(schedule.temper / self.temper) / self.unit

    @cached_property
    def _prior_at_zero(self) -> Array:
        with jax.enable_x64(True):
            return np.asarray(jax.jit(jax.grad(self.reading.neg_log_prior))(np.zeros(self.dim)))

    def _prior_score(self, theta: Array) -> Array:
        """``∇K``, which is affine."""
        return self._prior_at_zero + self.precision @ theta

    def _first_moments(self) -> MomentsStage:
        mechanism = plan_second_moments(
            math.sqrt(FIRST_SHARE) * self.budget,
            radius=self.predictor.radius,
            dim=self.dim,
            num_rows=self.num_rows,
            adjacency=self.adjacency,
        )
        return MomentsStage(MOMENTS, mechanism, self.predictor.design)

    def _moments(self, rounds: History) -> tuple[Estimate, bool]:
        """``XᵀX`` from the last round, each read in the metric of the one before, and whether it will do."""
        estimate, trace = first_estimate(_moments_of(rounds[0]), self._prior), 0.0
        for completed in rounds[1:]:
            root = root_of(estimate.matrix + self._prior)
            trace = estimate.trace_in(root)
            estimate = next_estimate(_moments_of(completed), root, 0.5)
        settled = trace > _SETTLED * self.dim and estimate.noise < _SETTLED_NOISE
        return estimate, settled or estimate.noise_share <= _LITTLE_NOISE or len(rounds) >= _MOST_ROUNDS

    def _hessian(self, moments: Estimate, rounds: History) -> Array:
        """Of the rows' losses, tempered: where the last warm-up ended, or bounded by second moments."""
        hessian: Array = self.temper * self.curvature_bound * moments.matrix
        for index, completed in enumerate(rounds):
            root = root_of(hessian + self.precision)
            # Rare rows with much curvature are cut by the ball: from one warm-up to the next no direction
            # loses more than half of it.
            released, least = _moments_of(completed), _SETTLED_NOISE
            hessian = next_estimate(released, root, least, exactly=index > 0).matrix
        return hessian

    def _centre(self, moments: Estimate, warm_ups: History, curvatures: History) -> Array:
        """Where the warm-ups led: the mode that the second half of the last one implies."""
        if not warm_ups:
            return np.asarray(-np.linalg.solve(self.precision, self._prior_at_zero))
        schedule, states = _path_of(warm_ups[-1])
        late = states[schedule.num_steps // 2 :]
        average = score_average(late, schedule, self.temper, self._prior_score)
        curvature = _WARM_UP_SPEED * self._hessian(moments, curvatures[: len(warm_ups) - 1])
        precision = self.precision + average.information(curvature)
        mode = average.root(curvature)
        return np.asarray(mode - inverse_of(precision) @ self._prior_score(mode))

    def _query(
        self, name: str, vector: Callable[[Row], jax.Array], trace: float | None = None
    ) -> MomentsStage:
        dim, n, adjacency = self.dim, self.num_rows, self.adjacency
        multiple = LARGEST_MULTIPLE if name == CURVATURE else USUAL_MULTIPLE
        share = query_share(self.budget, dim=dim, num_rows=n, adjacency=adjacency, multiple=multiple)
        gdp = math.sqrt(share) * self.budget
        mechanism = query(gdp, dim=dim, num_rows=n, adjacency=adjacency, trace=trace)
        return MomentsStage(name, mechanism, vector)

    def _count(self, centre: Array, root: Array, bound: Bound) -> CountsStage:
        """How many rows have how much influence at ``centre``, in units of their typical norm."""
        mechanism = plan_counts(math.sqrt(COUNTS_SHARE) * self.budget, cells=CELLS, adjacency=self.adjacency)
        return CountsStage(COUNTS[bound], mechanism, self.influence.cells(bound, centre, root / self.unit))

    def _influence(self, history: History, bound: Bound) -> InfluenceCounts:
        counts = _named(history, COUNTS[bound])[0].value
        if not isinstance(counts, Counts):
            raise TypeError("the rows are counted by their influence")
        if bound == "clip":
            skew = _ASYMMETRY if self.influence.symmetric else 1.0
            return InfluenceCounts(counts, self.num_rows, skew)
        both = "clip" in self.influence.bounds
        dispersion = self._influence(history, "clip").mean_square if both else 1.0
        return InfluenceCounts(counts, self.num_rows, 0.0, max(1.0, dispersion))

    def _schedule(
        self, hessian: Array, clip: float, weight: float, step_size: float, num_steps: int
    ) -> Schedule:
        metric = inverse_of(weight * hessian + self.precision)
        metric = (metric + metric.T) / 2
        return Schedule(
            adjacency=self.adjacency,
            num_rows=self.num_rows,
            dim=self.dim,
            step_size=step_size,
            num_steps=num_steps,
            clip=clip * self.unit / math.sqrt(weight),
            temper=self.temper * weight,
            preconditioner=tuple(tuple(row) for row in metric.tolist()),
            release="path",
        )

    def _time_of(self, hessian: Array, budget: float) -> Callable[[float], float]:
        """``clip ↦`` the time times weight that ``budget`` buys, whose root the price is proportional to."""
        unit = _price(self._schedule(hessian, 1.0, 1.0, 1.0, 1))
        return lambda clip: (budget / (unit * clip)) ** 2 * (1 - 1e-9)

    def _path(
        self,
        name: str,
        hessian: Array,
        clip: float,
        bound: Bound,
        weight: float,
        budget: float,
        start: Array,
        step: float,
        num_steps: int,
    ) -> PathStage:
        schedule = self._schedule(hessian, clip, weight, step, num_steps)
        # Allowances for rounding differ a little from metric to metric.
        over = _price(schedule) / budget
        if over > 1:
            schedule = replace(schedule, step_size=step / over**2 * (1 - 1e-9))
        if bound == "clip":
            return PathStage(name, schedule, start)
        root = root_of(weight * hessian + self.precision)
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


def _path_of(completed: CompletedStage) -> tuple[Schedule, Array]:
    """The schedule of a path, and its states with its start, ``(steps + 1, p)``."""
    if not isinstance(completed.stage, PathStage):
        raise TypeError(f"the stage {completed.stage.name!r} releases a path")
    return completed.stage.schedule, np.vstack([completed.stage.start, np.asarray(completed.value)])


def _reading_of(completed: CompletedStage) -> RowModel | None:
    return completed.stage.reading if isinstance(completed.stage, PathStage) else None


def _price(schedule: Schedule) -> float:
    return accounting.langevin_statement(schedule).gdp or math.inf
