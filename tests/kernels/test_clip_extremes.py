"""No row moves the data gradient by more than the clip: not by underflow, nor past what is proved of it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Ball, Binary, Box, Real, Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.kernels.gradient.clipped import clipped_gradient
from private_mcmc.kernels.whitening import whitening
from private_mcmc.model import read, reading

P = 400


def linear(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([P]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def moved(model, columns, clip):
    with jax.enable_x64(True):
        gradient = clipped_gradient(model, whitening(None, model.dim), clip)
        rows = jax.jit(gradient.prepare)(columns, jnp.ones(1, bool))
        return float(jnp.linalg.norm(jax.jit(gradient.total)(jnp.full(model.dim, 3.0), rows)))


@pytest.mark.some(1)
@pytest.mark.parametrize("small", [1.48e-154, 1e-154, 2e-155, 1e-200, 1e-310])
def test_a_row_whose_squares_underflow_is_clipped_as_well(small):
    rows = Rows(X=Ball(1.0, dim=P), y=Real())
    model = read(linear, rows, n=10)
    design = np.full((1, P), small)
    design[0, 0] = 1.6e-154
    with jax.enable_x64(True):
        columns = rows.project({"X": design, "y": np.array([1e300])})
    assert moved(model, columns, 1.0) <= 1.0


@pytest.mark.slow
def test_a_row_longer_than_the_proved_radius_does_not_enter(monkeypatch):
    """Reading refuses such a model; were it to miss it, the kernel would hold the row."""

    def longer(a, y=None):
        # Not a number for a above 355, of which interval arithmetic over the reals knows nothing.
        w = numpyro.sample("w", dist.Normal(0, 1))
        surely = jnp.tanh(jnp.exp(a) - jnp.exp(2 * a)) <= 1
        with numpyro.plate("rows", a.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=w * jnp.where(surely, 1.0, 100.0)), obs=y)

    rows = Rows(a=Box(0.0, 1000.0), y=Binary())
    with pytest.raises(NotYetSupported, match="breaks the claim"):
        read(longer, rows, n=10)
    monkeypatch.setattr(reading, "refuse_misread", lambda *given: None)
    model = read(longer, rows, n=10)
    with jax.enable_x64(True):
        columns = rows.project({"a": np.array([900.0]), "y": np.array([0])})
        assert float(model.predictor.design({"a": columns["a"][0], "y": columns["y"][0]})[0]) == 100.0
    assert model.predictor.radius == pytest.approx(1.0)
    assert moved(model, columns, 1e6) == 0.0
