"""Draws of the prior under which outcomes are as they were declared.

Under most draws of a wide prior an outcome such as a logarithm of wages would lie far outside its declared
range. Metrics, clips and predictions made there are of nobody: that range is a public fact as the prior is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic import Columns, Likelihood, Prior
from private_mcmc.planning.synthetic_persons import PersonLikelihood

# Scores whose mean is this share of their mean square are of outcomes that the declared range cuts off.
_CUT_OFF = 0.1
_HALVINGS, _ROWS = 6, 64


@dataclass(frozen=True, eq=False)
class Plausible:
    """Draws of ``prior`` that leave the outcomes of public ``rows`` within their declared range."""

    prior: Prior
    likelihood: Likelihood
    rows: Columns

    def drawn(self, index: int, share: float) -> Array:
        """A draw, pulled towards the centre to ``share`` of its distance, or half of it until it fits."""
        each = self.likelihood.each if isinstance(self.likelihood, PersonLikelihood) else self.likelihood
        if type(each) is not Likelihood or each.times is not None or each.few:
            return self.prior.shrunk(index, share)
        rows = {name: jnp.asarray(column)[:_ROWS] for name, column in self.rows.items() if name != OWN_ROWS}
        if each is not self.likelihood:
            rows = {name: column[:, 0] for name, column in rows.items()}
        tried = np.stack([self.prior.shrunk(index, share * 0.5**k) for k in range(_HALVINGS)])
        with jax.enable_x64(True):
            fits = np.asarray(_cut_off(each, jnp.asarray(tried), rows)) <= _CUT_OFF
        return np.asarray(tried[np.argmax(fits) if fits.any() else -1])


@partial(jax.jit, static_argnums=0)
def _cut_off(likelihood: Likelihood, thetas: jax.Array, rows: Columns) -> jax.Array:
    """``Σ_i ‖E ∇v‖²`` over ``Σ_i E‖∇v‖²``, over the outcomes that were declared, at every ``θ``."""

    def of_row(theta: jax.Array, row: Columns) -> tuple[jax.Array, jax.Array]:
        mean, squares = likelihood.score(theta, row)
        return jnp.sum(mean**2), squares

    def at(theta: jax.Array) -> jax.Array:
        mean, squares = jax.vmap(of_row, in_axes=(None, 0))(theta, rows)
        return jnp.nan_to_num(jnp.sum(mean) / jnp.maximum(jnp.sum(squares), 1e-300), nan=1.0)

    return jnp.asarray(jax.lax.map(at, thetas))
