"""The clipped sum over persons: each person adds at most the clip, and nothing that another's rows change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.accounting.steps import CLIP_SLACK
from private_mcmc.kernels.clipping import whitening
from private_mcmc.kernels.gradient import clipped_gradient
from private_mcmc.model import read
from private_mcmc.model.refusals import rows_at_ends
from tests.soundness.sweep.zoo import ZOO

PERSONS, CLIP = 12, 0.7
EXTREMES = (0.0, 1.0, -30.0, 1e8, 1e200, np.inf, np.nan)


def terms(name, at_most, metric=None):
    """Each person's own term and the sum of all, at every extreme: ``(extremes, persons, p)``, ``(…, p)``."""
    zoo = ZOO[name]
    reading = read(zoo.model, pmc.Rows(**zoo.rows.columns, who=pmc.Person(at_most)), n=PERSONS)
    gradient = clipped_gradient(reading, whitening(metric, zoo.dim), CLIP, 1)
    with jax.enable_x64(True):
        columns = reading.rows.project(rows_at_ends(reading.rows, PERSONS))

        def at(u):
            def of(present):
                return gradient.total(u, gradient.prepare(columns, present))

            return jax.vmap(of)(jnp.eye(PERSONS, dtype=bool)), of(jnp.ones(PERSONS, bool))

        points = jnp.asarray(EXTREMES)[:, None] * jnp.asarray([1.0, -0.3][: zoo.dim])
        return tuple(map(np.asarray, jax.jit(jax.vmap(at))(points)))


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "at_most", "metric"),
    [
        ("poisson", 3, None),
        pytest.param("logistic", 20, (0.5, 2.0), marks=pytest.mark.slow),
        pytest.param("bent", 3, ((1.0, 0.2), (0.2, 0.5)), marks=pytest.mark.slow),
    ],
)
def test_a_person_adds_at_most_the_clip_wherever_the_chain_is(name, at_most, metric):
    each, whole = terms(name, at_most, metric)
    assert np.all(np.isfinite(each))
    assert np.linalg.norm(each, axis=-1).max() <= CLIP * (1 + CLIP_SLACK)
    assert np.allclose(each.sum(axis=1), whole, rtol=1e-12, atol=1e-12)
    # The clip acts, and not on everyone.
    assert 0 < np.mean(np.linalg.norm(each[1], axis=-1) > CLIP * (1 - 1e-9)) < 1
