"""Variances from two released averages."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.accounting import Curvature
from private_mcmc.domains import Binary, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.model import read
from private_mcmc.release import Expectations, mean_and_square, plan_expectations, variance
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

SECRET = {"source": "operating system", "generator": "chacha20"}
BOUNDS = (-2.0, 6.0)


def model(y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=w.sum()), obs=y)


def planned(epsilon):
    expectations = Expectations(mean_and_square("w", BOUNDS), epsilon=epsilon)
    schedule = Schedule(
        adjacency="replace_one",
        num_rows=100,
        dim=2,
        step_size=0.05,
        num_steps=100,
        clip=1.0,
        temper=0.01,
        release=expectations.average(100),
    )
    curvature = Curvature(strong_convexity=1.0, smoothness=4.0)
    reading = read(model, Rows(y=Binary()), n=100)
    return plan_expectations(expectations, reading, schedule, curvature, Target(1.0, 0.0))


@pytest.mark.slow
def test_with_little_noise_it_is_the_variance_of_the_draws():
    plan = planned(1e6)
    draws = 2.0 + 0.7 * np.random.default_rng(0).normal(size=(5000, 2))
    with jax.enable_x64(True):
        averages = np.asarray(jax.vmap(plan.observable)(draws)).mean(axis=0)
    found = variance(plan.release(averages, SECRET), "w", BOUNDS)
    np.testing.assert_allclose(found, np.clip(draws, *BOUNDS).var(axis=0), rtol=1e-2)


@pytest.mark.slow
def test_noise_never_makes_it_negative():
    plan = planned(1.0)
    given = (np.asarray([2.0, 2.0, 0.5, 0.5]) - plan.observable.centres) / plan.units
    found = [variance(plan.release(given, SECRET), "w", BOUNDS) for _ in range(50)]
    assert np.min(found) >= 0.0


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_bounds_must_be_finite_and_in_order(bounds):
    with pytest.raises(DeclarationError):
        mean_and_square("w", bounds)
