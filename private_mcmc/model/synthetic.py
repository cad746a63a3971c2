"""Public stand-ins for private rows: people of the declared domain, draws of the prior.

Everything is drawn with fixed keys from the declared row domain and the model's own prior, so that it
depends on nothing private.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro import handlers
from numpyro.distributions import biject_to

from private_mcmc.domains import Ball, Binary, Categories, Domain, Rows
from private_mcmc.domains.persons import OWN_ROWS, Several
from private_mcmc.model.likelihoods import cuts
from private_mcmc.model.program import Output, affinity
from private_mcmc.model.row_model import RowModel
from private_mcmc.model.sites import ModelSites
from private_mcmc.model.tracing import ONE_AT_A_TIME, Whole
from private_mcmc.records import RUN_ONCE, PublicArguments, Record

Array = npt.NDArray[np.float64]


def has_factors(reading: RowModel) -> bool:
    """Whether a term is a ``numpyro.factor``."""
    return any(site.family == "Unit" for site in reading.observations)


def outcome_columns(reading: RowModel) -> tuple[str, ...]:
    """The columns that the observed values are made of; of a ``factor``, those that its predictor leaves."""
    program = reading.program
    if not has_factors(reading):
        observed = [program.outputs[Output("observed", site.name)] for site in reading.observations]
        return tuple(sorted(program.reads(observed) & reading.rows.columns.keys()))
    loss, theta = program.outputs["loss"], program.inputs["theta"]
    read, others = program.reads([loss]) & reading.rows.columns.keys(), frozenset[str]()
    for number, cut in enumerate(cuts(program, loss, affinity(program, "theta"))):
        # A predictor may have been multiplied by its outcome, as (2y − 1)·η, or subtracted from it.
        if not others and (number == 0 or cut is not theta):
            others = read - program.reads([cut])
    # An event, not the time until it: see ``FactorLikelihood``.
    whole = {name for name in others if np.issubdtype(reading.rows.columns[name].dtype, np.integer)}
    return tuple(sorted(whole or others))


@functools.partial(jax.jit, static_argnums=(0, 1, 2), compiler_options=RUN_ONCE)
def synthetic_rows(rows: Rows, seed: int, count: int) -> Record:
    """Public random rows that reach the extremes of the domains, by one program."""
    return dict(rows.synthetic(seed, count))


def prior_draws(reading: RowModel, model_args: PublicArguments, count: int) -> Array:
    """The finite ones of ``count`` draws of ``θ`` from a proper prior, ``(draws, p)``: the model is run."""
    with jax.enable_x64(True):
        row = synthetic_rows((reading.each or reading).rows, 0, 1)

        def draw(key: jax.Array) -> jax.Array:
            whole = Whole(ModelSites())
            with ONE_AT_A_TIME, handlers.trace() as messages, handlers.seed(rng_seed=key), whole:
                reading.model(**row, **model_args)
            found = [messages[site.name] for site in reading.sites]
            free = [biject_to(message["fn"].support).inv(message["value"]) for message in found]
            return jnp.concatenate([jnp.ravel(value) for value in free])

        keys = jax.random.split(jax.random.key(1), count)
        draws = np.asarray(jax.jit(jax.vmap(draw), compiler_options=RUN_ONCE)(keys), dtype=np.float64)
    return draws[np.all(np.isfinite(draws), axis=1)]


def scale_of(draws: Array) -> tuple[Array, Array]:
    """Coordinatewise medians, and interquartile ranges in units of a standard Normal's (or 1)."""
    low, centre, high = np.quantile(draws, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / 1.349
    return centre, np.where(scale > 0, scale, 1.0)


# Prevalences of indicators, and means of other columns' shares of their range.
_PREVALENCES = (0.02, 0.08, 0.2, 0.35, 0.5)
_MEANS, _SPREAD = (0.1, 0.25, 0.4, 0.6), 6.0


def people(rows: Rows, count: int, seed: int) -> dict[str, np.ndarray]:
    """``count`` public rows, before they are mapped into their domains."""
    random = np.random.default_rng(seed)
    drawn = {name: _column(domain, count, random) for name, domain in rows.items}
    if OWN_ROWS in drawn:
        most = drawn[OWN_ROWS].shape[1]
        # One person in two has all rows that are allowed.
        has = np.where(random.random(count) < 0.5, most, random.integers(1, most + 1, count))
        drawn[OWN_ROWS] = np.asarray(np.arange(most) < has[:, None], dtype=np.int64)
    return drawn


def _column(domain: Domain, count: int, random: np.random.Generator) -> np.ndarray:
    if isinstance(domain, Several):
        values = _column(domain.each, count * domain.count, random)
        values = values.reshape(count, domain.count, *domain.each.event_shape)
        # Of some, what a row says is the person's, like their age, and of others it changes.
        same = random.random(count) < 0.5
        values[same] = values[same, :1]
        return values
    if isinstance(domain, Ball) and domain.centred:
        return random.standard_normal((count, domain.dim)) * (domain.radius / math.sqrt(domain.dim))
    if isinstance(domain, Ball):
        # An intercept, and the others in [0, 1], divided by the norm of the longest such row.
        shares = np.column_stack([_shares(count, random) for _ in range(domain.dim)])
        shares[:, 0] = 1.0
        return np.asarray(shares * (domain.radius / math.sqrt(domain.dim)))
    if isinstance(domain, Categories):
        weights = random.permutation(0.5 ** np.arange(domain.k).clip(max=6))
        return np.asarray(random.choice(domain.k, size=count, p=weights / weights.sum()))
    low, high = domain.interval()
    if not np.all(np.isfinite(high - low)):
        return np.asarray(random.standard_normal((count, *domain.event_shape)))
    if isinstance(domain, Binary):
        return _indicator(count, random)
    # A number of a table is seldom two-valued; what fills a vector often is.
    one = _skewed if domain.event_shape == () else _shares
    shares = np.column_stack([one(count, random) for _ in range(max(math.prod(domain.event_shape), 1))])
    return np.asarray(low + (high - low) * shares.reshape(count, *domain.event_shape))


def _shares(count: int, random: np.random.Generator) -> Array:
    return _indicator(count, random) if random.random() < 0.5 else _skewed(count, random)


def _skewed(count: int, random: np.random.Generator) -> Array:
    mean = random.choice(_MEANS)
    return np.asarray(random.beta(_SPREAD * mean, _SPREAD * (1 - mean), size=count))


def _indicator(count: int, random: np.random.Generator) -> Array:
    """Somebody has it, however few people there are: what nobody has, a table tells nothing of."""
    drawn, prevalence = random.random(count), random.choice(_PREVALENCES)
    fewest = max(round(prevalence * count) // 2, 1)
    return np.asarray(drawn <= max(prevalence, np.sort(drawn)[fewest - 1]), dtype=np.float64)
