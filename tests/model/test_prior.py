"""Prior constants: the form that runs is NumPyro's density, and its Hessian stays within the bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Box, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.model import read
from private_mcmc.potential.prior import TABLE, OwnPrior, PriorConstants
from tests.examples_of_models import observed

INF = np.inf


def of_normal(transform, *shape):
    return dist.TransformedDistribution(dist.Normal(0.5, 2.0).expand(shape).to_event(len(shape)), transform)


# Distribution, bounds of its curvature on the unconstrained space, whether they are approached.
PRIORS = {
    "normal": (lambda: dist.Normal(1.0, 2.0), 0.25, 0.25),
    "student": (lambda: dist.StudentT(3.0, 0.5, 2.0), -4 / (8 * 3 * 4), 4 / (3 * 4)),
    "cauchy": (lambda: dist.Cauchy(0.3, 2.0), -1 / 16, 0.5),
    "half_normal": (lambda: dist.HalfNormal(2.0), 0.0, INF),
    "half_cauchy": (lambda: dist.HalfCauchy(3.0), 0.0, 1.0),
    "exponential": (lambda: dist.Exponential(2.0), 0.0, INF),
    "gamma": (lambda: dist.Gamma(2.0, 3.0), 0.0, INF),
    "chi2": (lambda: dist.Chi2(3.0), 0.0, INF),
    "log_normal": (lambda: dist.LogNormal(0.3, 0.7), 1 / 0.49, 1 / 0.49),
    "beta": (lambda: dist.Beta(2.0, 3.0), 0.0, 1.25),
    "uniform": (lambda: dist.Uniform(-1.0, 2.0), 0.0, 0.5),
    "ordered": (lambda: of_normal(dist.transforms.OrderedTransform(), 3), 0.25, 0.25),
    "exponential of a normal": (lambda: of_normal(dist.transforms.ExpTransform()), 0.25, 0.25),
    "several": (lambda: dist.Normal(jnp.zeros(3), jnp.array([0.5, 1.0, 2.0])).to_event(1), 0.25, 4.0),
}
UNKNOWN = {
    "laplace": lambda: dist.Laplace(0.1, 2.0),
    "logistic": lambda: dist.Logistic(0.2, 3.0),
    "soft_laplace": lambda: dist.SoftLaplace(0.2, 3.0),
    "inverse_gamma": lambda: dist.InverseGamma(2.0, 1.5),
    "weibull": lambda: dist.Weibull(1.4, 2.0),
    "dirichlet": lambda: dist.Dirichlet(jnp.array([1.0, 2.0, 0.5, 3.0])),
    "lkj_cholesky": lambda: dist.LKJCholesky(4, 1.5),
    "lkj": lambda: dist.LKJ(3, 0.7),
    "gumbel": lambda: dist.Gumbel(0.3, 2.0),
    "below": lambda: dist.TruncatedNormal(0.0, 1.0, high=1.0),
    "spike and slab": lambda: dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.array([0.5, 0.5])), dist.Normal(0.0, jnp.array([0.1, 1.0]))
    ),
    "shifted before ordering": lambda: dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).expand([3]).to_event(1),
        [dist.transforms.AffineTransform(0.0, 2.0), dist.transforms.OrderedTransform()],
    ),
}
ROWS = Rows(y=Box(-1, 1))


def model(y):
    for name, (prior, _, _) in PRIORS.items():
        numpyro.sample(name, prior())
    for name, prior in UNKNOWN.items():
        numpyro.sample(name, prior())
    m = numpyro.sample("m", dist.Normal(0, 1))
    observed(y, dist.Normal(m, 1.0), y)


@pytest.fixture(scope="module")
def row_model():
    return read(model, ROWS, n=10)


@pytest.fixture(scope="module")
def hessians(row_model):
    draw = np.random.default_rng(0)
    scales = np.repeat([0.3, 1.0, 3.0, 8.0], 12)[:, None]
    thetas = draw.normal(size=(len(scales), row_model.dim)) * scales
    with jax.enable_x64(True):
        hessian = jax.jit(jax.hessian(row_model.neg_log_prior))
        return np.stack([np.asarray(hessian(jnp.asarray(theta))) for theta in thetas])


@pytest.mark.long
@pytest.mark.parametrize("name", PRIORS)
def test_the_curvature_stays_within_its_bounds_and_approaches_them(name, row_model, hessians):
    site = next(site for site in row_model.sites if site.name == name)
    prior = row_model.prior
    diagonal = np.einsum("nii->ni", hessians)[:, site.slice]
    lower, upper = prior.lower[site.slice], prior.upper[site.slice]
    assert np.all(diagonal >= lower - 1e-9) and np.all(diagonal <= upper * (1 + 1e-9))
    _, low, high = PRIORS[name]
    assert lower.min() == pytest.approx(low, rel=1e-12) and upper.max() == pytest.approx(high, rel=1e-12)
    if np.isfinite(high):
        assert diagonal.max() >= 0.9 * high
    else:
        assert diagonal.max() > 100
    assert diagonal.min() <= max(1.1 * low, 0.9 * low, 5e-3) or low == high or name == "several"
    outside = np.delete(hessians[:, site.slice], np.arange(site.slice.start, site.slice.stop), axis=2)
    assert np.max(np.abs(outside)) <= 1e-9


@pytest.mark.long
def test_what_is_not_recognised_is_not_claimed(row_model):
    for site in row_model.sites:
        if site.name in UNKNOWN:
            assert row_model.proved(site)[:2] == (-INF, INF)
            assert site.name not in [part.site.name for part in row_model.prior.own]
    assert row_model.prior.hessian is None
    assert row_model.prior.in_metric(None) == (0.0, INF)
    assert not row_model.prior.convex and not row_model.prior.factorised


def model_of(prior):
    def single(y):
        prior()
        m = numpyro.sample("m", dist.Normal(0, 1))
        observed(y, dist.Normal(m, 1.0), y)

    return read(single, ROWS, n=10)


def of(prior):
    return model_of(prior).prior


@pytest.mark.long
def test_jointly_gaussian_sites_have_their_exact_hessian():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])

    def prior():
        numpyro.sample("v", dist.MultivariateNormal(jnp.ones(2), covariance))
        top = numpyro.sample("top", dist.Normal(0, 1))
        numpyro.sample("below", dist.Normal(2 * top, 3.0))
        numpyro.sample("walk", dist.GaussianRandomWalk(0.5, 3))

    found = of(prior)
    expected = np.zeros((8, 8))
    expected[:2, :2] = np.linalg.inv(covariance)
    expected[2:4, 2:4] = [[1 + 4 / 9, -2 / 9], [-2 / 9, 1 / 9]]
    expected[4:7, 4:7] = 4 * np.array([[2, -1, 0], [-1, 2, -1], [0, -1, 1]])
    expected[7, 7] = 1.0
    np.testing.assert_allclose(found.hessian, expected, atol=1e-9)
    values = np.linalg.eigvalsh(expected)
    mu, smooth = found.in_metric(None)
    assert mu <= values[0] <= mu * (1 + 1e-9) and smooth >= values[-1] >= smooth * (1 - 1e-9)
    assert not found.factorised and found.convex


@pytest.mark.slow
def test_the_metric_enters_as_it_should(rng):
    found = of(lambda: numpyro.sample("w", dist.Normal(jnp.zeros(2), jnp.array([0.5, 2.0])).to_event(1)))
    np.testing.assert_allclose(found.hessian, [4.0, 0.25, 1.0])
    root = rng.normal(size=(3, 3))
    metric = root @ root.T + np.eye(3)
    values, vectors = np.linalg.eigh(metric)
    half = vectors * np.sqrt(values) @ vectors.T
    expected = np.linalg.eigvalsh(half @ np.diag([4.0, 0.25, 1.0]) @ half)
    mu, smooth = found.in_metric(tuple(map(tuple, metric)))
    assert mu <= expected[0] <= mu * (1 + 1e-8) and smooth >= expected[-1] >= smooth * (1 - 1e-8)
    assert found.in_metric((0.25, 4.0, 1.0)) == pytest.approx((1.0, 1.0))
    bounded = of(lambda: numpyro.sample("p", dist.Beta(2.0, 2.0)))
    assert bounded.in_metric((3.0, 1.0)) == (0.0, pytest.approx(3.0))


@pytest.mark.slow
def test_a_hierarchy_is_not_strongly_convex():
    def centred():
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        numpyro.sample("a", dist.Normal(0, tau).expand([4]).to_event(1))

    def non_centred():
        numpyro.sample("tau", dist.HalfNormal(1.0))
        numpyro.sample("z", dist.Normal(0, 1).expand([4]).to_event(1))

    joint = model_of(centred)
    assert not joint.prior.convex and joint.prior.in_metric(None) == (0, INF)
    assert "tau, a: no prior with proved curvature" in joint.proved(joint.sites[0])[2]
    apart = of(non_centred)
    assert apart.convex and apart.in_metric(None)[0] == 0 and apart.factorised


@pytest.mark.slow
def test_an_improper_prior_is_named():
    found = of(lambda: numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real, (), (2,))))
    assert found.latents[0].improper and found.in_metric(None)[0] == 0
    positive = of(lambda: numpyro.sample("flat", dist.ImproperUniform(dist.constraints.positive, (), ())))
    assert positive.latents[0].improper


def test_what_is_said_to_be_gaussian_runs_as_that_gaussian():
    """Whoever says so: of another potential nothing would be proved."""
    sites = read(model_of_two, ROWS, n=10).sites
    slope, hessian = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    said = PriorConstants(sites, [], lambda theta: jnp.sum(theta**4), (slope, hessian))
    with jax.enable_x64(True):
        found = np.asarray(jax.hessian(said.potential)(jnp.array([0.7, -3.0])))
    np.testing.assert_allclose(found, hessian)
    assert said.in_metric(None)[0] == pytest.approx(np.linalg.eigvalsh(hessian)[0])
    with pytest.raises(DeclarationError, match="out of the range"):
        wrong = OwnPrior(sites[0], TABLE["Normal", "real"], [np.zeros(()), np.array(-1.0)])
        PriorConstants(sites, [wrong], lambda theta: jnp.sum(theta))


def model_of_two(y):
    a, b = numpyro.sample("a", dist.Normal(0, 1)), numpyro.sample("b", dist.Normal(0, 1))
    observed(y, dist.Normal(a + b, 1.0), y)
