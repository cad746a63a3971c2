"""Likelihoods whose form bounds what a row says, and those that only look so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import log_ndtr

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Array, Entry, Pair, log_sigmoid, normal

FEATURES = Rows(X=Ball(1.0, dim=2), y=Box(-1, 1))
OUTCOMES = Rows(X=Ball(1.0, dim=2), y=Binary())
COUNTS = Rows(X=Ball(1.0, dim=2), y=Counts(10))
CLASSES = Rows(X=Ball(1.0, dim=2), y=Categories(4))
TARGET = Target(1.0, 1e-6)


def _weights(X: Any, sd: float) -> Any:
    return numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))


def quantile(X: Any, y: Any = None) -> None:
    """Regression of the upper decile."""
    w = _weights(X, 0.1)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.AsymmetricLaplaceQuantile(X @ w, 1.0, quantile=0.9), obs=y)


def truncated(X: Any, y: Any = None) -> None:
    """Normal outcomes that are only seen between −1 and 1."""
    w = _weights(X, 0.1)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.TruncatedNormal(X @ w, 1.0, low=-1.0, high=1.0), obs=y)


def residual(X: Any, y: Any = None) -> None:
    """A linear regression that observes what its line leaves over."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("residual", dist.Normal(0.0, 1.0), obs=y - X @ w)


def lapses(X: Any, y: Any = None, sd: float = 1.0) -> None:
    """A logistic regression that errs in a tenth of the cases, whatever the weights."""
    w = _weights(X, sd)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=0.05 + 0.9 * jax.nn.sigmoid(X @ w)), obs=y)


def zero_inflated(X: Any, y: Any = None) -> None:
    """Negative binomial counts among which three in ten are extra zeros."""
    w = _weights(X, 0.05)
    with numpyro.plate("rows", X.shape[0]):
        law = dist.ZeroInflatedNegativeBinomial2(jnp.exp(X @ w), 2.0, gate=0.3)
        numpyro.sample("y", law, obs=y)


def trials_by_row(X: Any, trials: Any, y: Any = None) -> None:
    """Successes among a number of trials that is a column of its own."""
    w = _weights(X, 1.0)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Binomial(trials, logits=X @ w), obs=jnp.minimum(y, trials))


def unknown_dispersion(X: Any, y: Any = None) -> None:
    """Negative binomial counts of unknown dispersion."""
    w = _weights(X, 0.1)
    k = numpyro.sample("k", dist.LogNormal(0.0, 0.1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(X @ w), k), obs=y)


def unknown_cuts(X: Any, y: Any = None) -> None:
    """Four ordered classes with unknown cut points."""
    w = _weights(X, 0.1)
    ordered = dist.transforms.OrderedTransform()
    base = dist.Normal(0, 0.1).expand([3]).to_event(1)
    cuts = numpyro.sample("cuts", dist.TransformedDistribution(base, ordered))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.OrderedLogistic(X @ w, cuts), obs=y)


def _along_one_weight(words: str, sd: float, losses: tuple[Any, Any]) -> Pair:
    return Pair(
        f"rows without features, and one with first feature 1 and {words}",
        lambda t: normal(t, sd) - losses[0](t),
        lambda t: normal(t, sd) - losses[1](t),
        -12 * sd,
        12 * sd,
    )


def _decile_loss(outcome: float) -> Any:
    def loss(t: Array) -> Array:
        residual = outcome - t
        pinball: Array = np.maximum(0.9 * residual, -0.1 * residual)
        return pinball

    return loss


def _truncated_loss(outcome: float) -> Any:
    def loss(t: Array) -> Array:
        # Φ(1−t) − Φ(−1−t) without cancellation for t of either sign.
        top, rest = log_ndtr(1 - np.abs(t)), log_ndtr(-1 - np.abs(t))
        tempered: Array = 0.5 * ((outcome - t) ** 2 / 2 + top + np.log1p(-np.exp(rest - top)))
        return tempered

    return loss


def _huber(outcome: float, at: float) -> Any:
    def loss(t: Array) -> Array:
        size = np.abs(outcome - t)
        steep: Array = np.minimum(size, at)
        return steep * (size - steep / 2)

    return loss


