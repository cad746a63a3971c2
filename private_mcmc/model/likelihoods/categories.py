"""Proved constants of the losses of categories, as functions of the vector of their predictors.

A class that takes probabilities is another function of its parameter than one that takes logits: each
entry names the links that make the loss it states, and no other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import (
    Bounds,
    Entry,
    Given,
    LikelihoodFamily,
    Recognised,
    Recogniser,
    times,
)
from private_mcmc.model.likelihoods.whole import is_count


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


T = TypeVar("T")

_PREFIX = "component."
_BASE = "base."


def mixture_entries(families: Mapping[tuple[str, str], Entry]) -> dict[tuple[str, str], Entry]:
    """The entries of ``MixtureSameFamily`` of each family."""
    return {
        (f"MixtureSameFamily({name})", _PREFIX + parameter): Entry(
            _mixture(entry.rule), (*(_PREFIX + need for need in entry.needs), "weights")
        )
        for (name, parameter), entry in families.items()
    }


def inflated_entries(families: Mapping[tuple[str, str], Entry]) -> dict[tuple[str, str], Entry]:
    """The entries of counts with a public share of extra zeros, of each family."""
    found = {
        (f"ZeroInflatedProbs({name})", _BASE + parameter): Entry(
            _inflated(entry.rule, _BASE), (*(_BASE + need for need in entry.needs), "gate")
        )
        for (name, parameter), entry in families.items()
    }
    poisson = families[("Poisson", "rate")]
    return {**found, ("ZeroInflatedPoisson", "rate"): Entry(_inflated(poisson.rule, ""), ("gate",))}


def _inflated(rule: Recogniser, prefix: str) -> Recogniser:
    """A share ``g`` of zeros: ``ψ = ψ_c − log(1−g)`` of a count, ``−log(g + (1−g)e^{−ψ_c})`` of a zero.

    Of a zero, with ``w`` the probability that it is the family's: ``ψ' = wψ_c'`` and
    ``ψ'' = wψ_c'' − w(1−w)ψ_c'²``.
    """

    def build(link: str, observed: Interval, others: Mapping[str, Interval]) -> Recognised | None:
        inner, gate = rule(link, observed, _stripped(others, prefix)), others["gate"]
        if inner is None or inner.joint or not (gate.lowest >= 0 and gate.highest < 1):
            return None
        score = inner.family.score_bound
        family = replace(
            LikelihoodFamily(),
            name=f"zero-inflated {inner.family.name}",
            link=inner.family.link,
            score_bound=score,
            curvature_bound=up(inner.family.curvature_bound + times(score, score) / 4),
            why=f"{inner.family.why}; a share of extra zeros shrinks a zero's score; not convex",
        )

        def loss(eta: jax.Array, y: jax.Array, given: Mapping[str, jax.Array]) -> jax.Array:
            count = inner.loss(eta, y, _stripped(given, prefix)) - jnp.log1p(-given["gate"])
            return jnp.where(y == 0, -jnp.logaddexp(jnp.log(given["gate"]), -count), count)

        return Recognised(family, loss)

    return build


def _mixture(rule: Recogniser) -> Recogniser:
    """``ψ = −log Σ_k π_k e^{−ψ_k(η_k)}``, ``η_k`` apart or one for all.

    With posterior weights ``w_k``: the score is ``(w_kψ_k')_k``, of norm at most ``max|ψ_k'|``; the
    Hessian is ``diag(w_k(ψ_k'' − ψ_k'²)) + (wψ')(wψ')ᵀ``, of norm at most ``max|ψ_k''| + max ψ_k'²``. For
    one ``η``, the sums of these: ``E ψ_k'`` and ``E ψ_k'' − Var ψ_k'``, with the same bounds.
    """

    def build(link: str, observed: Interval, others: Mapping[str, Interval]) -> Recognised | None:
        inner = rule(link, observed, _stripped(others, _PREFIX))
        if inner is None or inner.joint or not others["weights"].lowest >= 0:
            return None
        score = inner.family.score_bound
        family = replace(
            LikelihoodFamily(),
            name=f"mixture of {inner.family.name}",
            link=inner.family.link,
            score_bound=score,
            curvature_bound=up(inner.family.curvature_bound + times(score, score)),
            why=f"components: {inner.family.why}; a mixture averages scores, adds their variance; not convex",
        )

        def loss(eta: jax.Array, y: jax.Array, given: Mapping[str, jax.Array]) -> jax.Array:
            parts = inner.loss(eta, y[..., None], _stripped(given, _PREFIX))
            return -jax.nn.logsumexp(jnp.log(given["weights"]) - parts, axis=-1)

        return Recognised(family, loss, joint=True)

    return build


def _stripped(values: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in values.items()}
