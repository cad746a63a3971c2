"""Each likelihood family: its loss is NumPyro's, and its constants are never exceeded."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import ndtr

from private_mcmc.domains import Ball, Binary, Counts, Rows
from private_mcmc.model import read
from private_mcmc.model.program import trace
from private_mcmc.model.tracing import discover, terms
from private_mcmc.potential.rowwise import abstract
from tests.model.zoo import CASES, DIM

_GRID = np.concatenate([np.linspace(-30, 30, 241), np.linspace(-3, 3, 121)])


@functools.cache
def reading(name):
    return read(CASES[name].model, CASES[name].rows, n=100)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", CASES)
def test_the_loss_is_minus_the_log_density(name):
    """Up to a constant of the row, in which NumPyro's is less accurate."""
    case, row_model = CASES[name], reading(name)
    with jax.enable_x64(True):
        data = {k: np.asarray(v) for k, v in case.rows.synthetic(1, 4).items()}
        single = {column: jnp.asarray(values[:1]) for column, values in data.items()}
        shapes = {column: abstract(values.shape[1:], values.dtype) for column, values in data.items()}
        theta = abstract((DIM,), np.float64)
        function = terms(case.model, {}, discover(case.model, single, {}).latents)
        ours = trace(lambda theta, **row: {"v": row_model.row_loss(theta, row)}, theta=theta, **shapes)
        theirs = trace(
            lambda theta, **row: {"v": function(theta, **{k: v[None] for k, v in row.items()})["loss"]},
            theta=theta,
            **shapes,
        )
        for index in range(4):
            row = {k: v[index] for k, v in data.items()}
            gaps, sizes = [], []
            for point in ([0.0, 0.0, 0.0], [0.4, -1.1, 0.9], [-2.0, 0.3, 0.1]):
                a, b = (p.evaluate(["v"], theta=np.asarray(point), **row)[0] for p in (ours, theirs))
                gaps.append(a - b)
                sizes.append(abs(a))
            assert np.ptp(gaps) <= 1e-9 * (1 + max(sizes))
            assert abs(gaps[0]) <= 1e-5


@pytest.mark.some(1)
@pytest.mark.parametrize("name", CASES)
def test_the_family_is_recognised_with_the_radius_of_the_rows(name):
    predictor = reading(name).predictor
    assert predictor.family.name == CASES[name].family
    assert predictor.radius == 1.5


@pytest.mark.some(2)
@pytest.mark.parametrize("name", CASES)
def test_no_row_and_no_predictor_exceeds_the_constants(name):
    case, predictor = CASES[name], reading(name).predictor
    family = predictor.family
    with jax.enable_x64(True):
        rows = case.rows.synthetic(3, 16)

        def at(eta, row):
            first = jax.grad(predictor.loss)
            return predictor.loss(eta, row), first(eta, row), jax.grad(first)(eta, row)

        over_rows = jax.vmap(at, in_axes=(None, 0))
        values, scores, curvatures = jax.jit(jax.vmap(over_rows, in_axes=(0, None)))(jnp.asarray(_GRID), rows)
    values, scores, curvatures = (np.asarray(v) for v in (values, scores, curvatures))
    assert np.all(np.isfinite(values)) and np.all(np.isfinite(scores))
    slack = 1e-9
    assert np.all(np.abs(scores) <= family.score_bound * (1 + slack) + slack)
    assert np.all(np.abs(curvatures) <= family.curvature_bound * (1 + slack) + slack)
    if family.convex:
        assert np.all(curvatures >= -slack * (1 + np.abs(scores)))
        a, b = family.growth
        limit = np.inf if np.isinf(a) else a + b * np.abs(scores)
        assert np.all(curvatures <= limit * (1 + slack) + slack)


_FAR_OUT = np.sort(np.concatenate([sign * np.geomspace(30, 1e4, 60) for sign in (1, -1)]))


# Exponentials overflow of some, slopes cancel of others.
ENDLESS = ["exponential", "gamma rate", "weibull", "poisson", "bernoulli probit", "binomial probit"]


