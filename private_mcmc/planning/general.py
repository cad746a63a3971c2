"""The policy for any model that can be read: a warm-up, information where it ended, then the run.

Stages: (1) the rows' expected information at public draws of the prior, (2) a short path, (3) the expected
information at its late states, and both again where the first metric was wrong or the path still travels,
(4) how far rows reach there, (5) the path that counts, from there, in that metric, with a clip for that
reach, and (6) the information where it was: outcomes of rare levels level off on the way. Information is
averaged over several parameters, so that a direction is given no more room than it has at any of them. It
is ``Σ_i E_y[∇v ∇vᵀ]`` over the model's own outcomes given row ``i``'s covariates: a sum of bounded matrices,
bought by the Gaussian mechanism. A row of few outcomes is weighted so that none needs to be clipped; of one
whose outcome's law is known the gradient is clipped around a centre, so that its mean is the score's under
the model (:meth:`Likelihood.centre`). Privacy is by composition alone: no convexity, no smoothness is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from private_mcmc import accounting
from private_mcmc.kernels.synthetic import Followed
from private_mcmc.planning.estimates import (
    allowed_by_noise,
    inverse_of,
    metric_of,
    shrunk,
    spectral_norm,
    too_noisy,
)
from private_mcmc.planning.facts import LARGEST_MULTIPLE, REFERENCES, Facts, Metric, flattened, next_metric
from private_mcmc.planning.influence import (
    CLIPS,
    REACH,
    Reach,
    centred_model,
    counts_plan,
    counts_reach,
    public_counts,
    reach_of,
    reach_share,
    typical_length,
    weighted_model,
    weighted_slopes,
)
from private_mcmc.planning.outcomes import Likelihood
from private_mcmc.planning.prediction import Conclusion, Known, Prediction, remaining, widened
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    History,
    PathStage,
    QueryStage,
    Stage,
    named,
    passes,
)
from private_mcmc.potential.potential import Potential
from private_mcmc.release import SecondMomentsPlan
from private_mcmc.schedule import Schedule

FIRST, WARM_UP, SECOND, RUN = "information at the prior", "warm-up", "information at the warm-up", "run"
AFTERWARDS = "information at the run"
# Of the squared budget, for each: with a quarter errors were as large or larger in all of ten cells.
WARM_UP_SHARE, _WARM_UPS, _QUERIES = 0.1, 2, 8
# Another one follows where the first one's metric was made for less or more information than is there, and a
# third where the second half's way is twice as far as noise goes: effects with their scale are slow to find.
_SAME_LEVEL, _TRAVELS = (0.4, 2.5), 4.0
# Rounds of information at one place, while the metric was wrong or less noise than this hides a direction.
_MOST_ROUNDS, _LITTLE_NOISE = 3, 0.7
# Clips over the root mean square of rows' gradients, where no counts say how far these reach, and what such
# a clip adds to errors, in posterior sds. Steps where curvature is 1 inflate an sd by a quarter of them.
_MULTIPLE, _UNSEEN, _STEP = 2.0, 0.2, 0.25
# Of weights, which move nothing, where no counts say it: the clip and the share of curvature that it keeps.
_UNCOUNTED = 1.2, 0.7
# A warm-up ends no more sds away than this, were it off by more its end is where it was in another metric.
_MOST_OFF = 5.0
# Persons whose sums are so much longer than the model says have rows that are more alike than it says.
_LONGER = 1.5

# Where the prior alone has more curvature than the metric's 1, as in a funnel, the step is shorter.
_STIFFEST = 0.4
# The warm-up's metric is a guess: its steps are shorter by this factor.
_CAREFUL = 0.5
# It lasts so many steps, of a likelihood as flat as that needs: a flat one is reached from afar.
_WARM_UP_STEPS = 64
# That of persons clips no tighter than leaves it so many sds off, up to this multiple: where their sums are
# longer than the model says, a tight clip leads far away.
_WARM_UP_OFF, _WARM_UP_CLIP = 3.0, 10.0
# Of weighted rows, and the longest time that it buys of the likelihood itself.
_WARM_UP_WEIGHTED, _ENOUGH_WARM_UP = 0.5, 20.0
# Its draws are as wide as if errors were so much larger: short intervals are worse than long ones.
_CAUTION = 1.2
# A run lasts so long at least.
_SHORTEST = 10.0
# More steps than this make draws more numerous, not better.
_FEWEST_STEPS, MOST_STEPS = 40, 800
# Where passes are limited a warm-up has a quarter of them, at least so many, of steps of this size at most.
_LEAST_WARM_UP, _LONGEST_STEP = 6, 0.7


@dataclass(frozen=True, eq=False)
class Policy:
    """Which stages to buy, as a function of what was released so far and of nothing else."""

    facts: Facts
    most_passes: float = math.inf

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the prediction takes for granted of persons' rows, in words."""
        unit = self.facts.reading.unit
        if unit is None or self.facts.reading.own is not None:
            return ()
        follow = (
            "the run counts how far persons' sums reach, and unless noise hides these counts it clips and "
            "widens its draws by what they say"
            if counts_plan(self.facts) is not None
            else "these are too few persons to count how far sums reach, and intervals are too narrow then"
        )
        return (
            f"The prediction takes rows of one {unit.name!r} for independent, given the columns, and "
            "outcomes to vary no more than the model says. Where they are more alike or vary more, errors "
            f"are larger: {follow}. A latent for each person, or a family that varies more, is the remedy.",
        )

    @property
    def _affine(self) -> bool:
        # With a short warm-up a network's draws were 4 sds off.
        return self.facts.likelihood.few and self.facts.reading.predictor is not None

    @property
    def least_passes(self) -> int:
        """Of two warm-ups, a run as long as both, and queries."""
        return 2 * _WARM_UPS * _LEAST_WARM_UP + _QUERIES

    def _most_steps(self, history: History | None = None) -> int:
        """Of each warm-up, or of the run after ``history``; after one warm-up and three queries if empty."""
        warm_up = min(MOST_STEPS, (self.most_passes - _QUERIES) / (2 * _WARM_UPS))
        if history is None:
            return int(warm_up)
        before = passes(history) if named(history, WARM_UP) else warm_up + 3
        return int(min(MOST_STEPS, self.most_passes - before - 1))

    def next(self, history: History) -> Stage | None:
        """Information, warm-up, information, run; a query that its noise would hide is left out."""
        facts, warm_ups, rounds = self.facts, named(history, WARM_UP), named(history, SECOND)
        metric = self._metric(history)
        if not warm_ups:
            first, known = facts.query(metric), named(history, FIRST)
            again = not known or (len(known) < _MOST_ROUNDS and too_noisy(known[-1].moments))
            if first is not None and again:
                return self._query(FIRST, first, facts.references, metric)
            return self._warm_up(metric, facts.prior.shrunk(0, 0.1))
        query = facts.query(metric, LARGEST_MULTIPLE)
        if run := named(history, RUN):
            if query is None or named(history, AFTERWARDS):
                return None
            return self._query(AFTERWARDS, query, late_states(run[0], facts.prior.centre), metric)
        late = late_states(warm_ups[-1], facts.prior.centre)
        if len(rounds) < len(warm_ups) and query is not None:
            return self._query(SECOND, query, late, metric)
        mean = warm_ups[-1].states[1:][warm_ups[-1].path.schedule.num_steps // 2 :].mean(axis=0)
        start = mean if np.all(np.isfinite(mean)) else late[-1]
        wrong = len(warm_ups) < _WARM_UPS and rounds and not self._right(rounds[0], history)
        if wrong or (len(warm_ups) == _WARM_UPS and _travels(warm_ups[-1])):
            return self._warm_up(metric, start)
        if query is not None and len(rounds) < _MOST_ROUNDS and self._hidden(rounds[-1], history):
            return self._query(SECOND, query, late, metric)
        reach = counts_reach(facts, start, metric)
        if not named(history, REACH) and reach is not None:
            return reach
        left = remaining(facts.budget, history) ** 2
        left -= 0.0 if query is None else (query.statement.gdp or 0.0) ** 2
        return self._run(metric, start, history, math.sqrt(max(left, 0.0)) * (1 - 1e-9))

    def _right(self, found: CompletedStage, history: History) -> bool:
        """Whether curvature was found to be about what the metric that it was bought in was made for."""
        values, (least, most) = self._levels(found, shrunk(found.moments), history), _SAME_LEVEL
        return bool(least <= values[0] and values[-1] <= most)

    def _hidden(self, found: CompletedStage, history: History) -> bool:
        """Whether noise hides a direction that another round, in a metric of more room for it, may show."""
        noise = spectral_norm(found.moments.noise_sd, self.facts.reading.dim)
        values = self._levels(found, found.moments.matrix, history)
        return bool(values[0] < noise < _LITTLE_NOISE)

    def _levels(self, found: CompletedStage, matrix: Array, history: History) -> Array:
        """Of what was found, with the prior's curvature, over what was known."""
        root = self._metric(history[: history.index(found)]).root
        return np.asarray(np.linalg.eigvalsh(matrix + root.T @ (root * self.facts.prior.precision[:, None])))

    def conclude(self, history: History) -> Conclusion:
        """The run after its burn-in, as much wider as its mean is expected to be off."""
        run = named(history, RUN)[0]
        expected, reach = self._expected(history, run.path), self._reach(history)
        longer = reach is not None and reach.mean_square > _LONGER**2
        return Conclusion(
            widened(run, self.facts, _CAUTION * expected.rms),
            expected,
            beyond=self.facts.reading.unit is not None and longer,
            curvatures=self.curvatures(history),
        )

    def curvatures(self, history: History) -> Array | None:
        """That the last query allows; the first, at draws of the prior, tells too little."""
        rounds = (*named(history, SECOND), *named(history, AFTERWARDS))
        if not rounds:
            return None
        last = rounds[-1]
        back = np.linalg.inv(self._metric(history[: history.index(last)]).root)
        allowed = allowed_by_noise(last.moments)
        return np.stack([back.T @ one @ back for one in allowed]) / self.facts.temper

    def known(self, history: History, run: PathStage) -> Known:
        """What tells the error of ``run``, bought after ``history``."""
        facts, reach, curvatures = self.facts, self._reach(history), self.curvatures(history)
        precision, metric = np.diag(facts.prior.precision), self._metric(history)
        if curvatures is None:
            curvatures = (inverse_of(metric.root @ metric.root.T) - precision)[None]
        else:
            curvatures = facts.temper * curvatures
        share = 1.0 if reach is None else reach.curvature_share(self._clip(history, run))
        expected, weight = self._expected(history, run), run.schedule.temper / facts.temper
        # ``2M^{-1}/(Tw²)``: of the mean score over a path of time ``T`` at weight ``w`` in the metric ``M``.
        noise = inverse_of(metric_of(run.schedule)) * (2 / (run.schedule.total_time * weight**2))
        step = expected.discretisation
        return Known(run.start, precision, curvatures, share, expected.bias, noise, step)

    def followed(self, stage: PathStage) -> Followed:
        """The model, or that of weighted or centred gradients: the same for all paths, as programs are."""
        if self.facts.likelihood.few and not self._affine:
            return _followed(self.facts.reading, self.facts.likelihood)
        return _followed(stage.reading or self.facts.reading, None)

    def foreseen(self) -> tuple[History, PathStage]:
        """What counts how far rows reach, and the run after it, were public facts alone right."""
        facts, history = self.facts, public_counts(self.facts)
        left = math.sqrt(1 - 3 * facts.information_share(facts.metric) - WARM_UP_SHARE - reach_share(facts))
        return history, self._run(facts.metric, facts.prior.centre, history, left * facts.budget)

    def _expected(self, history: History, run: PathStage) -> Prediction:
        """From the counts where they say how far rows reach."""
        time = run.schedule.temper / self.facts.temper * run.schedule.total_time
        bias, noise = self._errors(history, self._reach(history), self._clip(history, run), time)
        return Prediction(math.hypot(bias, noise), bias, noise, max(run.schedule.step_sizes) / 4)

    def _errors(self, history: History, reach: Reach | None, clip: float, time: float) -> tuple[float, float]:
        """That of the clip, and of the noise of a run of ``time``, in posterior sds.

        A centre is right at the run's start, which the warm-up's noise leaves some way off; of that way the
        mean score is off by as much as the clip takes of the curvature.
        """
        noise = math.sqrt(2 / time)
        if reach is None:
            # Of lengths E(ℓ − c)₊ ≤ E ℓ²/(4c): what a wider clip takes from rows is less.
            bias, share = _UNSEEN * min(1.0, _MULTIPLE / clip), 1.0
            if self._affine:
                # Counts will balance the two.
                share = _UNCOUNTED[1]
                bias = min(bias, noise / share)
            return bias, noise / share
        share, bias = reach.curvature_share(clip), reach.bias(clip)
        if self.facts.likelihood.has_centre:
            before = named(history, WARM_UP)[-1].path.schedule
            told = before.temper / self.facts.temper * before.total_time / 2
            bias = math.hypot(bias, (1 - share) * min(math.sqrt(2 / told), _MOST_OFF))
        return bias, noise / share

    def _clip(self, history: History, run: PathStage) -> float:
        """In typical lengths of the metric that rows were counted in."""
        weight = run.schedule.temper / self.facts.temper
        typical = typical_length(self.facts, self._metric(history))
        return float(run.schedule.clip or 0.0) * math.sqrt(weight) / typical

    def _warm_up(self, metric: Metric, start: Array) -> PathStage:
        budget, multiple = self.facts.budget * math.sqrt(WARM_UP_SHARE), _WARM_UP_WEIGHTED
        # With a clip ``c`` the time is this over ``c²``.
        unit = _affordable(self._schedule(metric, 1.0, 1.0), budget)
        if self._affine:
            # Weights move nothing, and bought time grows faster than speed falls; more would tell little.
            budget *= math.sqrt(min(0.5, _ENOUGH_WARM_UP * multiple**2 / unit))
        else:
            multiple = max(_MULTIPLE, min(_WARM_UP_OFF * math.sqrt(unit / 2), _WARM_UP_CLIP))
        return self._path(WARM_UP, budget, metric, start, multiple, self._most_steps())

    def _run(self, metric: Metric, start: Array, history: History, budget: float) -> PathStage:
        reach = self._reach(history)
        multiple = _UNCOUNTED[0] if self._affine else _MULTIPLE
        if reach is not None:
            unit = _affordable(self._schedule(metric, 1.0, 1.0), budget)
            errors = {clip: self._errors(history, reach, clip, unit / clip**2) for clip in CLIPS}
            multiple = min(CLIPS, key=lambda clip: math.hypot(*errors[clip]))
        return self._path(RUN, budget, metric, start, multiple, self._most_steps(history))

    def _reach(self, history: History) -> Reach | None:
        counted = named(history, REACH)
        return reach_of(self.facts, counted[0]) if counted else None

    def _metric(self, history: History) -> Metric:
        """Of paths and queries after these stages: what queries found, each in the metric before."""
        metric = self.facts.metric
        for one in history:
            if one.stage.name in (FIRST, SECOND):
                metric = next_metric(self.facts.prior, metric.root, shrunk(one.moments))
        return metric

    def _query(self, name: str, mechanism: SecondMomentsPlan, at: Array, metric: Metric) -> QueryStage:
        return QueryStage(name, mechanism, partial(self.facts.likelihood.information, at, metric.root))

    def _path(
        self, name: str, budget: float, metric: Metric, start: Array, multiple: float, most: int
    ) -> PathStage:
        """As long as is needed or longer, of a likelihood as flat, or as steep, as that takes."""
        facts, careful = self.facts, _STEP * _CAREFUL
        step, shortest = (_STEP, _SHORTEST) if name == RUN else (careful, _WARM_UP_STEPS * careful)
        step = max(step, min(shortest / most, _LONGEST_STEP))
        bought = _affordable(self._schedule(metric, 1.0, multiple), budget)
        # A path costs its time times the weight of the likelihood, and tells as much. Of weights, which move
        # little, more of it; of gradients that are cut, as the rest buys a wider clip below.
        useful = bought if self._affine else min(bought, MOST_STEPS * _STEP)
        weight = useful / min(max(bought, shortest), most * step)
        metric = flattened(metric, facts.prior, weight)
        step = min(step, _STIFFEST / max(facts.prior.stiffness(metric.root), 1e-9))
        schedule = self._schedule(metric, weight, multiple)
        time, clip = _affordable(schedule, budget), schedule.clip
        if time > most * step:
            # What is left buys a wider clip.
            clip *= math.sqrt(time / (most * step))
            time = _affordable(replace(schedule, clip=clip), budget)
        # What sums round off adds no step.
        num_steps = min(max(math.ceil(time / step * (1 - 1e-9)), _FEWEST_STEPS), most)
        path = replace(schedule, step_size=time / num_steps, num_steps=num_steps, clip=clip)
        if self._affine:
            reading, cap = weighted_slopes(facts.likelihood)
            return PathStage(name, path, start, reading, partial(cap, metric.root, float(clip)))
        if facts.likelihood.few:
            reading = weighted_model(facts.reading, facts.likelihood.outcomes, metric.root, clip)
            return PathStage(name, path, start, reading)
        if name != RUN or not facts.likelihood.has_centre:
            return PathStage(name, path, start)
        centre = partial(facts.likelihood.centre, np.asarray(start), metric.root, float(clip))
        return PathStage(name, path, start, centred_model(facts.reading), centre)

    def _schedule(self, metric: Metric, weight: float, multiple: float) -> Schedule:
        """One step of size 1."""
        facts, matrix = self.facts, metric.root @ metric.root.T
        matrix, temper = (matrix + matrix.T) / 2, facts.temper * weight
        return Schedule(
            adjacency=facts.adjacency,
            num_rows=facts.num_rows,
            dim=facts.reading.dim,
            unit=facts.reading.unit,
            temper=temper,
            preconditioner=tuple(tuple(row) for row in matrix.tolist()),
            release="path",
            step_size=1.0,
            num_steps=1,
            # Gradients are clipped before they are tempered.
            clip=multiple * math.sqrt(metric.trace / (temper * facts.num_rows)),
        )


@lru_cache(maxsize=8)
def _followed(reading: Potential, weighted: Likelihood | None) -> Followed:
    if weighted is None:
        return lambda root, clip: reading
    return partial(weighted_model, weighted.reading, weighted.outcomes)


def _affordable(one_step: Schedule, budget: float) -> float:
    """The Langevin time that ``budget`` buys: the squared price of a path is proportional to its time."""
    unit = accounting.langevin_statement(one_step).gdp or math.inf
    return (budget / unit) ** 2 * (1 - 1e-9)


def _travels(warm_up: CompletedStage) -> bool:
    """Whether its second half went further than noise alone does, ``N(0, 2γM)`` a step."""
    schedule = warm_up.path.schedule
    way = warm_up.states[-1] - warm_up.states[schedule.num_steps // 2]
    return bool(way @ np.linalg.solve(metric_of(schedule), way) > _TRAVELS * len(way) * schedule.total_time)


def late_states(warm_up: CompletedStage, centre: Array) -> Array:
    """States of its second half, ``(k, p)``, the last one included; ``centre`` for what is not finite."""
    states = np.asarray(warm_up.value)
    late = states[np.linspace(len(states) // 2, len(states) - 1, REFERENCES).astype(int)]
    return np.where(np.isfinite(late), late, centre)
