"""What is proved of a prior is proved of what runs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.errors import DoThisInstead
from private_mcmc.model import read
from tests.examples_of_models import observed, outcomes

ROWS = pmc.Rows(y=pmc.Binary())


def of(prior):
    return read(outcomes(prior, lambda s: dist.Bernoulli(logits=s)), ROWS, n=10)


class Cubic(dist.Normal):
    """Of another density than its name says."""

    def log_prob(self, value):
        return -0.5 * value**2 - 1e3 * jnp.abs(value) ** 3


class Other(dist.transforms.ExpTransform):
    """Of another range than that of its class."""

    def __call__(self, x):
        return jnp.exp(3 * x)


def changed(prior, **attributes):
    for name, value in attributes.items():
        setattr(prior, name, value)
    return prior


CHANGED = {
    "scale of a log-normal": lambda: changed(dist.LogNormal(0.0, 1.0), scale=100.0),
    "base of a log-normal": lambda: changed(dist.LogNormal(0.0, 1.0), base_dist=dist.Normal(0.0, 100.0)),
    "masked base": lambda: dist.TransformedDistribution(
        dist.Normal(0.0, 1.0).mask(False), dist.transforms.ExpTransform()
    ),
    "half of a cauchy": lambda: changed(dist.HalfCauchy(1.0), _cauchy=dist.Cauchy(0.0, 0.01)),
    "half of a normal": lambda: changed(dist.HalfNormal(1.0), _normal=dist.Normal(0.0, 0.01)),
    "beta": lambda: changed(dist.Beta(2.0, 2.0), concentration1=50.0),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_prior_that_is_no_longer_that_of_its_class_and_parameters_is_refused(name):
    with pytest.raises(DoThisInstead, match=r"'latent': its log density is not that of"):
        of(CHANGED[name])


def test_a_class_of_the_users_own_has_no_line_whatever_its_name():
    for kind in (Cubic, type("Normal", (Cubic,), {})):
        prior = of(lambda kind=kind: kind(0.0, 1.0)).prior
        assert prior.in_metric(None)[0] == 0 and not prior.convex


@pytest.mark.parametrize("name", ["Normal", "StudentT", "Cauchy", "HalfNormal", "HalfCauchy", "Exponential"])
def test_a_density_that_is_replaced_in_its_class_is_refused(name, monkeypatch):
    kind = getattr(dist, name)
    usual = kind.log_prob
    monkeypatch.setattr(kind, "log_prob", lambda self, value: usual(self, value) - 30.0 * jnp.sin(value))
    with pytest.raises(DoThisInstead, match="its log density is not that of"):
        of(lambda: kind(2.0, 0.0, 1.0) if name == "StudentT" else kind(*(1.0,) * len(kind.arg_constraints)))


def test_another_map_onto_the_support_is_refused(monkeypatch):
    registry = dist.biject_to._registry
    positive = type(dist.constraints.positive)
    monkeypatch.setitem(registry, positive, lambda constraint: Other())
    with pytest.raises(DoThisInstead, match="its log density is not that of"):
        of(lambda: dist.HalfNormal(1.0))


def test_a_density_far_from_where_it_is_compared_has_no_part_in_what_runs(monkeypatch):
    """Such as a flat tail, of which a strongly convex prior was claimed."""
    usual = dist.Normal.log_prob
    flat = lambda self, value: jnp.where(jnp.abs(value) < 50.0, usual(self, value), -1250.0)  # noqa: E731
    monkeypatch.setattr(dist.Normal, "log_prob", flat)
    reading = of(lambda: dist.Normal(0.0, 1.0))
    assert slopes(reading, [60.0, 61.0]) == pytest.approx([60.0, 61.0])


def proved_below(mean=lambda m: m):
    """The least curvature that is known of a latent and of another around it."""

    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.sample("v", dist.Normal(mean(m), 1.0))
        observed(y, dist.Bernoulli(logits=m), y)

    return read(model, ROWS, n=10).prior.in_metric(None)[0]


def test_gaussian_groups_are_proved_of_their_program(monkeypatch):
    """By no name: a density that is flat far out, or a slope that is stopped, leaves nothing proved."""
    assert proved_below(jax.lax.stop_gradient) == 0
    assert proved_below() == pytest.approx((3 - 5**0.5) / 2)
    usual = dist.Normal.log_prob
    flat = lambda self, value: jnp.where(jnp.abs(value) < 50.0, usual(self, value), -1250.0)  # noqa: E731
    monkeypatch.setattr(dist.Normal, "log_prob", flat)
    assert proved_below() == 0


def test_a_quadratic_prior_of_the_users_own_is_proved():
    def model(y):
        v = numpyro.sample("v", dist.ImproperUniform(dist.constraints.real_vector, (), (2,)))
        numpyro.sample("m", dist.Normal(v[0] - 2 * v[1], 0.5))
        observed(y, dist.Bernoulli(logits=v[0]), y)

    line = np.array([1.0, -2.0, -1.0])
    np.testing.assert_allclose(read(model, ROWS, n=10).prior.hessian, 4 * np.outer(line, line), atol=1e-12)


def slopes(reading, places):
    with jax.enable_x64(True):
        return [float(jax.grad(reading.neg_log_prior)(jnp.array([at]))[0]) for at in places]
