"""Random one-parameter models: in NumPyro and, written apart from that, their densities in SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit, gammaln

from private_mcmc.modeling import Binary, Box, Counts, Rows


@dataclass(frozen=True)
class Family:
    """A likelihood of one number ``η = θx``: in NumPyro, and its loss in NumPy."""

    name: str
    observed: Any
    outcomes: tuple[float, ...]
    numpyro: Callable[[Any], Any]
    loss: Callable[[np.ndarray, float], np.ndarray]


FAMILIES = (
    Family(
        "bernoulli logits", Binary(), (0, 1), lambda eta: dist.Bernoulli(logits=eta),
        lambda eta, y: np.logaddexp(0, eta) - y * eta,
    ),
    Family(
        "bernoulli probs", Binary(), (0, 1), lambda eta: dist.Bernoulli(probs=jax.nn.sigmoid(eta)),
        lambda eta, y: np.logaddexp(0, eta) - y * eta,
    ),
    Family(
        "bounded bernoulli", Binary(), (0, 1),
        lambda eta: dist.Bernoulli(probs=0.3 + 0.4 * jax.nn.sigmoid(eta)),
        lambda eta, y: -np.log(np.where(y == 1, 0.3 + 0.4 * expit(eta), 0.7 - 0.4 * expit(eta))),
    ),
    Family(
        "binomial", Counts(4), (0, 4, 2), lambda eta: dist.Binomial(4, logits=eta),
        lambda eta, y: 4 * np.logaddexp(0, eta) - y * eta,
    ),
    Family(
        "poisson", Counts(3), (0, 3), lambda eta: dist.Poisson(jnp.exp(eta)),
        lambda eta, y: np.exp(np.minimum(eta, 500)) - y * eta + gammaln(y + 1),
    ),
    Family(
        "negative binomial", Counts(3), (0, 3), lambda eta: dist.NegativeBinomial2(jnp.exp(eta), 2.0),
        lambda eta, y: (2 + y) * np.logaddexp(math.log(2), eta) - y * eta,
    ),
    Family(
        "normal", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.Normal(eta, 1.5),
        lambda eta, y: -stats.norm.logpdf(y, eta, 1.5),
    ),
    Family(
        "laplace", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.Laplace(eta, 1.5),
        lambda eta, y: np.abs(y - eta) / 1.5,
    ),
    Family(
        "student", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.StudentT(3.0, eta, 1.5),
        lambda eta, y: -stats.t.logpdf(y, 3.0, eta, 1.5),
    ),
    Family(
        "logistic", Box(-1, 2), (-1, 2, 0.5), lambda eta: dist.Logistic(eta, 1.5),
        lambda eta, y: -stats.logistic.logpdf(y, eta, 1.5),
    ),
    Family(
        "exponential", Box(0.1, 2), (0.1, 2), lambda eta: dist.Exponential(jnp.exp(eta)),
        lambda eta, y: y * np.exp(np.minimum(eta, 500)) - eta,
    ),
)  # fmt: skip

PRIORS: dict[str, tuple[Callable[[float], Any], Callable[[np.ndarray, float], np.ndarray]]] = {
    "normal": (lambda s: dist.Normal(0, s), lambda t, s: stats.norm.logpdf(t, 0, s)),
    "laplace": (lambda s: dist.Laplace(0, s), lambda t, s: stats.laplace.logpdf(t, 0, s)),
    "student": (lambda s: dist.StudentT(3.0, 0, s), lambda t, s: stats.t.logpdf(t, 3.0, 0, s)),
    "logistic": (lambda s: dist.Logistic(0, s), lambda t, s: stats.logistic.logpdf(t, 0, s)),
}


@dataclass(frozen=True)
class Example:
    """A model, its rows, and what a run would do to it."""

    family: Family
    prior: str
    scale: float
    radius: float
    n: int
    temper: float
    clip: float | None

    @property
    def rows(self) -> Rows:
        return Rows(x=Box(-self.radius, self.radius), y=self.family.observed)

    def model(self, x: Any, y: Any = None) -> None:
        theta = numpyro.sample("theta", PRIORS[self.prior][0](self.scale))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", self.family.numpyro(theta * x), obs=y)

    def grid(self) -> np.ndarray:
        """Points that resolve the posterior's bulk and reach far into the tails of any prior here."""
        t = np.linspace(-1, 1, 20_001)
        return self.scale * np.sinh(14 * t) / math.sinh(14) * 4e4

    def loss(self, theta: np.ndarray, x: float, y: float) -> np.ndarray:
        """A row's loss, Huberised by adding up its clipped slope if rows are clipped."""
        plain = np.asarray(self.family.loss(theta * x, y), dtype=np.float64)
        if self.clip is None:
            return plain
        slope = np.clip(np.diff(plain) / np.diff(theta), -self.clip, self.clip)
        return np.concatenate([[0.0], np.cumsum(slope * np.diff(theta))])

    def posterior(self, theta: np.ndarray, data: list[tuple[tuple[float, float], int]]) -> np.ndarray:
        """Probabilities of the grid's cells on a data set of rows and how often each occurs."""
        log = np.array(PRIORS[self.prior][1](theta, self.scale))
        for (x, y), times in data:
            if times:
                log = log - self.temper * times * self.loss(theta, x, y)
        width = np.gradient(theta)
        mass = np.exp(log - np.max(log)) * width
        return mass / mass.sum()


@st.composite
def examples(draw: Any) -> Example:
    family = draw(st.sampled_from(FAMILIES))
    convex = family.name not in ("student", "bounded bernoulli")
    return Example(
        family=family,
        prior=draw(st.sampled_from(["normal", "normal", *PRIORS])),
        scale=draw(st.sampled_from([0.05, 0.3, 1.0, 3.0])),
        radius=draw(st.sampled_from([0.2, 1.0, 2.0])),
        n=draw(st.sampled_from([1, 3, 40])),
        temper=draw(st.sampled_from([1.0, 0.3, 0.05])),
        clip=draw(st.sampled_from([None, None, 0.05, 0.5])) if convex else None,
    )
