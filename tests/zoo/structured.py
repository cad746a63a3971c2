"""Mixtures, hierarchies, a neural network: what bounded likelihoods decide, and what nothing decides."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Box, Categories, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Entry, Pair, log_sigmoid

OUTCOMES = Rows(y=Box(-1, 1))
GROUPS = Rows(group=Categories(4), y=Binary())
FEATURES = Rows(X=Ball(1.0, dim=2), y=Binary())
TARGET = Target(1.0, 1e-6)


def mixture_weight(y: Any = None) -> None:
    """The share, between 0.1 and 0.9, of one of two known components."""
    p = numpyro.sample("p", dist.Uniform(0.1, 0.9))
    with numpyro.plate("rows", y.shape[0]):
        parts = dist.Normal(jnp.array([-0.25, 0.25]), jnp.array([1.0, 1.0]))
        numpyro.sample(
            "y", dist.MixtureSameFamily(dist.Categorical(probs=jnp.stack([1 - p, p])), parts), obs=y
        )


def mixture_means(y: Any = None) -> None:
    """Two components with unknown means."""
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", y.shape[0]):
        parts = dist.Normal(mu, 1.0)
        numpyro.sample(
            "y", dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.3, 0.7])), parts), obs=y
        )


def groups_centred(group: Any, y: Any = None) -> None:
    """Group effects around a mean with an unknown spread, centred."""
    mu = numpyro.sample("mu", dist.Normal(0, 0.1))
    tau = numpyro.sample("tau", dist.HalfNormal(0.1))
    with numpyro.plate("groups", 4):
        b = numpyro.sample("b", dist.Normal(mu, tau))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=b[group]), obs=y)


def groups_noncentred(group: Any, y: Any = None) -> None:
    """The same, non-centred: the predictor is then no longer affine."""
    mu = numpyro.sample("mu", dist.Normal(0, 0.1))
    tau = numpyro.sample("tau", dist.HalfNormal(0.1))
    with numpyro.plate("groups", 4):
        z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=(mu + tau * z)[group]), obs=y)


def groups_known_spread(group: Any, y: Any = None) -> None:
    """Independent group effects of known spread."""
    with numpyro.plate("groups", 4):
        b = numpyro.sample("b", dist.Normal(0, 0.2))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=b[group]), obs=y)


def public_curve(cell: Any, y: Any = None) -> None:
    """A function on 50 public points, of which each row says its own: rows of a public matrix."""
    w = numpyro.sample("w", dist.Normal(0, 0.2).expand([1]).to_event(1))
    curve = jnp.ones((50, 1)) @ w
    with numpyro.plate("rows", cell.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=curve[cell]), obs=y)


def network(X: Any, y: Any = None) -> None:
    """One hidden layer of three units, logistic output."""
    a = numpyro.sample("a", dist.Normal(0, 1).expand([X.shape[1], 3]).to_event(2))
    c = numpyro.sample("c", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(X @ a) @ c), obs=y)


ENTRIES = (
    # The two densities are close on [−1, 1], and a mixture has no line in the table of likelihoods.
    Entry(
        "mixture_weight",
        mixture_weight,
        OUTCOMES,
        "unknown",
        "no likelihood of one affine predictor with proved constants",
        target=Target(4.5, 0.0),
        provable="the densities' ratio is e^{y/2}, within e^{±1/2}: ε ≤ 2 without any δ",
    ),
    # A mean that few rows support is moved by one of them.
    Entry("mixture_means", mixture_means, OUTCOMES, "unknown", "no certificate", n=50),
    # The joint prior of means and spread is not log-concave.
    Entry("groups_centred", groups_centred, GROUPS, "unknown", "not strongly log-concave"),
    # A product of latents is no affine predictor.
    Entry("groups_noncentred", groups_noncentred, GROUPS, "unknown", "no bound on one row's gradient"),
    # Each row has one group's effect as its predictor: 2·0.5·0.2 = 0.2-GDP.
    Entry(
        "groups_known_spread",
        groups_known_spread,
        GROUPS,
        "private",
        Pair(
            lambda t: -(t**2) / 0.08 + 0.5 * log_sigmoid(t),
            lambda t: -(t**2) / 0.08 + 0.5 * log_sigmoid(-t),
            -2.5,
            2.5,
        ),
        temper=0.5,
    ),
    # Each row picks one public row, of norm 1, of a matrix of norm 7: 2·0.5·0.2 = 0.2-GDP.
    Entry(
        "public_curve",
        public_curve,
        Rows(cell=Categories(50), y=Binary()),
        "private",
        # All rows but one are balanced, and its outcome is 1 or 0.
        Pair(
            lambda t: -(t**2) / 0.08 + 125 * log_sigmoid(t) + 124.5 * log_sigmoid(-t),
            lambda t: -(t**2) / 0.08 + 124.5 * log_sigmoid(t) + 125 * log_sigmoid(-t),
            -2.5,
            2.5,
        ),
        temper=0.5,
    ),
    # The loss of a row is neither bounded nor convex.
    Entry("network", network, FEATURES, "unknown", "no bound on one row's gradient"),
)
