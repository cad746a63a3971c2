"""Every private kernel under the driver: the batch that runs is the batch that is charged."""

import jax
import numpy as np
import pytest
from numpyro.infer import NUTS

import private_mcmc as pmc
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import StepKeys, chain_runner, langevin_program
from private_mcmc.kernels.chain import call_length, calls
from private_mcmc.release.price import price
from tests.examples_of_models import logistic

N = 40
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(5).uniform(-1, 1, (N, 2)) / np.sqrt(2)
    return {"X": X, "y": (X[:, 0] > 0).astype(int)}


def driver(kernel, adjacency="replace_one", **changes):
    target = pmc.Target(epsilon=60.0, delta=1e-5, adjacency=adjacency)
    settings = dict(release="path", num_steps=10, guarantee="run", progress_bar=False, n=N) | changes
    return pmc.PrivateMCMC(kernel, rows=ROWS, target=target, **settings)


def sgld(**options):
    return pmc.PrivateSGLD(logistic, 0.001, 0.5, **options)


RUNS = {
    "poisson": (sgld(batch_size=8), "replace_one"),
    "poisson, last": (sgld(rate=0.2), "add_remove"),
    "noise": (pmc.AnisotropicLangevin(logistic, 0.01, 0.5, noise=(1.0, 3.0)), "replace_one"),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_carries_the_statement_of_its_schedule(name, data):
    kernel, adjacency = RUNS[name]
    mcmc = driver(kernel, adjacency, release="last" if "last" in name else "path")
    mcmc.run(**data)
    decision = mcmc.decide()
    assert np.isfinite(mcmc.get_samples()["w"]).all()
    declared = kernel.schedule(
        adjacency=adjacency, num_rows=N, dim=2, num_steps=10, num_chains=1, release=decision.schedule.release
    )
    priced = price(decision.reading, declared, decision.declared.target)
    assert decision.schedule == priced.schedule
    assert mcmc.statement.epsilon(1e-5) == priced.statement.epsilon(1e-5)
    assert mcmc.statement.verify()


def test_kernels_without_a_statement_are_refused_by_name():
    with pytest.raises(DeclarationError, match="NUTS"):
        driver(NUTS(logistic))


@pytest.mark.long
def test_the_last_state_of_many_steps_keeps_no_trajectory():
    """The compiled call of a million steps holds the noise of its own steps, a few times over."""
    kernel, steps = pmc.PrivateULA(logistic, 1e-9, 0.5), 10**6
    decision = driver(kernel, release="last", num_steps=steps).decide()
    runner = chain_runner(langevin_program(decision.reading, decision.schedule), decision.schedule)
    _, count, _ = next(calls(runner.schedule))
    with jax.enable_x64(True):
        rows = runner.prepare(ROWS.synthetic(0, N), np.ones(N, bool))
        now = runner.first_state(np.zeros(2))
        arguments = now.u, 0, count, now.total, StepKeys(jax.random.key(1)), rows
        memory = runner.advance.lower(*arguments).compile().memory_analysis()
    allocated = memory.temp_size_in_bytes + memory.output_size_in_bytes
    state = 2 * 8
    assert allocated < 40 * call_length(runner.schedule) * state + 2**16 < steps * state / 10
