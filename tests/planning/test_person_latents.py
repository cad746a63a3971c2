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
from private_mcmc.planning.stages import PathStage
from private_mcmc.planning.synthetic_outcomes import likelihood_of
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
    facts = facts_of(reading, N, "replace_one", 0.5, {})
    policy = GeneralPolicy(facts)
    first = policy.next(())
    assert first is not None and not isinstance(first, PathStage)
    assert first.statement.unit == ROWS.unit
    # A person's rows are clipped together: the path's schedule is that of persons.
    path = policy._path("run", 0.4, facts.metric, facts.prior.centre, 0.1, 10.0, 1.5)
    assert path.statement.unit == ROWS.unit and path.statement.gdp <= 0.4


@pytest.mark.long
def test_outcomes_of_one_person_agree_as_its_latent_makes_them():
    """Under a wide spread of intercepts most persons answer all alike, in shares that quadrature gives."""
    reading = read(with_intercepts, ROWS, n=N, model_args={"persons": N})
    likelihood = likelihood_of(reading, 1.0)
    persons = {
        "X": jnp.zeros((N, 3, 2)),
        "y": jnp.zeros((N, 3), int),
        "rows of the person": jnp.ones((N, 3), int),
    }
    with jax.enable_x64(True):
        theta = jnp.array([0.0, 0.0, float(np.log(4.0))])
        keys = jax.random.split(jax.random.key(0), N)
        drawn = jax.vmap(likelihood._drawn, in_axes=(None, 0, 0))(theta, persons, keys)
    alike = np.mean(np.ptp(np.asarray(drawn["y"]), axis=1) == 0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    p = 1 / (1 + np.exp(-4.0 * nodes))
    exact = np.sum(weights * (p**3 + (1 - p) ** 3)) / np.sum(weights)
    # Four standard errors.
    assert abs(alike - exact) < 4 * np.sqrt(exact * (1 - exact) / N)
