"""Likelihoods whose form bounds what a row says, and those that only look so."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Entry, Pair, log_sigmoid, normal

FEATURES = Rows(X=Ball(1.0, dim=2), y=Box(-1, 1))
OUTCOMES = Rows(X=Ball(1.0, dim=2), y=Binary())
COUNTS = Rows(X=Ball(1.0, dim=2), y=Counts(10))
CLASSES = Rows(X=Ball(1.0, dim=2), y=Categories(4))
TARGET = Target(1.0, 1e-6)


def _weights(X: Any, sd: float) -> Any:
    return numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))


def trials_by_row(X: Any, trials: Any, y: Any = None) -> None:
    """Successes among a number of trials that is a column of its own."""
    w = _weights(X, 1.0)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Binomial(trials, logits=X @ w), obs=y)


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


def _along_one_weight(sd: float, losses: tuple[Any, Any]) -> Pair:
    """Rows without features, and one with first feature 1 and either loss."""
    return Pair(
        lambda t: normal(t, sd) - losses[0](t), lambda t: normal(t, sd) - losses[1](t), -12 * sd, 12 * sd
    )


def _binomial_loss(sign: float) -> Any:
    return lambda t: -0.1 * log_sigmoid(sign * t)


ENTRIES = (
    # As many successes as trials at most: scores at most 10 times a temper of 0.01: 0.2-GDP.
    Entry(
        "binomial_by_row",
        trials_by_row,
        Rows(X=Ball(1.0, dim=2), trials=Counts(10), y=Counts(10)),
        "private",
        _along_one_weight(1.0, (_binomial_loss(1.0), _binomial_loss(-1.0))),
        temper=0.01,
    ),
    # A count of 10 among zeros moves mean and dispersion, whose scores have no bound.
    Entry("unknown_dispersion", unknown_dispersion, COUNTS, "unknown", "no certificate", n=100),
    # The gaps between cut points are exponentials of what is sampled.
    Entry(
        "unknown_cut_points",
        unknown_cuts,
        CLASSES,
        "unknown",
        "cutpoints and predictor of OrderedLogistic",
        n=100,
    ),
)
