"""The policy for any model that can be read: a warm-up, information where it ended, then the run.

Stages: (1) the rows' expected information at public draws of the prior, (2) a short path, (3) the expected
information at its late states, for persons with several rows how far they reach there, and (4) the path that
counts, from there, in that metric, with a clip for that reach. Information is
averaged over several parameters, so that a direction is given no more room than it has at any of them. It
is ``Σ_i E_y[∇v ∇vᵀ]`` over the model's own outcomes given row ``i``'s covariates: a sum of bounded matrices,
bought by the Gaussian mechanism. Rows whose outcome takes a few values are weighted so that none needs to
be clipped. Privacy is by composition alone: no convexity, no smoothness is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc import accounting
from private_mcmc.errors import NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.planning.conclusion import Conclusion, Prediction, remaining
from private_mcmc.planning.estimates import allowed_by_noise, spectral_norm
from private_mcmc.planning.facts import REFERENCES, Facts, Metric, flattened, next_metric
from private_mcmc.planning.influence import (
    CLIPS,
    MIDDLES,
    InfluenceCounts,
    cell_of,
    counts_of_influence,
    people_counted,
    weighted_model,
)
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Row,
    Stage,
)
from private_mcmc.release import SecondMomentsPlan, SumsPlan, floored
from private_mcmc.schedule import Schedule

REACH = "reach of persons"
REACH_SHARE = 0.04  # of the squared budget
# Fewer persons than this for each sd of a count's noise, and it would hide most cells.
_FEWEST = 40.0
# Beyond the last cell that surely holds persons each holds this share of the one before, or less where the
# last two fell faster: lengths whose tail falls with about their cube.
_FALL = 0.5
# What a clip takes from persons' sums has this over √p of its length in common, as for rows that are alike.
_ALIGNED = 1.25


@dataclass(frozen=True, eq=False)
class Reach:
    """What released counts say of the lengths of persons' sums, over the typical one that a plan expects.

    Attributes:
        persons: about how many are in each cell.
        num_persons: how many there are in all.
        dim: number of parameters.
    """

    persons: Array
    num_persons: int
    dim: int

    def share(self, clip: float) -> float:
        """Mean over persons of ``min(1, clip/length)``: about the curvature that the clip leaves."""
        kept = float((self.persons * np.minimum(1.0, clip / MIDDLES)).sum())
        return max(kept / max(float(self.persons.sum()), 1.0), 1e-3)

    def bias(self, clip: float) -> float:
        """Error that the clip adds to posterior means, in posterior sds."""
        excess = float((self.persons * np.maximum(MIDDLES - clip, 0.0)).sum())
        aligned = min(1.0, _ALIGNED / math.sqrt(self.dim))
        return aligned * excess / math.sqrt(self.num_persons) / self.share(clip)

    def noise(self, clip: float, time: float) -> float:
        """Error of the means of a run of ``time`` that privacy's noise makes, in posterior sds."""
        return math.sqrt(2 / time) / self.share(clip)

    def best_clip(self, time: Callable[[float], float]) -> float:
        """The clip with the smallest predicted error; ``time`` is what each buys."""
        return min(CLIPS, key=lambda clip: math.hypot(self.bias(clip), self.noise(clip, time(clip))))


def have_reach(facts: Facts) -> bool:
    """Whether rows are persons whose sums are clipped, without latents that tell how alike their rows are."""
    return facts.reading.unit is not None and facts.reading.own is None


def assumed(facts: Facts) -> tuple[str, ...]:
    """What a plan takes for granted of persons' rows, in words."""
    unit = facts.reading.unit
    if unit is None or not have_reach(facts):
        return ()
    follow = (
        "the run counts how far persons' sums reach, and unless noise hides these counts it clips and widens "
        "its draws by what they say"
        if _mechanism(facts) is not None
        else "these are too few persons to count how far their sums reach, and intervals are too narrow then"
    )
    return (
        f"The prediction takes rows of one {unit.name!r} for independent, given the columns, and outcomes "
        "to vary no more than the model says. Where they are more alike or vary more, errors are "
        f"larger: {follow}. A latent for each person, or a family that varies more, is the remedy.",
    )


def typical_length(facts: Facts, metric: Metric) -> float:
    """Root mean square length of a row's, or person's, gradient in ``metric``, as the model expects it."""
    return math.sqrt(metric.trace / (facts.temper * facts.num_rows))


