"""Proved constants of losses whose rate is ``c·s(η)``, ``s = log(1+e^η)``: bounded where ``e^η`` is not.

Of ``σ = s'`` and ``h = −(log s)''``: ``σ ≤ s``, hence ``0 ≤ (log s)' = σ/s ≤ 1``; and with ``q = 1 − σ``,
``s = −log q``, ``h = σ(σ + q log q)/s²``. There ``0 ≤ σ + q log q ≤ σ²`` (from ``1 − 1/q ≤ log q ≤ q − 1``)
and ``s ≥ 2(1−q)/(1+q)``, so ``0 ≤ h ≤ (1−q)(1+q)²/4 ≤ 8/27``.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
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

_BEND = 8 / 27


def with_softplus(families: Mapping[tuple[str, str], Entry]) -> dict[tuple[str, str], Entry]:
    """The entries of the classes with such a rate, which take that link as well as their own."""
    return {
        key: Entry(_either(families[key].rule, rule), families[key].needs) for key, rule in _RULES.items()
    }


def _either(own: Recogniser, rule: Recogniser) -> Recogniser:
    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        return (rule if "softplus" in link else own)(link, observed, others)

    return build


def _family(name: str, weight: float, power: float) -> LikelihoodFamily:
    """``ψ = us − v log s``, ``0 ≤ u ≤ weight``, ``0 ≤ v ≤ power``: ``ψ'' = uσ(1−σ) + vh``."""
    curvature = up(weight / 4 + times(power, _BEND))
    return LikelihoodFamily(
        name=name,
        link="softplus",
        convex=True,
        score_bound=max(weight, power),
        curvature_bound=curvature,
        growth=(curvature, 0.0),
        why=f"ψ = us − v log s, s = log(1+e^η), u ≤ {weight:g}, v ≤ {power:g}: −v ≤ ψ' ≤ u, "
        "0 ≤ ψ'' ≤ u/4 + 8v/27",
    )


def _poisson(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Rate ``λ = cs``: ``ψ = λ − y log λ + log y!``."""
    if link != "softplus" or not is_count(observed):
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = _log_rate(eta, given)
        return jnp.exp(t) - y * t + gammaln(y + 1)

    return Recognised(_family("Poisson", others["multiplier"].highest, observed.highest), loss)


def _exponential(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Rate ``r = cs``: ``ψ = yr − log r``."""
    if link != "softplus" or not observed.lowest >= 0:
        return None
    weight = times(observed.highest, others["multiplier"].highest)

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = _log_rate(eta, given)
        return y * jnp.exp(t) - t

    return Recognised(_family("Exponential", weight, 1.0), loss)


def _gamma(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, rate ``r = cs``: ``ψ = yr − a log r + const``."""
    shape = others["concentration"]
    if link != "softplus" or not (observed.lowest >= 0 and shape.lowest > 0):
        return None
    weight = times(observed.highest, others["multiplier"].highest)

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, a = _log_rate(eta, given), given["concentration"]
        return y * jnp.exp(t) - a * t - (a - 1) * jnp.log(y) + gammaln(a)

    return Recognised(_family("Gamma", weight, shape.highest), loss)


def _negative_binomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Gamma–Poisson of concentration ``k`` and rate ``c/s``, mean ``ks/c``.

    ``ψ = (k+y) log(s+c) − y log s + const``: ``ψ' = kσ/(s+c) − (yσ/s)·c/(s+c)``, between ``−y`` and
    ``k min(1, 1/c)``; ``ψ'' = (k+y)(σ(1−σ)/(s+c) − σ²/(s+c)²) + yh``, where both fractions are at most
    ``min(1, 1/4c)`` (by ``(s+c)² ≥ 4sc`` and ``σ ≤ s``). Not convex.
    """
    shape, smallest = others["concentration"], others["multiplier"].lowest
    if link != "one_over_softplus" or not (is_count(observed) and shape.lowest > 0):
        return None
    most, k = observed.highest, shape.highest
    family = LikelihoodFamily(
        name="NegativeBinomial",
        link="softplus",
        score_bound=max(most, up(k * min(1.0, 1 / smallest))),
        curvature_bound=up((k + most) * min(1.0, 0.25 / smallest) + times(most, _BEND)),
        why=f"ψ = (k+y) log(s+c) − y log s, s = log(1+e^η), y ≤ {most:g}, k ≤ {k:g}, c ≥ {smallest:g}: "
        "|ψ'| ≤ max(y, k min(1, 1/c)), |ψ''| ≤ (k+y) min(1, 1/4c) + 8y/27; not convex",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, k = -_log_softplus(eta) + given["log_multiplier"], given["concentration"]
        constant = gammaln(k + y) - gammaln(k) - gammaln(y + 1)
        return (k + y) * jax.nn.softplus(t) - k * t - constant

    return Recognised(family, loss)


def _log_rate(eta: jax.Array, given: Given) -> jax.Array:
    return given["log_multiplier"] + _log_softplus(eta)


def _log_softplus(eta: jax.Array) -> jax.Array:
    """``log s``; far below zero ``s`` is ``e^η(1 − e^η/2 + …)``, whose logarithm would lose all digits."""
    small = eta < -20
    usual = jnp.log(jax.nn.softplus(jnp.where(small, 0.0, eta)))
    return jnp.where(small, eta - 0.5 * jnp.exp(jnp.where(small, eta, 0.0)), usual)


_RULES: Mapping[tuple[str, str], Recogniser] = {
    ("Poisson", "rate"): _poisson,
    ("Exponential", "rate"): _exponential,
    ("Gamma", "rate"): _gamma,
    ("GammaPoisson", "rate"): _negative_binomial,
    ("NegativeBinomial2", "rate"): _negative_binomial,
}
