"""Draws of a wide prior that a plan is made with: those under which outcomes are as they were declared.

Synthetic people look like a table of people: inside their domains, with rare and common columns.
"""

import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.model import read
from private_mcmc.model.synthetic import people
from private_mcmc.planning.facts import facts_of, plausible
from private_mcmc.planning.general import RUN, WARM_UP, Policy
from private_mcmc.planning.prediction import burn_in
from private_mcmc.planning.simulate import simulate
from tests.examples_of_models import observed


def wages(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    observed(X, dist.Normal(X @ w, 0.1), y)


@functools.cache
def facts(n=600):
    reading = read(wages, pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Box(-1.0, 1.0)), n=n)
    return facts_of(reading, n, "replace_one", accounting.gdp.budget(3.0, 1e-6))


def test_synthetic_rows_of_a_centred_ball_lie_on_both_sides_of_zero():
    """Those of standardised covariates said sds five times too large."""
    shares = {}
    for centred in (True, None):
        rows = pmc.Rows(X=pmc.Ball(1.0, dim=5, centred=centred))
        x = np.asarray(rows.project(people(rows, 2000, 0))["X"])
        shares[centred] = np.linalg.eigvalsh(x.T @ x / 2000)
    assert shares[True].min() > 0.1 > 10 * shares[None].min()


@pytest.mark.long
def test_no_truth_of_a_plan_puts_outcomes_out_of_their_range():
    rows = facts().reading.rows.project(people(facts().reading.rows, 256, 0))
    with jax.enable_x64(True):
        public = facts().reading.rows.project(facts().reading.rows.synthetic(3, 512))
    drawn = [plausible(facts().prior, facts().likelihood, public, k, 1.0) for k in range(9)]
    predicted = np.abs(np.asarray(rows["X"]) @ np.stack(drawn).T)
    usual = np.abs(np.asarray(rows["X"]) @ np.stack([facts().prior.shrunk(k, 1.0) for k in range(9)]).T)
    assert np.mean(predicted > 1) < 0.1 < 0.2 < np.mean(usual > 1)
    # Known: Σ xxᵀ/σ², whatever the parameter; at the prior's own draws it was twenty times as much.
    x = np.asarray(public["X"])
    exact = np.linalg.inv(600 * x.T @ x / 512 / 0.01 + np.eye(3) / 4)
    metric = facts().metric.root @ facts().metric.root.T
    assert 0.3 < np.trace(metric) / np.trace(exact) < 2


@pytest.mark.long
def test_a_wide_start_reaches_the_mode():
    """The warm-up is of a likelihood as flat as its budget needs; else the run ends 26 sds away."""
    draft = Policy(facts())
    random = np.random.default_rng(0)
    x = np.column_stack([np.ones(600), random.beta(8, 8, 600), random.random(600) < 0.2]) / 3**0.5
    truth = np.array([0.9, -1.2, 0.5])
    y = np.clip(x @ truth + 0.1 * random.normal(size=600), -1, 1)
    with jax.enable_x64(True):
        rows = facts().reading.rows.project({"X": x, "y": y})
        covariance = np.linalg.inv(x.T @ x / 0.01 + np.eye(3) / 4)
        mean, sd = covariance @ x.T @ y / 0.01, np.sqrt(np.diag(covariance))
        errors = []
        for seed in range(3):
            history = simulate(draft, rows, np.ones(600), seed)
            run = next(one for one in history if one.stage.name == RUN)
            assert next(one for one in history if one.stage.name == WARM_UP).stage.schedule.temper < 1
            errors.append((np.asarray(run.value)[burn_in(run.stage) :].mean(axis=0) - mean) / sd)
    rms = float(np.sqrt(np.mean(np.square(errors))))
    assert rms < 8, rms


@pytest.mark.parametrize(
    "prior", [dist.Gamma(0.01, 0.01), dist.Gamma(0.1, 0.1), dist.InverseGamma(0.01, 0.01)]
)
def test_a_vague_prior_of_a_scale_is_planned_for_where_rows_tell_something(prior):
    """Its median is 1e-30, 1e-3 or 1e30: plans promised 0.3 sds there, and the runs were 1e4 sds off."""

    def model(y=None):
        mean, variance = numpyro.sample("mean", dist.Normal(0, 5e4)), numpyro.sample("variance", prior)
        observed(y, dist.Normal(mean, variance**0.5), y)

    made = facts_of(read(model, pmc.Rows(y=pmc.Box(0.0, 1e4)), n=4000), 4000, "replace_one", 0.65)
    # Of Beta outcomes that fill the range the sd is a fifth of it; of the logarithm of a variance √(2/n).
    assert np.all(np.abs(made.references[:, 1] - 2 * np.log(2e3)) < 6)
    assert 0.001 < np.linalg.norm(made.metric.root[1]) < 0.1
    assert 1 < np.linalg.norm(made.metric.root[0]) < 1e3


ROWS = pmc.Rows(
    X=pmc.Ball(2.0, dim=8),
    age=pmc.Box(18.0, 90.0),
    scores=pmc.Box([0.0, -1.0], [1.0, 5.0]),
    sex=pmc.Binary(),
    region=pmc.Categories(5),
    visits=pmc.Counts(9),
    weight=pmc.Real(),
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_people_lie_inside_their_domains_before_they_are_mapped_into_them(seed):
    drawn = people(ROWS, 400, seed)
    with jax.enable_x64(True):
        mapped = ROWS.project(drawn)
    for name, column in drawn.items():
        assert column.shape == np.shape(mapped[name])
        tolerance = 0.5 if name == "visits" else 1e-9
        np.testing.assert_allclose(column, mapped[name], atol=tolerance)
    assert set(np.unique(drawn["region"])) == set(range(5))


def test_indicators_are_rare_in_some_data_sets_and_common_in_others():
    prevalences = [people(ROWS, 2000, seed)["sex"].mean() for seed in range(20)]
    assert min(prevalences) < 0.04 and max(prevalences) > 0.4


def test_somebody_has_every_indicator_of_a_small_table():
    """Its sd without privacy would be the prior's."""
    assert min(people(ROWS, count, seed)["sex"].sum() for count in (32, 128) for seed in range(60)) >= 1


def test_a_number_of_a_table_is_not_two_valued_and_elements_of_a_vector_may_be():
    """Two-valued ages tell nothing of a curve: its sd without privacy would be several times too large."""
    two_valued = 0
    for seed in range(20):
        drawn = people(ROWS, 2000, seed)
        for name in ("age", "visits"):
            # No value, rounded, that nearly everybody has, nor two.
            shares = np.sort(np.unique(drawn[name].round(), return_counts=True)[1] / 2000)
            assert shares[-2:].sum() < 0.9
        two_valued += sum(len(np.unique(column)) == 2 for column in drawn["scores"].T)
    assert 10 <= two_valued <= 30  # of 40, each with probability 1/2: 5 sds are 16
