"""What a general policy would do to synthetic data: its stages simulated, its error measured.

A data set is made up of a few hundred rows of the declared domain, each standing for many, with outcomes
drawn from the model at a draw of the prior. The very stages that would be executed are executed on it,
noise included, and compared with draws of the exact posterior of the same rows. Clip and step are chosen on
some data sets and their error is measured on others: the least of many errors would promise too much.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.planning.exact_chains import mala, moments
from private_mcmc.planning.general import (
    MOST_STEPS,
    RUN,
    Facts,
    GeneralPolicy,
    Metric,
    burn_in,
    facts_of,
    next_metric,
)
from private_mcmc.planning.general_weighting import weighted_loss
from private_mcmc.planning.stages import (
    OF_LOSSES,
    OF_PARAMETERS,
    CompletedStage,
    History,
    MomentsStage,
    PathStage,
    Prediction,
    Stage,
)
from private_mcmc.planning.synthetic import Array, Columns, Likelihood
from private_mcmc.release import SecondMoments
from private_mcmc.target import Adjacency

# All pairs are tried: a step that a wide clip makes unstable must not hide the clip at a shorter one.
CLIP_MULTIPLES = (0.7, 1.5, 3.2, 7.0)
STEPS = (0.1, 0.02)
# Truths at these shares of a prior draw's distance from the centre.
_DISTANCES = (0.25, 0.5, 1.0)
_ROWS = 256
_WATCHED, _SEEN = 64, 200
# Exact chains of every data set: the first starts at the truth, the others at draws of the prior.
_CHAINS = 4
# Chains whose means are spread by less than this many posterior sds are of one posterior.
_SAME = 0.5
_UNKNOWN = Prediction(math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class MadeUp:
    """A synthetic data set with its posterior.

    Attributes:
        rows: columns of a few rows.
        weights: how many real rows each stands for.
        draws: of the posterior, shape ``(chains, draws, p)``.
        mean: posterior means of what is watched.
        sd: posterior sds of it.
        doubt: root mean square standard error of ``mean``, in these sds.
        identified: whether ``θ`` itself is watched, or the losses of some rows (where chains from different
            starts disagree about ``θ``, as those of networks do).
    """

    rows: Columns
    weights: Array
    draws: Array
    mean: Array
    sd: Array
    doubt: float
    identified: bool


class Simulator:
    """Compiled functions of one model, shared by every simulation."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._gram = jax.jit(functools.partial(_gram, facts.likelihood.information))
        self._chain = jax.jit(functools.partial(_chain, facts.reading, facts.likelihood))
        self._exact = jax.jit(functools.partial(mala, facts.reading))
        self._losses = jax.jit(
            lambda states, rows: jax.lax.map(
                lambda theta: jax.vmap(facts.reading.row_loss, in_axes=(None, 0))(theta, rows), states
            )
        )

    def synthetic(self, index: int, distance: float) -> MadeUp:
        """Draw a data set at a prior draw and run the reference chains on it."""
        facts = self.facts
        truth = facts.prior.shrunk(index + 7, distance)
        covariates, outcomes = jax.random.split(jax.random.key(100 + index))
        rows = facts.reading.rows.project(facts.reading.rows.synthetic(covariates, _ROWS))
        rows, weights = facts.likelihood.sample(jnp.asarray(truth), rows, facts.num_rows / _ROWS, outcomes)
        information = self._gram(truth[None], facts.metric.root, math.inf, rows, weights)
        metric = next_metric(facts.prior, facts.metric.root, np.asarray(information))
        starts = [truth, *(facts.prior.shrunk(index + 23 * chain, 1.0) for chain in range(1, _CHAINS))]
        keys = jax.random.split(jax.random.key(200 + index), _CHAINS)
        chains = [
            self.posterior(metric.root, start, rows, weights, key)
            for start, key in zip(starts, keys, strict=True)
        ]
        known = moments(np.stack(chains))
        found = MadeUp(rows, weights, np.stack(chains), known.mean, known.sd, known.doubt, True)
        return found if known.apart < _SAME else self.by_losses(found)

    def by_losses(self, data: MadeUp) -> MadeUp:
        """The same data set with the losses of rows watched."""
        known = moments(np.stack([self.losses(chain, data.rows) for chain in data.draws]))
        return replace(data, mean=known.mean, sd=known.sd, doubt=known.doubt, identified=False)

    def posterior(self, root: Array, start: Array, rows: Columns, weights: Array, key: jax.Array) -> Array:
        """Draws of the exact posterior: two rounds of MALA, the second in the metric of the first's draws."""
        first, second = jax.random.split(key)
        weights = self.facts.temper * weights
        draws = np.asarray(self._exact(root, start, rows, weights, first))
        covariance = np.cov(draws.T).reshape(len(start), -1) + 1e-3 * root @ root.T
        usable = bool(np.all(np.isfinite(covariance)))
        factor = np.linalg.cholesky((covariance + covariance.T) / 2) if usable else root
        return np.asarray(self._exact(factor, draws[-1], rows, weights, second))

    def losses(self, states: Array, rows: Columns) -> Array:
        """Losses of the first rows at some of the states."""
        few = {name: column[:_WATCHED] for name, column in rows.items()}
        every = max(1, len(states) // _SEEN)
        return np.asarray(self._losses(jnp.asarray(states[::every][:_SEEN]), few))

    def chain(
        self,
        metric: Metric,
        clip: float,
        step: float,
        num_steps: int,
        start: Array,
        rows: Columns,
        weights: Array,
        key: jax.Array,
    ) -> Array:
        """States of a clipped, weighted Langevin chain, shape ``(steps, p)``."""
        weights = self.facts.temper * weights
        states = self._chain(metric.root, clip, step, num_steps, start, rows, weights, key)
        return np.asarray(states[:num_steps])

    def error(self, policy: GeneralPolicy, data: MadeUp, seed: int) -> tuple[float, float]:
        """Root mean square error of the means in posterior sds, and the run's Langevin time."""
        history: History = ()
        key = jax.random.key(seed)
        while (stage := policy.next(history)) is not None:
            key, own = jax.random.split(key)
            history = (*history, CompletedStage(stage, self._bought(stage, data, own)))
        run = next(completed for completed in history if completed.stage.name == RUN)
        states = np.asarray(run.value)[burn_in(run.stage) :]
        seen = states if data.identified else self.losses(states, data.rows)
        with np.errstate(over="ignore", invalid="ignore"):
            off = (seen.mean(axis=0) - data.mean) / np.maximum(data.sd, 1e-300)
            rms = float(np.sqrt(np.mean(np.square(off))))
        time = run.stage.schedule.total_time if isinstance(run.stage, PathStage) else math.inf
        return (rms if math.isfinite(rms) else math.inf), time

    def _bought(self, stage: Stage, data: MadeUp, key: jax.Array) -> SecondMoments | Array:
        if isinstance(stage, PathStage):
            schedule = stage.schedule
            factor = np.linalg.cholesky(np.asarray(schedule.preconditioner))
            sizes = schedule.step_sizes[0], schedule.num_steps
            root = Metric(np.asarray(factor, dtype=np.float64), 0.0)
            return self.chain(root, schedule.clip, *sizes, stage.start, data.rows, data.weights, key)
        if not isinstance(stage, MomentsStage) or not isinstance(stage.vectors, functools.partial):
            raise TypeError("the policy buys moments of its information and paths")
        mechanism = stage.mechanism
        exact = np.asarray(self._gram(*stage.vectors.args, mechanism.radius, data.rows, data.weights))
        noise = np.asarray(jax.random.normal(key, exact.shape)) * mechanism.noise.sd / math.sqrt(2.0)
        return SecondMoments(exact + (noise + noise.T) / math.sqrt(2.0), mechanism.noise.sd, stage.statement)


def _gram(information, thetas, root, radius, rows, weights):  # type: ignore[no-untyped-def]
    vectors = jax.vmap(functools.partial(information, thetas, root))(rows)
    norm = jnp.sqrt(jnp.sum(vectors**2, axis=(1, 2)))
    vectors = vectors * jnp.minimum(1.0, radius / jnp.maximum(norm, 1e-300))[:, None, None]
    return jnp.einsum("n,nki,nkj->ij", weights, vectors, vectors)


def _chain(  # type: ignore[no-untyped-def]
    reading: RowModel, likelihood: Likelihood, root, clip, step, num_steps, start, rows, weights, key
):
    inverse = jnp.linalg.inv(root)
    row_loss = reading.row_loss
    if likelihood.few:
        row_loss = weighted_loss(row_loss, likelihood.outcomes, root, clip)

    def loss(u: jax.Array, row: Columns) -> jax.Array:
        return row_loss(root @ u, row)

    score = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    prior = jax.grad(lambda u: reading.neg_log_prior(root @ u))

    def body(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        u, states = carry
        gradients = score(u, rows)
        norm = jnp.linalg.norm(gradients, axis=1)
        usable = jnp.isfinite(norm)
        scale = jnp.where(usable, jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-300)), 0.0)
        pull = (weights * scale) @ jnp.where(usable[:, None], gradients, 0.0)
        noise = jax.random.normal(jax.random.fold_in(key, k), u.shape)
        u = u - step * (prior(u) + pull) + jnp.sqrt(2.0 * step) * noise
        return u, states.at[k].set(root @ u)

    states = jnp.zeros((MOST_STEPS, root.shape[0]))
    return jax.lax.fori_loop(0, num_steps, body, (inverse @ start, states))[1]


