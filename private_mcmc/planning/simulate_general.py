"""What a general policy would do to synthetic data: its stages simulated, its error measured.

A data set is a few hundred rows of the declared domain, each standing for many, with outcomes drawn from
the model at a draw of the prior. The very stages that would be executed are executed on it, noise included,
and compared with draws of the exact posterior of the same rows. Clip and step are chosen on some data sets;
their error is measured on all, with fresh noise: the least of many errors would promise too much, and data
sets differ more than clips do.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Rows
from private_mcmc.kernels.synthetic import SyntheticChain
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.coefficients import Coefficients
from private_mcmc.planning.conclusion import OF_LOSSES, OF_PARAMETERS, Expected, Prediction
from private_mcmc.planning.facts import Facts, next_metric
from private_mcmc.planning.general import RUN, GeneralPolicy, burn_in, widened
from private_mcmc.planning.influence import weighted_model
from private_mcmc.planning.simulate import in_parallel, second_moments, simulate, typical
from private_mcmc.planning.stages import Array, CompletedStage
from private_mcmc.planning.synthetic import Columns, SyntheticData
from private_mcmc.planning.synthetic_outcomes import FactorLikelihood, Likelihood, coarse, likelihood_of
from private_mcmc.potential.flatten import abstract, row_shapes
from private_mcmc.records import ON_FEW_ROWS, RUN_ONCE, blas_of_one_thread
from private_mcmc.report.document import say

CHAIN_STEPS = 2000
# Beside the number of parameters, how far above the others a chain's mean potential is on its way.
_ON_ITS_WAY = 10.0


@dataclass(frozen=True, eq=False)
class Moments:
    """Of what several chains say of one posterior, draws of all of them pooled.

    Attributes:
        mean: shape ``(q,)``.
        sd: shape ``(q,)``.
        between: root mean square over coordinates of the sd of chains' means, in pooled sds.
        standard_error: the same of the standard error of ``mean``.
    """

    mean: Array
    sd: Array
    between: float
    standard_error: float


def pooled(draws: Array) -> Moments:
    """Pool ``draws`` of shape ``(chains, draws, q)``; what is not finite is infinitely uncertain."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        shares = draws.mean(axis=1).std(axis=0, ddof=1) / np.maximum(sd, 1e-300)
        between = float(np.sqrt(np.mean(shares**2)))
    between = between if math.isfinite(between) else math.inf
    return Moments(mean, sd, between, between / math.sqrt(len(draws)))


def converged(chains: Sequence[tuple[Array, float]]) -> Array:
    """Draws of the chains, ``(chains, draws, p)``, without those that are still on their way.

    Where a posterior has mass, potentials are within about ``p`` of each other; a chain whose mean is further
    up than that has not come there yet from a start in the prior's tail, and says nothing of the posterior.
    """
    levels = np.array([level if math.isfinite(level) else math.inf for _, level in chains])
    there = levels <= levels.min() + chains[0][0].shape[-1] + _ON_ITS_WAY
    kept = there if there.sum() > 1 else np.ones_like(there)
    return np.stack([draws for (draws, _), each in zip(chains, kept, strict=True) if each])


