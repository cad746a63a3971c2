"""A prior that is called proper integrates to one on the unconstrained space; one that does not is not."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from numpyro.distributions import transforms as T

from private_mcmc.domains import Box, Rows
from private_mcmc.model import read
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.prior_normalised import _FAMILIES, is_normalised
from private_mcmc.model.sites import family_name, unwrap
from private_mcmc.model.tracing import discover, terms


def shared(*families):
    """Distributions of one number, near the edges of where they have a density."""
    return {f"{family.__class__.__name__} {index}": family for index, family in enumerate(families)}


@cache
def proper_priors():
    eye = jnp.eye(1)
    components = dist.Categorical(probs=jnp.array([0.3, 0.7]))
    return {
        **shared(
            dist.Normal(1.0, 2.0),
            dist.LogNormal(0.0, 3.0),
            dist.Cauchy(0.0, 2.0),
            dist.Laplace(0.0, 2.0),
            dist.Logistic(0.0, 2.0),
            dist.Gumbel(0.0, 2.0),
            dist.SoftLaplace(0.0, 2.0),
            dist.StudentT(0.9, 0.0, 2.0),
            dist.AsymmetricLaplace(0.0, 1.0, 0.3),
            dist.AsymmetricLaplaceQuantile(0.0, 1.0, 0.1),
            dist.HalfNormal(0.3),
            dist.HalfCauchy(3.0),
            dist.Exponential(0.2),
            dist.Gamma(0.1, 3.0),
            dist.InverseGamma(0.1, 3.0),
            dist.Chi2(0.2),
            dist.Gompertz(0.5, 2.0),
            dist.Weibull(2.0, 0.3),
            dist.Beta(0.2, 0.3),
            dist.BetaProportion(0.3, 0.9),
            dist.Kumaraswamy(0.5, 0.4),
            dist.VonMises(0.3, 2.0),
            dist.Uniform(-1.0, 4.0),
            dist.LogUniform(0.1, 4.0),
            dist.Pareto(2.0, 0.2),
            dist.Levy(1.0, 2.0),
            dist.Dirichlet(jnp.array([0.2, 0.4])),
            dist.LKJ(2, 0.2),
            dist.LKJCholesky(2, 0.2),
            dist.WishartCholesky(0.3, eye),
            dist.InverseWishartCholesky(0.3, eye),
            dist.MultivariateNormal(jnp.ones(1), 4 * eye),
            dist.MultivariateStudentT(0.9, jnp.zeros(1), 2 * eye),
            dist.LowRankMultivariateNormal(jnp.zeros(1), eye, jnp.ones(1)),
            dist.MatrixNormal(jnp.zeros((1, 1)), eye, 2 * eye),
            dist.CirculantNormal(jnp.zeros(1), jnp.ones(1)),
            dist.GaussianRandomWalk(0.5, 1),
            dist.ZeroSumNormal(2.0, (2,)),
            dist.TransformedDistribution(dist.Normal(0.0, 1.0), T.ExpTransform()),
            dist.TransformedDistribution(dist.StudentT(2.0, 0.0, 1.0), T.AffineTransform(1.0, -2.0)),
            dist.TransformedDistribution(
                dist.Cauchy(0.0, 1.0), [T.AffineTransform(1.0, 2.0), T.SigmoidTransform()]
            ),
            dist.TruncatedCauchy(0.0, 1.0, low=2.0),
            dist.TruncatedNormal(0.0, 1.0, high=1.0),
            dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
            dist.TruncatedDistribution(dist.Laplace(0.0, 1.0), low=1.0),
            dist.MixtureSameFamily(components, dist.Gamma(jnp.array([0.2, 3.0]), 1.0)),
        ),
        "CAR": dist.CAR(jnp.zeros(2), 0.9, 2.0, jnp.array([[0.0, 1.0], [1.0, 0.0]])),
        "Wishart on two axes": dist.WishartCholesky(1.3, jnp.array([[1.0, 0.5], [0.5, 2.0]])),
        "inverse Wishart on two axes": dist.InverseWishartCholesky(4.0, jnp.eye(2)),
    }


@cache
def refused_priors():
    """Without a density; with a direction in which the unconstrained density does not decay, where known."""
    eye = jnp.eye(1)
    alone = jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    singular = jnp.diag(jnp.array([1.0, 0.0]))
    with numpyro.validation_enabled(False):
        return {
            "too few degrees": (dist.WishartCholesky(1.5, jnp.eye(3)), [0, 0, 0, 0, 0, -1.0]),
            "too few degrees of a matrix": (dist.Wishart(1.0, jnp.eye(2)), [0, 0, -1.0]),
            "too few inverse degrees": (dist.InverseWishartCholesky(0.9, jnp.eye(2)), None),
            "no degrees": (dist.WishartCholesky(-0.5, eye), [-1.0]),
            "singular factor": (
                dist.MultivariateNormal(jnp.zeros(2), scale_tril=singular),
                None,
            ),
            "not definite": (
                dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]])),
                None,
            ),
            "no neighbour": (dist.CAR(jnp.zeros(3), 0.9, 1.0, alone), [0, 0, 1.0]),
            "negative tail": (dist.Pareto(1.0, jnp.array(-0.5)), [1.0]),
            "no tail": (dist.Pareto(1.0, jnp.array(0.0)), [1.0]),
            "negative shape": (dist.InverseGamma(-1.0, 1.0), [1.0]),
            "no shape": (dist.Gamma(0.0, 1.0), [-1.0]),
            "no weibull shape": (dist.Weibull(1.0, jnp.array(0.0)), None),
            "negative beta": (dist.Beta(-0.5, 1.0), [-1.0]),
            "infinite scale": (dist.HalfCauchy(jnp.inf), None),
            "no scale": (dist.Normal(0.0, 0.0), None),
            "no asymmetry": (dist.AsymmetricLaplace(0.0, 1.0, jnp.array(0.0)), None),
            "ends swapped": (dist.TruncatedNormal(0.0, 1.0, low=1.0, high=-1.0), None),
            "no end": (dist.TruncatedNormal(0.0, 1.0, low=-jnp.inf), None),
            "empty": (dist.Uniform(2.0, 2.0), None),
            "log of a negative": (dist.LogUniform(-1.0, 2.0), None),
            "negative weights": (
                dist.MixtureSameFamily(
                    dist.Categorical(probs=jnp.array([1.5, -0.5])), dist.Normal(jnp.zeros(2), 1.0)
                ),
                None,
            ),
            "censored": (dist.RightCensoredDistribution(dist.Normal(0.0, 1.0), jnp.array(1)), [-1.0]),
            "collapsed": (
                dist.TransformedDistribution(dist.Normal(0.0, 1.0), T.AffineTransform(1.0, jnp.array(0.0))),
                None,
            ),
            "scaled by zero": (dist.HalfNormal(0.0), None),
        }


def verdicts(priors):
    def model(y):
        for name, prior in priors.items():
            numpyro.sample(name, prior)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with jax.enable_x64(True):
        y = abstract((1,), np.float64)
        model_sites = discover(model, {"y": y}, {})
        program = trace(
            terms(model, {}, model_sites.latents), theta=abstract((model_sites.dim,), np.float64), y=y
        )
        return {site.name: is_normalised(program, site) for site in model_sites.latents}


def log_density(prior, points):
    """On the unconstrained space, of which ``points`` are flat vectors."""
    transform = biject_to(prior.support)
    shape = transform.inverse_shape(prior.shape())
    with jax.enable_x64(True), numpyro.validation_enabled(False):
        free = jnp.asarray(points).reshape((-1, *shape))
        value = transform(free)
        volume = transform.log_abs_det_jacobian(free, value)
        log_prob = prior.log_prob(value)
        return np.asarray(log_prob + jnp.sum(volume.reshape(len(points), -1), axis=1))


def size(prior):
    return int(np.prod(biject_to(prior.support).inverse_shape(prior.shape())))


def grid(axes):
    """Points ``sinh(s)`` of every axis and their volumes: tails that fall like powers are reached as well."""
    # Beyond e^600 NumPyro's own numbers overflow; a density on the line may still have mass there.
    s = np.linspace(-7.0, 7.0, {1: 4001, 2: 401, 3: 61}[axes])
    mesh = np.meshgrid(*[np.sinh(s)] * axes, indexing="ij")
    volume = np.prod(np.meshgrid(*[np.cosh(s) * (s[1] - s[0])] * axes, indexing="ij"), axis=0)
    return np.stack([side.ravel() for side in mesh], axis=1), volume.ravel()


def mass(prior):
    points, volume = grid(size(prior))
    density = log_density(prior, points)
    # Far out NumPyro's own numbers overflow.
    known = np.isfinite(density)
    return float(np.sum(np.exp(density[known]) * volume[known]))


@pytest.mark.long
def test_what_is_called_proper_integrates_to_one():
    proper = verdicts(proper_priors())
    for name, prior in proper_priors().items():
        assert proper[name], name
        # What lies beyond the grid: under a Student-t with 0.9 degrees, 1 %.
        assert mass(prior) == pytest.approx(1.0, abs=0.02), name


@pytest.mark.long
def test_the_table_holds_no_family_that_is_not_integrated_here():
    shown = {family_name(unwrap(prior)) for prior in proper_priors().values()}
    assert {name for name in _FAMILIES if "(" not in name} <= shown


@pytest.mark.long
def test_what_does_not_integrate_is_not_called_proper():
    proper = verdicts({name: prior for name, (prior, _) in refused_priors().items()})
    for name, (prior, direction) in refused_priors().items():
        assert not proper[name], name
        if direction is not None:
            far = log_density(prior, np.outer([20.0, 60.0, 100.0], direction))
            assert not far[2] < far[0] - 1e-9, f"{name}: the example does integrate"


def scale(positive):
    """A prior whose scale is a function of a latent."""

    def model(y):
        t = numpyro.sample("t", dist.Normal(0, 1))
        numpyro.sample("q", dist.Normal(0.0, positive(t)))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    return read(model, Rows(y=Box(-1, 1)), n=10).prior.proper


@pytest.mark.parametrize(
    ("positive", "expected"),
    [
        (lambda t: jnp.exp(t), True),
        (lambda t: 2 * jax.nn.sigmoid(t) + 0.1, True),
        (lambda t: jnp.sqrt(jnp.exp(t) + t**2), True),
        # Zero, hence no density, for half of the values of t.
        (lambda t: jnp.maximum(t, 0.0), False),
        (lambda t: t**2 * 0.0, False),
        (lambda t: t, False),
    ],
)
def test_a_scale_that_is_a_latent_is_positive_by_construction(positive, expected):
    assert scale(positive) is expected
