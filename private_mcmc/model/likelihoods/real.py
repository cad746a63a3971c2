"""Proved constants of the losses of real-valued observations; each loss is smooth for every real ``η``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import (
    Bounds,
    Entry,
    Given,
    LikelihoodFamily,
    Recognised,
    Recogniser,
)
from private_mcmc.model.likelihoods.positive import log_rate

_LOG_2PI = math.log(2 * math.pi)


def _location_scale(
    name: str,
    form: Callable[[jax.Array], jax.Array],
    constant: float,
    why: str,
    *,
    score: float = math.inf,
    curvature: float = math.inf,
    convex: bool = True,
) -> Recogniser:
    """``ψ = form(z) + log(constant·s)``, ``z = (y−η)/s``: ``|ψ'| ≤ score/s``, ``|ψ''| ≤ curvature/s²``."""

    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        scale = others["scale"].lowest
        if link != "identity" or not scale > 0:
            return None
        bend = up(curvature / scale**2)
        family = LikelihoodFamily(
            name=name,
            link="identity",
            convex=convex,
            score_bound=up(score / scale),
            curvature_bound=bend,
            growth=(bend, 0.0) if convex and bend < math.inf else (math.inf, math.inf),
            why=why.format(scale=scale),
        )

        def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
            return form((y - eta) / given["scale"]) + jnp.log(constant * given["scale"])

        return Recognised(family, loss)

    return build


_normal = _location_scale(
    "Normal",
    lambda z: 0.5 * jnp.square(z),
    math.sqrt(2 * math.pi),
    "ψ = (y−η)²/2s² with s ≥ {scale:.6g} free of the latents: ψ'' = 1/s², ψ' unbounded",
    curvature=1.0,
)
_cauchy = _location_scale(
    "Cauchy",
    lambda z: jnp.log1p(jnp.square(z)),
    math.pi,
    "ψ = log(1+r²/s²): |ψ'| ≤ 1/s, |ψ''| ≤ 2/s²; not convex",
    score=1.0,
    curvature=2.0,
    convex=False,
)
_laplace = _location_scale("Laplace", jnp.abs, 2.0, "ψ = |y−η|/s: convex, |ψ'| ≤ 1/s, not smooth", score=1.0)
_logistic = _location_scale(
    "Logistic",
    lambda z: z + 2 * jax.nn.softplus(-z),
    1.0,
    "ψ = z + 2 log(1+e^{{−z}}), z = (y−η)/s: |ψ'| ≤ 1/s, ψ'' ≤ 1/(2s²)",
    score=1.0,
    curvature=0.5,
)
_soft_laplace = _location_scale(
    "SoftLaplace",
    lambda z: jnp.logaddexp(z, -z),
    math.pi / 2,
    "ψ = log(e^z + e^{{−z}}), z = (y−η)/s: |ψ'| ≤ 1/s, ψ'' ≤ 1/s²",
    score=1.0,
    curvature=1.0,
)


