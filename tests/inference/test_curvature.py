"""A run behind a private test of the data's curvature: what it costs, when it happens, where it pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.release import CurvatureTest
from tests.zoo.linear import linear
from tests.zoo.logistic import logistic

N = 2000
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-1, 1))
TARGET = pmc.Target(2.0, 1e-6)
PROPOSED = pmc.ProposedCurvature(at_least=250.0, gdp=0.1, failure=1e-8)
# |ψ'|·‖x‖ ≤ 1·(1.5 + 1): the clip is idle on the ball of radius 1.5.
KERNEL = pmc.PrivateULA(linear, step_size=8e-4, clip=2.6, radius=1.5)


def people(spread: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, N)
    X = np.column_stack([np.cos(angle), spread * np.sin(angle)])
    return {"X": X, "y": np.clip(X @ [0.5, -0.3] + 0.3 * rng.normal(size=N), -1, 1)}


def driver(curvature: pmc.ProposedCurvature | None, **changes) -> pmc.PrivateMCMC:
    settings = {
        "rows": ROWS,
        "target": TARGET,
        "release": "last",
        "num_steps": 400,
        "guarantee": curvature or "run",
        "progress_bar": False,
    }
    return pmc.PrivateMCMC(KERNEL, **(settings | changes))


@pytest.mark.long
def test_the_last_state_is_private_with_the_data_s_curvature_and_not_with_the_prior_s(record_property):
    with pytest.raises(pmc.NotPrivate):
        driver(None).decide(N)
    mcmc = driver(PROPOSED)
    promised = mcmc.decide(N).statement
    mcmc.run(**people())
    assert mcmc.statement.delta(TARGET.epsilon) <= TARGET.delta
    assert mcmc.statement.verify()
    assert mcmc.statement.curves == promised.curves
    assert mcmc.get_samples()["w"].shape == (1, 2)
    alone = driver(None, target=pmc.Target(1e4, 1e-6)).decide(N).statement
    record_property(
        "ε with the test, and with the prior alone", (promised.epsilon(1e-6), alone.epsilon(1e-6))
    )
    assert promised.epsilon(1e-6) < alone.epsilon(1e-6) / 5


@pytest.mark.long
def test_an_expectation_needs_far_less_noise_behind_the_test():
    release = pmc.Expectations("w", epsilon=0.5, burn_in=100)
    behind = driver(PROPOSED, release=release).decide(N)
    alone = driver(None, release=release).decide(N)
    assert np.all(behind.expectations.noise_sd < alone.expectations.noise_sd / 20)
    mcmc = driver(PROPOSED, release=release)
    mcmc.run(**people())
    assert mcmc.statement.verify()
    np.testing.assert_allclose(mcmc.expectation("w"), [0.5, -0.3], atol=0.5)


@pytest.mark.long
def test_nothing_runs_where_the_curvature_is_not_there():
    mcmc = driver(PROPOSED)
    with pytest.raises(pmc.NotPrivate, match="test stays paid for"):
        mcmc.run(**people(spread=0.01))
    with pytest.raises(pmc.ReleaseError):
        _ = mcmc.released


@pytest.mark.slow
def test_the_test_is_compiled_before_the_charge_on_nobody(tmp_path, monkeypatch):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(100.0, 1e-3), filter="basic")
    seen, real = [], CurvatureTest.release

    def release(test, rows, present):
        seen.append((len(ledger.history("rows")), int(present.sum())))
        return real(test, rows, present)

    monkeypatch.setattr(CurvatureTest, "release", release)
    mcmc = driver(PROPOSED, bookkeeping=pmc.Bookkeeping(ledger, "rows"))
    mcmc.run(**people())
    assert seen == [(0, 0), (1, N)]


@pytest.mark.long
def test_a_wide_set_leaves_a_logistic_model_no_curvature_to_find():
    """At predictors up to 30 the logistic curvature is below e^{−30}: the prior's is all there is."""
    kernel = replace(KERNEL, model=logistic, radius=30.0, clip=1.0)
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
    settings = {"rows": rows, "target": pmc.Target(1e3, 1e-6), "release": "last", "num_steps": 400}
    mcmc = pmc.PrivateMCMC(kernel, guarantee=PROPOSED, progress_bar=False, **settings)
    columns = people()
    with pytest.raises(pmc.NotPrivate, match="curvature of at least 0"):
        mcmc.run(X=columns["X"], y=(columns["y"] > 0).astype(int))


@pytest.mark.slow
def test_what_cannot_be_tested_once_is_refused(tmp_path):
    with pytest.raises(pmc.DeclarationError, match="checkpoint"):
        driver(PROPOSED, bookkeeping=pmc.Bookkeeping(checkpoint=pmc.Checkpoint(tmp_path / "run")))
    with pytest.raises(pmc.DeclarationError, match="bounded set"):
        pmc.PrivateMCMC(
            replace(KERNEL, radius=None),
            rows=ROWS,
            target=TARGET,
            release="last",
            num_steps=10,
            guarantee=PROPOSED,
        ).decide(N)
    with pytest.raises(pmc.DeclarationError, match="at_least"):
        pmc.ProposedCurvature(at_least=0.0, gdp=0.1, failure=1e-8)


@pytest.mark.long
def test_persons_last_state_is_cheaper_with_the_curvature_of_their_rows():
    kernel = pmc.PrivateULA(logistic, step_size=8e-4, clip=2.0, radius=1.5)
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), who=pmc.Person(2))
    X = np.repeat(people()["X"], 2, axis=0)
    settings = {"rows": rows, "target": pmc.Target(1e3, 1e-6), "release": "last", "num_steps": 400, "n": N}
    behind, alone = (
        pmc.PrivateMCMC(kernel, guarantee=guarantee, progress_bar=False, **settings)
        for guarantee in (replace(PROPOSED, at_least=200.0), "run")
    )
    assert behind.decide(N).statement.epsilon(1e-6) < 0.8 * alone.decide(N).statement.epsilon(1e-6)
    behind.run(X=X, y=(X[:, 0] > 0).astype(int), who=np.repeat(np.arange(N), 2))
    assert behind.statement.verify() and behind.statement.unit == rows.unit
