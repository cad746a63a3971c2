"""Proved constants of the losses of positive observations and of shares; each is smooth.

With a log link they are convex; those of shares with a logistic one are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import Bounds, Entry, Given, LikelihoodFamily, Recognised


def log_rate(eta: jax.Array, given: Given) -> jax.Array:
    """``log(c e^{±η})``."""
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
    times = others["multiplier"]
    if not (math.isclose(times.lowest, most) and math.isclose(times.highest, most)):
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
