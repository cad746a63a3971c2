"""Mixtures with public weights of a family, and zeros added to one: bounded where it is, never convex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import Entry, LikelihoodFamily, Recognised, Recogniser, times

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
