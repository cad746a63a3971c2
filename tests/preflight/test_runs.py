"""What is said of a run beside the posterior: its price by length, and where unfinished runs leak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from private_mcmc import accounting
from private_mcmc.accounting.papers import hf
from private_mcmc.modeling import Box, Rows, read
from private_mcmc.preflight import preflight
from private_mcmc.preflight.interim import interim_lower_bound
from private_mcmc.schedule import Average, Batch, Schedule
from private_mcmc.target import Target
from tests.preflight import zoo_small as small

TARGET = Target(3.0, 1e-6)
N = 200
WIDE = Rows(x=Box(-1, 1), y=Box(-1e4, 1e4))
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


def test_unfinished_sgld_is_bounded_from_below_as_heller_and_fetaya_do() -> None:
    model = read(small.linear, WIDE, n=N)
    found = interim_lower_bound(model, CYCLIC, TARGET)
    problem = hf.Regression(N, 1.0, 1.0, 1.0, 1e4, 2 * CYCLIC.step_size)
    assert found == hf.lower_bound(problem, 5, TARGET.delta)
    assert found > TARGET.epsilon


@pytest.mark.parametrize(
    "change",
    [
        {"batch": None},
        {"batch": Batch(scheme="cyclic", size=2)},
        {"release": "path"},
        {"num_steps": N - 1},
        {"step_size": 1.0},
    ],
    ids=str,
)
def test_other_schedules_get_no_lower_bound(change) -> None:
    model = read(small.linear, WIDE, n=N)
    assert interim_lower_bound(model, replace(CYCLIC, **change), TARGET) is None


def test_other_models_get_no_lower_bound() -> None:
    model = read(small.logistic, small.LOGISTIC_ROWS, n=N)
    assert interim_lower_bound(model, CYCLIC, TARGET) is None


def test_price_by_length_is_that_of_the_accountant() -> None:
    schedule = Schedule(
        adjacency="replace_one", num_rows=50, dim=3, step_size=0.01, num_steps=40, clip=1.0, temper=0.1
    )
    report = preflight(small.logistic, small.LOGISTIC_ROWS, TARGET, n=50, schedule=schedule)
    by_steps = dict((steps, (path, last)) for steps, path, last in report.run.by_steps)
    path, last = by_steps[40]
    assert path == accounting.run(schedule).epsilon(1e-6)
    assert last <= path
    assert len(by_steps) > 5
    assert "Privacy against the number of steps" in report.to_html()


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
