"""Proved constants of the losses of real-valued observations; each loss is smooth for every real ``η``."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from private_mcmc.modeling.family import Entry, LikelihoodFamily, Recognised
from private_mcmc.modeling.values import Value, up

Given = Mapping[str, jax.Array]
Bounds = Mapping[str, Value]

_LOG_2PI = math.log(2 * math.pi)


def _log_rate(eta: jax.Array, given: Given) -> jax.Array:
    """``log(c e^{±η})``."""
    return given["log_multiplier"] + given["sign"] * eta


def _normal(link: str, observed: Value, others: Bounds) -> Recognised | None:
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

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        scale = given["scale"]
        return 0.5 * jnp.square((y - eta) / scale) + jnp.log(scale) + 0.5 * _LOG_2PI

    return Recognised(family, loss)


def _log_normal(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """The Normal loss of ``log y``, ``y > 0``, plus ``log y``."""
    inner = _normal(link, observed, others)
    if inner is None or not observed.lowest > 0:
        return None
    return Recognised(inner.family, lambda eta, y, given: inner.loss(eta, jnp.log(y), given) + jnp.log(y))


def _normal_scale(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """Log standard deviation ``t = log c ± η``, mean free of the latents, ``r = y − m``.

    ``ψ = t + r²e^{−2t}/2``: ``dψ/dt = 1 − r²e^{−2t}``, ``ψ'' = 2r²e^{−2t} = 2(1 − dψ/dt)``.
    """
    if link not in ("exp", "exp_neg"):
        return None
    family = LikelihoodFamily(
        name="Normal scale",
        link="exp",
        convex=True,
        growth=(2.0, 2.0),
        why="ψ = t + r²e^{−2t}/2, t the log standard deviation: ψ'' = 2(1 − ψ') ≤ 2 + 2|ψ'|",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = _log_rate(eta, given)
        return t + 0.5 * jnp.square(y - given["loc"]) * jnp.exp(-2 * t) + 0.5 * _LOG_2PI

    return Recognised(family, loss)


def _student_t(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """``ψ = ½(ν+1) log(1 + r²/νs²)``, ``r = y − η``: not convex.

    ``|ψ'| = (ν+1)|r|/(νs²+r²) ≤ (ν+1)/(2s√ν)``; ``ψ'' = (ν+1)(νs²−r²)/(νs²+r²)²`` between
    ``−(ν+1)/(8νs²)`` (at ``r² = 3νs²``) and ``(ν+1)/(νs²)`` (at 0). Both fall as ``ν`` and ``s`` grow
    except ``(ν+1)/√ν``, which is largest at an end of the range of ``ν``.
    """
    df, scale = others["df"], others["scale"].lowest
    if link != "identity" or not (scale > 0 and df.lowest > 0 and df.highest < math.inf):
        return None
    score = max((nu + 1) / math.sqrt(nu) for nu in (df.lowest, df.highest)) / (2 * scale)
    family = LikelihoodFamily(
        name="StudentT",
        link="identity",
        score_bound=up(score),
        curvature_bound=up((df.lowest + 1) / (df.lowest * scale**2)),
        why="ψ = ½(ν+1) log(1+r²/νs²): |ψ'| ≤ (ν+1)/(2s√ν), |ψ''| ≤ (ν+1)/(νs²); not convex",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        nu, s = given["df"], given["scale"]
        constant = jnp.log(s) + 0.5 * jnp.log(nu * math.pi) + gammaln(nu / 2) - gammaln((nu + 1) / 2)
        return 0.5 * (nu + 1) * jnp.log1p(jnp.square((y - eta) / s) / nu) + constant

    return Recognised(family, loss)


def _cauchy(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """Student-t with one degree of freedom: ``|ψ'| ≤ 1/s``, ``|ψ''| ≤ 2/s²``, not convex."""
    scale = others["scale"].lowest
    if link != "identity" or not scale > 0:
        return None
    family = LikelihoodFamily(
        name="Cauchy",
        link="identity",
        score_bound=up(1 / scale),
        curvature_bound=up(2 / scale**2),
        why="ψ = log(1+r²/s²): |ψ'| ≤ 1/s, |ψ''| ≤ 2/s²; not convex",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        return jnp.log1p(jnp.square((y - eta) / given["scale"])) + jnp.log(math.pi * given["scale"])

    return Recognised(family, loss)


def _laplace(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """``ψ = |y−η|/s + log 2s``: convex, ``|ψ'| ≤ 1/s``, a kink at ``η = y``."""
    scale = others["scale"].lowest
    if link != "identity" or not scale > 0:
        return None
    family = LikelihoodFamily(
        name="Laplace",
        link="identity",
        convex=True,
        score_bound=up(1 / scale),
        why="ψ = |y−η|/s: convex, |ψ'| ≤ 1/s, not smooth",
    )
    return Recognised(
        family,
        lambda eta, y, given: jnp.abs(y - eta) / given["scale"] + jnp.log(2 * given["scale"]),
    )


def _logistic(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """``ψ = z + 2 log(1+e^{−z}) + log s``, ``z = (y−η)/s``: ``|ψ'| ≤ 1/s``, ``ψ'' = 2σ(1−σ)/s²``."""
    scale = others["scale"].lowest
    if link != "identity" or not scale > 0:
        return None
    curvature = up(0.5 / scale**2)
    family = LikelihoodFamily(
        name="Logistic",
        link="identity",
        convex=True,
        score_bound=up(1 / scale),
        curvature_bound=curvature,
        growth=(curvature, 0.0),
        why="ψ = z + 2 log(1+e^{−z}), z = (y−η)/s: |ψ'| ≤ 1/s, ψ'' ≤ 1/(2s²)",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        z = (y - eta) / given["scale"]
        return z + 2 * jax.nn.softplus(-z) + jnp.log(given["scale"])

    return Recognised(family, loss)


def _gumbel(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """``ψ = z + e^{−z} + log s``, ``z = (y−η)/s``: ``ψ'' = e^{−z}/s² = (1 + sψ')/s²``."""
    scale = others["scale"].lowest
    if link != "identity" or not scale > 0:
        return None
    family = LikelihoodFamily(
        name="Gumbel",
        link="identity",
        convex=True,
        growth=(up(1 / scale**2), up(1 / scale)),
        why="ψ = z + e^{−z}, z = (y−η)/s: ψ'' = (1 + sψ')/s², unbounded unless clipped",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        z = (y - eta) / given["scale"]
        return z + jnp.exp(-z) + jnp.log(given["scale"])

    return Recognised(family, loss)


def _gamma(link: str, observed: Value, others: Bounds) -> Recognised | None:
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
        t, a = _log_rate(eta, given), given["concentration"]
        return y * jnp.exp(t) - a * t - (a - 1) * jnp.log(y) + gammaln(a)

    return Recognised(family, loss)


def _exponential(link: str, observed: Value, others: Bounds) -> Recognised | None:
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
        t = _log_rate(eta, given)
        return y * jnp.exp(t) - t

    return Recognised(family, loss)


def _inverse_gamma(link: str, observed: Value, others: Bounds) -> Recognised | None:
    """Shape ``a``, rate ``e^t``: the Gamma loss of ``1/y``, ``y > 0``: ``ψ'' = a + dψ/dt``."""
    inner = _gamma(link, observed, others)
    if inner is None or not observed.lowest > 0:
        return None
    return Recognised(inner.family, lambda eta, y, given: inner.loss(eta, 1 / y, given) + 2 * jnp.log(y))


def _weibull(link: str, observed: Value, others: Bounds) -> Recognised | None:
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
        t, a = _log_rate(eta, given), given["concentration"]
        return jnp.exp(a * (jnp.log(y) - t)) + a * t - jnp.log(a) - (a - 1) * jnp.log(y)

    return Recognised(family, loss)


REAL: Mapping[tuple[str, str], Entry] = {
    ("Normal", "loc"): Entry(_normal, ("scale",)),
    ("Normal", "scale"): Entry(_normal_scale, ("loc",)),
    ("LogNormal", "loc"): Entry(_log_normal, ("scale",)),
    ("StudentT", "loc"): Entry(_student_t, ("df", "scale")),
    ("Cauchy", "loc"): Entry(_cauchy, ("scale",)),
    ("Laplace", "loc"): Entry(_laplace, ("scale",)),
    ("Logistic", "loc"): Entry(_logistic, ("scale",)),
    ("Gumbel", "loc"): Entry(_gumbel, ("scale",)),
    ("Gamma", "rate"): Entry(_gamma, ("concentration",)),
    ("Exponential", "rate"): Entry(_exponential),
    ("InverseGamma", "rate"): Entry(_inverse_gamma, ("concentration",)),
    ("Weibull", "scale"): Entry(_weibull, ("concentration",)),
}
