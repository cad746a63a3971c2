"""The estimate is near the exact ε where that is known, and never makes a posterior private."""

import gc
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import expit

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.preflight.estimate import Estimate, estimate, outcomes_of
from tests.examples_of_models import flat_prior, logistic, observed, outcomes

TARGET = pmc.Target(1.0, 1e-6)


@dataclass(frozen=True)
class Known:
    """A model of one number ``u`` on the whole line, its terms by SciPy, and data that are typical."""

    model: Callable[..., None]
    domain: Any
    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    data: Any
    values: Any
    n: int = 500


def law(n: int, quantile: Callable[[Any], Any]) -> Any:
    """``n`` quantiles of an outcome's law."""
    return quantile((np.arange(n) + 0.5) / n)


KNOWN = {
    "Beta-Bernoulli": Known(
        outcomes(partial(dist.Beta, 4.0, 4.0), dist.Bernoulli),
        pmc.Binary(),
        lambda u: stats.beta(4, 4).logpdf(expit(u)) + np.log(expit(u) * expit(-u)),
        lambda u, y: stats.bernoulli(expit(u)).logpmf(y),
        law(500, stats.bernoulli(0.5).ppf),
        [0, 1],
    ),
    "mean of a Normal": Known(
        outcomes(partial(dist.Normal, 0.0, 1.0), lambda mean: dist.Normal(mean, 1.5)),
        pmc.Box(-4.0, 4.0),
        stats.norm(0, 1).logpdf,
        lambda u, y: stats.norm(u, 1.5).logpdf(y),
        law(500, stats.norm(0, 1.5).ppf),
        [-4.0, 0.0, 4.0],
    ),
    "Gamma-Poisson": Known(
        outcomes(partial(dist.Gamma, 9.0, 3.0), dist.Poisson),
        pmc.Counts(10),
        lambda u: stats.gamma(9, scale=1 / 3).logpdf(np.exp(u)) + u,
        lambda u, y: stats.poisson(np.exp(u)).logpmf(y),
        law(500, stats.poisson(3.0).ppf),
        [0, 5, 10],
    ),
    "location of a Student-t": Known(
        outcomes(partial(dist.Normal, 0.0, 1.0), lambda at: dist.StudentT(4.0, at, 1.0)),
        pmc.Box(-9.0, 9.0),
        stats.norm(0, 1).logpdf,
        lambda u, y: stats.t(4, u, 1).logpdf(y),
        law(500, stats.t(4).ppf),
        np.linspace(-9, 9, 13),
    ),
}


def exact_epsilon(case: Known, adjacency: str) -> float:
    """The largest exact ε at δ = 1e-6 between posteriors of the typical data with one row more or another."""
    u = np.linspace(-3, 3, 40_001)
    common = case.log_prior(u) + sum(case.log_likelihood(u, y) for y in case.data[1:])
    terms = [case.log_likelihood(u, y) for y in case.values]
    if adjacency != "replace_one":
        terms.append(np.zeros_like(u))
    logs = np.stack([common + term for term in terms])
    laws = np.exp(logs - logs.max(axis=1, keepdims=True))
    laws /= laws.sum(axis=1, keepdims=True)
    pairs = [(i, j) for i in range(len(laws)) for j in range(len(laws)) if i != j]
    if adjacency != "replace_one":
        pairs = [(i, j) for i, j in pairs if len(laws) - 1 in (i, j)]

    def divergence(epsilon: float) -> float:
        return max(float(np.maximum(laws[i] - np.exp(epsilon) * laws[j], 0).sum()) for i, j in pairs)

    low, high = 0.0, 50.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle) > TARGET.delta else (low, middle)
    return high


def of(model, rows, n, target=TARGET) -> Estimate | str:
    return estimate(read(model, rows, n=n), n=n, temper=1.0, target=target)


@pytest.mark.some(2)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", KNOWN)
def test_is_within_half_as_much_again_of_the_exact_epsilon_at_typical_data(name, adjacency):
    case = KNOWN[name]
    found = of(case.model, pmc.Rows(y=case.domain), case.n, pmc.Target(1.0, 1e-6, adjacency))
    exact = exact_epsilon(case, adjacency)
    assert exact / 1.5 < found.epsilon < 1.5 * exact


def test_is_the_certificate_where_every_data_set_has_the_same_curvature():
    case = KNOWN["mean of a Normal"]
    report = pmc.preflight(case.model, pmc.Rows(y=case.domain), TARGET, n=500)
    assert report.estimate.epsilon == pytest.approx(report.epsilon, rel=1e-3)
    assert {report.estimate.row["y"].item(), report.estimate.other["y"].item()} == {-4.0, 4.0}


def undecided() -> tuple[Callable[..., None], pmc.Rows]:
    def model(x, y=None):
        a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
        observed(x, dist.Bernoulli(logits=a * b + jax.numpy.tanh(b) * x), y)

    return model, pmc.Rows(x=pmc.Box(-1.0, 1.0), y=pmc.Binary())


