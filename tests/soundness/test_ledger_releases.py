"""Several releases about one data set, bought through a ledger until it refuses, stay within its budget.

One attempt is wrong of a library without faults with probability at most 1e-6.
"""

import math
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.auditing import Mechanism, audit
from private_mcmc.auditing.mechanism import keys
from private_mcmc.kernels import PrivateULA
from private_mcmc.release.ledger_state import DataSet
from tests.soundness.front_door.setup import FAR, driver, far_apart
from tests.soundness.sweep.zoo import mean

# Chains of one run are cut apart: each is an output, charged its share of what the run is charged.
WIDTH, STEPS, MOST_RUNS, AFFORDED = 6000, 3, 6, 3.5


def run_of(num_chains: int, ledger: pmc.Ledger | None = None) -> pmc.PrivateMCMC:
    books = pmc.Bookkeeping(ledger, None if ledger is None else "people")
    kernel = PrivateULA(mean, step_size=0.1, clip=1.5)
    return driver(kernel, FAR, 1, num_steps=STEPS, num_chains=num_chains, bookkeeping=books)


def mechanism() -> Mechanism:
    one = run_of(1).decide(1).statement
    budget = math.sqrt(AFFORDED) * one.gdp
    whole = pmc.Target(accounting.gdp.epsilon(math.sqrt(WIDTH) * budget, 1e-5), 1e-5)

    def bought(data, stream: jax.Array) -> np.ndarray:
        """Paths of as many runs as the ledger pays for, zeros for those that it refuses."""
        outputs = np.zeros((MOST_RUNS, WIDTH, STEPS))
        with tempfile.TemporaryDirectory() as folder:
            ledger = pmc.Ledger.create(Path(folder) / "ledger.db")
            ledger.declare("people", whole)
            mcmc = run_of(WIDTH, ledger)
            for run in range(MOST_RUNS):
                try:
                    mcmc.run(rng_key=jax.random.fold_in(stream, run), **data)
                except pmc.BudgetExceeded:
                    break
                outputs[run] = np.asarray(mcmc.released.samples["mu"])
        return np.moveaxis(outputs, 0, 1).reshape(WIDTH, -1)

    def draw(data, count: int, seed: np.random.SeedSequence) -> np.ndarray:
        streams = keys(seed, -(-count // WIDTH))
        return np.concatenate([bought(data, stream) for stream in streams])[:count]

    parts = tuple(one.of(f"run {number}") for number in range(int(AFFORDED)))
    claim = accounting.adaptive(budget, one.adjacency, parts)
    return Mechanism("releases of a ledger", claim, draw)


def refuted() -> bool:
    found = audit(mechanism(), far_apart(0), num_runs=6_000, delta=0.01, seed=1, failure_probability=1e-6)
    return bool(found.violations)


@pytest.mark.long
def test_releases_that_a_ledger_admits_stay_within_its_budget():
    assert not refuted()


@pytest.mark.slow
@pytest.mark.parametrize("remembered", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_ledger_that_forgets_earlier_releases_is_refuted(monkeypatch, remembered):
    """Nothing of what was spent counts, or the last release alone."""

    def forgets(dataset):
        return sum(one.spent for one in dataset.charges[len(dataset.charges) - remembered :])

    monkeypatch.setattr(DataSet, "spent", property(forgets))
    assert refuted()
