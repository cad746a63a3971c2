"""Synthetic people with outcomes that are drawn: of persons with several rows, and of times to an event.

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
from private_mcmc.planning.synthetic import Likelihood, outcome_columns
from private_mcmc.planning.synthetic_persons import PersonLikelihood, coarse, likelihood_of

Array: TypeAlias = npt.NDArray[np.float64]

# Outcomes of every row, and steps by which the draws' mean score is made 0, as the model's is.
_OUTCOMES, _CENTRING = 16, 4


@lru_cache(maxsize=8)
def likelihood_to_draw(reading: RowModel) -> Likelihood | None:
    """What draws the outcomes of a row of ``reading``; ``None`` where they are gone through instead.

    Raises:
        NotYetSupported: for persons whose rows have an outcome of several columns, or of vectors.
    """
    single = reading.each or reading
    made = likelihood_of(coarse(reading), 1.0)
    if (made.each if isinstance(made, PersonLikelihood) else made).times is not None:
        return made
    if reading.unit is None:
        return None
    names = outcome_columns(single)
    domain = single.rows.columns[names[0]]
    if len(names) != 1 or domain.event_shape != () or not np.all(np.isfinite(domain.interval())):
        raise NotYetSupported("the posterior given releases needs an outcome of one bounded scalar column.")
    return made


def with_drawn(reading: RowModel, likelihood: Likelihood, covariates: Fitted, theta: Array) -> People:
    """Every row with outcomes drawn at ``theta``, weighted so that their mean score there is 0."""
    rows, count = covariates.rows, len(covariates.weights)
    repeated = {name: jnp.repeat(column, _OUTCOMES, axis=0) for name, column in rows.items()}
    columns = _drawn(likelihood, reading.unit is not None, jnp.asarray(theta), repeated)
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
    """One number of an outcome: of persons a sum over their rows, whose spread tells how alike they are."""
    values = np.asarray(columns[outcome_columns(reading.each or reading)[0]], dtype=np.float64)
    if OWN_ROWS in columns:
        values = values * np.asarray(columns[OWN_ROWS])
    return np.asarray(values.reshape(len(values), -1).sum(axis=1))


@partial(jax.jit, static_argnums=(0, 1))
def _drawn(likelihood: Likelihood, of_persons: bool, theta: jax.Array, rows: Columns) -> Columns:
    key = jax.random.key(17)
    if of_persons:
        return likelihood.sample(theta, rows, 1.0, key)[0]
    keys = jax.random.split(key, len(next(iter(rows.values()))))
    return rows | jax.vmap(likelihood.drawn, in_axes=(None, 0, 0))(theta, rows, keys)


@partial(jax.jit, static_argnums=0)
def _scores(reading: RowModel, theta: jax.Array, rows: Columns) -> jax.Array:
    def one(row: Columns) -> jax.Array:
        return jnp.asarray(-jax.grad(reading.row_loss)(theta, row))

    found: jax.Array = jax.lax.map(one, rows, batch_size=1024)
    return jnp.asarray(jnp.nan_to_num(found))
