"""What is said of a run beside the posterior: its price by length, and lower bounds on what it reveals."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc import accounting
from private_mcmc.domains import Box, Rows
from private_mcmc.model import read
from private_mcmc.preflight import curvature, preflight
from private_mcmc.preflight.run_statement import Pull, _states, interim_lower_bound
from private_mcmc.schedule import Average, Batch, Schedule
from private_mcmc.target import Target
from tests.preflight import zoo_small as small

TARGET = Target(3.0, 1e-6)
N = 200
MODELS = {
    n: functools.cache(functools.partial(read, small.linear, Rows(x=Box(-1, 1), y=Box(-3, 3)), n=n))
    for n in (1, 4, 20)
}
CYCLIC = Schedule(
    adjacency="replace_one",
    num_rows=N,
    dim=1,
    step_size=1 / (1 + N) ** 2,
    num_steps=5 * N,
    clip=1e6,
    release="last",
    batch=Batch(scheme="cyclic", size=1),
)


def mean(y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.slow
def test_a_private_posterior_and_an_unfinished_run_that_provably_is_not() -> None:
    """Heller and Fetaya's lesson, for the run as it was declared: clipping, start and all."""
    target = Target(20.0, 1e-6)
    rows = Rows(y=Box(0, 40))
    assert preflight(mean, rows, target, n=N).verdict == "private"
    report = preflight(mean, rows, target, n=N, schedule=CYCLIC)
    assert not report.run.meets
    interim = interim_lower_bound(read(mean, rows, n=N), CYCLIC, target)
    assert target.epsilon < interim <= report.run.statement.epsilon(target.delta)


@pytest.mark.slow
def test_the_lower_bound_is_that_of_simulated_recursions() -> None:
    """The moments of one state, by the matrix of a whole run."""
    model = read(small.linear, Rows(x=Box(-1, 1), y=Box(-1, 1)), n=4)
    run = replace(CYCLIC, num_rows=4, num_steps=10, step_size=0.05, clip=50.0, temper=0.5)
    states = _states(run, 1.0, 0.0, Pull(1.0, -1.0), Pull(1.0, 1.0))
    rng = np.random.default_rng(0)
    theta = np.zeros(200_000)
    for step in range(10):
        constant = 1.0 if step % 4 == 3 else -1.0
        theta -= 0.05 * (theta + 0.5 * 4 * (theta + constant))
        theta += math.sqrt(0.1) * rng.normal(size=len(theta))
    # Five standard errors.
    assert abs(theta.mean() - states.mean[-1]) < 5 * theta.std() / len(theta) ** 0.5
    assert theta.var() == pytest.approx(states.variance[-1], rel=5 * (2 / len(theta)) ** 0.5)
    assert interim_lower_bound(model, run, TARGET) is not None


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_lower_bound_lies_above_the_statement_of_the_run(data) -> None:
    n = data.draw(st.sampled_from([1, 4, 20]))
    schedule = Schedule(
        adjacency=data.draw(st.sampled_from(["replace_one", "zero_out"])),
        num_rows=n,
        dim=1,
        step_size=data.draw(st.sampled_from([0.5, 0.1, 0.01, 1e-4])) / (1 + n),
        num_steps=data.draw(st.sampled_from([1, 7, 40, 400])),
        clip=data.draw(st.sampled_from([0.3, 2.0, 10.0, 100.0])),
        temper=data.draw(st.sampled_from([1.0, 0.1])),
        release=data.draw(st.sampled_from(["last", "path", (1,)])),
        batch=data.draw(st.sampled_from([None, Batch(scheme="cyclic", size=1)])),
    )
    target = Target(1.0, data.draw(st.sampled_from([1e-2, 1e-6])), schedule.adjacency)
    model = MODELS[n]()
    found = interim_lower_bound(model, schedule, target)
    statement = accounting.langevin_statement(schedule, curvature(model, schedule))
    assert found <= statement.epsilon(target.delta)


@pytest.mark.parametrize(
    "change",
    [
        {"batch": Batch(scheme="poisson", rate=0.1)},
        {"batch": Batch(scheme="cyclic", size=3)},
        {"diameter": 1.0},
        {"noise": (2.0,)},
        {"num_steps": 300_000},
    ],
    ids=str,
)
def test_other_schedules_get_no_lower_bound(change) -> None:
    assert interim_lower_bound(MODELS[20](), replace(CYCLIC, **{"num_rows": 20, **change}), TARGET) is None


def test_other_models_get_no_lower_bound() -> None:
    model = read(small.logistic, small.LOGISTIC_ROWS, n=N)
    assert interim_lower_bound(model, CYCLIC, TARGET) is None


@pytest.mark.slow
def test_a_private_run_stands_before_a_posterior_that_is_not() -> None:
    """What is released is what is asked about first; red is for what would not be private."""
    schedule = replace(CYCLIC, num_steps=10, step_size=1e-3, clip=1.0, release="path", batch=None)
    report = preflight(mean, Rows(y=Box(-9, 9)), TARGET, n=N, schedule=schedule)
    first, second = report.report.blocks[:2]
    assert report.verdict == "not private" and report.run.meets
    assert (first.word, first.tone, second.tone) == ("the run is private", "good", "unsure")
    assert "not private" in second.word
    alone = preflight(mean, Rows(y=Box(-9, 9)), TARGET, n=N).report.blocks[0]
    assert (alone.word, alone.tone) == ("not private", "bad")


@pytest.mark.long
def test_price_by_length_is_that_of_the_accountant() -> None:
    schedule = Schedule(
        adjacency="replace_one", num_rows=50, dim=3, step_size=0.01, num_steps=40, clip=1.0, temper=0.1
    )
    report = preflight(small.logistic, small.LOGISTIC_ROWS, TARGET, n=50, schedule=schedule)
    by_steps = dict((steps, (path, last)) for steps, path, last in report.run.by_steps)
    path, last = by_steps[40]
    assert path == accounting.langevin_statement(schedule).epsilon(1e-6)
    assert last <= path
    assert len(by_steps) > 5
    assert "Privacy against the number of steps" in report.to_html()


@pytest.mark.slow
def test_an_average_is_priced_by_its_noise() -> None:
    schedule = Schedule(
        adjacency="replace_one",
        num_rows=50,
        dim=3,
        step_size=0.01,
        num_steps=40,
        clip=1.0,
        release=Average(first=10),
    )
    report = preflight(small.logistic, small.LOGISTIC_ROWS, TARGET, n=50, schedule=schedule)
    assert report.run.statement is None
    assert "noise decides its price" in report.run.text
    assert report.to_dict()["run"]["statement"] is None
