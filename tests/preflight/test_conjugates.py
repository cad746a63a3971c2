"""Only models that are conjugate are called so, and their certificates are those of the family."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.accounting import conjugate
from private_mcmc.domains import Binary, Box, Categories, Counts, Rows
from private_mcmc.model import read
from private_mcmc.preflight.certificates import constants
from private_mcmc.preflight.conjugates import conjugate_certificate
from private_mcmc.target import Target

TARGET = Target(0.5, 1e-3)
N = 30


def coin(y=None, a=2.0, b=3.0):
    p = numpyro.sample("p", dist.Beta(a, b))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def turned_coin(y=None):
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=0.9 * p), obs=y)


def weighted_coin(weight, y=None):
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]), numpyro.handlers.scale(scale=weight):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def two_coins(y=None, z=None):
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)
        numpyro.sample("z", dist.Bernoulli(probs=p), obs=z)


def die(y=None):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Categorical(probs=p), obs=y)


def turned_die(y=None):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Categorical(probs=p[::-1]), obs=y)


def rate(y=None, exposure=1.0):
    lam = numpyro.sample("lam", dist.Gamma(4.0, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Poisson(exposure * lam), obs=y)


def rate_by_row(t, y=None):
    lam = numpyro.sample("lam", dist.Gamma(4.0, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Poisson(t * lam), obs=y)


def mean(y=None, loc=0.0):
    mu = numpyro.sample("mu", dist.Normal(loc, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(2.0 * mu + 1.0, 0.5), obs=y)


def regression(x, y=None, loc=0.0):
    b = numpyro.sample("b", dist.Normal(loc, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(b * x, 0.5), obs=y)


def certificates(model, rows, target=TARGET, **args):
    known = constants(read(model, rows, n=N, model_args=args), None)
    if known.conjugate is None:
        return ()
    found = conjugate_certificate(known.conjugate, n=N, temper=0.5, target=target)
    return () if found is None else (found,)


@pytest.mark.slow
def test_beta_bernoulli_gets_its_exact_divergence() -> None:
    (found,) = certificates(coin, Rows(y=Binary()))
    exact = conjugate.beta_binomial(2.0, 3.0, n=N, temper=0.5, epsilon=0.5)
    assert found.delta(0.5) == exact
    assert found.verify()


@pytest.mark.slow
def test_dirichlet_categorical_gets_its_exact_divergence() -> None:
    (found,) = certificates(die, Rows(y=Categories(3)))
    exact = conjugate.dirichlet_categorical((1.0, 2.0, 3.0), n=N, temper=0.5, epsilon=0.5)
    assert found.delta(0.5) == exact


@pytest.mark.slow
@pytest.mark.parametrize("exposure", [1.0, 3.0])
def test_gamma_poisson_gets_its_exact_divergence_whatever_the_common_exposure(exposure: float) -> None:
    (found,) = certificates(rate, Rows(y=Counts(4)), exposure=exposure)
    exact = conjugate.gamma_poisson(4.0, largest=4, temper=0.5, epsilon=0.5)
    assert found.delta(0.5) == exact


@pytest.mark.slow
def test_normal_mean_is_gaussian_with_the_precision_of_every_posterior() -> None:
    (found,) = certificates(mean, Rows(y=Box(0, 3)))
    # Slope 2, noise precision 4, temper ½: sensitivity ½·2·4·3, precision 1 + ½·30·4·4.
    assert found.gdp == pytest.approx(12 / 241**0.5)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "rows", "args"),
    [
        (turned_coin, Rows(y=Binary()), {}),
        (weighted_coin, Rows(weight=Box(0, 1), y=Binary()), {}),
        (two_coins, Rows(y=Binary(), z=Binary()), {}),
        (turned_die, Rows(y=Categories(3)), {}),
        (rate_by_row, Rows(t=Box(0.5, 2), y=Counts(4)), {}),
        (regression, Rows(x=Box(-2, 1), y=Box(-1, 3)), {}),
    ],
    ids=["another link", "weights", "two per row", "reordered", "exposures", "slopes"],
)
def test_what_only_looks_conjugate_is_not_called_so(model, rows, args) -> None:
    assert certificates(model, rows, **args) == ()


def flat_mean(y=None):
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 0.5), obs=y)


@pytest.mark.slow
def test_rows_alone_certify_a_normal_mean_under_a_flat_prior() -> None:
    (found,) = certificates(flat_mean, Rows(y=Box(0, 3)))
    # Noise precision 4, temper ½: sensitivity ½·4·3, precision ½·30·4.
    assert found.gdp == pytest.approx(6 / 60**0.5)
    assert certificates(flat_mean, Rows(y=Box(0, 3)), Target(0.5, 1e-3, "zero_out")) == ()
