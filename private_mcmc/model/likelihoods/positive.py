"""Proved constants of the losses of positive observations, of shares, and of rates ``c·log(1+e^η)``.

Each is smooth. With a log link they are convex; those of shares with a logistic one are not. Of a softplus
rate, ``s = log(1+e^η)``, ``σ = s'`` and ``h = −(log s)''``: ``σ ≤ s``, hence ``0 ≤ (log s)' = σ/s ≤ 1``; with
``q = 1 − σ``, ``s = −log q``, ``h = σ(σ + q log q)/s²``. There ``0 ≤ σ + q log q ≤ σ²`` (from ``1 − 1/q ≤
log q ≤ q − 1``) and ``s ≥ 2(1−q)/(1+q)``, so ``0 ≤ h ≤ (1−q)(1+q)²/4 ≤ 8/27``: bounded where ``e^η`` is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

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


def log_rate(eta: jax.Array, given: Given) -> jax.Array:
    """``log(c e^{±η})``; of softplus rates ``η`` is ``log s`` here."""
    return given["log_multiplier"] + given["sign"] * eta


def _gamma(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, rate ``e^t``, ``t = log c ± η``: ``ψ = ye^t − at + const``, ``ψ'' = ye^t = a + dψ/dt``."""
    shape = others["concentration"]
    if link not in ("exp", "exp_neg") or not (observed.lowest >= 0 and shape.lowest > 0):
        return None
    family = LikelihoodFamily(
        name="Gamma",
        link="exp",
        convex=True,
        growth=(shape.highest, 1.0),
        why=f"ψ = ye^t − at, t affine in η, a ≤ {shape.highest:g}: ψ'' = a + ψ', unbounded unless clipped",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, a = log_rate(eta, given), given["concentration"]
        return y * jnp.exp(t) - a * t - (a - 1) * jnp.log(y) + gammaln(a)

    return Recognised(family, loss)


def _exponential(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Rate ``e^t``, ``t = log c ± η``: ``ψ = ye^t − t``, ``ψ'' = ye^t = 1 + dψ/dt``."""
    if link not in ("exp", "exp_neg") or not observed.lowest >= 0:
        return None
    family = LikelihoodFamily(
        name="Exponential",
        link="exp",
        convex=True,
        growth=(1.0, 1.0),
        why="ψ = ye^t − t, t affine in η: ψ'' = 1 + ψ', unbounded unless clipped",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = log_rate(eta, given)
        return y * jnp.exp(t) - t

    return Recognised(family, loss)


def _inverse_gamma(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, rate ``e^t``: the Gamma loss of ``1/y``, ``y > 0``: ``ψ'' = a + dψ/dt``."""
    inner = _gamma(link, observed, others)
    if inner is None or not observed.lowest > 0:
        return None
    return Recognised(inner.family, lambda eta, y, given: inner.loss(eta, 1 / y, given) + 2 * jnp.log(y))


def _weibull(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, log scale ``t``, ``z = (ye^{−t})^a``: ``ψ = z + at``, ``ψ'' = a²z = a(a − dψ/dt)``."""
    shape = others["concentration"]
    if link not in ("exp", "exp_neg") or not (observed.lowest > 0 and shape.lowest > 0):
        return None
    most = shape.highest
    family = LikelihoodFamily(
        name="Weibull",
        link="exp",
        convex=True,
        growth=(up(most**2), most),
        why=f"ψ = (ye^{{−t}})^a + at, a ≤ {most:g}: ψ'' = a(a − ψ'), unbounded unless clipped",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, a = log_rate(eta, given), given["concentration"]
        return jnp.exp(a * (jnp.log(y) - t)) + a * t - jnp.log(a) - (a - 1) * jnp.log(y)

    return Recognised(family, loss)


POSITIVE: Mapping[tuple[str, str], Entry] = {
    ("Gamma", "rate"): Entry(_gamma, ("concentration",)),
    ("Exponential", "rate"): Entry(_exponential),
    ("InverseGamma", "rate"): Entry(_inverse_gamma, ("concentration",)),
    ("Weibull", "scale"): Entry(_weibull, ("concentration",)),
}


def _share(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``Beta(a, b)``, ``a = κσ(η)``, ``b = κσ(−η)``, ``κ`` public, ``L = logit y``.

    ``ψ' = κσ(1−σ)(F(a) − F(b) − L)``, ``F`` being the digamma function.

    From ``log x − 1/x < F(x) < log x − 1/(2x)``, ``log a − log b = η`` and ``σ(1−σ)|η| < 0.224`` follows
    ``|ψ'| ≤ 1 + κ(0.224 + |L|/4) = s``; from ``F'(x) < 1/x + 1/x²`` follows
    ``|ψ''| ≤ |1−2σ||ψ'| + κσ(1−σ) + (1−σ)² + σ² ≤ s + κ/4 + 1``.
    """
    low, high, concentration = observed.lowest, observed.highest, others["concentration"]
    most = concentration.highest
    if link != "scaled_logistic" or not (0 < low <= high < 1 and 0 < concentration.lowest == most < math.inf):
        return None
    multiplier = others["multiplier"]
    if not (math.isclose(multiplier.lowest, most) and math.isclose(multiplier.highest, most)):
        return None
    farthest = max(math.log((1 - low) / low), math.log(high / (1 - high)))
    score = up(1 + most * (0.224 + farthest / 4 + 1e-9))
    family = LikelihoodFamily(
        name="BetaProportion",
        link="logistic",
        score_bound=score,
        curvature_bound=up(score + most / 4 + 1),
        why="ψ = log B(κσ, κ(1−σ)) − κσ logit y: |ψ'| ≤ 1 + κ(0.224 + |logit y|/4); not convex",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        k = given["concentration"]
        a, b = k * jax.nn.sigmoid(eta), k * jax.nn.sigmoid(-eta)
        # Of Γ(a) = Γ(1 + a)/a the logarithm, which keeps its digits where a is next to 0.
        poles = jax.nn.softplus(eta) + jax.nn.softplus(-eta) - 2 * jnp.log(k)
        constant = gammaln(1 + a) + gammaln(1 + b) - gammaln(k) + poles
        return constant - (a - 1) * jnp.log(y) - (b - 1) * jnp.log1p(-y)

    return Recognised(family, loss)


# NumPyro keeps the product of mean and concentration.
SHARES: Mapping[tuple[str, str], Entry] = {
    ("BetaProportion", "concentration1"): Entry(_share, ("concentration",))
}

_BEND = 8 / 27


def with_softplus(families: Mapping[tuple[str, str], Entry]) -> dict[tuple[str, str], Entry]:
    """The entries of the classes with such a rate, which take that link as well as their own."""
    return {
        key: replace(families[key], rule=_either(families[key].rule, *rule))
        for key, rule in _SOFTPLUS.items()
    }


_Proof = Callable[[Interval, Bounds], LikelihoodFamily]


def _either(own: Recogniser, wanted: str, rule: _Proof) -> Recogniser:
    """The loss is the same function of the log of the rate; what is proved of it is another."""

    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        if "softplus" not in link:
            return own(link, observed, others)
        found = own("exp", observed, others)
        return None if found is None or link != wanted else replace(found, family=rule(observed, others))

    return build


def _softplus_family(name: str, weight: float, power: float) -> LikelihoodFamily:
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


def _softplus_times(name: str, observed: Interval, others: Bounds, power: float) -> LikelihoodFamily:
    """Rate ``r = cs``, ``ψ = yr − a log r + const``."""
    return _softplus_family(name, times(observed.highest, others["multiplier"].highest), power)


def _softplus_negative_binomial(observed: Interval, others: Bounds) -> LikelihoodFamily:
    """Gamma–Poisson of concentration ``k`` and rate ``c/s``, mean ``ks/c``.

    ``ψ = (k+y) log(s+c) − y log s + const``: ``ψ' = kσ/(s+c) − (yσ/s)·c/(s+c)``, between ``−y`` and
    ``k min(1, 1/c)``; ``ψ'' = (k+y)(σ(1−σ)/(s+c) − σ²/(s+c)²) + yh``, where both fractions are at most
    ``min(1, 1/4c)`` (by ``(s+c)² ≥ 4sc`` and ``σ ≤ s``). Not convex.
    """
    most, k, smallest = observed.highest, others["concentration"].highest, others["multiplier"].lowest
    return LikelihoodFamily(
        name="NegativeBinomial",
        link="softplus",
        score_bound=max(most, up(k * min(1.0, 1 / smallest))),
        curvature_bound=up((k + most) * min(1.0, 0.25 / smallest) + times(most, _BEND)),
        why=f"ψ = (k+y) log(s+c) − y log s, s = log(1+e^η), y ≤ {most:g}, k ≤ {k:g}, c ≥ {smallest:g}: "
        "|ψ'| ≤ max(y, k min(1, 1/c)), |ψ''| ≤ (k+y) min(1, 1/4c) + 8y/27; not convex",
    )


def log_softplus(eta: jax.Array) -> jax.Array:
    """``log s``; far below zero ``s`` is ``e^η(1 − e^η/2 + …)``, whose logarithm would lose all digits."""
    small = eta < -20
    usual = jnp.log(jax.nn.softplus(jnp.where(small, 0.0, eta)))
    return jnp.where(small, eta - 0.5 * jnp.exp(jnp.where(small, eta, 0.0)), usual)


_SOFTPLUS: Mapping[tuple[str, str], tuple[str, _Proof]] = {
    ("Poisson", "rate"): (
        "softplus",
        lambda y, others: _softplus_family("Poisson", others["multiplier"].highest, y.highest),
    ),
    ("Exponential", "rate"): ("softplus", lambda y, others: _softplus_times("Exponential", y, others, 1.0)),
    ("Gamma", "rate"): (
        "softplus",
        lambda y, others: _softplus_times("Gamma", y, others, others["concentration"].highest),
    ),
    ("GammaPoisson", "rate"): ("one_over_softplus", _softplus_negative_binomial),
    ("NegativeBinomial2", "rate"): ("one_over_softplus", _softplus_negative_binomial),
}
