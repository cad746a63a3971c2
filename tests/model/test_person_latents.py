"""Latents of persons are integrated out of their rows' terms; what cannot be is refused by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Ball, Binary, Box, Person, Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model import read

ROWS = Rows(X=Ball(2.0, dim=2), y=Binary(), person=Person(at_most=3))
N = 50


def shared():
    return numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1)), numpyro.sample(
        "tau", dist.HalfNormal(1)
    )


def answers(logits, y):
    with numpyro.plate("rows", logits.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def centred(X, person, persons, y=None):
    w, tau = shared()
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0.5, tau))
    answers(X @ w + u[person], y)


def slopes(X, person, persons, y=None):
    w, tau = shared()
    with numpyro.plate("persons", persons):
        a = numpyro.sample("a", dist.Normal(0, tau))
        b = numpyro.sample("b", dist.Normal(0, 0.5))
    answers(X @ w + a[person] + b[person] * X[:, 0], y)


@functools.cache
def reading(model, rows=ROWS):
    return read(model, rows, n=N, model_args={"persons": N})


def some(rows, count=4):
    return rows.persons.project(rows.persons.synthetic(1, count))


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.long
def test_a_person_without_rows_adds_nothing():
    person = {"X": np.ones((3, 2)), "y": np.ones(3, int), "rows of the person": np.zeros(3, int)}
    slope = jax.jit(jax.grad(reading(centred).row_loss))(jnp.ones(3), person)
    assert float(jnp.max(jnp.abs(slope))) < 1e-12


def someone_elses(X, person, persons, y=None):
    w, tau = shared()
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, tau))
    answers(X @ w + u[0 * person], y)


def the_last_ones(X, person, persons, y=None):
    w, tau = shared()
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, tau))
    answers(X @ w + u[person] + 0.1 * u[-1], y)


def without_a_plate(X, person, persons, y=None):
    w, tau = shared()
    answers(X @ w + tau * person, y)


def too_many(X, person, persons, y=None):
    w, tau = shared()
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, tau).expand([3]).to_event(1))
    answers(X @ w + u[person].sum(-1), y)


def upside_down(X, person, persons, y=None):
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, 1))
    w = numpyro.sample("w", dist.Normal(u.mean(), 1).expand([2]).to_event(1))
    answers(X @ w + u[person], y)


def flat(X, person, persons, y=None):
    w, _ = shared()
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.ImproperUniform(dist.constraints.real, (), ()))
    answers(X @ w + u[person], y)


def numbered(u_of, eta_of):
    """Persons of whom some are others by their number alone, beyond the first three."""

    def model(X, person, persons, y=None):
        w, tau = shared()
        with numpyro.plate("persons", persons) as number:
            u = numpyro.sample("u", u_of(number, tau))
        answers(eta_of(X @ w + u[person], person), y)

    return model


@pytest.mark.slow
@pytest.mark.parametrize("first", [10, N - 1])
def test_a_prior_or_a_term_that_follows_a_persons_number_is_refused(first):
    prior = numbered(
        lambda number, tau: dist.Normal(jnp.where(number < first, 0.0, 3.0), tau), lambda e, _: e
    )
    term = numbered(lambda number, tau: dist.Normal(0, tau), lambda e, person: e + (person >= first))
    kind = numbered(lambda number, tau: dist.Bernoulli(jnp.where(number < first, 0.2, 0.7)), lambda e, _: e)
    another = "person with another number"
    for site, model, why in (
        ("u", prior, another),
        ("y", term, "own person's latents"),
        ("u", kind, another),
    ):
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


def test_another_persons_class_is_refused():
    def next_one(X, person, persons, y=None):
        w, tau = shared()
        with numpyro.plate("persons", persons):
            kind = numpyro.sample("kind", dist.Bernoulli(0.4))
        answers(X @ w + tau * kind[(person + 1) % persons], y)

    with pytest.raises(DoThisInstead, match=r"own person's latents|differs from that of the whole"):
        reading(next_one)
