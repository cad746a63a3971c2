"""What is said of a run beside the posterior: its price by length, and lower bounds on what it reveals."""

from __future__ import annotations

import pytest

from private_mcmc.preflight import preflight
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target
from tests.preflight import zoo_small as small

TARGET = Target(3.0, 1e-6)
N = 200


@pytest.mark.slow
def test_a_private_run_stands_before_a_posterior_that_is_not() -> None:
    """What is released is what is asked about first; red is for what would not be private."""
    schedule = Schedule(
        adjacency="replace_one", num_rows=N, dim=9, step_size=1e-3, num_steps=10, clip=1.0, release="path"
    )
    report = preflight(small.logistic, small.ADULT_ROWS, TARGET, n=N, schedule=schedule)
    first, second = report.report.blocks[:2]
    assert report.verdict == "not private" and report.run.meets
    assert (first.word, first.tone, second.tone) == ("the run is private", "good", "unsure")
    assert "not private" in second.word
    alone = preflight(small.logistic, small.ADULT_ROWS, TARGET, n=N).report.blocks[0]
    assert (alone.word, alone.tone) == ("not private", "bad")


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
