"""Quantiles: chosen among public candidates, at the price of one score's sensitivity."""

import math

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from private_mcmc.accounting import Curvature, average_sensitivity
from private_mcmc.domains import Binary, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.model import read
from private_mcmc.release import Quantile, plan_expectations
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

SECRET = {"source": "operating system", "generator": "chacha20"}
CURVATURE = Curvature(strong_convexity=1.0, smoothness=4.0)


def model(y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("t", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=w.sum()), obs=y)


MODEL = read(model, Rows(y=Binary()), n=100)


def planned(quantile, curvature=CURVATURE, epsilon=1.0, temper=0.01):
    schedule = Schedule(
        adjacency="replace_one",
        num_rows=100,
        dim=3,
        step_size=0.05,
        num_steps=100,
        clip=1.0,
        temper=temper,
        release=quantile.average(100),
    )
    plan = plan_expectations(quantile, MODEL, schedule, curvature, Target(epsilon, 0.0))
    return plan, average_sensitivity(schedule, curvature)


def averages_of(plan, draws):
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(plan.observable)(draws)).mean(axis=0)


@pytest.mark.long
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_with_little_noise_the_choice_is_the_quantile_of_the_draws(probability):
    plan, _ = planned(Quantile("t", probability, (-4.0, 4.0), candidates=401, width=0.1, epsilon=1e5))
    draws = np.random.default_rng(0).normal(size=(20_000, 3))
    chosen = plan.release(averages_of(plan, draws), SECRET)["t"].value
    assert chosen == pytest.approx(stats.norm.ppf(probability), abs=0.06)


@pytest.mark.slow
def test_one_row_moves_each_score_by_the_coupling_distance_over_the_width():
    plan, distance = planned(Quantile("t", 0.5, (-4.0, 4.0), width=0.5))
    assert plan.sensitivity * 2.0**-40 == pytest.approx(distance / 0.5, rel=1e-3)
    assert plan.statement.epsilon(0.0) == 1.0
    assert plan.statement.verify()
    draws = np.random.default_rng(0).normal(size=(500, 3))
    shift = distance * np.asarray([0.0, 0.0, 1.0])
    first, second = (averages_of(plan, moved) * plan.observable.units for moved in (draws, draws + shift))
    assert np.abs(first - second).max() <= plan.sensitivity * 2.0**-40
    wild, _ = planned(Quantile("t", 0.5, (-4.0, 4.0)), curvature=Curvature())
    assert wild.sensitivity * 2.0**-40 == pytest.approx(1.0, rel=1e-3)


@pytest.mark.long
def test_the_rank_error_is_told_before_and_kept():
    plan, _ = planned(Quantile("t", 0.5, (-4.0, 4.0), width=0.5, candidates=64))
    assert "rank off by at most" in plan.describe()
    ranks = averages_of(plan, np.random.default_rng(0).normal(size=(2000, 3))) * plan.observable.units + 0.5
    best = np.abs(ranks - 0.5).min()
    given = (ranks - 0.5) / plan.observable.units
    grid = plan.quantile.grid
    missed = 0
    for _ in range(400):
        chosen = int(np.argmin(np.abs(grid - plan.release(given, SECRET)["t"].value)))
        missed += abs(ranks[chosen] - 0.5) > best + plan.rank_error
    assert stats.binomtest(missed, 400, 0.05, alternative="greater").pvalue > 1e-6


def test_a_callers_lipschitz_constant_is_quoted():
    declared = Quantile(lambda s: (s["w"] ** 2).sum() ** 0.5, 0.5, (0.0, 4.0), lipschitz=1.0, width=1.0)
    plan, distance = planned(declared)
    assert plan.sensitivity * 2.0**-40 == pytest.approx(distance, rel=1e-3)
    assert any("stated, not proved" in line for line in plan.statement.argument.assumptions)


def test_no_private_value_raises():
    plan, _ = planned(Quantile("t", 0.5, (-4.0, 4.0)))
    for given in (math.nan, math.inf, -math.inf):
        value = plan.release(np.full(128, given), SECRET)["t"].value
        assert -4.0 <= value <= 4.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Quantile("t", 0.0, (-1.0, 1.0)),
        lambda: Quantile("t", 0.5, (1.0, 1.0)),
        lambda: Quantile("t", 0.5, (-1.0, 1.0), candidates=1),
        lambda: Quantile("t", 0.5, (-1.0, 1.0), width=0.0),
        lambda: Quantile({"a": "t", "b": "w"}, 0.5, (-1.0, 1.0)),
        lambda: planned(Quantile("w", 0.5, (-1.0, 1.0))),
        lambda: planned(Quantile("nowhere", 0.5, (-1.0, 1.0))),
    ],
)
def test_what_has_no_quantile_is_refused(make):
    with pytest.raises(DeclarationError):
        make()
