"""The policy for any model that can be read: a warm-up, information where it ended, then the run.

Stages: (1) the rows' expected information at public draws of the prior, (2) a short path, (3) the expected
information at its late states, (4) the path that counts, from there, in that metric. Information is
averaged over several parameters, so that a direction is given no more room than it has at any of them. It
is ``Σ_i E_y[∇v ∇vᵀ]`` over the model's own outcomes given row ``i``'s covariates: a sum of bounded matrices,
bought by the Gaussian mechanism. Rows whose outcome takes a few values are weighted so that none needs to
be clipped. Privacy is by composition alone: no convexity, no smoothness is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc import accounting
from private_mcmc.errors import NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.planning.estimates import Metric, flattened, next_metric, spectral_norm
from private_mcmc.planning.influence import weighted_model
from private_mcmc.planning.prior_draws import Plausible, Prior, prior_of
from private_mcmc.planning.stages import (
    Array,
    CompletedStage,
    Conclusion,
    History,
    MomentsStage,
    PathStage,
    Prediction,
    Stage,
    remaining,
)
from private_mcmc.planning.synthetic import Likelihood
from private_mcmc.planning.synthetic_persons import likelihood_of
from private_mcmc.records import RUN_ONCE, Model, PublicArguments
from private_mcmc.release import SecondMoments, SecondMomentsPlan, floored, plan_second_moments
from private_mcmc.schedule import Schedule
from private_mcmc.target import Adjacency

FIRST, WARM_UP, SECOND, RUN = "information at the prior", "warm-up", "information at the warm-up", "run"
INFORMATION_SHARE, WARM_UP_SHARE = 0.05, 0.25  # of the squared budget; each query takes the first

# Where the prior alone has more curvature than the metric's 1, as in a funnel, the step is shorter.
_STIFFEST = 0.4
# The warm-up's metric is a guess: its steps are shorter by this factor.
_CAREFUL = 0.5
# It lasts so many steps, of a likelihood as flat as that needs: a flat one is reached from afar.
_WARM_UP_STEPS = 800
# A run lasts so long at least.
_SHORTEST = 10.0
_FEWEST_STEPS, MOST_STEPS = 60, 8000
# More Langevin time than this makes draws more numerous, not better.
_LONGEST = 400.0
# Of the mean square of a row's vectors: room for rows that say more than others.
_ROOM = 6.0
_BURN_IN_TIME, _BURN_IN_SHARE = 2.0, 0.2
_SYNTHETIC_ROWS = 512
_WIDEST = 200
# Parameters that the information is averaged over.
_REFERENCES = 4


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything public that the stages are made from.

    Attributes:
        reading: the model as it was read.
        num_rows: ``n`` or its public bound.
        budget: of all stages together, in GDP.
        plausible: draws of the prior, and of it where outcomes are as declared.
        likelihood: losses at possible outcomes.
        references: parameters that stage one asks about, shape ``(k, p)``.
        metric: a guess from synthetic rows of the declared domain.
        temper: weight of the likelihood.
    """

    reading: RowModel
    num_rows: int
    adjacency: Adjacency
    budget: float
    plausible: Plausible
    likelihood: Likelihood
    references: Array
    metric: Metric
    temper: float

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.reading.dim

    @property
    def prior(self) -> Prior:
        """Draws of the prior."""
        return self.plausible.prior

    def query(self, metric: Metric, references: int) -> SecondMomentsPlan | None:
        """The information of all rows in ``metric``, or ``None`` where its noise would drown it."""
        if self.dim > _WIDEST:
            return None
        mechanism = plan_second_moments(
            self.budget * math.sqrt(INFORMATION_SHARE),
            radius=math.sqrt(_ROOM * metric.trace / self.num_rows),
            dim=self.dim,
            num_rows=self.num_rows,
            adjacency=self.adjacency,
            vectors=references * self.likelihood.vectors,
        )
        stated = accounting.of_unit(mechanism.statement, self.reading.unit)
        useful = spectral_norm(mechanism.noise.sd, self.dim) < 1.0
        return replace(mechanism, statement=stated) if useful else None


def facts_of(
    model: Model,
    reading: RowModel,
    n: int,
    adjacency: Adjacency,
    budget: float,
    model_args: PublicArguments,
    temper: float = 1.0,
) -> Facts:
    """Draw what is synthetic, once."""
    prior = prior_of(reading.model, reading, model_args)
    likelihood = likelihood_of(reading, temper)
    root = np.diag(prior.scale)
    with jax.enable_x64(True):
        drawn = functools.partial(reading.rows.synthetic, 3, _SYNTHETIC_ROWS)
        rows = jax.jit(drawn, compiler_options=RUN_ONCE)()
        plausible = Plausible(prior, likelihood, rows)
        references = np.stack([plausible.drawn(index, 0.5) for index in range(_REFERENCES)])
        one = functools.partial(likelihood.information, references, root)
        vectors = jax.jit(jax.vmap(one), compiler_options=RUN_ONCE)(rows)
        information = np.asarray(jnp.einsum("nki,nkj->ij", vectors, vectors)) * (n / _SYNTHETIC_ROWS)
    metric = next_metric(prior, root, information)
    return Facts(reading, n, adjacency, budget, plausible, likelihood, references, metric, temper)


