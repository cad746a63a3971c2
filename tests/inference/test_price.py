"""The price of a run rests on its schedule, and of hidden states on proved constants; never on preflight."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import langevin_statement
from private_mcmc.inference import decision
from private_mcmc.model import read
from private_mcmc.release.price import price

ROWS = pmc.Rows(x=pmc.Box(-1.0, 1.0), y=pmc.Box(-3.0, 3.0))


def cauchy(x, y):
    w = numpyro.sample("w", dist.StudentT(2.0, 0.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Cauchy(w * x, 1.0), obs=y)


def asked(*_, **__):
    raise AssertionError("preflight was asked")


def driver(guarantee, release="path"):
    return pmc.PrivateMCMC(
        pmc.PrivateULA(cauchy, step_size=1e-3, clip=0.5),
        rows=ROWS,
        target=pmc.Target(3.0, 1e-6),
        release=release,
        num_steps=20,
        guarantee=guarantee,
        n=100,
        progress_bar=False,
    )


@pytest.mark.parametrize("release", ["path", "last"])
def test_a_run_whose_noise_alone_is_the_guarantee_asks_no_preflight(release, monkeypatch):
    monkeypatch.setattr(decision, "examine", asked)
    mcmc = driver("run", release)
    mcmc.run(x=np.zeros(100), y=np.zeros(100))
    assert mcmc.statement.epsilon(1e-6) <= 3.0


def test_a_guarantee_of_the_posterior_asks_it(monkeypatch):
    monkeypatch.setattr(decision, "examine", asked)
    with pytest.raises(AssertionError, match="preflight was asked"):
        driver("posterior").decide()


@pytest.mark.parametrize("change", [{"adjacency": "zero_out"}, {"num_rows": 50}, {"release": "last"}])
def test_a_kernel_whose_schedule_is_of_another_run_is_refused(change, monkeypatch):
    true = pmc.PrivateULA.schedule
    monkeypatch.setattr(pmc.PrivateULA, "schedule", lambda *a, **asked: true(*a, **{**asked, **change}))
    with pytest.raises(pmc.DeclarationError, match=f"another {next(iter(change))}"):
        driver("run").decide()


def test_a_model_that_is_read_on_other_rows_than_are_declared_is_refused(monkeypatch):
    wider = pmc.Rows(x=pmc.Box(-9.0, 9.0), y=pmc.Box(-3.0, 3.0))
    monkeypatch.setattr(decision, "read", lambda model, rows, **given: read(model, wider, **given))
    with pytest.raises(pmc.DeclarationError, match="other rows"):
        driver("run").decide()


def test_a_path_costs_what_its_schedule_says_whatever_the_model_is():
    reading, target = read(cauchy, ROWS, n=100), pmc.Target(3.0, 1e-6)
    kernel = pmc.PrivateULA(cauchy, step_size=1e-3, clip=0.5)
    schedule = kernel.schedule(
        adjacency="replace_one", num_rows=100, dim=1, num_steps=20, num_chains=1, release="path",
        unit=None,
    )  # fmt: skip
    assert price(reading, schedule, target).statement.gdp == langevin_statement(schedule).gdp
