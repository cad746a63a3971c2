"""Plans for persons: what a person tells is the sum of its rows', and all stages protect the same persons."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc import models
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.model import read
from private_mcmc.model.refusals import rows_at_ends
from private_mcmc.planning.outcomes import Likelihood, PersonLikelihood, event_times, likelihood_of
from private_mcmc.potential.rowwise import of_rows
from private_mcmc.target import Unit
from tests.soundness.sweep.zoo import ZOO

ZOO_MODEL = ZOO["logistic"]
ROWS = pmc.Rows(**ZOO_MODEL.rows.columns, who=pmc.Person(3))


def test_the_information_of_a_person_is_the_sum_of_that_of_its_rows():
    found = likelihood_of(read(ZOO_MODEL.model, ROWS, n=5), 0.5)
    assert isinstance(found, PersonLikelihood) and not found.few
    single = Likelihood(found.reading, found.outcomes, 0.5)
    with jax.enable_x64(True):
        rows = {name: jnp.asarray(column) for name, column in rows_at_ends(ZOO_MODEL.rows, 3).items()}
        at, root = jnp.asarray([[0.3, -0.2], [1.0, 0.4]]), jnp.eye(2)
        person = jax.jit(found.information)(at, root, {**rows, OWN_ROWS: jnp.asarray([1, 0, 1])})
        each = jax.jit(jax.vmap(single.information, (None, None, 0)))(at, root, rows)
    assert person.shape == (2 * 3, 2)
    person, own = np.asarray(person), np.asarray(each)[[0, 2]]
    told = np.einsum("rki,rkj->ij", own, own)
    assert np.allclose(person.T @ person, told, rtol=1e-12)


@pytest.mark.long
def test_a_plan_of_persons_is_carried_out_at_its_price():
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(400), rng.integers(1, 5, 400))
    X = rng.normal(size=(len(who), 2)) / 3
    y = rng.random(len(who)) < 1 / (1 + np.exp(-X @ [1.0, -1.0]))
    target = pmc.Target(8.0, 1e-6)
    plan = pmc.plan(ZOO_MODEL.model, ROWS, target, n=400, guarantee="run")
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    mcmc.run(X=X, y=y, who=who)
    assert mcmc.statement.unit == Unit("who", 3) and mcmc.statement.verify()
    assert all(stage.stage.statement.unit == Unit("who", 3) for stage in mcmc.history)
    assert mcmc.statement.epsilon(1e-6) <= 8.0
    assert "persons" in str(plan.report().blocks)


def hazard(X, time, event):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.factor("term", event * (X @ w) - time * jnp.exp(X @ w))


def weibull(X, time, event):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    shape = numpyro.sample("shape", dist.LogNormal(0, 0.5))
    times = dist.Weibull(jnp.exp(X @ w), shape)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("time", dist.RightCensoredDistribution(times, 1 - event), obs=time)


def no_hazard(X, time, event):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.factor("term", event * (X @ w) - time * time * jnp.exp(X @ w))


TIMES = models.survival_rows(2)


@pytest.mark.long
def test_times_to_an_event_are_recognised_by_their_hazard():
    for model, rows in ((hazard, TIMES), (weibull, TIMES), (models.hazards, models.hazards_rows(2))):
        found = event_times(read(model, rows, n=50))
        assert found is not None and (found.time, found.event) == ("time", "event")
    assert event_times(read(no_hazard, TIMES, n=50)) is None
    assert event_times(read(ZOO_MODEL.model, ZOO_MODEL.rows, n=50)) is None


def test_times_of_public_rows_are_the_models_and_cut_off_where_the_range_ends():
    """Times that rows have by chance say hundreds of times as much of a law in whose tail they are."""
    found, rows = likelihood_of(read(hazard, TIMES, n=50), 1.0), TIMES.synthetic(0, 64)
    theta = np.array([[4.0, -3.0], [-5.0, 2.0]])
    random, (_, high) = np.random.default_rng(4).uniform(size=64), TIMES.columns["time"].interval()
    with jax.enable_x64(True):
        for at, (thetas, drawn) in zip(theta, found.synthetic(theta, rows), strict=True):
            left = np.exp(-np.asarray(drawn["time"] - 0.01) * np.exp(rows["X"] @ at))
            seen = np.asarray(drawn["event"]) == 1
            np.testing.assert_allclose(left[seen], random[seen], rtol=1e-2)
            assert np.all(left[~seen] > random[~seen]) and np.all(drawn["time"][~seen] == high)
            assert np.all(thetas == at) and 0 < seen.sum() < 64


@pytest.mark.slow
def test_a_factors_information_is_the_positive_part_of_its_curvature_where_rows_are_looked_at():
    reading = read(no_hazard, TIMES, n=50)
    found, theta, root = likelihood_of(reading, 1.0), np.array([[0.2, -0.4]]), np.eye(2)
    with jax.enable_x64(True):
        rows = TIMES.project(TIMES.synthetic(0, 6))
        told = of_rows(functools.partial(found.information, theta, root), rows)
        curvatures = np.asarray(
            jax.jit(jax.vmap(jax.hessian(reading.row_loss), (None, 0)))(jnp.asarray(theta[0]), rows)
        )
    values, vectors = np.linalg.eigh(curvatures)
    positive = np.einsum("rij,rj,rkj->rik", vectors, np.maximum(values, 0), vectors)
    np.testing.assert_allclose(np.einsum("rki,rkj->rij", told, told), positive, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_what_times_say_is_their_losses_curvature_on_average_and_bounded_far_away():
    """A hazard that is added up grows without bound, and so would a plan's metric made of its curvature."""
    reading, count = read(hazard, TIMES, n=50), 16_000
    found, root = likelihood_of(reading, 1.0), np.eye(2)
    theta, away = jnp.array([0.2, -0.4]), jnp.array([20.0, -5.0])
    times = np.random.default_rng(0).exponential(np.exp(-0.3 * 0.2 - 0.8 * 0.4), count)
    made = {
        "X": np.tile([0.3, -0.8], (count, 1)),
        "time": np.minimum(times, 1.8),
        "event": (times < 1.8).astype(int),
    }
    with jax.enable_x64(True):
        told = jax.vmap(found.information, (None, None, 0))
        near, far = told(theta[None], root, made), told(away[None], root, made)
        curvatures = jax.vmap(jax.hessian(reading.row_loss), (None, 0))
        curvature = np.asarray(curvatures(theta, made)).mean(axis=0)
        of_hazard = float(curvatures(away, made).max())
    assert near.shape[1] == 1
    # An entry's sd over 16,000 draws is below 0.01.
    assert np.allclose(np.einsum("rki,rkj->ij", near, near) / len(near), curvature, atol=0.06)
    assert np.abs(far).max() < 1 and of_hazard > 1000


