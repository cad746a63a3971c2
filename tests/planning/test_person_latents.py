"""Plans for persons: stages and statement speak of them; outcomes of one person are drawn together."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import GeneralPolicy
from private_mcmc.planning.outcomes import likelihood_of
from private_mcmc.planning.stages import PathStage
from tests.examples_of_models import logistic

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), person=pmc.Person(at_most=3))
N = 4000


def with_intercepts(X, person, persons, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, spread))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + u[person]), obs=y)


@pytest.mark.long
def test_every_stage_is_stated_for_persons_and_fits_the_budget():
    reading = read(logistic, ROWS, n=N)
    facts = facts_of(reading, N, "replace_one", 0.5)
    policy = GeneralPolicy(facts)
    first = policy.next(())
    assert first is not None and not isinstance(first, PathStage)
    assert first.statement.unit == ROWS.unit
    # A person's rows are clipped together: the path's schedule is that of persons.
    path = policy._path("run", 0.4, facts.metric, facts.prior.centre, 0.1, 10.0, 1.5)
    assert path.statement.unit == ROWS.unit and path.statement.gdp <= 0.4


@pytest.mark.long
def test_the_information_of_persons_is_the_curvature_of_what_their_latents_leave():
    """On average over outcomes that the model draws, which is Fisher's."""
    reading, random, count = read(with_intercepts, ROWS, n=N, model_args={"persons": N}), np.random, 4000
    rng, theta = random.default_rng(0), np.array([0.5, -0.3, 0.2])
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
