"""What synthetic people would be counted as, where the noise of released counts hides real ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Rows
from private_mcmc.model import Predictor
from private_mcmc.planning.influence import CELLS, Influence
from private_mcmc.planning.people import people
from private_mcmc.planning.stages import Array, CountsStage, of_rows
from private_mcmc.planning.synthetic import Columns, with_outcomes
from private_mcmc.records import RUN_ONCE

_KINDS, _EACH = 4, 128


def expected_counts(influence: Influence, stage: CountsStage, num_rows: int) -> Array:
    """How many of ``num_rows`` synthetic people are in each cell of the stage, with outcomes of the model.

    A cell is that of a row's influence at a parameter and in a metric, which the stage's function is given.
    """
    if not isinstance(stage.cell, partial):
        raise TypeError("the rows are counted by a function of a parameter, a metric and the row")
    theta, choices = np.asarray(stage.cell.args[0]), dict(influence.outcomes)
    with jax.enable_x64(True):
        rows, design, offset = _people(influence.predictor, influence.model.rows)
        logits = -np.asarray(losses(influence.predictor, choices, rows, design @ theta + offset))
        each = num_rows / len(logits)
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