def counts_reach(facts: Facts, theta: Array, metric: Metric) -> CountsStage | None:
    """How many persons have how long a gradient at ``theta``, or ``None`` where noise would hide it."""
    mechanism = _mechanism(facts) if have_reach(facts) else None
    if mechanism is None:
        return None
    root = metric.root / typical_length(facts, metric)
    return CountsStage(REACH, mechanism, partial(_cell_of(facts.reading), np.asarray(theta), root))


def _mechanism(facts: Facts) -> SumsPlan | None:
    gdp = math.sqrt(REACH_SHARE) * facts.budget
    found = counts_of_influence(gdp, facts.num_rows, facts.adjacency, facts.reading.unit)
    return None if facts.num_rows < _FEWEST * found.noise.sd else found


def reach_of(facts: Facts, completed: CompletedStage) -> Reach | None:
    """What the counts say, or ``None`` where noise hides most persons."""
    there = people_counted(completed.counts, facts.num_rows, facts.adjacency)
    found = InfluenceCounts(completed.counts, facts.num_rows, 0.0, people=there)
    if found.hidden:
        return None
    last = found.occupied - 2
    persons = np.array(found.tail)
    before = max(persons[max(last - 2, 0)], 1.0)
    fall = min(_FALL, math.sqrt(persons[last] / before))
    persons[last + 1 :] = persons[last] * fall ** np.arange(1, len(persons) - last)
    return Reach(persons, facts.num_rows, facts.dim)


@lru_cache(maxsize=8)
def _cell_of(reading: RowModel) -> Callable[[ArrayLike, ArrayLike, Row], jax.Array]:
    """One function for every parameter and metric, so that it is compiled once."""
    score = jax.grad(reading.row_loss)

    def cell(theta: ArrayLike, root: ArrayLike, person: Row) -> jax.Array:
        gradient = score(jnp.asarray(theta), person)
        length = jnp.linalg.norm(gradient @ jnp.asarray(root))
        # A sum that is no number is clipped as a long one.
        return cell_of(jnp.nan_to_num(length, nan=jnp.inf))

    return cell


FIRST, WARM_UP, SECOND, RUN = "information at the prior", "warm-up", "information at the warm-up", "run"
# Of the squared budget: with a quarter errors were as large or larger in all of ten cells (six runs each).
WARM_UP_SHARE = 0.15

# Where the prior alone has more curvature than the metric's 1, as in a funnel, the step is shorter.
_STIFFEST = 0.4
# The warm-up's metric is a guess: its steps are shorter by this factor.
_CAREFUL = 0.5
# It lasts so many steps, of a likelihood as flat as that needs: a flat one is reached from afar.
_WARM_UP_STEPS = 800
# That of persons clips no tighter than leaves it so many sds off, up to this multiple: where their sums are
# longer than the model says, a tight clip leads far away.
_WARM_UP_OFF, _WARM_UP_CLIP = 3.0, 10.0
# Its draws are as wide as if errors were so much larger: short intervals are worse than long ones.
_CAUTION = 1.2
# A run lasts so long at least.
_SHORTEST = 10.0
_FEWEST_STEPS, MOST_STEPS = 60, 8000
# More Langevin time than this makes draws more numerous, not better.
_LONGEST = 400.0
_BURN_IN_TIME, _BURN_IN_SHARE = 2.0, 0.2


