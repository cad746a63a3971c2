from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import Dataset, synthetic
from benchmarks.peers import Budget, DoesNotApply, Runs, Unavailable
from benchmarks.peers.limits import LowerBound, Oracle
from benchmarks.utility import measure
from benchmarks.utility_page import page
from benchmarks.utility_reference import reference
from benchmarks.utility_results import DatasetFacts, Result, Store, load


class AtTheMode:
    """A method that always answers the mode."""

    name = "mode"
    adjacency = "replace_one"
    about = "the mode"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        if budget.epsilon > 100:
            raise DoesNotApply("too large")
        if budget.epsilon > 10:
            raise Unavailable("not today")
        return Runs((reference(dataset).mode[None],) * runs, {"epsilon": budget.epsilon})


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Store:
    dataset = synthetic(n=400)
    exact = reference(dataset)
    store = Store(tmp_path_factory.mktemp("store") / "results.json", 1e-6)
    store.datasets["made_up"] = DatasetFacts("made_up", 400, 8, "logistic", "nobody", "made up", exact.ess)
    for epsilon in (1.0, 3.0, 50.0, 1000.0):
        store.add(measure(AtTheMode(), dataset, exact, epsilon, runs=2))
    return store


@pytest.mark.long
def test_results_survive_the_disk_and_are_not_measured_twice(measured: Store) -> None:
    assert measured.path is not None
    again = load(measured.path)
    assert again.results == measured.results
    assert again.datasets == measured.datasets
    assert again.missing(("made_up", "mode", 1.0), runs=2) == 0
    assert again.missing(("made_up", "mode", 1.0), runs=5) == 3
    assert again.missing(("made_up", "mode", 50.0), runs=1) == 1
    assert again.missing(("made_up", "mode", 1000.0), runs=9) == 0


@pytest.mark.long
def test_later_runs_join_earlier_ones(measured: Store) -> None:
    store = Store(None, measured.delta, dict(measured.results))
    more = measured.results["made_up", "mode", 1.0]
    store.add(more)
    store.add(measured.results["made_up", "mode", 1000.0])
    assert store.results[more.key].scores == more.scores * 2
    assert store.missing(more.key, runs=5) == 1


@pytest.mark.long
def test_what_cannot_run_is_named_on_the_page(measured: Store) -> None:
    text = page(measured, {"mode": "the mode"}).to_html()
    assert "not available" in text and "not today" in text
    assert "does not apply" in text and "too large" in text
    assert "replace_one" in text


@pytest.mark.long
def test_scores_are_those_of_the_reference(measured: Store) -> None:
    result: Result = measured.results["made_up", "mode", 1.0]
    assert len(result.scores) == 2
    summary = result.summary("rms")
    assert summary is not None
    # The mode of 400 rows is near their mean, not at it.
    assert 0 < summary.value < 1
    assert np.isclose(summary.error, 0)


@pytest.mark.long
def test_the_oracle_is_above_the_lower_bound_at_every_budget(tmp_path: Path) -> None:
    dataset = synthetic(n=400)
    for epsilon in (0.1, 1.0, 10.0):
        budget = Budget(epsilon, 1e-6)
        least = LowerBound(tmp_path).run(dataset, budget, 1).facts["bound"]
        expected = Oracle(tmp_path).run(dataset, budget, 1).facts["expected rms"]
        assert 0 < float(least) < float(expected)
