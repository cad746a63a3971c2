"""Groups of rows: an effect for each region or school, abilities and difficulties."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Binary, Categories, Rows


def groups_rows(dim: int, number: int, radius: float = 1.0) -> Rows:
    """``dim`` covariates of norm at most ``radius``, one of ``number`` public groups, a binary outcome."""
    return Rows(X=Ball(radius, dim=dim), group=Categories(number), y=Binary())


def groups(
    X: jax.Array, group: jax.Array, y: jax.Array | None = None, number: int = 8, sd: float = 1.0
) -> None:
    """Logistic regression with an effect for every group, partially pooled: effects ``~ N(mean, 0.5²)``.

    Mean and effects are jointly Normal, so the potential stays strongly convex; the spread is known. With
    an unknown spread preflight has no certificate, and ``guarantee="run"`` is the way.
    """
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    mean = numpyro.sample("mean", dist.Normal(0, sd))
    with numpyro.plate("groups", number):
        effect = numpyro.sample("effect", dist.Normal(mean, 0.5))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + effect[group]), obs=y)


def item_response_rows(people: int, items: int) -> Rows:
    """One row for every answer: who, to which item, right or wrong. The unit protected is one answer."""
    return Rows(person=Categories(people), item=Categories(items), y=Binary())


def item_response(
    person: jax.Array,
    item: jax.Array,
    y: jax.Array | None = None,
    people: int = 20,
    items: int = 5,
    sd: float = 1.0,
) -> None:
    """The Rasch model: ``P(right) = 1/(1 + e^{difficulty − ability})``.

    Two latents enter a row, with signs: its gradient is at most √2.
    """
    ability = numpyro.sample("ability", dist.Normal(0, sd).expand([people]).to_event(1))
    difficulty = numpyro.sample("difficulty", dist.Normal(0, sd).expand([items]).to_event(1))
    with numpyro.plate("rows", jnp.shape(person)[0]):
        numpyro.sample("y", dist.Bernoulli(logits=ability[person] - difficulty[item]), obs=y)
