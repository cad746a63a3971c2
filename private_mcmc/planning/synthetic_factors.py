"""Synthetic outcomes of models whose likelihood is a ``numpyro.factor``: no density of an outcome is known.

Of an event and the time until it only the pair has a density, and of what cuts times off the model says
nothing. So times stay the rows' own, and of the event is asked that scores have mean zero, as they have
under the model; information is curvature, which needs no outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from private_mcmc.planning.synthetic import Columns, Likelihood

# Of more parameters a root of every row's curvature costs too much.
MOST = 32
_LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class FactorLikelihood(Likelihood):
    """A row's term with another value of its whole-numbered columns in place of its own."""

    @property
    def few(self) -> bool:
        """Weights by the largest slope would ask for the outcomes' probabilities."""
        return False

    @property
    def vectors(self) -> int:
        """A root of the curvature has as many rows as there are parameters."""
        return self.reading.dim

    def information(self, thetas: ArrayLike, root: ArrayLike, row: Columns) -> jax.Array:
        """``V`` with ``VᵀV = w Aᵀ mean_j [∇²v(θ_j)]₊ A``, the row's own outcome included."""
        hessian = jax.vmap(jax.hessian(self.reading.row_loss), in_axes=(0, None))(jnp.asarray(thetas), row)
        hessian = jnp.nan_to_num(hessian, nan=0.0, posinf=0.0, neginf=0.0)
        values, vectors = jnp.linalg.eigh(hessian)
        halves = jnp.sqrt(jnp.maximum(values, 0.0))[..., None] * jnp.swapaxes(vectors, -1, -2)
        flat = halves.reshape(-1, halves.shape[-1]) * jnp.sqrt(self.temper / len(halves))
        return jnp.nan_to_num(flat @ jnp.asarray(root), nan=0.0, posinf=0.0, neginf=0.0)

    def _logits(self, theta: jax.Array, row: Columns) -> jax.Array:
        """Of two outcomes, the probabilities that bring the expected score closest to zero."""
        if self._count != 2:
            return super()._logits(theta, row)
        score = jax.grad(self.reading.row_loss)
        first, second = jax.vmap(lambda outcome: score(theta, row | outcome))(self.outcomes)
        apart = first - second
        share = jnp.dot(first, apart) / jnp.maximum(jnp.dot(apart, apart), 1e-30)
        share = jnp.clip(jnp.nan_to_num(share, nan=0.5), _LEAST, 1 - _LEAST)
        return jnp.log(jnp.stack([1 - share, share]))