def mala(
    reading: RowModel,
    steps: int,
    root: jax.Array,
    start: jax.Array,
    rows: Columns,
    weights: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Second half of ``steps`` of a Metropolis-adjusted Langevin chain whose step adapts in the first half.

    The states ``(draws, p)`` and their potentials.
    """

    def potential(u: jax.Array) -> jax.Array:
        losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(root @ u, rows)
        return jnp.asarray(reading.neg_log_prior(root @ u) + jnp.sum(weights * losses))

    slope = jax.value_and_grad(potential)
    Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def step(carry: Carry, k: jax.Array) -> tuple[Carry, tuple[jax.Array, jax.Array]]:
        u, value, gradient, log_step = carry
        noise_key, accept_key = jax.random.split(jax.random.fold_in(key, k))
        size = jnp.exp(log_step)
        noise = jax.random.normal(noise_key, u.shape)
        proposal = u - size * gradient + jnp.sqrt(2.0 * size) * noise
        new_value, new_gradient = slope(proposal)
        back = u - proposal + size * new_gradient
        log_ratio = value - new_value + jnp.sum(noise**2) / 2 - jnp.sum(back**2) / (4 * size)
        rate = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accept = jax.random.uniform(accept_key) < rate
        u, value, gradient = jax.tree.map(
            functools.partial(jnp.where, accept), (proposal, new_value, new_gradient), (u, value, gradient)
        )
        adapting = k < steps // 2
        log_step = log_step + jnp.where(adapting, (rate - 0.57) / jnp.sqrt(1.0 + k / 10), 0.0)
        return (u, value, gradient, log_step), (root @ u, value)

    u = jnp.linalg.inv(root) @ start
    carry = (u, *slope(u), jnp.log(0.1))
    states, values = jax.lax.scan(step, carry, jnp.arange(steps))[1]
    return states[steps // 2 :], values[steps // 2 :]


_mala = jax.jit(mala, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)

# All pairs are tried: a step that a wide clip makes unstable must not hide the clip at a shorter one.
CLIP_MULTIPLES = (0.7, 1.5, 3.2, 7.0)
STEPS = (0.1, 0.02)
# Errors that differ by less are as good as each other where the least is larger than the second, in sds; so
# are smaller ones up to the third.
_NEARLY, _LARGE, _UNNOTICED = 1.3, 1.0, 0.3
# Truths at these shares of a prior draw's distance from the centre.
_DISTANCES = (0.25, 0.5, 1.0)
_ROWS = 256
# Of persons with latents: terms of one gradient, and steps of exact chains, which cost as much as a path.
_TERMS, _STEPS_OF_TERMS = 8192, 1000
# Persons stand for others with the same outcomes, not other draws of them, so that what a clip takes away
# scatters as if persons were so few: as many as can be afforded, and so many for each parameter.
_FEWEST_PERSONS, _MOST_PERSONS, _FOR_A_PARAMETER = 64, 640, 12
_ROWS_OF_LOSSES, _STATES_OF_LOSSES = 64, 200
# Exact chains of every data set: the first starts at the truth, the others at draws of the prior.
_CHAINS = 4
# Chains whose means are spread by less than this many posterior sds are of one posterior.
_SAME = 0.5
_ATTEMPTS = 2
_UNKNOWN = Prediction(math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class SyntheticPosterior(SyntheticData):
    """Synthetic data with draws of several chains, ``(chains, draws, p)``, of its posterior.

    Attributes:
        standard_error: of ``mean``, root mean square over coordinates, in posterior sds.
        identified: whether errors are those of ``θ`` itself, or of the losses of some rows (where chains
            from different starts disagree about ``θ``, as those of networks do).
    """

    standard_error: float
    identified: bool


@functools.lru_cache(maxsize=8)
def _chain(reading: RowModel, likelihood: Likelihood) -> SyntheticChain:
    """One for a model: its programs serve every schedule."""

    def followed(root: jax.Array, clip: jax.Array) -> RowModel:
        """What a path's gradients are of, whatever its metric and clip."""
        return weighted_model(reading, likelihood.outcomes, root, clip) if likelihood.few else reading

    return SyntheticChain(followed)


@functools.partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _projected(domains: Rows, rows: Columns) -> Columns:
    return domains.project(rows)


@functools.partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _losses(reading: RowModel, states: jax.Array, rows: Columns) -> jax.Array:
    """Every row's loss at every state, ``(states, rows)``."""
    each = jax.vmap(reading.row_loss, in_axes=(None, 0))
    return jnp.asarray(jax.lax.map(lambda theta: each(theta, rows), states))


class Simulator:
    """The simulations of one plan."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        reading = facts.reading
        steps = CHAIN_STEPS if reading.own is None else _STEPS_OF_TERMS
        self._exact = functools.partial(_mala, reading, steps)
        self._chain = _chain(reading, facts.likelihood)

    def synthetic(self, index: int, distance: float) -> SyntheticPosterior:
        """Draw a data set at a prior draw and run the reference chains on it."""
        say(f"planning: exact chains on synthetic table {index + 1} of {2 * len(_DISTANCES)}")
        facts = self.facts
        truth = facts.plausible.drawn(index + 7, distance)
        outcomes = jax.random.key(100 + index)
        count = synthetic_count(facts)
        rows = _projected(facts.reading.rows, people(facts.reading.rows, count, index))
        rows, weights = facts.likelihood.sample(jnp.asarray(truth), rows, facts.num_rows / count, outcomes)
        at = truth[None], facts.metric.root
        information = second_moments(facts.likelihood.information, at, math.inf, rows, weights)
        metric = next_metric(facts.prior, facts.metric.root, np.asarray(information))
        starts = [truth, *(facts.prior.shrunk(index + 23 * chain, 1.0) for chain in range(1, _CHAINS))]
        for attempt in range(_ATTEMPTS):
            keys = jax.random.split(jax.random.key(200 + index + 1000 * attempt), _CHAINS)
            found = [
                self.posterior(metric.root, start, rows, weights, key)
                for start, key in zip(starts, keys, strict=True)
            ]
            chains = converged(found)
            pool = pooled(chains)
            if pool.between < _SAME:
                break
            # From a start in the prior's tail the way there is long: once more, from where they are.
            starts = [draws[-1] for draws, _ in found]
        data = SyntheticPosterior(rows, weights, pool.mean, pool.sd, chains, pool.standard_error, True)
        return data if pool.between < _SAME else self.by_losses(data)

    def by_losses(self, data: SyntheticPosterior) -> SyntheticPosterior:
        """The same data set with errors measured in the losses of rows."""
        pool = pooled(np.stack([self.losses(chain, data.rows) for chain in data.draws]))
        return replace(data, mean=pool.mean, sd=pool.sd, standard_error=pool.standard_error, identified=False)

    def posterior(
        self, root: Array, start: Array, rows: Columns, weights: Array, key: jax.Array
    ) -> tuple[Array, float]:
        """Draws of the exact posterior and their mean potential.

        Two rounds of MALA, the second in the metric of the first's draws.
        """
        first, second = jax.random.split(key)
        weights = self.facts.temper * weights
        draws = np.asarray(self._exact(root, start, rows, weights, first)[0])
        covariance = np.cov(draws.T).reshape(len(start), -1) + 1e-3 * root @ root.T
        usable = bool(np.all(np.isfinite(covariance)))
        factor = np.linalg.cholesky((covariance + covariance.T) / 2) if usable else root
        states, values = self._exact(factor, draws[-1], rows, weights, second)
        return np.asarray(states), float(np.mean(values))

    def losses(self, states: Array, rows: Columns) -> Array:
        """Losses of the first rows at some of the states."""
        few = {name: column[:_ROWS_OF_LOSSES] for name, column in rows.items()}
        every = max(1, len(states) // _STATES_OF_LOSSES)
        some = jnp.asarray(states[::every][:_STATES_OF_LOSSES])
        return np.asarray(_losses(self.facts.reading, some, few))

    def error(
        self, policy: GeneralPolicy, data: SyntheticPosterior, seed: int
    ) -> tuple[float, float, CompletedStage]:
        """Root mean square error of the means in posterior sds, the run's Langevin time, and the run."""
        history = simulate(policy, lambda stage: self._chain, data.rows, data.weights, seed)
        run = next(completed for completed in history if completed.stage.name == RUN)
        states = np.asarray(run.value)[burn_in(run.path) :]
        measured = states if data.identified else self.losses(states, data.rows)
        with np.errstate(over="ignore", invalid="ignore"):
            off = (measured.mean(axis=0) - data.mean) / np.maximum(data.sd, 1e-300)
            rms = float(np.sqrt(np.mean(np.square(off))))
        return (rms if math.isfinite(rms) else math.inf), run.path.schedule.total_time, run


def general_policy(facts: Facts, read: Coefficients | None = None) -> GeneralPolicy:
    """The policy whose clip and step make the least error on synthetic data sets, predicted with other noise.

    Errors are those of losses on all of them where ``θ`` is not identified on one: they have one unit.
    """
    with blas_of_one_thread(), jax.enable_x64(True):
        simulator = Simulator(_coarse(facts))
        # A factor's information is made of eigenvalues.
        factor = isinstance(facts.likelihood, FactorLikelihood)
        at_once = not factor and not calls_lapack(facts.reading)
        sets = in_parallel(lambda each: simulator.synthetic(*each), [*enumerate(_DISTANCES * 2)], at_once)
        unit = OF_PARAMETERS
        if not all(data.identified for data in sets):
            sets, unit = [simulator.by_losses(data) for data in sets], OF_LOSSES

        def tried(
            draft: GeneralPolicy, on: Sequence[SyntheticPosterior], noise: int = 0
        ) -> tuple[list[float], float, list[CompletedStage]]:
            say(f"planning: clip {draft.multiple:g}, step {draft.step:g} on {len(on)} synthetic tables")
            seeds = range(noise, noise + len(on))
            outcomes = in_parallel(
                lambda one: simulator.error(draft, *one), list(zip(on, seeds, strict=True)), at_once
            )
            errors, times, runs = (list(each) for each in zip(*outcomes, strict=True))
            return errors, min(times), runs

        drafts = [
            GeneralPolicy(facts, multiple, step, _UNKNOWN)
            for multiple, step in itertools.product(CLIP_MULTIPLES, STEPS)
        ]
        of_drafts = in_parallel(
            lambda draft: _typical_error(tried(draft, sets[: len(_DISTANCES)])[0]), drafts, at_once
        )
        draft = widest(drafts, of_drafts)
        # Data sets that chose it are looked at with other noise.
        errors, time, runs = tried(draft, sets, len(sets))
        rms = _typical_error(errors)
        of_each: tuple[Expected, ...] = ()
        if unit == OF_PARAMETERS and read is not None and read.names and math.isfinite(rms):
            compared = [
                read.compared(widened(run, facts, rms), data.draws.reshape(-1, facts.dim))
                for run, data in zip(runs, sets, strict=True)
            ]
            of_each = read.expected(compared, errors, rms)
    monte_carlo = min(math.sqrt(2.0 / time), rms)
    reference = min(_root_mean_square([data.standard_error for data in sets]), rms)
    bias = math.sqrt(max(rms**2 - monte_carlo**2 - reference**2, 0.0))
    low, high = (min(errors), max(errors)) if max(errors) < math.inf else (0.0, 0.0)
    found = Prediction(rms, bias, monte_carlo, draft.step / 4, unit, reference, low, high, of_each)
    return replace(draft, prediction=found)


def widest(drafts: Sequence[GeneralPolicy], errors: Sequence[float]) -> GeneralPolicy:
    """The widest clip that nearly has the least error.

    A wide clip makes a short path of a flat likelihood, which arrives where real rows are slower than
    synthetic ones. Where errors are small all paths do, but rows that are weighted unequally have another
    mode where the model is a little wrong, as no synthetic table shows, by more sds the more rows there are.
    """
    least = min(errors)
    near = _NEARLY * least if least > _LARGE else math.hypot(least, _UNNOTICED)
    kept = [k for k, error in enumerate(errors) if error <= near]
    return drafts[min(kept, key=lambda k: (-drafts[k].multiple, errors[k]))]


def synthetic_count(facts: Facts) -> int:
    """How many synthetic rows, or persons."""
    unit, own = facts.reading.unit, facts.reading.own
    if unit is None:
        return _ROWS if facts.likelihood.few else _ROWS // 2  # several outcomes of each
    terms = float(unit.rows) if own is None else own.work(unit.rows)
    fewest = _ROWS if own is None else max(_FEWEST_PERSONS, _FOR_A_PARAMETER * facts.dim)
    affordable = min(max(fewest, int(_TERMS / terms)), _MOST_PERSONS)
    return min(affordable, facts.num_rows)


def _coarse(facts: Facts) -> Facts:
    reading = coarse(facts.reading)
    return replace(facts, reading=reading, likelihood=likelihood_of(reading, facts.temper))


def _typical_error(errors: list[float]) -> float:
    """Truths at the far end of a prior make the largest errors, and few data sets are like them."""
    return float(typical([min(error, 1e9) for error in errors]))


def _root_mean_square(values: list[float]) -> float:
    return math.sqrt(sum(min(value, 1e9) ** 2 for value in values) / len(values))


@functools.lru_cache(maxsize=8)
def calls_lapack(reading: RowModel) -> bool:
    """Whether gradients of rows side by side are computed by calls of LAPACK.

    A call for many matrices hands them to threads of XLA's pool and waits for them, on a thread of that pool:
    of as many programs at once as there are threads each waits for the others, for ever (jaxlib 0.10).
    """
    two = {name: abstract((2, *one.shape), one.dtype) for name, one in row_shapes(reading.rows).items()}
    gradients = jax.jit(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0)))
    with jax.enable_x64(True):
        return "lapack" in gradients.lower(jnp.zeros(reading.dim), two).as_text()
