"""The driver charges the ledger before it touches the data, and a failed run stays charged."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference import execute
from private_mcmc.kernels import PrivateULA
from tests.examples_of_models import logistic

N = 40
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
TARGET = pmc.Target(epsilon=8.0, delta=1e-6)


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (N, 2)) / np.sqrt(2)
    return {"X": X, "y": (X[:, 0] > 0).astype(int)}


@pytest.fixture
def ledger(tmp_path):
    ledger = pmc.Ledger.create(tmp_path / "ledger.db")
    ledger.declare("people", pmc.Target(10.0, 1e-5))
    return ledger


def driver(ledger, num_steps=20, dataset="people"):
    return pmc.PrivateMCMC(
        PrivateULA(logistic, step_size=0.02, clip=1.0),
        rows=ROWS,
        target=TARGET,
        release="path",
        num_steps=num_steps,
        guarantee="run",
        progress_bar=False,
        bookkeeping=pmc.Bookkeeping(ledger, dataset, "a test"),
    )


@pytest.mark.long
def test_a_run_is_recorded_with_its_statement(ledger, data):
    mcmc = driver(ledger)
    mcmc.run(**data)
    (entry,) = ledger.history("people")
    assert entry.outcome == "released" and entry.purpose == "a test"
    assert pmc.Statement.from_dict(entry.statement).gdp == mcmc.statement.gdp
    assert float(entry.cost) == pytest.approx(mcmc.statement.gdp**2, rel=1e-9)


@pytest.mark.slow
def test_a_run_that_fails_stays_charged(ledger, data, monkeypatch):
    def breaks(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "follow", breaks)
    with pytest.raises(KeyboardInterrupt):
        driver(ledger).run(**data)
    (entry,) = ledger.history("people")
    assert entry.outcome == "kept" and entry.cost > 0


@pytest.mark.slow
def test_a_refused_run_costs_nothing(ledger, data):
    with pytest.raises(pmc.NotPrivate):
        driver(ledger, num_steps=2000).run(**data)
    with pytest.raises(pmc.DataSchemaError):
        driver(ledger).run(X=data["X"])
    assert ledger.history("people") == ()


@pytest.mark.long
def test_a_plan_is_charged_as_a_whole(ledger, data):
    plan = pmc.plan(logistic, ROWS, TARGET, n=N)
    books = pmc.Bookkeeping(ledger, "people")
    mcmc = pmc.PrivateMCMC.from_plan(plan, bookkeeping=books, progress_bar=False)
    mcmc.run(**data)
    (entry,) = ledger.history("people")
    assert float(entry.cost) == pytest.approx(plan.statement.gdp**2, rel=1e-9)
