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
from functools import lru_cache, partial

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.errors import NotPrivate, NotYetSupported
from private_mcmc.kernels.synthetic import Followed
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import outcome_columns
from private_mcmc.planning.affine_releases import (
    AFTERWARDS,
    COUNTS,
    CURVATURE,
    MOMENTS,
    MOST_ROUNDS,
    RUN,
    WARM_UP,
    WARM_UP_SPEED,
    Releases,
)
from private_mcmc.planning.estimates import (
    LARGEST_MULTIPLE,
    USUAL_MULTIPLE,
    Estimate,
    ScoreAverage,
    inverse_of,
    modes_apart,
    no_wider,
    normal_draws,
    query,
    query_share,
    root_of,
    settled_average,
)
from private_mcmc.planning.influence import (
    LONGEST,
    SHORTEST,
    Bound,
    Influence,
    counts_of_influence,
)
from private_mcmc.planning.outcomes import candidates
from private_mcmc.planning.prediction import Conclusion, Known, Prediction, noise_of, remaining
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Row,
    Stage,
    named,
    passes,
)
from private_mcmc.potential.potential import Potential
from private_mcmc.release import plan_second_moments
from private_mcmc.schedule import Schedule
from private_mcmc.target import Adjacency

# Shares of the squared budget. Queries take what they need; what is not asked for is left to the run.
FIRST_SHARE, WARM_UP_SHARE = 0.02, 0.05
# Of slopes few are long, and noise may pass for them: a clip too wide by it errs several times as much.
COUNTS_SHARE: Mapping[Bound, float] = {"weights": 0.01, "clip": 0.03}
# The warm-up clips at half a row's typical norm: bought time grows faster than speed falls.
_WARM_UP_CLIP, _MOST_WARM_UP_STEPS = 0.5, 30
_RUN_STEP, _SKEWED = 0.5, 0.13


# How many warm-ups, of how many steps of which size. Where curvature has no bound the first metric is for
# that at the start, which may be a fifth of that on the way.
_BOUNDED, _UNBOUNDED = (2, 6, 0.7), (3, 16, 0.25)
# Where passes are limited: of those that could be spared, for each; and how much longer steps are at most.
_SPARED, _LONGER = 0.2, 2.0


