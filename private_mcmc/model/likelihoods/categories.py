"""Proved constants of the losses of categories, as functions of the vector of their predictors.

A class that takes probabilities is another function of its parameter than one that takes logits: each
entry names the links that make the loss it states, and no other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import Entry, LikelihoodFamily, Recognised, Recogniser
from private_mcmc.model.likelihoods.whole import is_count

Given = Mapping[str, jax.Array]
Bounds = Mapping[str, Interval]


def _categorical(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = log Σ e^{η_k} − η_y``: ``ψ' = p − e_y``, ``‖ψ'‖ ≤ √2``, ``ψ'' = diag p − ppᵀ ≼ ½``.

    ``½``: for a unit vector ``u``, ``uᵀψ''u`` is the variance under ``p`` of a variable with values
    ``u_k``, at most a quarter of their squared range, which is at most 2.
    """
    if not is_count(observed, others["classes"].lowest - 1):
        return None
    family = LikelihoodFamily(
        name="Categorical",
        link="softmax",
        convex=True,
        score_bound=up(math.sqrt(2)),
        curvature_bound=0.5,
        why="ψ = log Σ e^{η_k} − η_y: ‖softmax(η) − e_y‖ ≤ √2, Hessian ≼ 1/2",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        index = jnp.broadcast_to(y.astype(jnp.int32)[..., None], (*eta.shape[:-1], 1))
        chosen = jnp.take_along_axis(eta, index, axis=-1)[..., 0]
        return jax.nn.logsumexp(eta, axis=-1) - chosen

    return Recognised(family, loss, joint=True)


def _multinomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Logits ``η``: ``ψ = N log Σ e^{η_k} − y·η``, ``ψ' = Np − y``, ``N`` times the categorical Hessian.

    Only ``y_k ≥ 0`` is known of the data, not ``Σ y_k = N``: ``‖Np − y‖ ≤ N + ‖y‖``.
    """
    trials = others["total_count"]
    if not is_count(observed) or not trials.lowest >= 0:
        return None
    most = trials.highest
    return Recognised(
        LikelihoodFamily(
            name="Multinomial",
            link="softmax",
            convex=True,
            score_bound=up(most + observed.norm),
            curvature_bound=up(most / 2),
            why=f"ψ = N log Σ e^η − y·η, N ≤ {most:g}: ‖Np − y‖ ≤ N + ‖y‖, Hessian ≼ N/2",
        ),
        lambda eta, y, given: _multinomial_loss(eta, y, given["total_count"], given["total_count"]),
        joint=True,
    )


def _multinomial_normalised(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Normalised ``log p = η − log Σ e^{η_k}``: ``ψ = −y·log p``, so ``N`` above is ``S = Σ y_k``."""
    if not is_count(observed):
        return None
    most = float(np.max(np.sum(observed.hi, axis=-1), initial=0.0))
    return Recognised(
        LikelihoodFamily(
            name="Multinomial",
            link="softmax",
            convex=True,
            score_bound=up(math.sqrt(2) * most),
            curvature_bound=up(most / 2),
            why=f"ψ = S log Σ e^η − y·η, S = Σ y_k ≤ {most:g}: ‖Sp − y‖ ≤ √2·S, Hessian ≼ S/2",
        ),
        lambda eta, y, given: _multinomial_loss(eta, y, jnp.sum(y, axis=-1), given["total_count"]),
        joint=True,
    )


def _multinomial_loss(eta: jax.Array, y: jax.Array, count: jax.Array, trials: jax.Array) -> jax.Array:
    ways = gammaln(trials + 1) - jnp.sum(gammaln(y + 1), axis=-1)
    return count * jax.nn.logsumexp(eta, axis=-1) - jnp.sum(y * eta, axis=-1) - ways


def _ordered_logistic(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``P(y) = σ(a) − σ(b)``, ``a = c_y − η``, ``b = c_{y−1} − η``, fixed increasing cutpoints.

    ``σ(a) − σ(b) = σ(a)σ(−b)(1 − e^{b−a})`` and ``a − b`` is free of ``η``, so
    ``ψ = log(1+e^{−a}) + log(1+e^b) + const``: ``ψ' = σ(−a) − σ(b) ∈ (−1, 1)`` and
    ``ψ'' = σ'(a) + σ'(b) ∈ (0, ½]``; the end categories have one of the two terms.
    """
    cuts = others["cutpoints"]
    rising = cuts.is_point and bool((cuts.lo[..., 1:] > cuts.lo[..., :-1]).all())
    if not rising or not is_count(observed, cuts.shape[-1]):
        return None
    family = LikelihoodFamily(
        name="OrderedLogistic",
        link="identity",
        convex=True,
        score_bound=1.0,
        curvature_bound=0.5,
        growth=(0.5, 0.0),
        why="ψ = log(1+e^{η−c_y}) + log(1+e^{c_{y−1}−η}) + const, fixed cutpoints: |ψ'| ≤ 1, ψ'' ≤ 1/2",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        cutpoints = given["cutpoints"]
        count = cutpoints.shape[-1]
        index = jnp.broadcast_to(y.astype(jnp.int32), eta.shape)[..., None]
        spread = jnp.broadcast_to(cutpoints, (*eta.shape, count))
        above = jnp.take_along_axis(spread, jnp.minimum(index, count - 1), axis=-1)[..., 0]
        below = jnp.take_along_axis(spread, jnp.maximum(index - 1, 0), axis=-1)[..., 0]
        first, last = index[..., 0] == 0, index[..., 0] == count
        gap = jnp.where(first | last, 1.0, above - below)
        upper = jnp.where(last, 0.0, jax.nn.softplus(eta - above))
        lower = jnp.where(first, 0.0, jax.nn.softplus(below - eta))
        return upper + lower - jnp.where(first | last, 0.0, jnp.log(-jnp.expm1(-gap)))

    return Recognised(family, loss)


def _by(links: tuple[str, ...], rule: Recogniser) -> Recogniser:
    """The rule for a parameter that one of these links makes, and no other."""
    return lambda link, observed, others: rule(link, observed, others) if link in links else None


def _multinomial_of_logits(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    return (_multinomial if link == "identity" else _multinomial_normalised)(link, observed, others)


# Logits less their log-sum-exp are the logarithms of the same probabilities.
_LOGITS, _PROBABILITIES = ("identity", "log_softmax"), ("softmax",)

CATEGORIES: Mapping[tuple[str, str], Entry] = {
    ("CategoricalLogits", "logits"): Entry(_by(_LOGITS, _categorical)),
    ("CategoricalProbs", "probs"): Entry(_by(_PROBABILITIES, _categorical)),
    ("MultinomialLogits", "logits"): Entry(_by(_LOGITS, _multinomial_of_logits), ("total_count",)),
    ("MultinomialProbs", "probs"): Entry(_by(_PROBABILITIES, _multinomial_normalised), ("total_count",)),
    ("OrderedLogistic", "predictor"): Entry(_by(("identity",), _ordered_logistic), ("cutpoints",)),
}
