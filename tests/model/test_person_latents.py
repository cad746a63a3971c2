"""Latents of persons are integrated out of their rows' terms; what cannot be is refused by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from private_mcmc.domains import Ball, Binary, Box, Person, Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model import read
from tests.examples_of_models import observed

pytestmark = pytest.mark.usefixtures("float64")
ROWS = Rows(X=Ball(2.0, dim=2), y=Binary(), person=Person(at_most=3))
N = 50


def shared():
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    return w, numpyro.sample("tau", dist.HalfNormal(1))


def answers(logits, y):
    observed(logits, dist.Bernoulli(logits=logits), y)


def of_each(prior, eta=lambda eta, u, person: eta + u[person]):
    """A model with a latent ``u`` of each person, of the law ``prior(number, tau)``."""

    def model(X, person, persons, y=None):
        w, tau = shared()
        with numpyro.plate("persons", persons) as number:
            u = numpyro.sample("u", prior(number, tau))
        answers(eta(X @ w, u, person), y)

    return model


def usual(number, tau):
    return dist.Normal(0, tau)


centred = of_each(lambda number, tau: dist.Normal(0.5, tau))
someone_elses = of_each(usual, lambda eta, u, person: eta + u[0 * person])
the_last_ones = of_each(usual, lambda eta, u, person: eta + u[person] + 0.1 * u[-1])
too_many = of_each(
    lambda number, tau: dist.Normal(0, tau).expand([3]).to_event(1),
    lambda eta, u, person: eta + u[person].sum(-1),
)
flat = of_each(lambda number, tau: dist.ImproperUniform(dist.constraints.real, (), ()))


def slopes(X, person, persons, y=None):
    w, tau = shared()
    with numpyro.plate("persons", persons):
        a, b = numpyro.sample("a", dist.Normal(0, tau)), numpyro.sample("b", dist.Normal(0, 0.5))
    answers(X @ w + a[person] + b[person] * X[:, 0], y)


@functools.cache
def reading(model, rows=ROWS):
    return read(model, rows, n=N, model_args={"persons": N})


def some(rows, count=4):
    return rows.persons.project(rows.persons.synthetic(1, count))


@pytest.mark.long
def test_a_person_without_rows_adds_nothing():
    person = {"X": np.ones((3, 2)), "y": np.ones(3, int), "rows of the person": np.zeros(3, int)}
    slope = jax.jit(jax.grad(reading(centred).row_loss))(jnp.ones(3), person)
    assert float(jnp.max(jnp.abs(slope))) < 1e-12


def without_a_plate(X, person, persons, y=None):
    w, tau = shared()
    answers(X @ w + tau * person, y)


def upside_down(X, person, persons, y=None):
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, 1))
    w = numpyro.sample("w", dist.Normal(u.mean(), 1).expand([2]).to_event(1))
    answers(X @ w + u[person], y)


@pytest.mark.slow
@pytest.mark.parametrize("first", [10, N - 1])
def test_a_prior_or_a_term_that_follows_a_persons_number_is_refused(first):
    """Of persons some are others by their number alone, beyond the first three."""
    prior = of_each(lambda number, tau: dist.Normal(jnp.where(number < first, 0.0, 3.0), tau))
    term = of_each(usual, lambda eta, u, person: eta + u[person] + (person >= first))
    kind = of_each(lambda number, tau: dist.Bernoulli(jnp.where(number < first, 0.2, 0.7)))
    another, own = "person with another number", "own person's latents"
    for site, model, why in (("u", prior, another), ("y", term, own), ("u", kind, another)):
        with pytest.raises(DoThisInstead, match=f"site '{site}'.*{why}"):
            reading(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kind", "why"),
    [
        (flat, DoThisInstead, "does not integrate to 1"),
        (someone_elses, DoThisInstead, "own person's latents"),
        (the_last_ones, DoThisInstead, "own person's latents"),
        (without_a_plate, DoThisInstead, "one plate of the public number of persons, n=50"),
        (too_many, NotYetSupported, "3 latent numbers"),
        (upside_down, DoThisInstead, "prior of site 'w' depends on the rows .u of the person"),
    ],
)
def test_what_is_no_persons_own_is_refused(model, kind, why):
    with pytest.raises(kind, match=why):
        reading(model)


def test_latents_of_rows_beside_those_of_persons_are_refused_by_name():
    def missing(X, z, person, persons, y=None):
        w, tau = shared()
        with numpyro.plate("persons", persons):
            u = numpyro.sample("u", dist.Normal(0, tau))
        with numpyro.plate("rows", X.shape[0]):
            part = numpyro.sample("part", dist.Normal(0, 1))
        answers(X @ w + u[person] + z * part, y)

    rows = Rows(X=Ball(2.0, dim=2), z=Box(-1, 1), y=Binary(), person=Person(at_most=3))
    with pytest.raises(NotYetSupported, match=r"'part'.*'u'"):
        reading(missing, rows)


def test_numbers_of_a_person_may_be_one_vector():
    def vector(X, person, persons, y=None):
        w, tau = shared()
        with numpyro.plate("persons", persons):
            both = numpyro.sample("both", dist.Normal(0, jnp.stack([tau, 0.5])).to_event(1))
        answers(X @ w + both[person][:, 0] + both[person][:, 1] * X[:, 0], y)

    person, theta = {name: column[0] for name, column in some(ROWS).items()}, jnp.array([0.3, -1.4, -0.2])
    ours, theirs = (jax.jit(reading(model).row_loss)(theta, person) for model in (vector, slopes))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("log_sd", [0.0, -3.0])
def test_intercepts_and_slopes_over_weeks_that_are_not_centred_are_summed_exactly(log_sd):
    """Given six weeks from 100 on, a person's two numbers lie on a ridge that no box of few points meets."""

    def growth(week, person, persons, y=None):
        a_mean, b_mean = (numpyro.sample(f"{one} mean", dist.Normal(0, 1)) for one in "ab")
        sd = numpyro.sample("sd", dist.HalfNormal(1))
        with numpyro.plate("persons", persons):
            a = numpyro.sample("a", dist.Normal(a_mean, 1.0))
            b = numpyro.sample("b", dist.Normal(b_mean, 1.0))
        observed(week, dist.Normal(a[person] + b[person] * week, sd), y)

    rows = Rows(week=Box(-5, 133), y=Box(-9, 9), person=Person(at_most=6))
    week, y = np.array([100.0, 101, 102, 104, 130, 133]), np.array([1.0, 0.7, 1.2, 0.9, 1.1, -0.3])
    design = np.stack([np.ones(6), week], axis=1)
    law = stats.multivariate_normal(design @ [0.3, -0.2], design @ design.T + np.exp(2 * log_sd) * np.eye(6))
    person = {"week": week, "y": y, "rows of the person": np.ones(6, int)}
    found = jax.jit(reading(growth, rows).row_loss)(jnp.array([0.3, -0.2, log_sd]), person)
    assert float(found) == pytest.approx(-law.logpdf(y), rel=1e-8)


def test_another_persons_class_is_refused():
    next_one = of_each(
        lambda number, tau: dist.Bernoulli(0.4), lambda eta, u, person: eta + 2 * u[(person + 1) % N]
    )
    with pytest.raises(DoThisInstead, match=r"own person's latents|differs from that of the whole"):
        reading(next_one)
