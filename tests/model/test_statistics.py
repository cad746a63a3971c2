"""Models as statisticians write them: which predictors are found in them, and with which bounds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import read

U, Y = Box(-1, 1), Binary()
MODELS = {}


def model(family, radius, **columns):
    """Register a model with the family and the design norm that a reading finds (``None``: not any)."""

    def register(function):
        MODELS[function.__name__] = (function, Rows(**columns), family, radius)
        return function

    return register


def weights(size, sd=1.0, name="w"):
    return numpyro.sample(name, dist.Normal(0, sd).expand([size]).to_event(1))


def number(name, prior=None):
    return numpyro.sample(name, dist.Normal(0, 1) if prior is None else prior)


def observed(law, y, **options):
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", law, obs=y, **options)


@model("Bernoulli", np.sqrt(3), x=U, g=Categories(5), y=Y)
def varying_intercepts(x, g, y):
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, 0.5))
    observed(dist.Bernoulli(logits=number("mean") + a[g] + number("slope") * x), y)


@model("Bernoulli", np.sqrt(1 + 0.25), g=Categories(5), y=Y)
def non_centred_with_known_spread(g, y):
    mean = number("mean")
    with numpyro.plate("groups", 5), handlers.reparam(config={"a": LocScaleReparam(0)}):
        a = numpyro.sample("a", dist.Normal(mean, 0.5))
    observed(dist.Bernoulli(logits=a[g]), y)


@model("Bernoulli", 2.0, a=U, b=U, y=Y)
def interaction(a, b, y):
    design = jnp.column_stack([jnp.ones_like(a), a, b, a * b])
    observed(dist.Bernoulli(logits=design @ weights(4)), y)


@model("unknown", np.sqrt(3), x=Box(0, 1), y=U)
def seasons(x, y):
    angle = x[:, None] * jnp.arange(1, 4) * 2 * jnp.pi
    basis = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)
    observed(dist.Laplace(basis @ weights(6), 0.5), y)


@model("Normal", 0.3 * np.sqrt(10), t=Categories(10), y=U)
def random_walk(t, y):
    observed(dist.Normal(jnp.cumsum(0.3 * weights(10))[t], 0.5), y)


@model("Normal", 1.0, t=Categories(10), y=U)
def gaussian_process(t, y):
    at = jnp.linspace(0, 1, 10)
    covariance = jnp.exp(-0.5 * ((at[:, None] - at) / 0.3) ** 2) + 1e-6 * jnp.eye(10)
    observed(dist.Normal((jnp.linalg.cholesky(covariance) @ weights(10))[t], 0.5), y)


@model("Bernoulli", 1.0, X=Ball(1.0, 3), y=Y)
def part_of_a_vector(X, y):
    observed(dist.Bernoulli(logits=X @ jax.lax.dynamic_slice(weights(5), (1,), (3,))), y)


@model("Bernoulli", np.sqrt(2), x=U, treated=Y, y=Y)
def treatment_effect(x, treated, y):
    effect = number("effect")
    observed(dist.Bernoulli(logits=number("slope") * x + jnp.where(treated == 1, effect, 0.0)), y)


@model("Binomial", 1.0, x=U, trials=Counts(10), y=Counts(10))
def trials_by_row(x, trials, y):
    observed(dist.Binomial(trials, logits=number("b") * x), jnp.minimum(y, trials))


@model("Bernoulli + Poisson", 1.0, x=U, y=Counts(20))
def hurdle(x, y):
    b, c = number("b"), number("c")
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("any", dist.Bernoulli(logits=c * x), obs=(y > 0).astype(int))
        with handlers.mask(mask=y > 0):
            numpyro.sample("y", dist.Poisson(jnp.exp(b * x)), obs=y)


@model(None, None, x=U, y=Y)
def horseshoe(x, y):
    observed(dist.Bernoulli(logits=number("scale", dist.HalfCauchy(1.0)) * number("b") * x), y)


@functools.cache
def reading(name):
    function, rows, _, _ = MODELS[name]
    return read(function, rows, n=50)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", MODELS)
def test_predictors_are_found_with_their_norms(name):
    _, _, family, radius = MODELS[name]
    found = reading(name).predictors
    if family is None:
        assert found is None
        return
    assert found.family.name == family
    assert found.radius == pytest.approx(radius, rel=1e-6)


MEASURED = ["varying_intercepts", "trials_by_row", "part_of_a_vector"]


@pytest.mark.some(2)
@pytest.mark.parametrize("name", MEASURED)
def test_no_design_is_longer_than_the_radius(name):
    row_model = reading(name)
    with jax.enable_x64(True):
        rows = row_model.rows.synthetic(0, 200)
        designs = np.asarray(jax.jit(jax.vmap(row_model.predictors.designs))(rows))
    longest = np.linalg.norm(designs, 2, axis=(1, 2)).max()
    assert 0.5 * row_model.predictors.radius <= longest <= row_model.predictors.radius * (1 + 1e-9)


def test_a_recursion_of_numpyro_that_holds_no_site_is_read():
    def sums(x, y):
        total, _ = scan(lambda last, now: (last + now, None), number("b"), jnp.arange(3.0))
        observed(dist.Bernoulli(logits=total * x), y)

    found = read(sums, Rows(x=U, y=Y), n=50)
    with jax.enable_x64(True):
        loss = jax.jit(found.row_loss)(jnp.array([0.7]), {"x": 0.5, "y": 1})
    assert float(loss) == pytest.approx(np.log1p(np.exp(-(0.7 + 3) * 0.5)), rel=1e-12)


def test_a_chain_of_observations_is_refused_by_name():
    def autoregression(y):
        phi = number("phi")

        def step(last, now):
            numpyro.sample("y", dist.Normal(phi * last, 1.0), obs=now)
            return now, None

        scan(step, 0.0, y)

    with pytest.raises(NotYetSupported, match="control_flow"):
        read(autoregression, Rows(y=U), n=50)