@pytest.mark.parametrize("name", ENDLESS)
def test_slopes_ascend_however_far_the_predictor(name):
    """A slope that is no number is held at the cap: a jump of all rows at once, which no curvature bounds."""
    case, predictor = CASES[name], reading(name).predictor
    with jax.enable_x64(True):
        rows = dict(case.rows.synthetic(3, 16))
        rows["y"] = rows["y"].at[0].set(1 if name == "weibull" else 0)
        score = jax.vmap(jax.vmap(jax.grad(predictor.loss), (0, None)), (None, 0))
        scores = np.asarray(jax.jit(score)(jnp.asarray(_FAR_OUT), rows))
    assert predictor.family.convex and not np.any(np.isnan(scores))
    rises = np.diff(np.clip(scores, -1e6, 1e6), axis=1)
    assert np.all(rises >= -1e-9)
    assert np.all(rises <= predictor.family.curvature_bound * np.diff(_FAR_OUT) * (1 + 1e-9) + 1e-9)


# Families whose constants are attained: a bound that is loose by mistake would go unnoticed otherwise.
@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("name", "what", "value"),
    [
        ("bernoulli logits", "score_bound", 1.0),
        ("bernoulli logits", "curvature_bound", 0.25),
        ("bernoulli probit", "curvature_bound", 1.0),
        ("binomial logits", "score_bound", 7.0),
        ("binomial probit", "curvature_bound", 7.0),
        ("ordered logistic", "score_bound", 1.0),
        ("normal", "curvature_bound", 4.0),
        ("student", "score_bound", 5 / (2 * 0.8 * 2)),
        ("student", "curvature_bound", 5 / (4 * 0.64)),
        ("negative binomial", "score_bound", 9.0),
        ("binomial capped", "score_bound", 7.0),
    ],
)
def test_sharp_constants(name, what, value):
    assert getattr(reading(name).predictor.family, what) == pytest.approx(value, rel=1e-12)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["poisson", "gamma rate", "exponential", "weibull"])
def test_a_clipped_loss_is_smooth_with_the_constant_that_is_claimed(name):
    case, predictor = CASES[name], reading(name).predictor
    clip, radius = 0.8, predictor.radius
    bound = predictor.family.clipped_curvature(radius, clip)
    assert np.isfinite(bound)
    with jax.enable_x64(True):
        rows = case.rows.synthetic(4, 12)
        grid = jnp.linspace(-8, 8, 4001)
        score = jax.vmap(jax.vmap(jax.grad(predictor.loss), (None, 0)), (0, None))
        scores = np.asarray(jax.jit(score)(grid, rows))
    steepest = 0.0
    for norm in (0.1, 0.7, radius):
        values = np.clip(scores, -clip / norm, clip / norm)
        steepest = max(steepest, np.max(np.diff(values, axis=0)) / (16 / 4000) * norm**2)
    assert 0.3 * bound <= steepest <= bound * (1 + 1e-6)


def changed(distribution, change):
    """Of another density than its class has, at this instance alone."""
    usual = distribution.log_prob
    distribution.log_prob = lambda value: change(value, usual(value))
    return distribution


FAR = {
    "another rate beyond a threshold": lambda eta: dist.Poisson(
        jnp.where(eta > 400, jnp.exp(2 * eta), jnp.exp(eta))
    ),
    "a rate that is held far out": lambda eta: dist.Poisson(jnp.exp(jnp.clip(eta, -500.0, 500.0))),
    "a bump between two thresholds": lambda eta: dist.Poisson(
        jnp.exp(eta) * jnp.where((eta > 600) & (eta < 601), 2.0, 1.0)
    ),
    "a bump without a comparison": lambda eta: dist.Poisson(
        jnp.exp(eta) * (1 + jnp.exp(-jnp.square(1e3 * eta - 4e5)))
    ),
    "another probability of a probit": lambda eta: dist.Bernoulli(
        probs=jnp.where(eta < -350, 0.5, ndtr(eta))
    ),
    "another density of large counts": lambda eta: changed(
        dist.Poisson(jnp.exp(eta)), lambda y, usual: jnp.where(y > 400, 0.0, usual)
    ),
    "a tail of a predictor": lambda eta: changed(
        dist.Bernoulli(logits=eta), lambda y, usual: jnp.where(eta > 400, -1.0, usual)
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_a_program_that_differs_far_out_alone_is_of_no_line_and_runs_as_it_is(name):
    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", FAR[name](X @ w), obs=y)

    outcome = Binary() if "prob" in name or "tail" in name else Counts(9)
    found = read(model, Rows(X=Ball(1.0, dim=2), y=outcome), n=10)
    assert found.constants.gradient_bound == math.inf and not found.constants.convex
    assert found.predictors is None or found.predictors.family.name == "unknown"
