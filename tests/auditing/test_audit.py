"""Audits of mechanisms whose privacy is known exactly, over several devices, and their bookkeeping."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from private_mcmc import Ball, Binary, Box, PrivateULA, Rows, Target, accounting
from private_mcmc.auditing import Mechanism, Pair, audit
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.model import read
from tests.examples_of_models import logistic, normal_mean
from tests.soundness.attacks import chain_mechanism, tightness, worst_pairs

ONE_NUMBER = Rows(y=Box(-5.0, 5.0))
# The last of 12 steps is then 2-GDP.
CLIP = 1.854
DECLARED = {"rows": ONE_NUMBER, "target": Target(1.0, 1e-5), "release": "last", "num_steps": 12, "n": 1}
APART = Pair({"y": np.array([5.0])}, {"y": np.array([-5.0])})


def gaussian(m, claimed):
    """The mean of one row in ±5 with noise: exactly ``m``-GDP, claimed to be ``claimed``-GDP."""

    def draw(data, count, seed):
        return data["y"] / 10 * m + np.random.default_rng(seed).normal(size=(count, 1))

    statement = accounting.gaussian(adjacency="replace_one", sensitivity=claimed, scale=1.0)
    return Mechanism("Gaussian", statement, draw)


def apart(mechanism, score=np.ravel, runs=20_000):
    """Mean difference of a score over its sd, which is m where scores are Gaussian of one variance."""
    first, second = (
        score(mechanism.draw(data, runs, np.random.SeedSequence(seed)))
        for seed, data in enumerate((APART.first, APART.second))
    )
    return abs(first.mean() - second.mean()) / np.sqrt((first.var() + second.var()) / 2)


def mean_chain(**changes):
    kernel = PrivateULA(normal_mean, step_size=0.05, clip=CLIP)
    return chain_mechanism(kernel, **{**DECLARED, **changes})


def test_a_gaussian_mechanism_is_measured_and_not_refuted():
    found = audit(gaussian(2.0, 2.0), APART, num_runs=40_000)
    assert found.sound
    assert 0.9 < tightness(found) <= 1.0


def test_a_claim_that_is_too_small_by_a_fifth_is_refuted_in_every_currency():
    found = audit(gaussian(2.0, 1.6), APART, num_runs=40_000, delta=[0.05, 0.3])
    assert [c.quantity for c in found.violations] == ["ε at δ = 0.05", "ε at δ = 0.3", "gdp"]
    assert not found.sound and "CLAIM REFUTED" in str(found)


@pytest.mark.long
def test_a_chain_with_an_exactly_known_law_is_measured_within_five_per_cent():
    """One clipped row at the edge of its domain: a quadratic potential and a linear difference, for which
    the claimed m of the last state is exact. 40,000 chains in all; standard error below 1.3 %."""
    found = audit(mean_chain(), APART, num_runs=20_000)
    assert found.sound
    assert found.statement.gdp == pytest.approx(2.0, rel=0.01)
    assert apart(mean_chain()) == pytest.approx(found.statement.gdp, rel=0.05)
    assert tightness(found) > 0.9


@pytest.mark.long
def test_the_likelihood_ratio_of_a_path_attains_the_path_bound():
    mechanism = mean_chain(release="path")
    found = audit(mechanism, APART, num_runs=20_000)
    assert found.sound
    ratio = apart(mechanism, mechanism.scores(APART)["likelihood ratio"])
    assert ratio == pytest.approx(found.statement.gdp, rel=0.05)


@pytest.mark.long
def test_runs_are_independent_of_one_another_and_of_other_seeds():
    mechanism = mean_chain()
    one, two = (mechanism.draw(APART.first, 3_000, np.random.SeedSequence(seed)) for seed in (1, 2))
    again = mechanism.draw(APART.first, 3_000, np.random.SeedSequence(1))
    np.testing.assert_array_equal(one, again)
    assert len(np.unique(np.concatenate([one, two]))) == 6_000
    assert abs(np.corrcoef(one[:-1, 0], one[1:, 0])[0, 1]) < 5 / math.sqrt(3_000)


@pytest.mark.some(1)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove", "zero_out"])
def test_the_worst_pairs_are_adjacent_and_differ_in_an_extreme_row(adjacency):
    rows = Rows(X=Ball(1.0, dim=2), y=Binary())
    kernel = PrivateULA(logistic, step_size=0.1, clip=0.4)
    schedule = kernel.schedule(
        adjacency=adjacency, num_rows=4, dim=2, num_steps=3, num_chains=1, release="path"
    )
    found = []
    for pair in worst_pairs(read(logistic, rows, n=4), schedule):
        rows_apart = zip((pair.first, pair.second), pair.differing(adjacency), strict=True)
        longest = max(np.linalg.norm(data["X"][place]) for data, place in rows_apart if place is not None)
        found.append(longest)
    assert found[:3] == [1.0] * 3
    assert 0 < min(found) < 1, "a pair that does not reach the clip"


def pair(first, second):
    return Pair(*({"y": np.asarray(side, dtype=float)} for side in (first, second)))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pair([1.0, 5.0], [2.0, -5.0]), "of which one differs"),
        (pair([1.0, 5.0], [1.0]), "as many rows in both"),
        (pair([5.0], [-5.0]), "differ from the declared n=2"),
        (Pair({"x": np.zeros(2)}, {"x": np.zeros(2)}), r"missing \['y'\]"),
        (Pair({}, {}), "at least one"),
        (
            Pair({"y": np.zeros(2), "z": np.zeros(3)}, {"y": np.zeros(2), "z": np.zeros(3)}),
            "differ in length",
        ),
        ([{"y": np.zeros(2)}, {"y": np.ones(2)}], r"a tuple of two data sets \(first, second\)"),
    ],
)
def test_data_sets_that_make_no_pair_of_the_declared_rows_are_refused(given, said):
    with pytest.raises((DeclarationError, DataSchemaError), match=said):
        audit(mean_chain(n=2), given, num_runs=100)


NEVER_RUN = Mechanism("never run", gaussian(1.0, 1.0).statement, None)


@pytest.mark.parametrize(
    ("given", "declared", "said"),
    [
        (NEVER_RUN, {"num_runs": 10}, "num_runs=10: a whole number, at least 40"),
        (NEVER_RUN, {"num_runs": 1e4}, "a whole number"),
        (NEVER_RUN, {"delta": 1.0}, "delta=1.0"),
        (NEVER_RUN, {"failure_probability": 0.0}, "failure_probability=0.0"),
        (NEVER_RUN, {"num_steps": 3}, "a mechanism brings its own declarations"),
        (PrivateULA(normal_mean, step_size=0.1, clip=1.0), {"rows": ONE_NUMBER}, "missing.*'target'"),
        (PrivateULA(normal_mean, step_size=0.1, clip=1.0), {"steps": 3, **DECLARED}, "steps="),
        (normal_mean, {}, "a private kernel or a Mechanism, not a function"),
    ],
)
def test_declarations_that_are_missing_unknown_or_out_of_range_are_refused_before_anything_runs(
    given, declared, said
):
    with pytest.raises(DeclarationError, match=said):
        audit(given, APART, **declared)


PROGRAM = """
import jax, numpy as np
from private_mcmc import Box, Expectations, PrivateULA, Rows, Target
from private_mcmc.auditing import Pair, chain_mechanism
from tests.soundness.sweep.zoo import mean