def best_policy(facts: Facts) -> GeneralPolicy:
    """The policy whose clip and step make the smallest error on synthetic data sets, predicted on others.

    Losses are watched on all of them where ``θ`` is not identified on one, so that errors have one unit.
    """
    with jax.enable_x64(True):
        simulator = Simulator(facts)
        sets = [simulator.synthetic(*each) for each in enumerate(_DISTANCES * 2)]
        unit = OF_PARAMETERS
        if not all(data.identified for data in sets):
            sets, unit = [simulator.by_losses(data) for data in sets], OF_LOSSES
        count = len(_DISTANCES)

        def tried(draft: GeneralPolicy, first: int) -> tuple[float, float]:
            outcomes = [simulator.error(draft, sets[k], k) for k in range(first, first + count)]
            return _root_mean_square([rms for rms, _ in outcomes]), min(time for _, time in outcomes)

        drafts = [
            GeneralPolicy(facts, multiple, step, _UNKNOWN)
            for multiple, step in itertools.product(CLIP_MULTIPLES, STEPS)
        ]
        draft = min(drafts, key=lambda draft: tried(draft, 0)[0])
        rms, time = tried(draft, count)
    monte_carlo = min(math.sqrt(2.0 / time), rms)
    doubt = min(_root_mean_square([data.doubt for data in sets[count:]]), rms)
    bias = math.sqrt(max(rms**2 - monte_carlo**2 - doubt**2, 0.0))
    return replace(draft, prediction=Prediction(rms, bias, monte_carlo, draft.step / 4, unit, doubt))


def _root_mean_square(values: list[float]) -> float:
    return math.sqrt(sum(min(value, 1e9) ** 2 for value in values) / len(values))


def general_policy(
    model: Callable[..., Any],
    reading: RowModel,
    n: int,
    adjacency: Adjacency,
    budget: float,
    model_args: Mapping[str, Any],
    temper: float = 1.0,
) -> GeneralPolicy:
    """The policy for any model that can be read, its likelihood weighted, with the error to expect of it.

    Raises:
        NotYetSupported: for a prior that cannot be drawn from.
    """
    return best_policy(facts_of(model, reading, n, adjacency, budget, model_args, temper))
