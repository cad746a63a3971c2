"""Public stand-ins for private rows: people of the declared domain, its extremes; and draws of the prior.

Everything is drawn with fixed keys from the declared row domain and the model's own prior, so that it
depends on nothing private.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import init_to_uniform

from private_mcmc.domains import Ball, Binary, Categories, Domain, Rows
from private_mcmc.domains.persons import OWN_ROWS, Several
from private_mcmc.model.program import Output, affinity
from private_mcmc.model.proposals import cuts
from private_mcmc.model.reading import RowModel
from private_mcmc.model.sites import Message, ModelSites
from private_mcmc.model.tracing import ONE_AT_A_TIME, Whole
from private_mcmc.records import Record
from private_mcmc.report import number
from private_mcmc.system import RUN_ONCE

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
    for index, cut in enumerate(cuts(program, loss, affinity(program, "theta"))):
        # A predictor may have been multiplied by its outcome, as (2y − 1)·η, or subtracted from it.
        if not others and (index == 0 or cut is not theta):
            others = read - program.reads([cut])
    # An event, not the time until it: see ``FactorLikelihood``.
    whole = {name for name in others if np.issubdtype(reading.rows.columns[name].dtype, np.integer)}
    return tuple(sorted(whole or others))


def prior_draws(reading: RowModel, count: int) -> Array:
    """``count`` draws of ``θ`` from the prior, ``(count, p)``: the model is run.

    Coordinates with an improper prior, or one so vague that its draws overflow, start as chains of NumPyro:
    uniform in (−2, 2).
    """
    with jax.enable_x64(True):
        draws = np.asarray(_prior_draws(reading, count))
    odd = ~np.isfinite(draws)
    odd |= odd.mean(axis=0) > _VAGUE
    return np.where(odd, np.random.default_rng(2).uniform(-2.0, 2.0, draws.shape), draws)


# Of a coordinate's draws that overflow, the most that are replaced alone.
_VAGUE = 0.05


@partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def _prior_draws(reading: RowModel, count: int) -> jax.Array:
    # No prior reads a row.
    domains = (reading.each or reading).rows.items
    row = {name: jnp.zeros((1, *domain.event_shape), domain.dtype) for name, domain in domains}

    def improper(site: Message) -> jax.Array | None:
        return init_to_uniform(site) if site["name"] in reading.improper else None

    def draw(key: jax.Array) -> jax.Array:
        proper, whole = handlers.substitute(substitute_fn=improper), Whole(ModelSites())
        with ONE_AT_A_TIME, handlers.trace() as messages, proper, handlers.seed(rng_seed=key), whole:
            reading.model(**row, **reading.public)
        found = [messages[site.name] for site in reading.sites]
        free = [biject_to(message["fn"].support).inv(message["value"]) for message in found]
        return jnp.concatenate([jnp.ravel(value) for value in free]).astype(float)

    return jax.vmap(draw)(jax.random.split(jax.random.key(1), count))


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


PublicRow = Record

_FAR = (1.0, 1e3, 1e6)
_MOST_AXES = 12
_MOST_ROWS = 600


def extreme_rows(rows: Rows) -> list[PublicRow]:
    """Rows of the domain with at most two columns away from the value nearest zero, extremes first met first.

    Every value is in the domain by construction; nothing here is private.
    """
    values = {name: _extremes(domain) for name, domain in rows.columns.items()}
    if OWN_ROWS in values:
        # Persons with all their rows first, then such with one or none.
        full = np.ones(rows.columns[OWN_ROWS].event_shape, np.int64)
        values[OWN_ROWS] = [full, np.eye(1, len(full), dtype=np.int64)[0], 0 * full]
    base = {name: options[0] for name, options in values.items()}
    found: dict[bytes, PublicRow] = {}
    for row in _near(base, values):
        key = b"".join(np.asarray(row[name], dtype=np.float64).tobytes() for name in sorted(row))
        found.setdefault(key, row)
        if len(found) >= _MOST_ROWS:
            break
    return list(found.values())


def stacked(rows: Sequence[PublicRow]) -> dict[str, np.ndarray]:
    """The columns of some rows."""
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def row_words(row: PublicRow) -> str:
    """The values of a public row, long ones cut short."""
    return ", ".join(f"{name} = {_short(value)}" for name, value in row.items())


def _short(value: object) -> str:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return number(float(array))
    used = np.flatnonzero(array.ravel())
    if len(used) == 0:
        return "0"
    if len(used) == 1:
        index = ", ".join(str(i) for i in np.unravel_index(used[0], array.shape))
        return f"{number(float(array.ravel()[used[0]]))} at [{index}], else 0"
    return "(" + ", ".join(number(float(v)) for v in array.ravel()[:6]) + (", …)" if array.size > 6 else ")")


def _near(base: PublicRow, values: Mapping[str, list[Any]]) -> Iterable[PublicRow]:
    yield base
    for name, options in values.items():
        for option in options[1:]:
            yield {**base, name: option}
    for first, second in combinations(values, 2):
        for one, two in product(values[first][1:], values[second][1:]):
            yield {**base, first: one, second: two}
    far = ([options[-1], options[min(1, len(options) - 1)]] for options in values.values())
    for option in product(*far):
        yield dict(zip(values, option, strict=True))


def _extremes(domain: Domain) -> list[Any]:
    """The value nearest zero, then extremes."""
    if isinstance(domain, Several):
        return [np.stack([value] * domain.count) for value in _extremes(domain.each)]
    low, high = domain.interval()
    if domain.dtype.kind != "f" and not domain.event_shape:
        first, last = int(low), int(high)
        return list(dict.fromkeys([first, last, *range(first, min(last, first + 4) + 1)]))
    nearest, unbounded = np.clip(np.zeros(low.shape), low, high), not np.all(np.isfinite(high - low))
    ends = [
        np.where(np.isfinite(end), end, far)
        for size in (_FAR if unbounded else _FAR[:1])
        for end, far in ((high, size), (low, -size))
    ]
    if not domain.event_shape:
        # A bounded score peaks inside: quarter points as well as ends.
        inner = [] if unbounded else [low + share * (high - low) for share in (0.25, 0.5, 0.75)]
        return list(dict.fromkeys(float(value) for value in (nearest, *ends, *inner)))
    found = [nearest]
    for axis in list(np.ndindex(low.shape))[:_MOST_AXES]:
        for end in ends:
            if end[axis] != nearest[axis]:
                corner = nearest.copy()
                corner[axis] = end[axis]
                found.append(corner)
    return found if isinstance(domain, Ball) or unbounded else [*found, *ends]
