"""Posteriors without privacy, which plans are compared with."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize


def posterior_mode(reading, rows, weights):
    """The mode of the posterior of weighted rows, and ``H^{-1}`` there, ``H`` its Hessian."""
    with jax.enable_x64(True):
        given = {name: jnp.asarray(column) for name, column in rows.items()}

        def potential(theta):
            losses = jax.vmap(reading.row_loss, in_axes=(None, 0))(theta, given)
            return reading.neg_log_prior(theta) + jnp.sum(jnp.asarray(weights) * losses)

        both, hessian = jax.jit(jax.value_and_grad(potential)), jax.jit(jax.hessian(potential))
        options = {"method": "trust-exact", "jac": True, "hess": hessian, "tol": 1e-12}
        mode = minimize(both, np.zeros(reading.dim), **options).x
        return mode, np.linalg.inv(hessian(mode))
