"""How far a parameter is from where a path was, as the rows' mean score tells it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.expected_score import expected_score, mixes_latents
from private_mcmc.model import read
from tests.examples_of_models import logistic, observed, outcomes_by


def normals():
    return dist.Normal(0, 1).expand([2]).to_event(1)


def at(reading, centre, *thetas):
    """``T`` at each parameter, in ``c``'s neighbourhood."""
    with jax.enable_x64(True):
        found = expected_score(reading, np.asarray(centre, dtype=float))
        linear = jax.jit(lambda theta: found.linear(reading, theta))
        return np.stack([linear(np.asarray(theta, dtype=float)) for theta in thetas])


def test_it_is_the_parameter_itself_near_by_and_levels_off_with_outcomes():
    reading = read(logistic, pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary()), n=100)
    near, far, further = at(reading, np.zeros(3), [0.1, -0.1, 0.05], [40.0, 0, 0], [80.0, 0, 0])
    assert near == pytest.approx([0.1, -0.1, 0.05], abs=0.005)
    assert far[0] < 20 and further[0] < 1.1 * far[0]


@pytest.mark.some(1)
@pytest.mark.parametrize("domain", [pmc.Box(-9.0, 9.0), pmc.Counts(40)])
def test_outcomes_of_many_values_are_summed_finely(domain):
    counts = isinstance(domain, pmc.Counts)

    def law(b, x):
        eta = b[0] + b[1] * x
        return dist.Poisson(jnp.exp(1 + eta)) if counts else dist.Normal(eta, 1.0)

    reading = read(outcomes_by(normals, law), pmc.Rows(x=pmc.Box(0.0, 1.0), y=domain), n=100)
    (near,) = at(reading, [0.2, 0.3], [0.25, 0.2])
    assert near == pytest.approx([0.25, 0.2], abs=0.02)


def test_of_an_sd_of_groups_and_its_effects_the_product_counts():
    """Linear in both, an sd twice as large with effects half as large would be another parameter."""

    def model(group, y=None):
        sd = numpyro.sample("sd", dist.LogNormal(0, 1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
        observed(group, dist.Bernoulli(logits=sd * z[group]), y)

    reading, z = (
        read(model, pmc.Rows(group=pmc.Categories(3), y=pmc.Binary()), n=100),
        np.array([0.5, -1.0, 1.5]),
    )
    one, other, elsewhere = at(
        reading, [0.0, *z], [0.0, *(1.2 * z)], [np.log(2.0), *(0.6 * z)], [np.log(2.0), *(1.2 * z)]
    )
    assert one == pytest.approx(other, abs=1e-9)
    assert np.abs(one - elsewhere).max() > 0.2


@pytest.mark.slow
def test_what_no_public_person_varies_in_is_told_linearly():
    """Public rows of a ball have an intercept, beside which cuts of an ordinal outcome say the same.

    As if no rows could tell the two apart, their posterior was that of the prior: 23 times too wide.
    """

    def model(X, y=None):
        w = numpyro.sample("w", normals())
        ordered = dist.TransformedDistribution(
            dist.Normal(0, 1).expand([2]).to_event(1), dist.transforms.OrderedTransform()
        )
        cuts = numpyro.sample("cuts", ordered)
        observed(X, dist.OrderedLogistic(X @ w, cuts), y)

    reading = read(model, pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Categories(3)), n=100)
    # An intercept of √½, taken off by all cuts.
    alike = np.zeros(4)
    for site in reading.sites:
        alike[site.slice.start] = {"w": 1.0, "cuts": np.sqrt(0.5)}[site.name]
    (moved,) = at(reading, np.zeros(4), 0.7 * alike)
    assert moved == pytest.approx(0.7 * alike, abs=1e-3)


def test_outcomes_of_two_numbers_are_left_alone():
    pair = outcomes_by(normals, lambda b, x: dist.Normal(x[:, None] * b, jnp.ones(2)).to_event(1))
    domain = pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Box(np.full(2, -9.0), np.full(2, 9.0)))
    assert expected_score(read(pair, domain, n=100), np.zeros(2)) is None


def many_zeros(x, y=None):
    b = numpyro.sample("b", normals())
    zero = numpyro.sample("zero", dist.Beta(1, 1))
    observed(x, dist.ZeroInflatedPoisson(zero, jnp.exp(b[0] + b[1] * x)), y)


def two_effects(x, y=None):
    a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
    observed(x, dist.Poisson(jnp.exp(a + b * x)), y)


def scaled_effect(x, y=None):
    sd, z = numpyro.sample("sd", dist.LogNormal(0, 1)), numpyro.sample("z", dist.Normal(0, 1))
    observed(x, dist.Poisson(jnp.exp(sd * z * x)), y)


def by_a_factor(x, y):
    a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
    with numpyro.plate("rows", x.shape[0]):
        numpyro.factor("y", dist.Poisson(jnp.exp(a + b * x)).log_prob(y))


@pytest.mark.parametrize(
    ("model", "mixed"),
    [(many_zeros, False), (two_effects, False), (scaled_effect, True), (by_a_factor, True)],
)
def test_it_is_used_where_latents_multiply_or_nobody_can_tell(model, mixed):
    """Of counts with many zeros other parameters had the same mean score: sds were five times too large."""
    reading = read(model, pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Counts(9)), n=100)
    with jax.enable_x64(True):
        assert mixes_latents(reading) == mixed