@dataclass(frozen=True, eq=False)
class AffinePolicy(Releases):
    """A policy for one affine predictor, of at most ``most_passes`` over the rows."""

    most_passes: float = math.inf

    @property
    def least_passes(self) -> int:
        """Which all stages take, were each as short as it can be."""
        number, fewest, _ = self._warm_ups
        queries = MOST_ROUNDS + number + len(self.influence.bounds) + 1
        return queries + number * fewest + math.ceil(SHORTEST / (_LONGER * _RUN_STEP))

    def next(self, history: History) -> Stage | None:
        """The next stage, from what was released so far."""
        moments, warm_ups = named(history, MOMENTS), named(history, WARM_UP)
        curvatures = named(history, CURVATURE)
        if not moments:
            return self._first_moments()
        estimate, settled = self.moments(moments)
        if not (settled or warm_ups):
            root = root_of(estimate.matrix + self._prior)
            return self._query(MOMENTS, partial(self.influence.design, root), estimate.trace_in(root))
        hessian = self.hessian(estimate, curvatures)
        centre = self.centre(estimate, warm_ups, curvatures)
        if len(curvatures) < len(warm_ups):
            root = root_of(self.balanced(estimate, hessian) + self.precision)
            return self._query(CURVATURE, partial(self.influence.curvature, self.temper, centre, root))
        if len(warm_ups) < self._warm_ups[0] and not self.settled(estimate, warm_ups, curvatures):
            return self._warm_up(hessian, centre)
        root = root_of(hessian + self.precision)
        for bound in self.influence.bounds:
            if not named(history, COUNTS[bound]):
                return self._count(centre, root, bound)
        run = named(history, RUN)
        if not run:
            return self._run(hessian, centre, history)
        return None if named(history, AFTERWARDS) else self._afterwards(estimate, hessian, run[0])

    def _afterwards(self, estimate: Estimate, hessian: Array, run: CompletedStage) -> MomentsStage:
        """The curvature where the run was: outcomes of rare levels level off between a warm-up and there."""
        states = run.states
        centre = states[len(states) // 2 :].mean(axis=0)
        root = root_of(self.balanced(estimate, hessian) + self.precision)
        return self._query(AFTERWARDS, partial(self.influence.curvature, self.temper, centre, root))

    def _warm_up(self, hessian: Array, start: Array) -> PathStage:
        budget, bound, clip = math.sqrt(WARM_UP_SHARE) * self.budget, self.influence.bounds[0], _WARM_UP_CLIP
        _, fewest, step = self._warm_ups
        if bound == "clip" and not self.influence.symmetric:
            # Such a clip moves what the path converges to by about so much over the clip, and a wider one
            # adds noise in proportion.
            moves = _SKEWED * math.sqrt(self.num_rows)
            clip = max(clip, math.sqrt(moves / math.sqrt(2 / self._time_of(hessian, budget)(1.0))))
        time = self._time_of(hessian, budget)(clip)
        # Where more steps are to be had at weight 1, they start the next warm-up nearer to the mode.
        most = min(_MOST_WARM_UP_STEPS, fewest + _SPARED * (self.most_passes - self.least_passes))
        usual = min(max(int(time / step), fewest), _MOST_WARM_UP_STEPS)
        steps = min(usual, int(most))
        step *= min(usual / steps, _LONGER)
        weight = min(time / (steps * step), usual / steps)
        return self._path(WARM_UP, hessian, clip, bound, weight, budget, start, step, steps)

    def _run(self, hessian: Array, centre: Array, history: History) -> PathStage:
        """The run at the bound and the clip with the smallest predicted error."""
        left = math.sqrt(
            max(remaining(self.budget, history) ** 2 - self._share(CURVATURE) * self.budget**2, 0)
        )
        left *= 1 - 1e-9
        time_of = self._time_of(hessian, left)
        distance = self._left_by_warm_up(history)
        counts = {bound: self.influence_on(history, bound) for bound in self.influence.bounds}
        clips = {bound: each.best_clip(time_of, distance) for bound, each in counts.items()}
        bound = min(
            counts, key=lambda bound: counts[bound].error(clips[bound], time_of(clips[bound]), distance)
        )
        bought = time_of(clips[bound])
        # At weight 1 where that fits; else of a flatter or a steeper posterior. One pass is for what follows.
        time, most = min(max(bought, SHORTEST), LONGEST), self.most_passes - passes(history) - 1
        num_steps = int(min(math.ceil(time / _RUN_STEP), most))
        time = min(time, _LONGER * _RUN_STEP * num_steps)
        return self._path(
            RUN, hessian, clips[bound], bound, bought / time, left, centre, time / num_steps, num_steps
        )

    def _left_by_warm_up(self, history: History) -> float:
        """About how many posterior sds from the mode the warm-up's clip led, where clips bias the mode."""
        if self.influence.symmetric or "clip" not in self.influence.bounds:
            return 0.0
        schedule = named(history, WARM_UP)[-1].path.schedule
        return self.influence_on(history, "clip").bias(self.clip_of(schedule))

    def conclude(self, history: History) -> Conclusion:
        """The mode that the run's mean score implies, and the covariance of what is known of it.

        Both are averages over the curvatures that the noise of their release allows: the released one alone
        is too large in some directions, where noise hides it in all. What is taken for information there
        would keep the mean from going as far as the score says, and make draws too narrow.
        """
        estimate, _ = self.moments(named(history, MOMENTS))
        rounds = (*named(history, CURVATURE), *named(history, AFTERWARDS))
        hessian, run = self.hessian(estimate, rounds), named(history, RUN)[0]
        schedule, states, clip = run.path.schedule, run.states, self.clip_of(run.path.schedule)
        counts = self.influence_on(history, "clip" if run.path.reading is None else "weights")
        share = counts.curvature_share(clip)
        average = settled_average(states, schedule, self.temper, self.prior_score(states), share * hessian)
        allowed = self.curvatures(estimate, rounds)
        located = [self._located(average, share * one, one) for one in allowed]
        covariances, means, modes = (np.stack(each) for each in zip(*located, strict=True))
        mean, exact = means.mean(axis=0), np.stack([inverse_of(one + self.precision) for one in allowed])
        insides = np.linalg.inv(np.linalg.cholesky(exact))
        # Newton's step is as uncertain as the share of the curvature that is not known: half of that along
        # itself, half in all directions.
        steps = modes - average.centre
        moved = math.sqrt(float(np.mean(np.square(np.einsum("kij,kj->ki", insides, steps)))))
        half = (
            counts.curvature_uncertainty(clip, _CAUTION)
            * min(1.0, _FARTHEST / max(moved, 1e-9))
            / math.sqrt(2.0)
        )
        bias, known = math.hypot(counts.bias(clip), half * moved), exact.mean(axis=0)
        covariance = covariances.mean(axis=0) + (means - mean).T @ (means - mean) / len(means)
        covariance = covariance + half**2 * steps.T @ steps / len(steps)
        shift = self._shift(history, average, hessian, share)
        covariance = covariance + np.outer(shift, shift)
        covariance = no_wider(covariance + bias**2 * known, self.precision, self.prior_score(mean))
        draws = normal_draws(mean, covariance)
        inside, step = np.linalg.inv(np.linalg.cholesky(known)), max(schedule.step_sizes)
        excess = float(np.trace(inside @ covariance @ inside.T)) / self.dim - 1
        monte_carlo = math.sqrt(max(excess - bias**2, 0.0))
        rms = math.hypot(bias, monte_carlo)
        predicted, known = Prediction(rms, bias, monte_carlo, step / 4), np.stack(allowed) / self.temper
        return Conclusion(draws, predicted, located=self.temper == 1, curvatures=known)

    def known(self, history: History, run: PathStage) -> Known:
        """What tells the error of ``run``, bought after ``history``."""
        estimate, _ = self.moments(named(history, MOMENTS))
        rounds, clip = named(history, CURVATURE), self.clip_of(run.schedule)
        counts = self.influence_on(history, "clip" if run.reading is None else "weights")
        return Known(
            self.centre(estimate, named(history, WARM_UP), rounds),
            self.precision,
            np.stack(self.curvatures(estimate, rounds)),
            counts.curvature_share(clip),
            counts.bias(clip),
            noise_of(run, self.temper),
        )

    def followed(self, stage: PathStage) -> Followed:
        """The model, or that of weighted slopes."""
        return _constant(stage.reading or self.reading)

    def _shift(self, history: History, average: ScoreAverage, hessian: Array, share: float) -> Array:
        """How far the implied mode moved from the last warm-up to the run, beyond noise, ``(p,)``.

        Where the model is right its mode is the same whatever the weights of rows, and a straight line from
        either path leads to it. The warm-up gives rows of influence about half the weight that the run gives
        them, so that where modes differ the one without weights may be as far away again; as it is where
        outcomes are nearly separated, whose mode is the further away the closer one gets.
        """
        estimate, _ = self.moments(named(history, MOMENTS))
        _, late = self._halves(named(history, WARM_UP)[-1])
        before = WARM_UP_SPEED * self.hessian(estimate, named(history, CURVATURE))
        moved = modes_apart(late, before, average, share * hessian)
        both = inverse_of(inverse_of(average.information(share * hessian)) + inverse_of(hessian))
        return np.asarray(inverse_of(self.precision + both) @ both @ moved)

    def _located(self, average: ScoreAverage, curvature: Array, hessian: Array) -> tuple[Array, Array, Array]:
        """Covariance and mean of the parameter by the score's mean, and the mode that it implies.

        The rows' own posterior knows the mode as well as the Hessian says; the releases know it less well.
        """
        both = inverse_of(inverse_of(average.information(curvature)) + inverse_of(hessian))
        covariance, mode = inverse_of(self.precision + both), average.root(curvature)
        return covariance, mode - covariance @ self.prior_score(mode), mode

    @property
    def _warm_ups(self) -> tuple[int, int, float]:
        return _BOUNDED if self.predictor.family.curvature_bound < math.inf else _UNBOUNDED

    def _first_moments(self) -> MomentsStage:
        mechanism = plan_second_moments(
            math.sqrt(FIRST_SHARE) * self.budget,
            radius=self.predictor.radius,
            dim=self.dim,
            num_rows=self.num_rows,
            adjacency=self.adjacency,
        )
        return MomentsStage(MOMENTS, mechanism, self.predictor.design)

    def _query(
        self, name: str, vector: Callable[[Row], jax.Array], trace: float | None = None
    ) -> MomentsStage:
        dim, n, adjacency = self.dim, self.num_rows, self.adjacency
        gdp = math.sqrt(self._share(name)) * self.budget
        mechanism = query(gdp, dim=dim, num_rows=n, adjacency=adjacency, trace=trace)
        return MomentsStage(name, mechanism, vector)

    def _share(self, name: str) -> float:
        """Of the squared budget, for a query."""
        multiple = USUAL_MULTIPLE if name == MOMENTS else LARGEST_MULTIPLE
        dim, n, adjacency = self.dim, self.num_rows, self.adjacency
        return query_share(self.budget, dim=dim, num_rows=n, adjacency=adjacency, multiple=multiple)

    def _count(self, centre: Array, root: Array, bound: Bound) -> CountsStage:
        """How many rows have how much influence at ``centre``, in units of their typical norm."""
        budget = math.sqrt(COUNTS_SHARE[bound]) * self.budget
        mechanism = counts_of_influence(budget, self.num_rows, self.adjacency)
        return CountsStage(COUNTS[bound], mechanism, self.influence.cells(bound, centre, root / self.unit))

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
            derived=partial(self.influence.slope_cap, root, schedule.clip),
        )


def affine_policy(reading: RowModel, n: int, adjacency: Adjacency, budget: float) -> AffinePolicy:
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
    names = outcome_columns(reading)
    if len(names) != 1 or not all(map(np.all, map(np.isfinite, reading.rows.columns[names[0]].interval()))):
        raise NotYetSupported(f"plans need an outcome of one bounded number; the model observes {names}.")
    outcomes = {name: np.asarray(each) for name, each in candidates(reading.rows, names).items()}
    influence = Influence(reading, predictor, outcomes)
    return AffinePolicy(reading, predictor, influence, precision, n, adjacency, budget, 1.0)


@lru_cache(maxsize=8)
def _constant(reading: Potential) -> Followed:
    return lambda root, clip: reading


def _price(schedule: Schedule) -> float:
    return accounting.langevin_statement(schedule).gdp or math.inf


# Draws are widened as if the curvature changed twice as unevenly: errors have heavier tails than estimates.
_CAUTION = 2.0
# Newton's step counts as no longer than this, in sds, for what it adds to the width.
_FARTHEST = 3.0
