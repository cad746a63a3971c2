"""One-run audits: the bound against randomised response, and a chain with one direction for each canary."""

import math

import numpy as np
import pytest

from benchmarks.one_run import audit_one_run, one_run_epsilon
from private_mcmc import Ball, Box, PrivateULA, Rows, Target
from private_mcmc.errors import DeclarationError
from tests.examples_of_models import linear


@pytest.mark.long
def test_randomised_response_is_bounded_and_nearly_attained(rng):
    """Each coin is told truly with probability e^ε/(1 + e^ε), the worst ε-DP mechanism; 2,000 repeats."""
    epsilon, canaries, failure = 1.0, 1_000, 0.05
    correct = rng.binomial(canaries, 1 / (1 + math.exp(-epsilon)), 2_000)
    bounds = {c: one_run_epsilon(int(c), canaries, canaries, 0.0, failure) for c in np.unique(correct)}
    found = np.array([bounds[c] for c in correct])
    assert np.mean(found > epsilon) <= failure + 5 * math.sqrt(failure / 2_000)
    assert np.median(found) > 0.8 * epsilon


def test_a_larger_delta_proves_a_smaller_epsilon():
    bounds = [one_run_epsilon(90, 100, 1_000, delta, 1e-3) for delta in (0.0, 1e-6, 1e-4, 0.1)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2]
    assert bounds[-1] == 0.0


def test_guessing_no_better_than_chance_proves_nothing():
    assert one_run_epsilon(50, 100, 100, 0.0, 1e-3) == 0.0
    assert one_run_epsilon(0, 100, 100, 0.0, 1e-3) == 0.0


@pytest.mark.parametrize(
    ("correct", "guesses", "canaries"), [(5, 4, 10), (1, 11, 10), (0, 0, 10), (-1, 4, 10)]
)
def test_impossible_counts_are_refused(correct, guesses, canaries):
    with pytest.raises(DeclarationError):
        one_run_epsilon(correct, guesses, canaries, 0.0, 1e-3)


@pytest.mark.long
def test_one_run_of_a_chain_shows_leakage_below_its_claim():
    """Sixty canaries, each alone in its direction, whose rows push hard, seen in a single run."""
    count = 60
    canaries = {"X": np.eye(count), "y": np.full(count, 50.0)}
    found = audit_one_run(
        PrivateULA(linear, step_size=0.02, clip=6.0),
        canaries,
        rows=Rows(X=Ball(1.0, dim=count), y=Box(-50.0, 50.0)),
        target=Target(1.0, 1e-5, "add_remove"),
        num_steps=80,
        guesses=count,
    )
    assert found.sound
    assert found.correct > 0.9 * count
    assert found.epsilon_lower > 1.0


def test_a_relation_without_absent_rows_is_refused():
    with pytest.raises(DeclarationError, match="leave rows out"):
        audit_one_run(
            PrivateULA(linear, step_size=0.02, clip=6.0),
            {"X": np.eye(3), "y": np.zeros(3)},
            rows=Rows(X=Ball(1.0, dim=3), y=Box(-1.0, 1.0)),
            target=Target(1.0, 1e-5),
            num_steps=2,
            guesses=2,
        )
