"""What a model may get wrong: how far, whichever other columns a table has."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.posterior.covariates import Fitted
from private_mcmc.inference.posterior.likelihood import Likelihood
from private_mcmc.inference.posterior.people import with_outcomes
from private_mcmc.inference.posterior.tables import misfit_functions
from private_mcmc.model import read

N = 400


def plan_of_pensions(income, place=None, member=None):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", income.shape[0]):
        numpyro.sample("member", dist.Bernoulli(logits=b[0] + b[1] * income), obs=member)


def readings(levels):
    domains = {"income": pmc.Box(-1.0, 1.0), "member": pmc.Binary()}
    if levels:
        domains["place"] = pmc.Categories(levels)
    return read(plan_of_pensions, pmc.Rows(**domains), n=N)


def table(levels):
    random = np.random.default_rng(0)
    rows = {"income": jnp.asarray(random.beta(2, 4, N) * 2 - 1), "member": jnp.zeros(N, dtype=jnp.int32)}
    if levels:
        rows["place"] = jnp.asarray(np.arange(N) % levels)
    return rows, random.uniform(0.5, 1.5, N)


@pytest.mark.parametrize("levels", [0, 3, 12])
def test_every_function_moves_outcomes_as_far_as_the_others_however_many_there_are(levels):
    """Numbers, levels and squares have variance 1; products of two have it together. Few rows are cut off."""
    with jax.enable_x64(True):
        rows, weights = table(levels)
        functions = misfit_functions(readings(levels), rows, weights)
    shares, columns = weights / weights.sum(), 1 + levels
    variances = shares @ functions**2
    assert shares @ functions == pytest.approx(0, abs=0.02)
    assert variances[: 2 * columns] == pytest.approx(1, abs=0.1)
    assert variances[2 * columns :].sum() == pytest.approx(1 if levels else 0, abs=0.1)


def test_no_row_is_further_out_than_it_may_be():
    """Each level has 1 in 60 of the rows: uncut, its people would be eight sds out."""
    with jax.enable_x64(True):
        rows, weights = table(60)
        functions = misfit_functions(readings(60), rows, weights)
    assert np.abs(functions).max() == 5


def test_a_column_that_never_varies_adds_nothing():
    with jax.enable_x64(True):
        rows, weights = table(0)
        functions = misfit_functions(readings(0), {**rows, "income": jnp.full(N, 0.3)}, weights)
    assert np.all(functions == 0)


def shift_of(levels):
    """Sd of what a wrong mean adds to a score that weights the rich at nothing."""
    reading = readings(levels)
    with jax.enable_x64(True):
        rows, weights = table(levels)
        theta, nothing = np.array([-0.5, 2.0]), np.zeros((N, 0))
        covariates = Fitted(rows, weights, misfit_functions(reading, rows, weights), nothing)
        people = with_outcomes(reading, covariates, theta)
        likely, scores = people.shares(reading, theta), people.scores(reading, theta)
        poor = np.repeat(np.asarray(rows["income"]) < 0, likely.shape[1])
        gradients = (scores * poor[:, None])[:, None, :]
        likelihood = Likelihood(reading, people, (), gradients, np.eye(2))
        return np.sqrt(np.diag(likelihood._misfits(likely, scores)[0]))


def test_a_curved_effect_is_as_likely_in_a_table_with_many_levels():
    """Where all functions shared one size, levels of another column made the shift a fifth smaller."""
    alone, among_others = shift_of(0), shift_of(30)
    assert np.all(among_others > 0.9 * alone)
    assert np.all(alone > 0)
