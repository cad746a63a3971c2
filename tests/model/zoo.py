"""Small models with one predictor, one for each likelihood family and spelling."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows

DIM = 3


def regression(likelihood, observe=None) -> Callable[..., None]:
    """``y ~ likelihood(X·w, **other columns)`` with independent rows; ``observe`` makes what is observed."""

    def model(X, y=None, **columns):
        w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            eta = X @ w
            seen = y if observe is None else observe(y, **(columns or {"eta": eta}))
            numpyro.sample("y", likelihood(eta, **columns), obs=seen)

    return model


@dataclass(frozen=True)
class Case:
    likelihood: Callable[..., Any]
    observed: Any
    family: str
    columns: dict[str, Any] = field(default_factory=dict)
    observe: Callable[..., Any] | None = None

    @property
    def model(self):
        return regression(self.likelihood, self.observe)

    @property
    def rows(self):
        return Rows(X=Ball(1.5, dim=DIM), y=self.observed, **self.columns)


two = partial(Case, observed=Binary(), family="Bernoulli")
wide = partial(Case, observed=Counts(9), family="NegativeBinomial")
CASES = {
    "bernoulli logits": two(lambda eta: dist.Bernoulli(logits=eta)),
    "bernoulli probs": two(lambda eta: dist.Bernoulli(probs=jax.nn.sigmoid(eta))),
    "bernoulli spelled out": two(lambda eta: dist.Bernoulli(probs=1 / (1 + jnp.exp(-eta)))),
    "bernoulli probit": two(lambda eta: dist.Bernoulli(probs=ndtr(eta))),
    "bernoulli normal cdf": two(lambda eta: dist.Bernoulli(probs=dist.Normal(0, 1).cdf(eta))),
    "binomial logits": Case(lambda eta: dist.Binomial(7, logits=eta), Counts(7), "Binomial"),
    "binomial probs": Case(lambda eta: dist.Binomial(7, probs=jax.nn.sigmoid(eta)), Counts(7), "Binomial"),
    "binomial probit": Case(lambda eta: dist.Binomial(7, probs=ndtr(eta)), Counts(7), "Binomial"),
    "binomial column": Case(
        lambda eta, more: dist.Binomial(more + 4, logits=eta), Counts(4), "Binomial", {"more": Counts(5)}
    ),
    "poisson": Case(lambda eta: dist.Poisson(jnp.exp(eta)), Counts(9), "Poisson"),
    "poisson exposure": Case(
        lambda eta, time: dist.Poisson(time * jnp.exp(eta)), Counts(9), "Poisson", {"time": Box(0.5, 4)}
    ),
    "poisson offset": Case(
        lambda eta, log: dist.Poisson(jnp.exp(eta + log)), Counts(9), "Poisson", {"log": Box(-1, 1)}
    ),
    "negative binomial": wide(lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 2.5)),
    "negative binomial logits": wide(lambda eta: dist.NegativeBinomialLogits(3.0, eta)),
    "gamma poisson": wide(lambda eta: dist.GammaPoisson(2.0, 2.0 / jnp.exp(eta))),
    "ordered logistic": Case(
        lambda eta: dist.OrderedLogistic(eta, jnp.array([-1.0, 0.5, 2.0])), Categories(4), "OrderedLogistic"
    ),
    "normal": Case(lambda eta: dist.Normal(eta, 0.5), Box(-3, 3), "Normal"),
    "normal row scale": Case(
        lambda eta, error: dist.Normal(eta, error), Box(-3, 3), "Normal", {"error": Box(0.5, 2)}
    ),
    "log normal": Case(lambda eta: dist.LogNormal(eta, 0.7), Box(0.1, 9), "Normal"),
    "student": Case(lambda eta: dist.StudentT(4.0, eta, 0.8), Box(-3, 3), "StudentT"),
    "share": Case(lambda eta: dist.BetaProportion(jax.nn.sigmoid(eta), 6.0), Box(0.05, 0.95), "Beta"),
    "binomial capped": Case(
        lambda eta, trials: dist.Binomial(trials, logits=eta),
        Counts(9),
        "Binomial",
        {"trials": Counts(7)},
        observe=lambda y, trials: jnp.minimum(y, trials),
    ),
    "gamma mean": Case(lambda eta: dist.Gamma(3.0, 3.0 / jnp.exp(eta)), Box(0.1, 9), "Gamma"),
    "gamma rate": Case(lambda eta: dist.Gamma(3.0, jnp.exp(eta)), Box(0.1, 9), "Gamma"),
    "exponential": Case(lambda eta: dist.Exponential(jnp.exp(-eta)), Box(0.1, 9), "Exponential"),
    "weibull": Case(lambda eta: dist.Weibull(jnp.exp(eta), 1.7), Box(0.1, 9), "Weibull"),
}
