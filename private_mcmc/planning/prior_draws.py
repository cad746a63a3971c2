"""Draws of a model's own prior, and those of them under which outcomes are as they were declared.

Under most draws of a wide prior an outcome such as a logarithm of wages would lie far outside its declared
range. Metrics, clips and predictions made there are of nobody: that range is a public fact as the prior is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.model.tracing import ONE_AT_A_TIME
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic import Columns, Likelihood
from private_mcmc.planning.synthetic_persons import PersonLikelihood
from private_mcmc.records import RUN_ONCE, Model, PublicArguments

PRIOR_DRAWS = 400
# Scores whose mean is this share of their mean square are of outcomes that the declared range cuts off.
_CUT_OFF = 0.1
_HALVINGS, _ROWS = 6, 64
_HESSIANS = 60


@dataclass(frozen=True, eq=False)
class Prior:
    """Draws of the prior on the unconstrained space.

    Attributes:
        draws: shape ``(draws, p)``.
        centre: coordinatewise medians, shape ``(p,)``.
        scale: coordinatewise interquartile ranges in units of a standard Normal's, shape ``(p,)``.
        precision: what the prior adds to curvature, coordinatewise: medians over the draws of the diagonal
            of its Hessian, at least ``1/scale²``; shape ``(p,)``.
        hessians: of ``K`` at some of the draws, shape ``(few, p, p)``.
    """

    draws: Array
    centre: Array
    scale: Array
    precision: Array
    hessians: Array

    def stiffness(self, root: Array) -> float:
        """What the largest curvature of ``K`` in the metric of ``root`` rarely exceeds (one draw in ten)."""
        largest = np.linalg.eigvalsh(root.T @ self.hessians @ root)[:, -1]
        return float(np.quantile(largest, 0.9))

    def shrunk(self, index: int, share: float) -> Array:
        """A draw, pulled towards the centre to ``share`` of its distance."""
        pulled: Array = self.centre + share * (self.draws[index % len(self.draws)] - self.centre)
        return pulled


def prior_of(model: Model, reading: RowModel, model_args: PublicArguments) -> Prior:
    """Draw from the prior by running the model.

    Raises:
        NotYetSupported: for a prior that cannot be drawn from.
    """
    if reading.prior.improper:
        raise NotYetSupported(
            f"plans draw synthetic data from the prior, and that of {', '.join(reading.prior.improper)} is "
            "improper: give it a proper prior, or run the model with PrivateMCMC(PrivateULA(model, …), …)."
        )
    with jax.enable_x64(True):
        rows = (reading.each or reading).rows
        row = jax.jit(functools.partial(rows.synthetic, 0, 1), compiler_options=RUN_ONCE)()

        def draw(key: jax.Array) -> jax.Array:
            with ONE_AT_A_TIME, handlers.trace() as messages, handlers.seed(rng_seed=key):
                model(**row, **model_args)
            parts = []
            for site in reading.sites:
                message = messages[site.name]
                free = biject_to(message["fn"].support).inv(message["value"])
                parts.append(jnp.ravel(free))
            return jnp.concatenate(parts)

        keys = jax.random.split(jax.random.key(1), PRIOR_DRAWS)
        draws = np.asarray(jax.jit(jax.vmap(draw), compiler_options=RUN_ONCE)(keys), dtype=np.float64)
    draws = draws[np.all(np.isfinite(draws), axis=1)]
    if len(draws) < PRIOR_DRAWS // 2:
        raise NotYetSupported("plans draw from the prior, and many of its draws are not finite.")
    low, centre, high = np.quantile(draws, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / 1.349
    scale = np.where(scale > 0, scale, 1.0)
    with jax.enable_x64(True):
        hessian = jax.jit(jax.vmap(jax.hessian(reading.neg_log_prior)), compiler_options=RUN_ONCE)
        hessians = np.nan_to_num(np.asarray(hessian(draws[:_HESSIANS])))
    curvatures = np.median(np.diagonal(hessians, axis1=1, axis2=2), axis=0)
    return Prior(draws, centre, scale, np.maximum(curvatures, 1 / scale**2), hessians)


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


@functools.partial(jax.jit, static_argnums=0)
def _cut_off(likelihood: Likelihood, thetas: jax.Array, rows: Columns) -> jax.Array:
    """``Σ_i ‖E ∇v‖²`` over ``Σ_i E‖∇v‖²``, over the outcomes that were declared, at every ``θ``."""

    def of_row(theta: jax.Array, row: Columns) -> tuple[jax.Array, jax.Array]:
        mean, squares = likelihood.score(theta, row)
        return jnp.sum(mean**2), squares

    def at(theta: jax.Array) -> jax.Array:
        mean, squares = jax.vmap(of_row, in_axes=(None, 0))(theta, rows)
        return jnp.nan_to_num(jnp.sum(mean) / jnp.maximum(jnp.sum(squares), 1e-300), nan=1.0)

    return jnp.asarray(jax.lax.map(at, thetas))
