"""The regressions of the benchmark: ordinary NumPyro models with a ``Normal(0, prior_sd)`` prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc import Binary, Box, Counts

Family = Literal["logistic", "poisson", "linear"]


@dataclass(frozen=True)
class Regression:
    """A regression with one linear predictor ``X @ w``.

    Attributes:
        family: likelihood of the outcome.
        outcome: public domain of the outcome.
        prior_sd: sd of every coefficient's Normal prior.
        noise_sd: known sd of the outcome, for ``"linear"``.
    """

    family: Family
    outcome: Binary | Counts | Box
    prior_sd: float = 10.0
    noise_sd: float = 1.0

    def model(self, X: Any, y: Any = None) -> None:
        """The NumPyro model; its one latent site is ``w``, of shape ``(p,)``."""
        prior = dist.Normal(0.0, self.prior_sd).expand([X.shape[1]]).to_event(1)
        w = numpyro.sample("w", prior)
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", self.likelihood(X @ w), obs=y)

    def likelihood(self, predictor: Any) -> dist.Distribution:
        """Law of the outcomes given their predictors."""
        if self.family == "logistic":
            return dist.Bernoulli(logits=predictor)
        if self.family == "poisson":
            return dist.Poisson(jnp.exp(predictor))
        return dist.Normal(predictor, self.noise_sd)
