"""The incomplete beta function of rows: exact, with its slopes, and of truncated or censored outcomes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import betainc
from numpyro.infer.util import log_density
from scipy import special

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.potential.rowwise import rowwise
from tests.examples_of_models import observed
from tests.soundness.front_door.replays import path_replayed

POWERS = np.array([1e-8, 1e-3, 0.5, 1.0, 7.5, 300.0, 1e4, 1e6])
SHARES = np.array([0.0, 1e-300, 1e-9, 0.03, 0.5, 0.97, 1 - 1e-6, 1.0])
ODD = np.array([(-1, 1, 0.5), (1, -1, 0.5), (2, 1, -0.1), (2, 1, 1.1), (np.nan, 1, 0.5)])
PLACES = np.array([(1.5, 2.5, 0.3), (1e-3, 4, 0.5), (300, 0.5, 0.97), (40, 900, 0.05), (5, 1e-4, 0.999)])


def test_values_and_slopes_are_scipys_of_every_size_and_shape():
    """JAX knows the slope in ``x`` alone."""
    a, b = POWERS[:, None], POWERS[:, None, None]
    # Where most of the mass lies, too: at the mean, and a sd above it.
    near = np.minimum(a / (a + b) + np.array([0.0, 1.0]) * np.sqrt(a * b / (a + b + 1)) / (a + b), 1.0)
    with jax.enable_x64(True):
        ours = rowwise(betainc)
        for x in (SHARES, near):
            off = np.asarray(jax.jit(ours)(a, b, x)) - special.betainc(a, b, x)
            assert (np.abs(off) <= 1e-13 + 1e-14 * (a + b)).all()
        assert np.isnan(ours(*ODD.T)).all()
        slopes = jax.vmap(rowwise(jax.grad(ours, (0, 1, 2))))(*PLACES.T)
    for k, slope in enumerate(slopes):
        step = 1e-5 * PLACES[:, k] * np.eye(3)[:, k, None]
        beside = [special.betainc(*(PLACES.T + by * step)) for by in (-2, -1, 1, 2)]
        np.testing.assert_allclose(slope, [1, -8, 8, -1] @ np.array(beside) / (12 * step[k]), rtol=1e-5)


def student(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    observed(X, dist.LeftTruncatedDistribution(dist.StudentT(4.0, X @ w, 0.7), low=-1.0), y)


def counts(X, y, late):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    law = dist.NegativeBinomial2(jnp.exp(X @ w), 2.5)
    observed(X, dist.RightCensoredDistribution(law, censored=late), y)


OUTCOMES = {student: {"y": pmc.Box(-1, 4)}, counts: {"y": pmc.Counts(9), "late": pmc.Binary()}}


@pytest.mark.slow
@pytest.mark.parametrize("model", OUTCOMES)
def test_a_truncated_or_censored_model_runs_as_numpyro_says(model):
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), **OUTCOMES[model])
    data = {name: np.asarray(column) for name, column in rows.synthetic(0, 4).items()}
    assert not path_replayed(model, rows, data, 0.6)()(0)
    with jax.enable_x64(True):
        reading, theta = read(model, rows, n=4), jnp.array([0.3, -2.0])
        losses = jax.vmap(reading.row_loss, (None, 0))(theta, data)
        # The prior's constant is no part of a potential.
        potential = reading.neg_log_prior(theta) + losses.sum() + np.log(2 * np.pi)
        numpyros = -log_density(model, (), data, {"w": theta})[0]
    assert float(potential) == pytest.approx(float(numpyros), rel=1e-12)