@pytest.mark.parametrize(
    ("target", "words"), [(0.01, "treat it as not private"), (50.0, "is an estimate and proves nothing")]
)
def test_says_how_far_an_undecided_posterior_is_and_leaves_it_undecided(target, words, capsys):
    model, rows = undecided()
    report = pmc.preflight(model, rows, pmc.Target(target, 1e-6), n=200)
    assert report.verdict == "unknown"
    plain = report.to_dict()
    assert plain["verdict"] == "unknown"
    assert plain["epsilon"] is None
    assert plain["estimate"]["kind"] == "estimate"
    assert set(plain["estimate"]["row"]) == {"x", "y"}
    report.show()
    text = capsys.readouterr().out.replace("│", " ")
    for page in (text, report.to_html()):
        assert words in " ".join(page.split())
        assert "certifies nothing" in " ".join(page.split())
    data = {"x": np.zeros(200), "y": np.zeros(200, int)}
    kernel = pmc.PrivateULA(model, step_size=1e-6, clip=0.01)
    asked = {"rows": rows, "target": pmc.Target(target, 1e-6), "release": "path", "num_steps": 2}
    pmc.PrivateMCMC(kernel, guarantee="run", progress_bar=False, **asked).run(**data)
    with pytest.raises(pmc.NotPrivate, match="refused under guarantee='posterior'"):
        pmc.PrivateMCMC(kernel, guarantee="posterior", progress_bar=False, **asked).run(**data)


def test_an_improper_prior_or_one_that_overflows_is_drawn_from_as_chains_start():
    def scale(prior):
        def model(x):
            tau, m = numpyro.sample("tau", prior), numpyro.sample("m", dist.Normal(0, 1))
            with numpyro.plate("rows", x.shape[0]):
                numpyro.sample("x", dist.Normal(m, tau**-0.5), obs=x)

        return model

    # Both between −2 and 2, where 19 in 20 draws of the first are too small for a number.
    found, like = (
        of(scale(prior), pmc.Rows(x=pmc.Box(-3.0, 3.0)), 2000).epsilon
        for prior in (dist.Gamma(1e-4, 1e-4), dist.LogNormal(0.0, 1.15))
    )
    assert like / 1.5 < found < 1.5 * like
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
    assert of(flat_prior, rows, 2000).epsilon < 2


def test_says_why_there_is_none():
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
    assert "no finite ε" in of(logistic, rows, 100, pmc.Target(1.0, 0.0))


@pytest.mark.slow
def test_synthetic_outcomes_of_one_person_share_what_is_the_persons_own():
    """Two outcomes of a person have the covariance 4, the intercepts' variance, and 0.04 of their own."""

    def model(y, person):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("persons", 400):
            a = numpyro.sample("a", dist.Normal(mu, 2.0))
        observed(y, dist.Normal(a[person], 0.2), y)

    rows = pmc.Rows(y=pmc.Box(-9, 9), person=pmc.Person(at_most=2))
    with jax.enable_x64(True):
        reading = read(model, rows, n=400)
        people = {"y": np.zeros((400, 2)), "rows of the person": np.ones((400, 2), int)}
        drawn = outcomes_of(reading)(np.array([0.5]), people, np.random.default_rng(0))["y"]
    # Each is more than 4.5 sds of such an estimate away with probability 3e-5.
    covariance = np.cov(drawn.T)
    assert abs(covariance[0, 1] - 4) < 1.3 and abs(drawn.mean() - 0.5) < 0.45
    assert np.var(drawn[:, 0] - drawn[:, 1]) == pytest.approx(0.08, rel=0.35)


def test_is_the_same_whenever_it_is_asked():
    model, rows = undecided()
    assert of(model, rows, 100).epsilon == of(model, rows, 100).epsilon


def test_a_model_that_no_estimate_is_made_of_is_decided_all_the_same(monkeypatch):
    model, rows = undecided()
    module = importlib.import_module("private_mcmc.preflight.estimate")
    monkeypatch.setattr(module, "prior_draws", lambda *_: 1 / 0)
    report = pmc.preflight(model, rows, TARGET, n=100)
    assert report.verdict == "unknown" and gc.isenabled()
    assert report.estimate is None
    assert "no estimate: it could not be computed (ZeroDivisionError)" in report.reasons


def test_the_first_line_of_a_run_says_the_estimate(capsys):
    model, rows = undecided()
    kernel = pmc.PrivateULA(model, step_size=1e-6, clip=0.01)
    target = pmc.Target(0.01, 1e-6)
    driver = pmc.PrivateMCMC(kernel, rows=rows, target=target, release="path", num_steps=2, guarantee="run")
    driver.run(x=np.zeros(200), y=np.zeros(200, int))
    first = " ".join(capsys.readouterr().err.split())
    about = pmc.preflight(model, rows, target, n=200).estimate.words(target)
    assert about in first
    assert about.endswith("treat it as not private")
