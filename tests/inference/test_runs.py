"""Runs that may happen: one schedule feeds every kernel and its statement, and only releases come out."""

import copy
import json
import pickle
import traceback

import arviz
import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import langevin_statement
from private_mcmc.inference.execute import no_value_checks
from private_mcmc.kernels import PrivateULA, Streams, chain_runner
from private_mcmc.kernels.chain import call_length, calls
from private_mcmc.model.program import trace
from private_mcmc.potential.rowwise import abstract
from private_mcmc.release.price import price
from tests.examples_of_models import declared, logistic

N = 40
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
TARGET = pmc.Target(epsilon=8.0, delta=1e-6)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (N, 2)) / np.sqrt(2)
    return {"X": X, "y": (X[:, 0] > 0).astype(int)}


def driver(model=logistic, rows=ROWS, target=TARGET, kernel=None, **changes):
    kernel = kernel or PrivateULA(model, step_size=0.02, clip=1.0)
    return declared(kernel, rows, target=target, **changes)


@pytest.fixture(scope="module")
def done(data):
    mcmc = driver(num_chains=2, num_warmup=5)
    mcmc.run(**data)
    return mcmc


def test_products_of_a_run_are_float64_whatever_jax_is_set_to():
    """Sums of rows and coloured noise were float32, and every statement said float64."""
    left, right = np.random.default_rng(0).normal(size=(2, 50, 50))
    product = jax.jit(lambda a, b: a @ b)
    with jax.enable_x64(True), jax.default_matmul_precision("F32_F32_F32"):
        assert np.max(np.abs(product(left, right) - left @ right)) > 1e-8
        with no_value_checks():
            assert np.max(np.abs(product(left, right) - left @ right)) < 1e-12
        read = trace(
            lambda a, b: {"product": a @ b}, a=abstract((50, 50), float), b=abstract((50, 50), float)
        )
        found = read.run([read.outputs["product"]], {read.inputs["a"]: left, read.inputs["b"]: right})
        assert np.max(np.abs(found[0] - left @ right)) < 1e-12


def test_the_arviz_object_carries_the_statement_and_no_data(done, data):
    exported = done.to_arviz()
    assert type(exported).__name__ == ("InferenceData" if arviz.__version__[0] == "0" else "DataTree")
    assert {"posterior", "warmup_posterior"} == set(exported)
    assert exported.posterior["w"].shape == (2, 15, 2)
    record = json.loads(exported.posterior.attrs["privacy_statement"])
    assert pmc.Statement.from_dict(record).gdp == done.statement.gdp


def test_what_arviz_asks_of_private_rows_is_refused_with_what_takes_its_place(done):
    exported = done.to_arviz()
    asked = [lambda one: one.log_likelihood, lambda one: hasattr(one, "posterior_predictive")]
    if arviz.__version__[0] == "0":
        asked += [arviz.loo, lambda one: arviz.compare({"a": one, "b": one}), arviz.plot_ppc]
    for ask in asked:
        with pytest.raises(pmc.NotYetSupported) as refused:
            ask(exported)
        # ArviZ's compare gives the reason as a cause.
        assert "pmc.check" in "".join(traceback.format_exception(refused.value))
    assert len(arviz.summary(exported)) == 2
    for again in (copy.deepcopy(exported), pickle.loads(pickle.dumps(exported))):
        np.testing.assert_array_equal(again.posterior["w"], exported.posterior["w"])


@pytest.mark.long
def test_a_second_run_is_another_mechanism(data):
    mcmc = driver()
    mcmc.run(**data)
    first, draws = mcmc.statement, mcmc.get_samples()["w"]
    mcmc.run(**data)
    assert mcmc.statement.mechanism != first.mechanism
    assert not np.array_equal(mcmc.get_samples()["w"], draws)
    total = pmc.accounting.compose(first, mcmc.statement)
    assert total.gdp == pytest.approx(np.sqrt(2) * first.gdp)
    with pytest.raises(pmc.DeclarationError, match="twice"):
        pmc.accounting.compose(first, first)


RUNS = {
    "poisson": (pmc.PrivateSGLD(logistic, 0.001, 0.5, batch_size=8), "replace_one"),
    "poisson, last": (pmc.PrivateSGLD(logistic, 0.001, 0.5, rate=0.2), "add_remove"),
    "noise": (pmc.AnisotropicLangevin(logistic, 0.01, 0.5, noise=(1.0, 3.0)), "replace_one"),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_carries_the_statement_of_its_schedule(name, data):
    kernel, adjacency = RUNS[name]
    target = pmc.Target(epsilon=60.0, delta=1e-5, adjacency=adjacency)
    release = "last" if "last" in name else "path"
    mcmc = driver(kernel=kernel, target=target, release=release, num_steps=10, n=N)
    mcmc.run(**data)
    decision = mcmc.decide()
    assert np.isfinite(mcmc.get_samples()["w"]).all()
    schedule = kernel.schedule(
        adjacency=adjacency, num_rows=N, dim=2, num_steps=10, num_chains=1, release=decision.schedule.release
    )
    statement = langevin_statement(schedule)
    if release == "last":
        statement, schedule, _ = price(decision.reading, schedule, target)
    assert decision.schedule == schedule
    assert mcmc.statement.epsilon(1e-5) == statement.epsilon(1e-5)
    assert mcmc.statement.verify()


@pytest.mark.long
def test_the_last_state_of_many_steps_keeps_no_trajectory():
    """The compiled call of a million steps holds the noise of its own steps, a few times over."""
    kernel, steps = pmc.PrivateULA(logistic, 1e-9, 0.5), 10**6
    decision = driver(kernel=kernel, release="last", num_steps=steps, n=N).decide()
    runner = chain_runner(decision.reading, decision.schedule)
    _, count, _ = next(calls(runner.schedule))
    with jax.enable_x64(True):
        rows = runner.prepare(ROWS.synthetic(0, N), np.ones(N, bool))
        now = runner.first_state(np.zeros(2))
        arguments = now.u, 0, count, now.total, Streams(jax.random.key(1)), rows
        memory = runner.advance.func.lower(*runner.advance.args, *arguments).compile().memory_analysis()
    allocated = memory.temp_size_in_bytes + memory.output_size_in_bytes
    state = 2 * 8
    assert allocated < 5 * call_length(runner.schedule) * state + 2**16 < steps * state / 10
