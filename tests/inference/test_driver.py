"""Nothing fails after the charge that could fail before; no result is lost, stale, or another thread's."""

import copy
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, primitives

import private_mcmc as pmc
from private_mcmc.inference import execute
from private_mcmc.kernels import ChainRunner, PrivateULA
from private_mcmc.model import read, tracing
from private_mcmc.model import reading as model_reading
from tests.examples_of_models import declared, normal_mean

ROWS = pmc.Rows(y=pmc.Box(-1.0, 1.0))
Y = np.linspace(-1, 1, 6)


@pytest.fixture
def ledger(tmp_path):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(1000.0, 1e-3))
    return ledger


def driver(ledger=None, kernel=None, **changes):
    books = None if ledger is None else pmc.Bookkeeping(ledger, "rows")
    kernel = kernel or PrivateULA(normal_mean, 0.02, 1.0)
    return declared(kernel, ROWS, bookkeeping=books, **{"num_steps": 2} | changes)


def shows_nothing(mcmc):
    for look in ("released", "statement"):
        with pytest.raises(pmc.ReleaseError):
            getattr(mcmc, look)
    for ask in (mcmc.get_samples, mcmc.to_arviz, mcmc.print_summary, lambda: mcmc.expectation("mu")):
        with pytest.raises(pmc.ReleaseError):
            ask()
    assert mcmc.history == () and mcmc.conclusion is None
    return True


WRONG = (
    lambda mcmc: mcmc.run(),
    lambda mcmc: mcmc.run(Y, y=Y),
    lambda mcmc: mcmc.run(Y, Y),
    lambda mcmc: mcmc.run(y=Y, z=Y),
    lambda mcmc: mcmc.run(y=["a"]),
    lambda mcmc: mcmc.run(y=Y, rng_key=1),
    lambda mcmc: mcmc.run(y=Y, rng_key="seed"),
    lambda mcmc: mcmc.resume(y=Y),
)


@pytest.mark.long
def test_a_failed_run_leaves_nothing_of_the_run_before():
    mcmc = driver()
    for wrong in WRONG:
        mcmc.run(y=Y)
        assert mcmc.get_samples()["mu"].shape == (2,)
        with pytest.raises(pmc.PrivateMCMCError):
            wrong(mcmc)
        assert shows_nothing(mcmc)


def broken(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("owner", "name"), [(execute, "placed"), (ChainRunner, "try_out"), (execute, "checked_start")]
)
def test_what_breaks_off_before_the_first_step_costs_nothing(ledger, monkeypatch, owner, name):
    mcmc = driver(ledger)
    mcmc.run(y=Y)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(owner, name, broken)
        mcmc.run(y=Y)
    assert len(ledger.history("rows")) == 1 and shows_nothing(mcmc)
    mcmc.run(y=Y)
    assert [charge.outcome for charge in ledger.history("rows")] == ["released"] * 2


@pytest.mark.slow
def test_what_breaks_off_later_stays_charged_and_shows_nothing(ledger, monkeypatch):
    mcmc = driver(ledger)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ChainRunner, "run", broken)
        mcmc.run(y=Y)
    assert [charge.outcome for charge in ledger.history("rows")] == ["kept"] and shows_nothing(mcmc)


@pytest.mark.slow
def test_the_chain_is_compiled_before_the_charge(ledger, monkeypatch):
    """A compiler that would fail has failed by then."""
    compiled = []
    real = ChainRunner.run

    def run(runner, *args, **kwargs):
        compiled.append((len(ledger.history("rows")), runner.advance.func._cache_size()))
        output = real(runner, *args, **kwargs)
        compiled.append((len(ledger.history("rows")), runner.advance.func._cache_size()))
        return output

    monkeypatch.setattr(ChainRunner, "run", run)
    jax.clear_caches()
    driver(ledger).run(y=Y)
    (charged, before), after = compiled
    assert (charged, before) == after and charged == 1 and before > 0


