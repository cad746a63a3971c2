"""Small models with one predictor, one for each likelihood family and spelling."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows

DIM = 3


def regression(
    likelihood: Callable[..., Any], observe: Callable[..., Any] | None = None
) -> Callable[..., None]:
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


CASES = {
    "bernoulli logits": Case(lambda eta: dist.Bernoulli(logits=eta), Binary(), "Bernoulli"),
    "bernoulli probs": Case(lambda eta: dist.Bernoulli(probs=jax.nn.sigmoid(eta)), Binary(), "Bernoulli"),
    "bernoulli spelled out": Case(
        lambda eta: dist.Bernoulli(probs=1 / (1 + jnp.exp(-eta))), Binary(), "Bernoulli"
    ),
    "bernoulli probit": Case(lambda eta: dist.Bernoulli(probs=ndtr(eta)), Binary(), "Bernoulli"),
    "bernoulli normal cdf": Case(
        lambda eta: dist.Bernoulli(probs=dist.Normal(0, 1).cdf(eta)), Binary(), "Bernoulli"
    ),
    "bernoulli cloglog": Case(
        lambda eta: dist.Bernoulli(probs=-jnp.expm1(-jnp.exp(eta))), Binary(), "Bernoulli"
    ),
    "binomial logits": Case(lambda eta: dist.Binomial(7, logits=eta), Counts(7), "Binomial"),
    "binomial probs": Case(lambda eta: dist.Binomial(7, probs=jax.nn.sigmoid(eta)), Counts(7), "Binomial"),
    "binomial column": Case(
        lambda eta, trials: dist.Binomial(trials + 4, logits=eta),
        Counts(4),
        "Binomial",
        {"trials": Counts(5)},
    ),
    "geometric": Case(lambda eta: dist.Geometric(logits=eta), Counts(6), "Geometric"),
    "poisson": Case(lambda eta: dist.Poisson(jnp.exp(eta)), Counts(9), "Poisson"),
    "poisson exposure": Case(
        lambda eta, exposure: dist.Poisson(exposure * jnp.exp(eta)),
        Counts(9),
        "Poisson",
        {"exposure": Box(0.5, 4)},
    ),
    "poisson offset": Case(
        lambda eta, log_exposure: dist.Poisson(jnp.exp(eta + log_exposure)),
        Counts(9),
        "Poisson",
        {"log_exposure": Box(-1, 1)},
    ),
    "negative binomial": Case(
        lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 2.5), Counts(9), "NegativeBinomial"
    ),
    "negative binomial logits": Case(
        lambda eta: dist.NegativeBinomialLogits(3.0, eta), Counts(9), "NegativeBinomial"
    ),
    "gamma poisson": Case(
        lambda eta: dist.GammaPoisson(2.0, 2.0 / jnp.exp(eta)), Counts(9), "NegativeBinomial"
    ),
    "ordered logistic": Case(
        lambda eta: dist.OrderedLogistic(eta, jnp.array([-1.0, 0.5, 2.0])), Categories(4), "OrderedLogistic"
    ),
    "normal": Case(lambda eta: dist.Normal(eta, 0.5), Box(-3, 3), "Normal"),
    "normal row scale": Case(
        lambda eta, error: dist.Normal(eta, error), Box(-3, 3), "Normal", {"error": Box(0.5, 2)}
    ),
    "normal scale": Case(lambda eta: dist.Normal(0.3, jnp.exp(eta)), Box(-3, 3), "Normal scale"),
    "log normal": Case(lambda eta: dist.LogNormal(eta, 0.7), Box(0.1, 9), "Normal"),
    "student": Case(lambda eta: dist.StudentT(4.0, eta, 0.8), Box(-3, 3), "StudentT"),
    "share": Case(
        lambda eta: dist.BetaProportion(jax.nn.sigmoid(eta), 6.0), Box(0.05, 0.95), "BetaProportion"
    ),
    "cauchy": Case(lambda eta: dist.Cauchy(eta, 0.8), Box(-3, 3), "Cauchy"),
    "laplace": Case(lambda eta: dist.Laplace(eta, 0.8), Box(-3, 3), "Laplace"),
    "logistic": Case(lambda eta: dist.Logistic(eta, 0.8), Box(-3, 3), "Logistic"),
    "soft laplace": Case(lambda eta: dist.SoftLaplace(eta, 0.8), Box(-3, 3), "SoftLaplace"),
    "quantile": Case(
        lambda eta: dist.AsymmetricLaplaceQuantile(eta, 0.8, quantile=0.9),
        Box(-3, 3),
        "AsymmetricLaplaceQuantile",
    ),
    "truncated below": Case(
        lambda eta: dist.TruncatedNormal(eta, 0.8, low=-1.0), Box(-1, 3), "truncated Normal"
    ),
    "truncated above": Case(
        lambda eta: dist.TruncatedNormal(eta, 0.8, high=2.0), Box(-1, 2), "truncated Normal"
    ),
    "truncated": Case(
        lambda eta: dist.TruncatedNormal(eta, 0.8, low=-1.0, high=0.5), Box(-1, 0.5), "truncated Normal"
    ),
    "zero-inflated Poisson": Case(
        lambda eta: dist.ZeroInflatedPoisson(0.3, jnp.exp(eta)), Counts(9), "zero-inflated Poisson"
    ),
    "zero-inflated negative binomial": Case(
        lambda eta: dist.ZeroInflatedNegativeBinomial2(jnp.exp(eta), 2.0, gate=0.3),
        Counts(9),
        "zero-inflated NegativeBinomial",
    ),
    "binomial capped": Case(
        lambda eta, trials: dist.Binomial(trials, logits=eta),
        Counts(9),
        "Binomial",
        {"trials": Counts(7)},
        observe=lambda y, trials: jnp.minimum(y, trials),
    ),
    "residual": Case(lambda eta: dist.Normal(0.0, 0.5), Box(-3, 3), "Normal", observe=lambda y, eta: y - eta),
    "gumbel": Case(lambda eta: dist.Gumbel(eta, 0.8), Box(-3, 3), "Gumbel"),
    "gamma mean": Case(lambda eta: dist.Gamma(3.0, 3.0 / jnp.exp(eta)), Box(0.1, 9), "Gamma"),
    "gamma rate": Case(lambda eta: dist.Gamma(3.0, jnp.exp(eta)), Box(0.1, 9), "Gamma"),
    "exponential": Case(lambda eta: dist.Exponential(jnp.exp(-eta)), Box(0.1, 9), "Exponential"),
    "inverse gamma": Case(lambda eta: dist.InverseGamma(3.0, jnp.exp(eta)), Box(0.1, 9), "Gamma"),
    "poisson softplus": Case(
        lambda eta, exposure: dist.Poisson(exposure * jax.nn.softplus(eta)),
        Counts(9),
        "Poisson",
        {"exposure": Box(0.5, 4)},
    ),
    "exponential softplus": Case(
        lambda eta: dist.Exponential(jnp.log1p(jnp.exp(eta))), Box(0.1, 9), "Exponential"
    ),
    "gamma softplus": Case(lambda eta: dist.Gamma(3.0, jax.nn.softplus(eta) / 2), Box(0.1, 9), "Gamma"),
    "negative binomial softplus": Case(
        lambda eta: dist.NegativeBinomial2(jax.nn.softplus(eta), 2.5), Counts(9), "NegativeBinomial"
    ),
    "weibull": Case(lambda eta: dist.Weibull(jnp.exp(eta), 1.7), Box(0.1, 9), "Weibull"),
    "right-censored exponential": Case(
        lambda eta, cut: dist.RightCensoredDistribution(dist.Exponential(2 * jnp.exp(-eta)), cut),
        Box(0.1, 9),
        "censored Exponential",
        {"cut": Binary()},
    ),
    "left-censored exponential": Case(
        lambda eta, cut: dist.LeftCensoredDistribution(dist.Exponential(jnp.exp(eta)), cut),
        Box(0.1, 9),
        "censored Exponential",
        {"cut": Binary()},
    ),
    "left-censored weibull": Case(
        lambda eta, cut: dist.LeftCensoredDistribution(dist.Weibull(jnp.exp(eta), 1.7), cut),
        Box(0.1, 9),
        "censored Weibull",
        {"cut": Binary()},
    ),
    "right-censored weibull": Case(
        lambda eta, cut: dist.RightCensoredDistribution(dist.Weibull(jnp.exp(eta), 1.7), cut),
        Box(0.1, 9),
        "censored Weibull",
        {"cut": Binary()},
    ),
    "right-censored log normal": Case(
        lambda eta, cut: dist.RightCensoredDistribution(dist.LogNormal(eta, 0.7), cut),
        Box(0.1, 9),
        "censored Normal",
        {"cut": Binary()},
    ),
    "left-censored normal": Case(
        lambda eta, cut: dist.LeftCensoredDistribution(dist.Normal(eta, 0.7), cut),
        Box(-3, 3),
        "censored Normal",
        {"cut": Binary()},
    ),
}