def _log_normal(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """The Normal loss of ``log y``, ``y > 0``, plus ``log y``."""
    inner = _normal(link, observed, others)
    if inner is None or not observed.lowest > 0:
        return None
    return Recognised(inner.family, lambda eta, y, given: inner.loss(eta, jnp.log(y), given) + jnp.log(y))


def _normal_scale(link: str, observed: Interval, others: Bounds) -> Recognised | None:
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
        t = log_rate(eta, given)
        return t + 0.5 * jnp.square(y - given["loc"]) * jnp.exp(-2 * t) + 0.5 * _LOG_2PI

    return Recognised(family, loss)


def _student_t(link: str, observed: Interval, others: Bounds) -> Recognised | None:
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


def _quantile(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Quantile regression, ``r = y − η``: ``ψ = qr/s`` for ``r > 0`` and ``−(1−q)r/s`` below.

    Convex with a kink at ``η = y``; the larger slope bounds ``|ψ'|``.
    """
    scale, quantile = others["scale"].lowest, others["quantile"]
    if link != "identity" or not (scale > 0 and quantile.lowest > 0 and quantile.highest < 1):
        return None
    family = LikelihoodFamily(
        name="AsymmetricLaplaceQuantile",
        link="identity",
        convex=True,
        score_bound=up(max(quantile.highest, 1 - quantile.lowest) / scale),
        why="ψ = qr/s for r = y−η > 0, −(1−q)r/s below: convex, |ψ'| ≤ max(q, 1−q)/s, not smooth",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        residual, q, s = y - eta, given["quantile"], given["scale"]
        slope = jnp.where(residual < 0, q - 1, q) / s
        return slope * residual + jnp.log(s) - jnp.log(q) - jnp.log1p(-q)

    return Recognised(family, loss)


def _gumbel(link: str, observed: Interval, others: Bounds) -> Recognised | None:
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


REAL: Mapping[tuple[str, str], Entry] = {
    ("Normal", "loc"): Entry(_normal, ("scale",)),
    ("Normal", "scale"): Entry(_normal_scale, ("loc",)),
    ("LogNormal", "loc"): Entry(_log_normal, ("scale",)),
    ("StudentT", "loc"): Entry(_student_t, ("df", "scale")),
    ("Cauchy", "loc"): Entry(_cauchy, ("scale",)),
    ("Laplace", "loc"): Entry(_laplace, ("scale",)),
    ("Logistic", "loc"): Entry(_logistic, ("scale",)),
    ("SoftLaplace", "loc"): Entry(_soft_laplace, ("scale",)),
    ("AsymmetricLaplaceQuantile", "loc"): Entry(_quantile, ("scale", "quantile")),
    ("Gumbel", "loc"): Entry(_gumbel, ("scale",)),
}

# Densities of y − η: observing a residual y − Xw with location 0 is the same model.
_OF_DIFFERENCES = ("Normal", "StudentT", "Cauchy", "Laplace", "Logistic", "SoftLaplace", "Gumbel")
CENTRED: Mapping[tuple[str, str], Entry] = {
    (name, "difference"): replace(REAL[(name, "loc")], centred=True) for name in _OF_DIFFERENCES
}


def _truncated(ends: tuple[str, ...]) -> Recogniser:
    """``ψ = (y−η)²/2s² + log Z(η)``: an exponential family in ``η``, so ``ψ'' = Var/s⁴``, convex.

    Truncation of a log-concave density lowers its variance: ``ψ'' ∈ (0, 1/s²]``. Between two ends a
    distance ``h`` apart ``ψ' = (E − y)/s²`` with both in the interval: ``|ψ'| ≤ h/s²``, and
    ``Var ≤ h²/4``.
    """

    def build(link: str, observed: Interval, others: Mapping[str, Interval]) -> Recognised | None:
        scale = others["base.scale"].lowest
        low = others["low"] if "low" in ends else None
        high = others["high"] if "high" in ends else None
        above = low is None or observed.lowest >= low.highest
        below = high is None or observed.highest <= high.lowest
        if link != "identity" or not (scale > 0 and above and below):
            return None
        width = math.inf if low is None or high is None else high.highest - low.lowest
        curvature = up(min(1 / scale**2, width**2 / (4 * scale**4)))
        family = LikelihoodFamily(
            name="truncated Normal",
            link="identity",
            convex=True,
            score_bound=up(width / scale**2),
            curvature_bound=curvature,
            growth=(curvature, 0.0),
            why="ψ = (y−η)²/2s² + log Z(η): ψ'' is a variance over s⁴, at most 1/s²; "
            + ("ψ' unbounded" if math.isinf(width) else "|ψ'| ≤ (high − low)/s²"),
        )
        return Recognised(family, _loss)

    return build


def _loss(eta: jax.Array, y: jax.Array, given: Mapping[str, jax.Array]) -> jax.Array:
    scale = given["base.scale"]
    square = 0.5 * jnp.square((y - eta) / scale) + jnp.log(scale) + 0.5 * _LOG_2PI
    if "high" not in given:
        return square + log_ndtr((eta - given["low"]) / scale)
    if "low" not in given:
        return square + log_ndtr((given["high"] - eta) / scale)
    low, high = (given["low"] - eta) / scale, (given["high"] - eta) / scale
    # In the tail where the two terms are small, so that their difference keeps its digits.
    left = low + high > 0
    larger, smaller = log_ndtr(jnp.where(left, -low, high)), log_ndtr(jnp.where(left, -high, low))
    return square + larger + jnp.log(-jnp.expm1(smaller - larger))


TRUNCATED: Mapping[tuple[str, str], Entry] = {
    ("LeftTruncatedDistribution(Normal)", "base.loc"): Entry(_truncated(("low",)), ("base.scale", "low")),
    ("RightTruncatedDistribution(Normal)", "base.loc"): Entry(_truncated(("high",)), ("base.scale", "high")),
    ("TwoSidedTruncatedDistribution(Normal)", "base.loc"): Entry(
        _truncated(("low", "high")), ("base.scale", "low", "high")
    ),
}