@pytest.mark.slow
def test_values_raise_and_warn_of_nothing(ledger):
    """NumPy told to raise, JAX told to look for NaNs: neither may tell of a row."""
    wild = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
    with np.errstate(all="raise"), jax.debug_nans(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        mcmc = driver(ledger)
        mcmc.run(y=wild)
    assert np.all(np.isfinite(mcmc.get_samples()["mu"])) and ledger.history("rows")[0].outcome == "released"


@pytest.mark.long
def test_a_driver_is_not_copied_pickled_or_sent_away():
    mcmc = driver()
    doors = (copy.copy, copy.deepcopy, pickle.dumps, lambda m: m.__reduce_ex__(4), lambda m: m.__reduce__())
    for holder in (mcmc, [mcmc], {"a": mcmc}):
        for door in doors[1:3] if holder is not mcmc else doors:
            with pytest.raises(pmc.ReleaseError, match="driver"):
                door(holder)
    with pytest.raises(pmc.ReleaseError, match="driver"):
        pickle.dumps(mcmc.run)
    mcmc.run(y=Y)
    assert pickle.loads(pickle.dumps(mcmc.released)).steps == (1, 2)


@pytest.fixture
def eager_switching():
    """Threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def together(number, work):
    """What every thread returned or raised; all start at once."""
    gate = threading.Barrier(number)

    def one(index):
        gate.wait()
        try:
            return work(index)
        except Exception as error:
            return error

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))


def models(number):
    """Models with sites of their own, and the most threads that were ever inside one of them."""
    inside, most = [], [0]

    def make(index):
        def model(y=None):
            inside.append(index)
            most[0] = max(most[0], len(set(inside)))
            time.sleep(0.005)
            mean = numpyro.sample(f"mu_{index}", dist.Normal(0, 1 + index))
            with numpyro.plate(f"rows_{index}", y.shape[0]), handlers.scale(scale=1.0):
                numpyro.sample(f"y_{index}", dist.Normal(mean, 1.0), obs=y)
            inside.remove(index)

        return model

    return [make(index) for index in range(number)], most


@pytest.mark.slow
def test_models_are_run_one_at_a_time_and_read_in_threads_as_alone(eager_switching):
    made, most = models(4)
    found = together(4, lambda index: read(made[index], ROWS, n=6))
    assert [getattr(reading, "names", reading) for reading in found] == [(f"mu_{i}",) for i in range(4)]
    for index, reading in enumerate(found):
        with jax.enable_x64(True):
            rise = float(reading.neg_log_prior(np.full(1, 2.0)) - reading.neg_log_prior(np.zeros(1)))
        assert rise == pytest.approx(2 / (1 + index) ** 2, rel=1e-5)
    assert most == [1]


def test_without_the_lock_threads_are_inside_models_together(eager_switching, monkeypatch):
    for module in (model_reading, tracing):
        monkeypatch.setattr(module, "ONE_AT_A_TIME", nullcontext())
    made, most = models(4)
    together(4, lambda index: read(made[index], ROWS, n=6))
    primitives._PYRO_STACK.clear()
    assert most[0] > 1


@pytest.mark.slow
def test_a_model_of_numpyros_own_in_another_thread_is_noticed():
    def other():
        numpyro.sample("intruder", dist.Normal(0, 1), rng_key=jax.random.key(0))

    def model(y=None):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        normal_mean(y)

    with pytest.raises(pmc.DoThisInstead, match="another thread"):
        read(model, ROWS, n=6)
    assert read(normal_mean, ROWS, n=6).names == ("mu",)


@pytest.mark.some(1)
@pytest.mark.parametrize("attempt", range(3))
def test_threads_that_share_a_driver_lose_no_charged_result(eager_switching, ledger, attempt):
    mcmc = driver(ledger)

    def work(_):
        mcmc.run(y=Y)
        return mcmc.get_samples()["mu"].tolist()

    found = together(4, work)
    refused = [each for each in found if isinstance(each, pmc.ReleaseError)]
    assert all("another thread" in str(error) for error in refused)
    assert len(refused) == 3 and len(ledger.history("rows")) == 1
