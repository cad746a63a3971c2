"""What is not known of the covariates' law is integrated out, and never makes people fewer than nobody."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from private_mcmc.inference.posterior.likelihood import Terms, _log_marginal


def terms_of(score, sides):
    """Of one block of one parameter; what rows add to it is given apart."""
    nothing = jnp.zeros((len(sides), 1, 1))
    return Terms(
        None, nothing, nothing, jnp.array([[score]]), jnp.eye(1), jnp.zeros((2, 1, 1)), jnp.array(sides)
    )


def summed(score, rows, sides, sd=1.0):
    """``log ∫ N(y; Σ f(φ_r e) G_r, sd²) N(e) de`` by a grid; ``f(z)`` is ``1 + z``, below 0 ``exp(z)``."""
    grid = np.linspace(-40, 40, 400_001)
    moved = np.outer(grid, np.asarray(sides)[:, 0])
    weights = np.where(moved > 0, 1 + moved, np.exp(np.minimum(moved, 0.0)))
    logs = norm.logpdf(score, weights @ np.asarray(rows)[:, 0], sd) + norm.logpdf(grid)
    return logsumexp(logs) + np.log(grid[1] - grid[0])


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("far", [0.5, 2.0, -2.0, 8.0, 30.0])
def test_the_likelihood_is_the_sum_over_what_covariates_may_be(far, spread):
    """Rows pull by ``far`` noise sds where nothing was seen: near, and where only few people explain it."""
    rows, sides = np.array([[0.7], [0.3]]) * far, [[spread], [spread / 2]]
    with jax.enable_x64(True):
        found = float(_log_marginal(terms_of(0.0, sides), jnp.asarray(rows), jnp.eye(1)))
    exact = summed(0.0, rows, sides) + np.log(2 * np.pi) / 2
    assert found == pytest.approx(exact, abs=max(0.1, 0.12 * abs(exact)))


def test_far_parameters_are_not_explained_by_rows_that_say_nothing():
    """By weights ``1 + z`` densities fall no faster than distances grow, and in many dimensions nearly all of
    the volume is far away: here they fall by more than the third power.
    """
    with jax.enable_x64(True):
        values = [
            float(_log_marginal(terms_of(0.0, [[0.3]]), jnp.array([[far]]), jnp.eye(1)))
            for far in (0.0, 10.0, 30.0, 100.0)
        ]
    falls = -np.diff(values)
    assert np.all(falls > 3 * np.log(3.4))