VECTORS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), person=pmc.Person(at_most=3))


def with_intercepts(X, person, persons, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, spread))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + u[person]), obs=y)


@pytest.mark.long
def test_the_information_of_persons_is_the_curvature_of_what_their_latents_leave():
    """On average over outcomes that the model draws, which is Fisher's."""
    count, rng, theta = 4000, np.random.default_rng(0), np.array([0.5, -0.3, 0.2])
    reading = read(with_intercepts, VECTORS, n=count, model_args={"persons": count})
    X = np.stack([np.ones((count, 3)), rng.uniform(-1, 1, (count, 3))], axis=2) / 2**0.5
    eta = X @ theta[:2] + np.exp(theta[2]) * rng.normal(size=(count, 1))
    persons = {
        "X": jnp.asarray(X),
        "y": jnp.asarray((rng.random((count, 3)) < 1 / (1 + np.exp(-eta))).astype(int)),
        "rows of the person": jnp.ones((count, 3), int),
    }
    likelihood = likelihood_of(reading, 1.0)
    with jax.enable_x64(True):
        told = jax.vmap(likelihood.information, (None, None, 0))(theta[None], np.eye(3), persons)
        scores = np.asarray(jax.vmap(jax.grad(reading.row_loss), (None, 0))(jnp.asarray(theta), persons))
    information = np.einsum("rki,rkj->ij", told, told) / count
    # The curvature's positive part is a little more.
    np.testing.assert_allclose(information, scores.T @ scores / count, atol=0.05)
