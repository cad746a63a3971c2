"""Mixtures with public weights of a family: bounded where the components are, never convex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp

from private_mcmc.modeling.family import Entry, LikelihoodFamily, Recognised, Recogniser, times
from private_mcmc.modeling.values import Value, up

T = TypeVar("T")

_PREFIX = "component."


def mixture_entries(families: Mapping[tuple[str, str], Entry]) -> dict[tuple[str, str], Entry]:
    """The entries of ``MixtureSameFamily`` of each family."""
    return {
        (f"MixtureSameFamily({name})", _PREFIX + parameter): Entry(
            _mixture(entry.rule), (*(_PREFIX + need for need in entry.needs), "weights")
        )
        for (name, parameter), entry in families.items()
    }


def _mixture(rule: Recogniser) -> Recogniser:
    """``ψ = −log Σ_k π_k e^{−ψ_k(η_k)}``, ``η_k`` apart or one for all.

    With posterior weights ``w_k``: the score is ``(w_kψ_k')_k``, of norm at most ``max|ψ_k'|``; the
    Hessian is ``diag(w_k(ψ_k'' − ψ_k'²)) + (wψ')(wψ')ᵀ``, of norm at most ``max|ψ_k''| + max ψ_k'²``. For
    one ``η``, the sums of these: ``E ψ_k'`` and ``E ψ_k'' − Var ψ_k'``, with the same bounds.
    """

    def build(link: str, observed: Value, others: Mapping[str, Value]) -> Recognised | None:
        inner = rule(link, observed, _stripped(others))
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
            parts = inner.loss(eta, y[..., None], _stripped(given))
            return -jax.nn.logsumexp(jnp.log(given["weights"]) - parts, axis=-1)

        return Recognised(family, loss, joint=True)

    return build


def _stripped(values: Mapping[str, T]) -> dict[str, T]:
    return {name.removeprefix(_PREFIX): value for name, value in values.items()}