assert len(jax.devices()) == 8
def mechanism(release):
    return chain_mechanism(
        PrivateULA(mean, step_size=0.05, clip=1.854), rows=Rows(y=Box(-5.0, 5.0)),
        target=Target(1.0, 1e-5), release=release, num_steps=12, n=1,
    )
data = {"y": np.array([5.0])}
states = mechanism("last").draw(data, 4_001, np.random.SeedSequence(1))
assert states.shape == (4_001, 1) and len(np.unique(states)) == 4_001
# Started at 0, pulled by the prior and by one clipped row: mean and variance of the linear chain.
rho, gamma = 0.95, 0.05
variance = 2 * gamma * (1 - rho**24) / (1 - rho**2)
expected = gamma * 1.854 * (1 - rho**12) / (1 - rho)
assert abs(states.mean() - expected) < 5 * (variance / 4_001) ** 0.5, states.mean()
assert abs(states.var() / variance - 1) < 5 * (2 / 4_001) ** 0.5, states.var()
averages = mechanism(Expectations("mu", bounds=(-2.0, 2.0))).draw(data, 20, np.random.SeedSequence(1))
assert averages.shape == (20, 1)
print("done")
"""


@pytest.mark.long
def test_chains_spread_over_eight_devices_have_their_law():
    """Two tests at five standard errors: fails with probability 2e-6."""
    forced = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=forced, capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "done", found.stderr
