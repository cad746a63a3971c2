"""Synthetic persons with several rows, whose outcomes are drawn.

Where outcomes cannot be gone through, those of every row are drawn from the model at a parameter ``θ_0``, and
weighted for others by ``1 + (s − E[s | row])·(θ − θ_0)``, ``s`` being the score at ``θ_0``, which follows the
mode. Means are then linear in the parameter: weights ``∝ exp(s·(θ − θ_0))``, of few draws, level off where
the model's own means do not, and leave far parameters as likely as near ones.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import NotYetSupported
from private_mcmc.inference.posterior.covariates import Fitted
from private_mcmc.inference.posterior.outcomes import Columns, Tilt
from private_mcmc.inference.posterior.people import People
from private_mcmc.model import RowModel
from private_mcmc.planning.synthetic import Likelihood, has_factors, outcome_columns
from private_mcmc.planning.synthetic_persons import likelihood_of
from private_mcmc.records import RUN_ONCE

Array: TypeAlias = npt.NDArray[np.float64]

# Outcomes of every row, and steps by which the draws' mean score is made 0, as the model's is.
_OUTCOMES, _CENTRING = 16, 4


@lru_cache(maxsize=8)
def likelihood_to_draw(reading: RowModel) -> Likelihood | None:
    """What draws the outcomes of a row of ``reading``; ``None`` where they are gone through instead.

    Raises:
        NotYetSupported: for persons with latents of their own, or whose rows have another outcome than one
            bounded number.
    """
    if reading.unit is None:
        return None
    if reading.own is not None:
        raise NotYetSupported("persons with latents of their own have no likelihood of their releases yet.")
    single = reading.each or reading
    names = outcome_columns(single)
    scalar = len(names) == 1 and not has_factors(single) and single.rows.columns[names[0]].event_shape == ()
    if not (scalar and np.all(np.isfinite(single.rows.columns[names[0]].interval()))):
        raise NotYetSupported("the posterior given releases needs an outcome of one bounded scalar column.")
    return likelihood_of(reading, 1.0)


def with_drawn(reading: RowModel, likelihood: Likelihood, covariates: Fitted, theta: Array) -> People:
    """Every row with outcomes drawn at ``theta``, weighted so that their mean score there is 0."""
    rows, count = covariates.rows, len(covariates.weights)
    repeated = {name: jnp.repeat(column, _OUTCOMES, axis=0) for name, column in rows.items()}
    columns = _drawn(likelihood, jnp.asarray(theta), repeated)
    scores = np.asarray(_scores(reading, jnp.asarray(theta), columns))
    weights, moved = covariates.weights, theta
    apart = scores.reshape(count, _OUTCOMES, -1)
    for _ in range(_CENTRING):
        log_shares = apart @ (theta - moved)
        shares = np.exp(log_shares - log_shares.max(axis=1, keepdims=True))
        shares = shares / shares.sum(axis=1, keepdims=True)
        means = np.einsum("rq,rqi->ri", shares, apart)
        spread = np.einsum("r,rq,rqi,rqj->ij", weights, shares, apart, apart)
        spread = spread - np.einsum("r,ri,rj->ij", weights, means, means)
        moved = moved + np.linalg.pinv(spread, hermitian=True) @ (weights @ means)
    known = weights, covariates.functions, covariates.deviations
    totals = _totals(reading, columns).reshape(count, _OUTCOMES)
    centred = (apart - means[:, None]).reshape(scores.shape)
    told = Tilt(jnp.asarray(centred), jnp.asarray(theta), jnp.asarray(shares))
    return People(rows, columns, *known, totals, told)


def _totals(reading: RowModel, columns: Columns) -> Array:
    """Of every person's outcomes the sum over its rows, whose spread tells how alike they are."""
    values = np.asarray(columns[outcome_columns(reading.each or reading)[0]], dtype=np.float64)
    return np.asarray((values * np.asarray(columns[OWN_ROWS])).sum(axis=1))


@partial(jax.jit, static_argnums=0)
def _drawn(likelihood: Likelihood, theta: jax.Array, rows: Columns) -> Columns:
    return likelihood.sample(theta, rows, 1.0, jax.random.key(17))[0]


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _scores(reading: RowModel, theta: jax.Array, rows: Columns) -> jax.Array:
    def one(row: Columns) -> jax.Array:
        return jnp.asarray(-jax.grad(reading.row_loss)(theta, row))

    found: jax.Array = jax.lax.map(one, rows, batch_size=1024)
    return jnp.asarray(jnp.nan_to_num(found))
