"""Proved constants of one row's loss ``ψ(η)``, by distribution class and link.

Every family here has its loss written out in a stable form. That form, and not NumPyro's (which clamps
probabilities and so is flat, hence not convex, far out), is what is evaluated, and what is proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from private_mcmc.modeling.values import Value, up

Loss = Callable[[jax.Array, jax.Array, Mapping[str, jax.Array]], jax.Array]


@dataclass(frozen=True)
class LikelihoodFamily:
    """What is proved of ``ψ``, for every row of the domain and every real ``η``; ``inf`` where nothing is.

    Attributes:
        name: distribution class, ``unknown`` if not recognised.
        link: how ``η`` enters: ``identity``, ``logistic``, ``exp``.
        convex: ``ψ'' ≥ 0``.
        score_bound: ``|ψ'| ≤ score_bound``.
        curvature_bound: ``|ψ''| ≤ curvature_bound``.
        range_bound: ``sup ψ − inf ψ`` over ``η``, for each row.
        growth: ``(a, b)`` with ``0 ≤ ψ'' ≤ a + b|ψ'|``.
        why: the proof in a line.
    """

    name: str = "unknown"
    link: str = ""
    convex: bool = False
    score_bound: float = math.inf
    curvature_bound: float = math.inf
    range_bound: float = math.inf
    growth: tuple[float, float] = (math.inf, math.inf)
    why: str = "the form of the loss is not recognised"

    def clipped_curvature(self, radius: float, clip: float) -> float:
        """Bound on the curvature ``‖x‖²ψ''`` that one row adds, ``‖x‖ ≤ radius``, clipped at ``clip``.

        Clipping ``|ψ'|·‖x‖`` at ``C`` leaves ``ψ''`` where ``|ψ'| < C/‖x‖`` and zero elsewhere, hence at
        most ``a‖x‖² + bC‖x‖``. Infinite unless ``ψ`` is convex.
        """
        if not self.convex:
            return math.inf
        free = radius * radius * self.curvature_bound
        a, b = self.growth
        clipped = a * radius * radius + b * clip * radius if math.isfinite(a + b) else math.inf
        best = min(bound for bound in (free, clipped, math.inf) if not math.isnan(bound))
        return up(best)


@dataclass(frozen=True)
class Recognised:
    """A family with its loss ``(η, y, parameters) ↦ ψ``."""

    family: LikelihoodFamily
    loss: Loss


Recogniser = Callable[[str, Value, Mapping[str, Value]], Recognised | None]


def recognise(
    name: str, parameter: str, link: str, observed: Value, others: Mapping[str, Value]
) -> Recognised | None:
    """The family of a distribution whose ``parameter`` is ``link(η)``, or ``None``.

    ``observed`` bounds the observed value, ``others`` the remaining parameters (which do not depend on
    the latents), both for every row of the domain.
    """
    entry = _TABLE.get((name, parameter))
    return entry(link, observed, others) if entry else None


def _is_binary(observed: Value) -> bool:
    return observed.whole and observed.lowest >= 0 and observed.highest <= 1


def _bernoulli(expected: str) -> Recogniser:
    """``ψ = log(1+e^η) − yη``: ``ψ' = σ(η) − y ∈ [−1, 1]``, ``ψ'' = σ(1−σ) ∈ [0, ¼]``."""

    def build(link: str, observed: Value, others: Mapping[str, Value]) -> Recognised | None:
        if link != expected or not _is_binary(observed):
            return None
        family = LikelihoodFamily(
            name="Bernoulli",
            link="logistic",
            convex=True,
            score_bound=1.0,
            curvature_bound=0.25,
            growth=(0.25, 0.0),
            why="ψ = log(1+e^η) − yη with y in {0, 1}: ψ' = σ(η) − y, ψ'' = σ(1−σ) ≤ 1/4",
        )
        return Recognised(family, lambda eta, y, given: jax.nn.softplus(eta) - y * eta)

    return build


def _normal(link: str, observed: Value, others: Mapping[str, Value]) -> Recognised | None:
    """``ψ = (y−η)²/2s² + log s + ½log 2π``: ``ψ'' = 1/s²``, ``ψ'`` unbounded."""
    smallest = others["scale"].lowest
    if link != "identity" or not smallest > 0:
        return None
    curvature = up(1.0 / smallest**2)
    family = LikelihoodFamily(
        name="Normal",
        link="identity",
        convex=True,
        curvature_bound=curvature,
        growth=(curvature, 0.0),
        why=f"ψ = (y−η)²/2s² with s ≥ {smallest:.6g} free of the latents: ψ'' = 1/s², ψ' unbounded",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Mapping[str, jax.Array]) -> jax.Array:
        scale = given["scale"]
        return 0.5 * jnp.square((y - eta) / scale) + jnp.log(scale) + 0.5 * math.log(2 * math.pi)

    return Recognised(family, loss)


def _poisson(link: str, observed: Value, others: Mapping[str, Value]) -> Recognised | None:
    """``ψ = e^η − yη + log y!``: convex, ``ψ'' = e^η = ψ' + y``, ``ψ'`` unbounded above."""
    if link != "exp" or not (observed.whole and observed.lowest >= 0):
        return None
    family = LikelihoodFamily(
        name="Poisson",
        link="exp",
        convex=True,
        growth=(observed.highest, 1.0),
        why="ψ = e^η − yη + log y!: ψ'' = e^η = y + ψ', unbounded without clipping",
    )
    return Recognised(family, lambda eta, y, given: jnp.exp(eta) - y * eta + jax.lax.lgamma(y + 1.0))


_TABLE: Mapping[tuple[str, str], Recogniser] = {
    ("BernoulliLogits", "logits"): _bernoulli("identity"),
    ("BernoulliProbs", "probs"): _bernoulli("logistic"),
    ("Normal", "loc"): _normal,
    ("Poisson", "rate"): _poisson,
}
