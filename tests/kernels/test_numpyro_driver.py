"""The kernel also runs under NumPyro's own driver, as a curator-side tool without a statement."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC
from numpyro.util import nested_attrgetter

from private_mcmc.domains import Ball, Binary, Rows
from private_mcmc.errors import DeclarationError, Unprotected
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.langevin import LangevinState
from tests.examples_of_models import logistic, normal_mean

mark = pytest.mark
pytestmark = [mark.filterwarnings("ignore::private_mcmc.errors.Unprotected"), mark.usefixtures("float64")]

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (50, 2)) / np.sqrt(2)
    return {"X": jnp.asarray(X), "y": jnp.asarray(X[:, 0] > 0, dtype=int)}


def driven(kernel, num_samples=2, num_warmup=1, **options):
    return MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False, **options)


def test_without_float64_the_driver_of_numpyro_is_told_how_to_have_it(data):
    mcmc = driven(PrivateULA(logistic, step_size=0.05, clip=1.0))
    with jax.enable_x64(False), pytest.raises(DeclarationError, match=r"numpyro\.enable_x64\(\)"):
        mcmc.run(jax.random.key(0), **data)


@pytest.mark.long
@pytest.mark.parametrize(("method", "chains"), [("sequential", 1), ("sequential", 2), ("vectorized", 3)])
@pytest.mark.parametrize("jit_model_args", [False, True])
def test_runs_under_every_chain_method(data, method, chains, jit_model_args):
    kernel = PrivateULA(logistic, step_size=0.05, clip=1.0)
    options = {"num_chains": chains, "chain_method": method, "jit_model_args": jit_model_args}
    mcmc = driven(kernel, 40, 10, **options)
    mcmc.run(jax.random.key(0), **data)
    w = mcmc.get_samples(group_by_chain=True)["w"]
    assert w.shape == (chains, 40, 2)
    assert np.all(np.isfinite(w)) and len(np.unique(np.asarray(w[..., 0]))) == chains * 40


@pytest.mark.long
def test_has_the_stationary_law_of_the_private_driver():
    """Exact Gaussian law of ULA: curvature 10, 4 × 20,000 correlated draws."""
    y = jnp.linspace(-1.0, 1.0, 9) + 0.3
    kernel = PrivateULA(normal_mean, step_size=0.12, clip=1e3)
    mcmc = driven(kernel, 20_000, 100, num_chains=4, chain_method="vectorized")
    mcmc.run(jax.random.key(1), y=y)
    mu = np.asarray(mcmc.get_samples()["mu"])
    np.testing.assert_allclose(mu.mean(), 0.27, atol=0.015)
    np.testing.assert_allclose(mu.var(), 1 / (10 * 0.4), rtol=0.05)


@pytest.mark.long
def test_columns_that_cannot_be_told_from_other_arrays_are_asked_for(data):
    def weighted(X, y, prior_scale):
        return logistic(X, y)

    kernel = PrivateULA(weighted, step_size=0.05, clip=1.0)
    mcmc = driven(kernel)
    with pytest.raises(DeclarationError, match="rows=Rows"):
        mcmc.run(jax.random.key(0), prior_scale=jnp.ones(2), **data)
    mcmc = driven(dataclasses.replace(kernel, rows=ROWS))
    mcmc.run(jax.random.key(0), prior_scale=jnp.ones(2), **data)
    assert mcmc.get_samples()["w"].shape == (2, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("default::private_mcmc.errors.Unprotected")
def test_says_that_nothing_is_protected(data):
    kernel = PrivateULA(logistic, step_size=0.05, clip=1.0)
    with pytest.warns(Unprotected, match="as private as the data") as said:
        kernel.init(jax.random.key(0), 0, None, (), data)
    assert len(said) == 1


def test_extra_fields_that_no_step_has_are_answered_in_words():
    """NumPyro looks a field up as an attribute, then as a key."""
    state = LangevinState(jnp.asarray(2), jnp.zeros(1), jax.random.key(0))
    assert nested_attrgetter("i", "z")(state) == (state[0], state[1])
    with pytest.raises(DeclarationError, match=r"potential_energy.*keeps nothing besides its draw"):
        nested_attrgetter("potential_energy")(state)