@dataclass(frozen=True, eq=False)
class GeneralPolicy:
    """The four stages of the module, with two numbers to choose.

    Attributes:
        multiple: clip over the root mean square of a row's gradient, as the information predicts it; that of
            a run on persons follows how far they reach, where that is released.
        step: step size; where curvature is 1, an sd is inflated by a quarter of it.
        prediction: the error to expect, from synthetic data.
    """

    facts: Facts
    multiple: float
    step: float
    prediction: Prediction

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the prediction takes for granted, in words."""
        return assumed(self.facts)

    def next(self, history: History) -> Stage | None:
        """Information, warm-up, information, run; a query that its noise would hide is left out."""
        done = {completed.stage.name: completed for completed in history}
        facts = self.facts
        if WARM_UP not in done:
            first = facts.query(facts.metric, len(facts.references))
            if FIRST not in done and first is not None:
                return self._query(FIRST, first, facts.references, facts.metric)
            return self._warm_up(self._first_metric(done))
        if RUN in done:
            return None
        late = late_states(done[WARM_UP], facts.prior.centre)
        second = facts.query(self._first_metric(done), REFERENCES)
        if SECOND not in done and second is not None:
            return self._query(SECOND, second, late, self._first_metric(done))
        metric, start = self._last_metric(done), settled(done[WARM_UP], late[-1])
        reach = counts_reach(facts, start, metric)
        if REACH not in done and reach is not None:
            return reach
        return self._run(metric, start, done, remaining(facts.budget, history))

    def conclude(self, history: History) -> Conclusion:
        """The run after its burn-in, as much wider as its mean is expected to be off."""
        done = {completed.stage.name: completed for completed in history}
        expected = self._expected(done)
        draws = widened(done[RUN], self.facts, _CAUTION * expected.rms)
        return Conclusion(
            draws, expected, beyond=expected.rms > self.prediction.rms, curvatures=self._curvatures(done)
        )

    def _curvatures(self, done: Mapping[str, CompletedStage]) -> Array | None:
        """That the second query allows; the first, at draws of the prior, tells too little."""
        if SECOND not in done:
            return None
        back = np.linalg.inv(self._first_metric(done).root)
        allowed = allowed_by_noise(done[SECOND].moments)
        return np.stack([back.T @ one @ back for one in allowed]) / self.facts.temper

    def _expected(self, done: Mapping[str, CompletedStage]) -> Prediction:
        """The plan's prediction, or a larger one where persons reach further than the model says."""
        reach, schedule, predicted = self._reach(done), done[RUN].path.schedule, self.prediction
        if reach is None:
            return predicted
        weight = schedule.temper / self.facts.temper
        clip = schedule.clip * math.sqrt(weight) / typical_length(self.facts, self._last_metric(done))
        bias, noise = reach.bias(clip), reach.noise(clip, weight * schedule.total_time)
        rms = math.hypot(bias, noise)
        if rms <= predicted.rms:
            return predicted
        return Prediction(rms, bias, noise, predicted.discretisation, predicted.unit, predicted.reference)

    def _warm_up(self, metric: Metric) -> PathStage:
        facts, multiple = self.facts, self.multiple
        budget = facts.budget * math.sqrt(WARM_UP_SHARE)
        start, step = facts.prior.shrunk(0, 0.1), self.step * _CAREFUL
        if have_reach(facts):
            off = math.sqrt(2 / _affordable(self._schedule(metric, 1.0, multiple), budget))
            multiple = max(multiple, min(multiple * _WARM_UP_OFF / off, _WARM_UP_CLIP))
        return self._path(WARM_UP, budget, metric, start, step, _WARM_UP_STEPS * step, multiple)

    def _run(
        self, metric: Metric, start: Array, done: Mapping[str, CompletedStage], budget: float
    ) -> PathStage:
        multiple, reach = self.multiple, self._reach(done)
        if reach is not None:
            unit = _affordable(self._schedule(metric, 1.0, 1.0), budget)
            multiple = reach.best_clip(lambda clip: unit / clip**2)
        return self._path(RUN, budget, metric, start, self.step, _SHORTEST, multiple)

    def _reach(self, done: Mapping[str, CompletedStage]) -> Reach | None:
        return reach_of(self.facts, done[REACH]) if REACH in done else None

    def _first_metric(self, done: Mapping[str, CompletedStage]) -> Metric:
        metric = self.facts.metric
        return self._updated(metric, done[FIRST]) if FIRST in done else metric

    def _last_metric(self, done: Mapping[str, CompletedStage]) -> Metric:
        metric = self._first_metric(done)
        return self._updated(metric, done[SECOND]) if SECOND in done else metric

    def _updated(self, metric: Metric, completed: CompletedStage) -> Metric:
        moments = completed.moments
        least = 0.5 * spectral_norm(moments.noise_sd, self.facts.dim)
        return next_metric(self.facts.prior, metric.root, floored(moments.matrix, max(least, 1e-9)))

    def _query(self, name: str, mechanism: SecondMomentsPlan, at: Array, metric: Metric) -> MomentsStage:
        one = functools.partial(self.facts.likelihood.information, at, metric.root)
        return MomentsStage(name, mechanism, one)

    def _path(
        self,
        name: str,
        budget: float,
        metric: Metric,
        start: Array,
        step: float,
        shortest: float,
        multiple: float | None = None,
    ) -> PathStage:
        """As long as ``shortest`` or longer, of a likelihood as flat as that needs."""
        facts, multiple = self.facts, self.multiple if multiple is None else multiple
        weight = min(_affordable(self._schedule(metric, 1.0, multiple), budget) / shortest, 1.0)
        metric = flattened(metric, facts.prior, weight)
        step = min(step, _STIFFEST / max(facts.prior.stiffness(metric.root), 1e-9))
        schedule = self._schedule(metric, weight, multiple)
        time, clip = _affordable(schedule, budget), schedule.clip
        longest = min(_LONGEST, step * MOST_STEPS)
        if time > longest:
            # A wider clip makes them better.
            clip *= math.sqrt(time / longest)
            time = _affordable(replace(schedule, clip=clip), budget)
        num_steps = min(max(math.ceil(time / step), _FEWEST_STEPS), MOST_STEPS)
        reading = None
        if facts.likelihood.few:
            reading = weighted_model(facts.reading, facts.likelihood.outcomes, metric.root, clip)
        path = replace(schedule, step_size=time / num_steps, num_steps=num_steps, clip=clip)
        return PathStage(name, path, start, reading)

    def _schedule(self, metric: Metric, weight: float, multiple: float) -> Schedule:
        """One step of size 1."""
        facts, matrix = self.facts, metric.root @ metric.root.T
        matrix, temper = (matrix + matrix.T) / 2, facts.temper * weight
        return Schedule(
            adjacency=facts.adjacency,
            num_rows=facts.num_rows,
            dim=facts.dim,
            unit=facts.reading.unit,
            temper=temper,
            preconditioner=tuple(tuple(row) for row in matrix.tolist()),
            release="path",
            step_size=1.0,
            num_steps=1,
            # Gradients are clipped before they are tempered.
            clip=multiple * math.sqrt(metric.trace / (temper * facts.num_rows)),
        )


