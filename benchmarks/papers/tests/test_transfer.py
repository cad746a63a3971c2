"""Transfer of privacy between posterior, run and averages, and only by the right distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import mixing, transfer
from private_mcmc.errors import DeclarationError

SOURCE = "a proof"


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 3))
def test_propositions_3_2_and_3_4_hold_on_random_finite_laws(seed, epsilon):
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.ones(5) * rng.uniform(0.2, 5), size=2)
    mix = rng.uniform(0, 1)
    run = (1 - mix) * posterior + mix * rng.dirichlet(np.ones(5), size=2)
    distance = float(np.abs(run - posterior).sum(axis=1).max() / 2)
    of_posterior = max(hockey_stick(*posterior, epsilon), hockey_stick(*posterior[::-1], epsilon))
    of_run = max(hockey_stick(*run, epsilon), hockey_stick(*run[::-1], epsilon))
    known = transfer.PosteriorDistance(distance, SOURCE)
    assert of_run <= transfer.delta_of_run(epsilon, of_posterior, known) + 1e-12
    assert of_posterior <= transfer.delta_of_posterior(epsilon, of_run, known) + 1e-12
    if of_posterior > of_run + 1e-9:
        assert distance >= transfer.run_distance_at_least(epsilon, of_posterior - 1e-12, of_run) - 1e-9


def test_distances_to_the_chains_own_law_or_in_wasserstein_metric_are_refused():
    _, own = mixing.mixing_time(0.01, 1e-3, 1.0, 1.0, 1.0)
    for wrong in (own, mixing.bias(0.01, 1.0, 2.0, 3), 0.0):
        with pytest.raises(DeclarationError, match="distance to the posterior"):
            transfer.delta_of_run(1.0, 1e-6, wrong)


@pytest.mark.parametrize(("value", "source"), [(math.nan, SOURCE), (-0.1, SOURCE), (1.1, SOURCE), (0.1, "")])
def test_a_posterior_distance_is_a_probability_with_a_proof(value, source):
    with pytest.raises(DeclarationError):
        transfer.PosteriorDistance(value, source)


def test_nothing_follows_from_a_posterior_that_is_as_private_as_the_run():
    with pytest.raises(DeclarationError, match="nothing follows"):
        transfer.run_distance_at_least(1.0, 1e-6, 1e-6)
    with pytest.raises(DeclarationError):
        transfer.run_distance_at_least(1.0, math.nan, 1e-6)


def test_averages():
    assert transfer.noised_average(1.0, 0.0, 0.0) == (1.0, 0.0)
    assert transfer.noised_average(1.0, 1e-6, 1e-3)[1] == pytest.approx(1e-6 + 1e-3)
    known = mixing.AverageByConvergence(accuracy=0.2, failure=1e-3, posterior_change=0.5)
    assert known.sensitivity == pytest.approx(0.9)
    for bad in (math.nan, -1.0, math.inf):
        with pytest.raises(DeclarationError):
            mixing.AverageByConvergence(accuracy=bad, failure=1e-3, posterior_change=0.5)
