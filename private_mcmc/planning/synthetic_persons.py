"""Synthetic outcomes of persons: all rows of a person drawn together, given the latents that they share."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic import Columns, Likelihood, candidates, outcome_columns

# Outcomes that stand for all that a person's rows can have.
_DRAWS = 8


@dataclass(frozen=True, eq=False)
class PersonLikelihood:
    """What ``Likelihood`` is of rows, of persons; ``temper`` is the weight of their terms."""

    reading: RowModel
    outcomes: Columns
    temper: float = 1.0

    @property
    def vectors(self) -> int:
        """How many gradients stand for one person and parameter."""
        return _DRAWS

    def information(self, thetas: ArrayLike, root: ArrayLike, person: Columns) -> jax.Array:
        """``V`` with ``VᵀV ≈ w Aᵀ mean_j E_y[∇V ∇Vᵀ] A``, by outcomes drawn from the model with fixed keys.

        The expectation is over outcomes given the person's covariates: the person's own are not used.
        """
        keys, score = jax.random.split(jax.random.key(11), _DRAWS), jax.grad(self.reading.row_loss)

        def at(theta: jax.Array) -> jax.Array:
            return jnp.asarray(jax.vmap(lambda key: score(theta, self._drawn(theta, person, key)))(keys))

        flat = jax.vmap(at)(jnp.asarray(thetas)).reshape(-1, self.reading.dim)
        scaled = flat * jnp.sqrt(self.temper / flat.shape[0]) @ jnp.asarray(root)
        return jnp.asarray(jnp.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0))

    def sample(
        self, theta: jax.Array, persons: Columns, each: float, key: jax.Array
    ) -> tuple[Columns, Array]:
        """One draw of every person's outcomes at ``theta``, standing for ``each`` persons."""
        count = len(next(iter(persons.values())))
        drawn = jax.vmap(self._drawn, in_axes=(None, 0, 0))(theta, persons, jax.random.split(key, count))
        return drawn, np.full(count, each)

    def _drawn(self, theta: jax.Array, person: Columns, key: jax.Array) -> Columns:
        """The person with other outcomes in all rows."""
        first, second = jax.random.split(key)
        each, own = self.reading.each, self.reading.own
        if each is None:
            raise NotYetSupported("the model is not one of persons.")
        vector, row_loss = theta, each.row_loss
        if own is not None:
            vectors, log_weights = own.grid(theta)
            vector, row_loss = vectors[jax.random.categorical(first, log_weights)], own.row_loss

        def of_row(row: Columns, key: jax.Array) -> Columns:
            losses = jax.vmap(lambda outcome: row_loss(vector, row | outcome))(self.outcomes)
            chosen = jax.random.categorical(key, jnp.where(jnp.isfinite(losses), -losses, -1e30))
            return {name: options[chosen] for name, options in self.outcomes.items()}

        rows = {name: person[name] for name in each.rows.columns}
        count = len(next(iter(rows.values())))
        return person | jax.vmap(of_row)(rows, jax.random.split(second, count))


def likelihood_of(reading: RowModel, temper: float) -> Likelihood | PersonLikelihood:
    """Losses at possible outcomes, of rows or of persons."""
    names = outcome_columns(reading)
    if reading.each is None:
        return Likelihood(reading, candidates(reading.rows, names), temper)
    return PersonLikelihood(reading, candidates(reading.each.rows, names), temper)