def _inflated_loss(count: int) -> Any:
    def loss(t: Array) -> Array:
        spread = np.logaddexp(np.log(2), t)
        zero: Array = -0.1 * np.log(0.3 + 0.7 * np.exp(2 * (np.log(2) - spread)))
        positive: Array = 0.1 * ((2 + count) * spread - count * t)
        return positive if count else zero

    return loss


def _lapse_loss(sign: float) -> Any:
    return lambda t: -0.1 * np.log(0.05 + 0.9 * np.exp(log_sigmoid(sign * t)))


def _binomial_loss(sign: float) -> Any:
    return lambda t: -0.1 * log_sigmoid(sign * t)


ENTRIES = (
    Entry(
        "quantile",
        quantile,
        FEATURES,
        1000,
        TARGET,
        "private",
        "convex rows of slope at most 0.9 under a prior of precision 100: 0.18-GDP",
        _along_one_weight("outcome 1 or −1", 0.1, (_decile_loss(1.0), _decile_loss(-1.0))),
    ),
    Entry(
        "truncated",
        truncated,
        FEATURES,
        1000,
        TARGET,
        "private",
        "between two ends a normal score is at most their distance: 2·0.5·2·0.1 = 0.2-GDP, unclipped",
        _along_one_weight("outcome 1 or −1", 0.1, (_truncated_loss(1.0), _truncated_loss(-1.0))),
        temper=0.5,
    ),
    Entry(
        "linear_as_residual",
        residual,
        Rows(X=Ball(1.0, dim=3), y=Box(-1, 1)),
        1000,
        TARGET,
        "private",
        "clipped at 0.1 the rows are Huber losses; 2·0.1/1 = 0.2-GDP",
        _along_one_weight("outcome 1 or −1", 1.0, (_huber(1.0, 0.1), _huber(-1.0, 0.1))),
        clip=0.1,
        same_as="linear_clipped",
    ),
    Entry(
        "lapses",
        lapses,
        OUTCOMES,
        500,
        Target(0.6, 0.0),
        "private",
        "log likelihoods that vary by log 19, tempered by a tenth: ε = 0.589 without any δ",
        _along_one_weight("outcome 1 or 0", 1.0, (_lapse_loss(1.0), _lapse_loss(-1.0))),
        temper=0.1,
    ),
    Entry(
        "lapses_without_prior",
        lapses,
        OUTCOMES,
        500,
        Target(0.6, 0.0),
        "unknown",
        "a normal prior of infinite scale has no density, and a bounded likelihood gives it none",
        "prior",
        temper=0.1,
        model_args={"sd": np.inf},
    ),
    Entry(
        "zero_inflated_negative_binomial",
        zero_inflated,
        COUNTS,
        10,
        TARGET,
        "private",
        "not convex, but ten rows bend by at most 28 against a prior of 400: 2·0.1·10/√372 = 0.104-GDP",
        _along_one_weight("count 10 or 0", 0.05, (_inflated_loss(10), _inflated_loss(0))),
        temper=0.1,
    ),
    Entry(
        "binomial_by_row",
        trials_by_row,
        Rows(X=Ball(1.0, dim=2), trials=Counts(10), y=Counts(10)),
        500,
        TARGET,
        "private",
        "as many successes as trials at most: scores at most 10 times a temper of 0.01: 0.2-GDP",
        _along_one_weight("10 or 0 successes in 10 trials", 1.0, (_binomial_loss(1.0), _binomial_loss(-1.0))),
        temper=0.01,
    ),
    Entry(
        "unknown_dispersion",
        unknown_dispersion,
        COUNTS,
        100,
        TARGET,
        "not private",
        "a count of 10 among zeros moves mean and dispersion, whose scores have no bound",
        "two adjacent data sets",
    ),
    Entry(
        "unknown_cut_points",
        unknown_cuts,
        CLASSES,
        100,
        TARGET,
        "unknown",
        "the gaps between cut points are exponentials of what is sampled",
        "fix the cut points",
    ),
)
