"""A claim that does not hold of what runs is refused where it is read: faults planted in tables and rules."""

from dataclasses import replace

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import claims, families, prior, read
from private_mcmc.model.ir import dependence, flatten

ROWS = pmc.Rows(X=pmc.Ball(1.0, 3), g=pmc.Categories(4), y=pmc.Binary())


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    claims._known.cache_clear()
    yield
    claims._known.cache_clear()


def logistic(X, g, y):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Cauchy(0, 1).expand([4]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + b[g]), obs=y)


def refuses(model=logistic, rows=ROWS, words="breaks, at synthetic rows"):
    with pytest.raises(NotYetSupported, match=words):
        read(model, rows, n=10)


def test_what_holds_is_read():
    assert read(logistic, ROWS, n=10).constants.convex


@pytest.mark.parametrize("claim", [{"score": 0.3}, {"curvature": 0.01}, {"convex": True}])
def test_a_bound_of_a_likelihood_that_is_too_small(claim, monkeypatch):
    key = ("StudentT", "loc")
    line = families.TABLE[key]["identity"]
    monkeypatch.setitem(families.TABLE, key, {"identity": replace(line, **claim)})

    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.StudentT(3.0, X @ w, 0.5), obs=y)

    refuses(model, pmc.Rows(X=pmc.Ball(1.0, 3), y=pmc.Box(-1, 1)))


def test_a_loss_with_the_wrong_sign(monkeypatch):
    line = families.TABLE["BernoulliLogits", "logits"]["identity"]
    concave = replace(line, loss=lambda eta, y, given: -line.loss(eta, y, given))
    monkeypatch.setitem(families.TABLE, ("BernoulliLogits", "logits"), {"identity": concave})
    refuses()


def test_a_loss_that_is_not_that_of_numpyro(monkeypatch):
    line = families.TABLE["BernoulliLogits", "logits"]["identity"]
    other = replace(line, loss=lambda eta, y, given: 0.9 * line.loss(eta, y, given))
    monkeypatch.setitem(families.TABLE, ("BernoulliLogits", "logits"), {"identity": other})
    refuses(words="is not that of the family")


def test_a_density_that_was_replaced_in_its_class(monkeypatch):
    usual = dist.BernoulliLogits.log_prob
    monkeypatch.setattr(dist.BernoulliLogits, "log_prob", lambda self, value: 2 * usual(self, value))
    refuses(words="is not that of the family")


def test_an_outcome_whose_parameters_were_changed():
    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        outcome = dist.LogNormal(X @ w, 1.0)
        outcome.scale = 100.0
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", outcome, obs=y)

    refuses(model, pmc.Rows(X=pmc.Ball(1.0, 3), y=pmc.Box(1, 2)), "is not that of the family")


def test_bounds_of_a_prior_that_are_too_tight(monkeypatch):
    line = prior.TABLE["Cauchy", "real"]
    tight = replace(line, bounds=lambda m, s: (0.0 * s, 2 / s**2))
    monkeypatch.setitem(prior.TABLE, ("Cauchy", "real"), tight)
    refuses(words="the prior of 'w'")


def test_a_clipped_curvature_that_is_too_small(monkeypatch):
    line = families.TABLE["Poisson", "rate"]["exp"]
    tight = replace(line, growth=(0.01, 0.01))
    monkeypatch.setitem(families.TABLE, ("Poisson", "rate"), {"exp": tight})

    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(X @ w)), obs=y)

    refuses(model, pmc.Rows(X=pmc.Ball(1.0, 3), y=pmc.Counts(10)), "clipped, breaks")


def test_a_rule_that_takes_a_square_for_linear(monkeypatch):
    rules = dependence._LINEAR | {"square", "integer_pow", "sin"}
    monkeypatch.setattr(dependence, "_LINEAR", rules)

    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.sin(3 * (X @ w))), obs=y)

    refuses(model, pmc.Rows(X=pmc.Ball(1.0, 3), y=pmc.Binary()))


def test_slopes_that_an_index_drops(monkeypatch):
    """Which values keep: a field that is no gradient of any function."""
    monkeypatch.setattr(flatten, "_OUTSIDE", {})
    rows = pmc.Rows(X=pmc.Ball(1.0, 3), g=pmc.Categories(9), y=pmc.Binary())
    refuses(rows=rows)