@dataclass(frozen=True, eq=False)
class GeneralPolicy:
    """The four stages of the module, with two numbers to choose.

    Attributes:
        multiple: clip over the root mean square of a row's gradient, as the information predicts it.
        step: step size; where curvature is 1, an sd is inflated by a quarter of it.
        prediction: the error to expect, from synthetic data.
    """

    facts: Facts
    multiple: float
    step: float
    prediction: Prediction

    def next(self, history: History) -> Stage | None:
        """Information, warm-up, information, run; a query whose noise would drown it is left out."""
        done = {completed.stage.name: completed for completed in history}
        facts = self.facts
        if WARM_UP not in done:
            first = facts.query(facts.metric, len(facts.references))
            if FIRST not in done and first is not None:
                return self._query(FIRST, first, facts.references, facts.metric)
            budget = facts.budget * math.sqrt(WARM_UP_SHARE)
            start, step = facts.prior.shrunk(0, 0.1), self.step * _CAREFUL
            return self._path(WARM_UP, budget, self._first_metric(done), start, step, _WARM_UP_STEPS * step)
        late = _late_states(done[WARM_UP], facts.prior.centre)
        metric = self._first_metric(done)
        second = facts.query(metric, _REFERENCES)
        if RUN in done:
            return None
        if SECOND not in done and second is not None:
            return self._query(SECOND, second, late, metric)
        if SECOND in done:
            metric = self._updated(metric, done[SECOND])
        start = settled(done[WARM_UP], late[-1])
        return self._path(RUN, remaining(facts.budget, history), metric, start, self.step, _SHORTEST)

    def conclude(self, history: History) -> Conclusion:
        """The run after its burn-in, as much wider as its mean is expected to be off."""
        run = next(completed for completed in history if completed.stage.name == RUN)
        return Conclusion(widened(run, self.facts, self.prediction.rms), self.prediction)

    def _first_metric(self, done: Mapping[str, CompletedStage]) -> Metric:
        metric = self.facts.metric
        return self._updated(metric, done[FIRST]) if FIRST in done else metric

    def _updated(self, metric: Metric, completed: CompletedStage) -> Metric:
        moments = completed.value
        if not isinstance(moments, SecondMoments):
            raise TypeError("a query for information releases second moments")
        least = 0.5 * spectral_norm(moments.noise_sd, self.facts.dim)
        return next_metric(self.facts.prior, metric.root, floored(moments.matrix, max(least, 1e-9)))

    def _query(self, name: str, mechanism: SecondMomentsPlan, at: Array, metric: Metric) -> MomentsStage:
        one = functools.partial(self.facts.likelihood.information, at, metric.root)
        return MomentsStage(name, mechanism, one)

    def _path(
        self, name: str, budget: float, metric: Metric, start: Array, step: float, shortest: float
    ) -> PathStage:
        """As long as ``shortest`` or longer, of a likelihood as flat as that needs."""
        facts = self.facts
        weight = min(_affordable(self._schedule(metric, 1.0), budget) / shortest, 1.0)
        metric = flattened(metric, facts.prior, weight)
        step = min(step, _STIFFEST / max(facts.prior.stiffness(metric.root), 1e-9))
        schedule = self._schedule(metric, weight)
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

    def _schedule(self, metric: Metric, weight: float) -> Schedule:
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
            clip=self.multiple * math.sqrt(metric.trace / (temper * facts.num_rows)),
        )


def widened(run: CompletedStage, facts: Facts, rms: float) -> Array:
    """The run's states after its burn-in, ``√(1 + rms²)`` as wide around their mean.

    In whatever unit ``rms`` is: a run whose rows' losses are off by sds has parameters that are. The sds are
    those of the metric where the states' own are smaller: a path that is too short to leave its start says
    nothing of its width. Those of a flattened likelihood are made narrower as its weight says, and no draws
    are wider than the prior's are around their mean.
    """
    states = np.asarray(run.value)[burn_in(run.stage) :]
    prior, centre = facts.prior, states.mean(axis=0)
    own = np.maximum(states.std(axis=0), 1e-300)
    sds = own
    if isinstance(run.stage, PathStage) and run.stage.schedule.preconditioner is not None:
        of_metric = np.sqrt(np.diag(np.asarray(run.stage.schedule.preconditioner)))
        sds = math.sqrt(run.stage.schedule.temper / facts.temper) * np.maximum(own, of_metric)
    half = len(states) // 2
    moved = float(np.sqrt(np.mean(((states[half:].mean(axis=0) - states[:half].mean(axis=0)) / sds) ** 2)))
    # A path that is still on its way shows how far it may be from where it goes.
    if moved > 1:
        states, rms = states + (states[half:].mean(axis=0) - centre), math.hypot(rms, moved)
        centre = states.mean(axis=0)
    most = np.maximum(np.hypot(prior.scale, centre - prior.centre), np.minimum(own, sds))
    return np.asarray(centre + np.minimum(math.hypot(1.0, rms) * sds, most) / own * (states - centre))


def burn_in(stage: Stage) -> int:
    """How many states of a path are left out of its draws."""
    if not isinstance(stage, PathStage):
        raise TypeError("only a path has a burn-in")
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


def _late_states(warm_up: CompletedStage, centre: Array) -> Array:
    """States of its second half, ``(k, p)``, the last one included; ``centre`` for what is not finite."""
    states = np.asarray(warm_up.value)
    late = states[np.linspace(len(states) // 2, len(states) - 1, _REFERENCES).astype(int)]
    return np.where(np.isfinite(late), late, centre)
