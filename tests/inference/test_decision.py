"""What is decided is what runs: a kernel's clip, temper and metric reach preflight and the accountant.

The price of a run rests on its schedule, and of hidden states on proved constants; never on preflight.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import langevin_statement
from private_mcmc.inference import decision as deciding
from private_mcmc.kernels import PrivateULA
from private_mcmc.model import read
from tests.examples_of_models import declared, logistic, observed, outcomes_by

N = 40
# The scale of the prior of ``logistic``: μ = 1/SD².
SD = 2.0
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())


def decided(epsilon=9.0, guarantee="run", **kernel):
    langevin = PrivateULA(logistic, **dict(step_size=0.01, clip=1.0) | kernel)
    return declared(langevin, ROWS, target=pmc.Target(epsilon, 1e-6), guarantee=guarantee).decide(N)


def posterior_gdp(decision):
    (best, *_) = decision.report.certificates
    return best.gdp


@pytest.mark.some(1)
@pytest.mark.parametrize(("clip", "temper"), [(1.0, 1.0), (0.25, 1.0), (1.0, 0.5), (0.25, 0.1)])
def test_the_kernels_clip_and_temper_reach_the_posteriors_certificate(clip, temper):
    decision = decided(clip=clip, temper=temper)
    assert (decision.report.clip, decision.report.temper) == (clip, temper)
    assert decision.report.subject == ("posterior" if clip >= 1.0 else "Huberised posterior")
    assert posterior_gdp(decision) == pytest.approx(2 * temper * clip * SD)
    # Of the run, √(Tγ/2)·2wC.
    assert decision.statement.gdp == pytest.approx(math.sqrt(20 * 0.01 / 2) * 2 * temper * clip)


@pytest.mark.long
def test_a_clip_that_the_metric_loosens_is_not_taken_for_idle():
    """Rows of norm 1 have dual norm 2 under M = 4: a clip at 1 binds there, one at 2 does not."""
    for clip, subject in ((1.0, "Huberised posterior"), (2.0, "posterior")):
        found = decided(clip=clip, preconditioner=(4.0, 4.0))
        assert found.report.subject == subject
        assert posterior_gdp(found) == pytest.approx(2 * clip / (2.0 / SD))


@pytest.mark.slow
def test_what_was_decided_runs_whatever_becomes_of_the_arrays_that_the_model_closes_over():
    seen = []
    for after in (1.0, 1.0, 30.0):
        scale = np.ones(2)

        def model(X, y=None, scale=scale):
            w = numpyro.sample("w", dist.Normal(0, scale).to_event(1))
            observed(X, dist.Bernoulli(logits=X @ w), y)

        kernel = PrivateULA(model, step_size=0.01, clip=1.0)
        mcmc = declared(kernel, ROWS, n=N, release=pmc.Expectations("w"), num_steps=4)
        observable = mcmc.decide(N).expectations
        potential = mcmc.decide(N).reading.neg_log_prior
        scale[:] = after
        with jax.enable_x64(True):
            point = jnp.array([0.3, -0.2])
            seen.append((np.asarray(observable(point)), float(potential(point))))
    np.testing.assert_array_equal(seen[2][0], seen[0][0])
    assert seen[2][1] == seen[0][1] == seen[1][1]


BOTH = pmc.Rows(x=pmc.Box(-1.0, 1.0), y=pmc.Box(-3.0, 3.0))
CAUCHY = outcomes_by(lambda: dist.StudentT(2.0, 0.0, 1.0), lambda w, x: dist.Cauchy(w * x, 1.0))


def asked(*_, **__):
    raise AssertionError("preflight was asked")


def cauchy_driver(guarantee, release="path"):
    asked = {"target": pmc.Target(3.0, 1e-6), "release": release, "guarantee": guarantee, "n": 100}
    return declared(pmc.PrivateULA(CAUCHY, step_size=1e-3, clip=0.5), BOTH, **asked)


@pytest.mark.parametrize("release", ["path", "last"])
def test_a_run_whose_noise_alone_is_the_guarantee_asks_no_preflight(release, monkeypatch):
    monkeypatch.setattr(deciding, "examined", asked)
    mcmc = cauchy_driver("run", release)
    mcmc.run(x=np.zeros(100), y=np.zeros(100))
    assert mcmc.statement.epsilon(1e-6) <= 3.0


def test_a_guarantee_of_the_posterior_asks_it(monkeypatch):
    monkeypatch.setattr(deciding, "examined", asked)
    with pytest.raises(AssertionError, match="preflight was asked"):
        cauchy_driver("posterior").decide()


@pytest.mark.parametrize("change", [{"adjacency": "zero_out"}, {"num_rows": 50}, {"release": "last"}])
def test_a_kernel_whose_schedule_is_of_another_run_is_refused(change, monkeypatch):
    true = pmc.PrivateULA.schedule
    monkeypatch.setattr(pmc.PrivateULA, "schedule", lambda *a, **asked: true(*a, **{**asked, **change}))
    with pytest.raises(pmc.DeclarationError, match=f"another {next(iter(change))}"):
        cauchy_driver("run").decide()


def test_a_model_that_is_read_on_other_rows_than_are_declared_is_refused(monkeypatch):
    wider = pmc.Rows(x=pmc.Box(-9.0, 9.0), y=pmc.Box(-3.0, 3.0))
    monkeypatch.setattr(deciding, "read", lambda model, rows, **given: read(model, wider, **given))
    with pytest.raises(pmc.DeclarationError, match="other rows"):
        cauchy_driver("run").decide()


def test_a_path_costs_what_its_schedule_says_whatever_the_model_is():
    decision = cauchy_driver("run").decide()
    assert decision.statement.to_dict() == langevin_statement(decision.schedule).to_dict()
    assert (decision.schedule.clip, decision.schedule.step_size) == (0.5, 1e-3)
