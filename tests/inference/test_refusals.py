"""Runs that may not happen do not happen, say why, and touch nothing."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference import execute
from private_mcmc.kernels import PrivateULA
from tests.examples_of_models import logistic
from tests.inference.test_runs import N, driver
from tests.inference.test_runs import data as data


@pytest.fixture(autouse=True)
def untouched(monkeypatch, request):
    """Unless a test says otherwise, reaching the code that holds private rows is a failure."""
    if "runs" in request.keywords:
        return

    def reached(*args):
        raise AssertionError("private rows were touched")

    monkeypatch.setattr(execute, "placed", reached)


@pytest.mark.slow
def test_a_run_above_its_target_is_refused_with_what_would_fit(data):
    with pytest.raises(pmc.NotPrivate, match=r"above the target ε = 0.01.*num_steps=\d+"):
        driver(target=pmc.Target(0.01, 1e-6)).run(**data)


@pytest.mark.slow
def test_a_posterior_that_is_not_certified_is_refused_by_default(data):
    with pytest.raises(pmc.NotPrivate, match=r"guarantee='posterior'.*temper") as refused:
        driver(guarantee="posterior").run(**data)
    assert refused.value.report.verdict == "not private"


def test_a_seed_is_refused_unless_declared_unsafe(data):
    with pytest.raises(pmc.ReleaseError, match="not private"):
        driver().run(rng_key=1, **data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pmc.Target(0.0, 1e-6),
        lambda: pmc.Target(-1.0, 1e-6),
        lambda: pmc.Target(float("nan"), 1e-6),
        lambda: pmc.Target(1.0, 1.0),
        lambda: pmc.Target(1.0, -0.1),
        lambda: pmc.Target(1.0, 1e-6, adjacency="swap"),
        lambda: driver(guarantee="hope"),
        lambda: driver(num_warmup=20),
        lambda: driver(kernel=object()),
        lambda: driver(release="everything").decide(N),
        lambda: driver(release=(3, 2)).decide(N),
        lambda: driver(release=(1, 21)).decide(N),
        lambda: driver(num_chains=0).decide(N),
        lambda: driver(kernel=PrivateULA(logistic, step_size=0.0, clip=1.0)).decide(N),
        lambda: driver(kernel=PrivateULA(logistic, step_size=0.1, clip=-1.0)).decide(N),
    ],
)
def test_bad_declarations_are_refused_at_the_boundary(make):
    with pytest.raises(pmc.DeclarationError):
        make()


@pytest.mark.some(1)
@pytest.mark.parametrize("bounds", [None, {"w": (-1.0, 1.0)}])
def test_a_step_size_without_contraction_is_refused_where_one_is_needed(bounds):
    kernel = PrivateULA(logistic, step_size=5.0, clip=1.0)
    mcmc = driver(kernel=kernel, release=pmc.Expectations("w", bounds=bounds), num_steps=1000)
    with pytest.raises(pmc.DeclarationError, match=r"below 2/L = 0\.19"):
        mcmc.decide(N)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("start", "release"),
    [(np.zeros(3), "path"), ([np.nan, 0.0], "path"), ([1e300, 0.0], "last"), ([1e300, 0.0], (3, 20))],
)
def test_a_start_that_makes_no_sense_is_refused_before_anything_is_charged(data, start, release):
    with pytest.raises(pmc.DeclarationError, match="init_params"):
        execution = pmc.Execution(init_params=start)
        driver(execution=execution, release=release, target=pmc.Target(9.0, 1e-6)).run(**data)


def refusal(data, **changes):
    with pytest.raises(pmc.PrivateMCMCError) as refused:
        driver(target=pmc.Target(0.01, 1e-6), **changes).run(**data)
    return str(refused.value)


@pytest.mark.slow
def test_a_refusal_never_depends_on_values(data):
    wild = {"X": np.full((N, 2), np.nan), "y": np.full(N, -7.0)}
    assert refusal(data) == refusal(wild)
