"""Synthetic people: columns as tables of people have them, rare indicators among them, from a declaration.

And what they would be counted as, where the noise of released counts hides real ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Ball, Binary, Categories, Domain, Rows
from private_mcmc.domains.persons import OWN_ROWS, Several
from private_mcmc.model import Predictor
from private_mcmc.planning.influence import Influence
from private_mcmc.planning.influence_counts import CELLS
from private_mcmc.planning.stages import Array, CountsStage, of_rows
from private_mcmc.planning.synthetic import Columns, with_outcomes
from private_mcmc.records import RUN_ONCE

# Prevalences of indicators, and means of other columns' shares of their range.
_PREVALENCES = (0.02, 0.08, 0.2, 0.35, 0.5)


_MEANS = (0.1, 0.25, 0.4, 0.6)


_SPREAD = 6.0


_KINDS, _EACH = 4, 128


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
    size = max(math.prod(domain.event_shape), 1)
    shares = np.column_stack([_shares(count, random) for _ in range(size)])
    return np.asarray(low + (high - low) * shares.reshape(count, *domain.event_shape))


def _shares(count: int, random: np.random.Generator) -> Array:
    if random.random() < 0.5:
        return _indicator(count, random)
    mean = random.choice(_MEANS)
    return np.asarray(random.beta(_SPREAD * mean, _SPREAD * (1 - mean), size=count))


def _indicator(count: int, random: np.random.Generator) -> Array:
    return np.asarray(random.random(count) < random.choice(_PREVALENCES), dtype=np.float64)


def expected_counts(influence: Influence, stage: CountsStage, count: float) -> Array:
    """How many of ``count`` synthetic people are in each cell of the stage, with outcomes of the model.

    A cell is that of a row's influence at a parameter and in a metric, which the stage's function is given.
    """
    if not isinstance(stage.cell, partial):
        raise TypeError("the rows are counted by a function of a parameter, a metric and the row")
    theta, choices = np.asarray(stage.cell.args[0]), dict(influence.outcomes)
    with jax.enable_x64(True):
        rows, design, offset = _people(influence.predictor, influence.model.rows)
        logits = -np.asarray(losses(influence.predictor, choices, rows, design @ theta + offset))
        each = count / len(logits)
        rows, weights = with_outcomes(rows, choices, logits, each, jax.random.key(0))
        cells = of_rows(stage.cell, rows)
    return np.asarray(np.bincount(np.asarray(cells), weights, minlength=CELLS), dtype=np.float64)


@lru_cache(maxsize=8)
def _people(predictor: Predictor, domains: Rows) -> tuple[Columns, jax.Array, jax.Array]:
    kinds = [people(domains, _EACH, seed) for seed in range(_KINDS)]
    drawn = {name: np.concatenate([kind[name] for kind in kinds]) for name in kinds[0]}
    made: tuple[Columns, jax.Array, jax.Array] = _laid_out(predictor, domains, drawn)
    return made


@partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def _laid_out(predictor: Predictor, domains: Rows, drawn: Columns) -> tuple[Columns, jax.Array, jax.Array]:
    rows = domains.project(drawn)
    return rows, jax.vmap(predictor.design)(rows), jax.vmap(predictor.offset)(rows)


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def losses(
    predictor: Predictor, choices: Mapping[str, np.ndarray], rows: Columns, eta: jax.Array
) -> jax.Array:
    """Of every row with every outcome: ``(rows, values)``."""

    def of_row(eta: jax.Array, row: Columns) -> jax.Array:
        return jnp.asarray(jax.vmap(lambda choice: predictor.loss(eta, {**row, **choice}))(choices))

    return jnp.asarray(jax.vmap(of_row)(eta, rows))
