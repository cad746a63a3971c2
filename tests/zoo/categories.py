"""Categories and binary outcomes: softmax, ordered, probit, and the conjugate families."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from scipy.special import log_ndtr

from private_mcmc.domains import Ball, Binary, Categories, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Array, Entry, Pair, log_sigmoid, normal

CLASSES = Rows(X=Ball(1.0, dim=2), y=Categories(3))
OUTCOMES = Rows(X=Ball(1.0, dim=2), y=Binary())
COINS = Rows(y=Binary())
TARGET = Target(1.0, 1e-6)
CUTS = jnp.array([-1.0, 1.0])


def softmax(X: Any, y: Any = None, sd: float = 1.0) -> None:
    """Three classes, one weight vector each."""
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1], 3]).to_event(2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=X @ w), obs=y)


def ordered(X: Any, y: Any = None) -> None:
    """Three ordered classes with known cut points."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.OrderedLogistic(X @ w, CUTS), obs=y)


def probit(X: Any, y: Any = None) -> None:
    """A probit link: convex, but its score grows with the predictor."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=ndtr(X @ w)), obs=y)


def coin(y: Any = None, a: float = 1.0, b: float = 1.0) -> None:
    """One probability under a Beta prior: conjugate."""
    p = numpyro.sample("p", dist.Beta(a, b))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def die(y: Any = None, alpha: float = 1.0) -> None:
    """Probabilities of three categories under a Dirichlet prior: conjugate."""
    p = numpyro.sample("p", dist.Dirichlet(alpha * jnp.ones(3)))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Categorical(probs=p), obs=y)


def _beta_pair(a: float, b: float, n: int, low: float, high: float) -> Pair:
    """The log odds; all outcomes 0 but one, which is 1 or 0."""
    return Pair(
        lambda t: (a + 1) * log_sigmoid(t) + (b + n - 1) * log_sigmoid(-t),
        lambda t: a * log_sigmoid(t) + (b + n) * log_sigmoid(-t),
        low,
        high,
    )


def _two_classes(sd: float, temper: float) -> Pair:
    """``t = w_0 − w_1`` of the first feature, the third class's weight integrated out by a fixed rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    spread = sd * np.sqrt(1.5)

    def law(sign: float) -> Any:
        def log_density(t: Array) -> Array:
            # u = w_2 − (w_0 + w_1)/2 has sd √1.5·sd and is independent of t = w_0 − w_1.
            u = spread * nodes[:, None]
            total = np.logaddexp(np.logaddexp(t / 2, -t / 2)[None, :], u)
            inner = temper * (sign * t[None, :] / 2 - total)
            peak = inner.max(axis=0)
            mixed: Array = peak + np.log(weights @ np.exp(inner - peak))
            return normal(t, sd * np.sqrt(2)) + mixed

        return log_density

    return Pair(law(1.0), law(-1.0), -17 * sd, 17 * sd)


def _ordered_pair() -> Pair:
    def low(t: Array) -> Array:
        return normal(t, 0.1) + log_sigmoid(-1 - t)

    def high(t: Array) -> Array:
        return normal(t, 0.1) + log_sigmoid(t - 1)

    return Pair(low, high, -1.2, 1.2)


def _probit_pair(clip: float | None) -> Pair:
    def loss(t: Array) -> Array:
        """``−log Φ(t)``; its slope ``−φ/Φ`` clipped at ``−clip``."""
        plain: Array = -log_ndtr(t)
        if clip is None:
            return plain
        # Where φ/Φ equals the clip, by bisection: the ratio falls with t.
        low, high = -50.0, 50.0
        for _ in range(200):
            middle = (low + high) / 2
            ratio = np.exp(-(middle**2) / 2 - 0.5 * np.log(2 * np.pi) - log_ndtr(middle))
            low, high = (middle, high) if ratio > clip else (low, middle)
        inner = np.maximum(t, low)
        huber: Array = -log_ndtr(inner) - clip * (t - inner)
        return huber

    return Pair(lambda t: normal(t, 1.0) - loss(t), lambda t: normal(t, 1.0) - loss(-t), -12.0, 12.0)


ENTRIES = (
    # Convex rows of gradient at most √2·0.07 under a prior of precision 1: 0.198-GDP.
    Entry("softmax_tempered", softmax, CLASSES, "private", _two_classes(1.0, 0.07), temper=0.07),
    # One row's class moves the weights of prior sd 3 by their whole scale.
    Entry("softmax", softmax, CLASSES, "unknown", _two_classes(3.0, 1.0), model_args={"sd": 3.0}),
    # Convex rows with scores at most 1 under a prior of precision 100: 0.2-GDP.
    Entry("ordered", ordered, CLASSES, "private", _ordered_pair()),
    # The probit score grows with the predictor.
    Entry("probit", probit, OUTCOMES, "not private", _probit_pair(None)),
    # Clipped at 0.1 the rows are convex with gradient at most 0.1: 0.2-GDP.
    Entry("probit_clipped", probit, OUTCOMES, "private", _probit_pair(0.1), clip=0.1),
    # Among 99 zeros a single one shows under a uniform prior.
    Entry(
        "coin_uniform",
        coin,
        COINS,
        "not private",
        _beta_pair(1.0, 1.0, 100, -45.0, 5.0),
        n=100,
        target=Target(0.5, 1e-3),
    ),
    # A Beta(200, 200) prior hides one outcome: the exact divergence is small.
    Entry(
        "coin_strong_prior",
        coin,
        COINS,
        "private",
        _beta_pair(200.0, 200.0, 100, -2.0, 1.5),
        n=100,
        target=Target(0.5, 1e-6),
        model_args={"a": 200.0, "b": 200.0},
    ),
    # A Dirichlet(200, 200, 200) prior hides one outcome: the exact divergence is small.
    Entry(
        "die_strong_prior",
        die,
        Rows(y=Categories(3)),
        "private",
        Pair(
            lambda t: 201 * log_sigmoid(t) + 200 * log_sigmoid(-t),
            lambda t: 200 * log_sigmoid(t) + 201 * log_sigmoid(-t),
            -1.5,
            1.5,
        ),
        n=100,
        model_args={"alpha": 200.0},
    ),
    # An outcome in one of two otherwise empty categories shows.
    Entry(
        "die_uniform",
        die,
        Rows(y=Categories(3)),
        "unknown",
        Pair(
            lambda t: 2 * log_sigmoid(t) + log_sigmoid(-t),
            lambda t: log_sigmoid(t) + 2 * log_sigmoid(-t),
            -45.0,
            45.0,
        ),
        n=100,
    ),
)