def widened(run: CompletedStage, facts: Facts, rms: float) -> Array:
    """The run's states after its burn-in, ``√(1 + rms²)`` as wide around their mean.

    In whatever unit ``rms`` is: a run whose rows' losses are off by sds has parameters that are. The sds are
    those of the metric where the states' own are smaller: a path that is too short to leave its start says
    nothing of its width. Those of a flattened likelihood are made narrower as its weight says, and no draws
    are wider than the prior's are around their mean.
    """
    schedule, states = run.path.schedule, np.asarray(run.value)[burn_in(run.path) :]
    prior, centre = facts.prior, states.mean(axis=0)
    own = np.maximum(states.std(axis=0), 1e-300)
    of_metric = np.sqrt(np.diag(np.asarray(schedule.preconditioner)))
    sds = math.sqrt(schedule.temper / facts.temper) * np.maximum(own, of_metric)
    half = len(states) // 2
    moved = float(np.sqrt(np.mean(((states[half:].mean(axis=0) - states[:half].mean(axis=0)) / sds) ** 2)))
    # A path that is still on its way shows how far it may be from where it goes.
    if moved > 1:
        states, rms = states + (states[half:].mean(axis=0) - centre), math.hypot(rms, moved)
        centre = states.mean(axis=0)
    most = np.maximum(np.hypot(prior.scale, centre - prior.centre), np.minimum(own, sds))
    return np.asarray(centre + np.minimum(math.hypot(1.0, rms) * sds, most) / own * (states - centre))


def burn_in(stage: PathStage) -> int:
    """How many states of a path are left out of its draws."""
    schedule = stage.schedule
    share = min(_BURN_IN_SHARE, _BURN_IN_TIME / schedule.total_time)
    return round(share * schedule.num_steps)


def _affordable(one_step: Schedule, budget: float) -> float:
    """The Langevin time that ``budget`` buys: the squared price of a path is proportional to its time."""
    unit = accounting.langevin_statement(one_step).gdp
    if unit is None:
        raise NotPrivate("a path of Langevin states has a Gaussian statement, and this one has none.")
    return (budget / unit) ** 2 * (1 - 1e-9)


def settled(warm_up: CompletedStage, last: Array) -> Array:
    """Where the run begins: the mean of the warm-up's last half, or its last state if that is not finite."""
    states = np.asarray(warm_up.value)
    mean = states[len(states) // 2 :].mean(axis=0)
    return mean if np.all(np.isfinite(mean)) else last


def late_states(warm_up: CompletedStage, centre: Array) -> Array:
    """States of its second half, ``(k, p)``, the last one included; ``centre`` for what is not finite."""
    states = np.asarray(warm_up.value)
    late = states[np.linspace(len(states) // 2, len(states) - 1, REFERENCES).astype(int)]
    return np.where(np.isfinite(late), late, centre)
