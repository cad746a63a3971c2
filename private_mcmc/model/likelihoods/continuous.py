"""Proved constants of the losses of real and of positive observations, and of shares; most are smooth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.scipy import special
from jax.scipy.special import gammaln

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import Bounds, Entry, Given, Recognised, Recogniser, recognised

_LOG_2PI = math.log(2 * math.pi)
LOG_LINKS = ("exp", "exp_neg")


def log_rate(eta: jax.Array, given: Given) -> jax.Array:
    """``log(c e^{±η})``; of softplus rates ``η`` is ``log s`` here."""
    return given["log_multiplier"] + given["sign"] * eta


# The log of the cumulative hazard beyond which an event is sure, and the hazard below which two terms of the
# series are exact to rounding.
_SURE, _SMALL = 7.0, 1e-5


def happened(log_hazard: jax.Array) -> jax.Array:
    """``−log(1 − e^{−z})``: in ``log z`` a slope in (−1, 0).

    The curvature is ``g(g + z − 1)`` with ``g = z/(e^z − 1)``: between 0 and ``max z²/(e^z − 1) < 0.65``.
    """
    u = jnp.minimum(log_hazard, _SURE)
    z = jnp.exp(u)
    small = z < _SMALL
    return jnp.where(small, z / 2 - u, -jnp.log(-jnp.expm1(-jnp.where(small, 1.0, z))))


# From here on outwards seven terms of the expansion of a Normal's tail are exact to rounding.
_TAIL = -40.0


@jax.custom_jvp
def log_ndtr(x: jax.Array) -> jax.Array:
    """``log Φ(x)``, with the slope ``φ/Φ``, of which JAX's own loses all digits by ``−10⁵``."""
    return special.log_ndtr(x)


def _inverse_mills(x: jax.Array) -> jax.Array:
    near, far = jnp.maximum(x, _TAIL), jnp.minimum(x, _TAIL)
    inside = jnp.exp(-0.5 * jnp.square(near) - log_ndtr(near) - 0.5 * _LOG_2PI)
    i = 1 / jnp.square(far)
    series = 1 - i * (1 - 3 * i * (1 - 5 * i * (1 - 7 * i * (1 - 9 * i))))
    return jnp.where(x < _TAIL, -far / series, inside)


log_ndtr.defjvps(lambda tangent, value, x: _inverse_mills(x) * tangent)


def _grown(y: jax.Array, t: jax.Array) -> jax.Array:
    """``ye^t`` of ``y ≥ 0``: 0 of 0 however large ``e^t`` is, where floats know neither it nor its slope."""
    some = y > 0
    return jnp.where(some, jnp.exp(jnp.where(some, t, 0.0) + jnp.log(jnp.where(some, y, 1.0))), 0.0)


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

        def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
            return form((y - eta) / given["scale"]) + jnp.log(constant * given["scale"])

        steepest, most = up(score / scale), up(curvature / scale**2)
        because = why.format(scale=scale)
        return recognised(name, "identity", loss, because, score=steepest, curvature=most, convex=convex)

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
    if link not in LOG_LINKS:
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = log_rate(eta, given)
        return t + 0.5 * _grown(jnp.square(y - given["loc"]), -2 * t) + 0.5 * _LOG_2PI

    why = "ψ = t + r²e^{−2t}/2, t the log standard deviation: ψ'' = 2(1 − ψ') ≤ 2 + 2|ψ'|"
    return recognised("Normal scale", "exp", loss, why, growth=(2.0, 2.0))


def _student_t(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = ½(ν+1) log(1 + r²/νs²)``, ``r = y − η``: not convex.

    ``|ψ'| = (ν+1)|r|/(νs²+r²) ≤ (ν+1)/(2s√ν)``; ``ψ'' = (ν+1)(νs²−r²)/(νs²+r²)²`` between
    ``−(ν+1)/(8νs²)`` (at ``r² = 3νs²``) and ``(ν+1)/(νs²)`` (at 0). Both fall as ``ν`` and ``s`` grow
    except ``(ν+1)/√ν``, which is largest at an end of the range of ``ν``.
    """
    df, scale = others["df"], others["scale"].lowest
    if link != "identity" or not (scale > 0 and df.lowest > 0 and df.highest < math.inf):
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        nu, s = given["df"], given["scale"]
        constant = jnp.log(s) + 0.5 * jnp.log(nu * math.pi) + gammaln(nu / 2) - gammaln((nu + 1) / 2)
        return 0.5 * (nu + 1) * jnp.log1p(jnp.square((y - eta) / s) / nu) + constant

    return recognised(
        "StudentT",
        "identity",
        loss,
        "ψ = ½(ν+1) log(1+r²/νs²): |ψ'| ≤ (ν+1)/(2s√ν), |ψ''| ≤ (ν+1)/(νs²); not convex",
        score=up(max((nu + 1) / math.sqrt(nu) for nu in (df.lowest, df.highest)) / (2 * scale)),
        curvature=up((df.lowest + 1) / (df.lowest * scale**2)),
        convex=False,
    )


def _quantile(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Quantile regression, ``r = y − η``: ``ψ = qr/s`` for ``r > 0`` and ``−(1−q)r/s`` below.

    Convex with a kink at ``η = y``; the larger slope bounds ``|ψ'|``.
    """
    scale, quantile = others["scale"].lowest, others["quantile"]
    if link != "identity" or not (scale > 0 and quantile.lowest > 0 and quantile.highest < 1):
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        residual, q, s = y - eta, given["quantile"], given["scale"]
        slope = jnp.where(residual < 0, q - 1, q) / s
        return slope * residual + jnp.log(s) - jnp.log(q) - jnp.log1p(-q)

    why = "ψ = qr/s for r = y−η > 0, −(1−q)r/s below: convex, |ψ'| ≤ max(q, 1−q)/s, not smooth"
    steepest = up(max(quantile.highest, 1 - quantile.lowest) / scale)
    return recognised("AsymmetricLaplaceQuantile", "identity", loss, why, score=steepest)


def _gumbel(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = z + e^{−z} + log s``, ``z = (y−η)/s``: ``ψ'' = e^{−z}/s² = (1 + sψ')/s²``."""
    scale = others["scale"].lowest
    if link != "identity" or not scale > 0:
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        z = (y - eta) / given["scale"]
        return z + jnp.exp(-z) + jnp.log(given["scale"])

    why = "ψ = z + e^{−z}, z = (y−η)/s: ψ'' = (1 + sψ')/s², unbounded unless clipped"
    return recognised("Gumbel", "identity", loss, why, growth=(up(1 / scale**2), up(1 / scale)))


def _truncated_normal(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = (y−η)²/2s² + log Z(η)``: an exponential family in ``η``, so ``ψ'' = Var/s⁴``, convex.

    Truncation of a log-concave density lowers its variance: ``ψ'' ∈ (0, 1/s²]``. Between two ends a
    distance ``h`` apart ``ψ' = (E − y)/s²`` with both in the interval: ``|ψ'| ≤ h/s²``, and
    ``Var ≤ h²/4``.
    """
    scale, low, high = others["base.scale"].lowest, others.get("low"), others.get("high")
    above = low is None or observed.lowest >= low.highest
    below = high is None or observed.highest <= high.lowest
    if link != "identity" or not (scale > 0 and above and below):
        return None
    width = math.inf if low is None or high is None else high.highest - low.lowest
    return recognised(
        "truncated Normal",
        "identity",
        _truncated_loss,
        "ψ = (y−η)²/2s² + log Z(η): ψ'' is a variance over s⁴, at most 1/s²; "
        + ("ψ' unbounded" if math.isinf(width) else "|ψ'| ≤ (high − low)/s²"),
        score=up(width / scale**2),
        curvature=up(min(1 / scale**2, width**2 / (4 * scale**4))),
    )


def _truncated_loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
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

_ENDS = {"LeftTruncated": ("low",), "RightTruncated": ("high",), "TwoSidedTruncated": ("low", "high")}
TRUNCATED: Mapping[tuple[str, str], Entry] = {
    (f"{kind}Distribution(Normal)", "base.loc"): Entry(_truncated_normal, ("base.scale", *ends))
    for kind, ends in _ENDS.items()
}


def _gamma(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, rate ``e^t``, ``t = log c ± η``: ``ψ = ye^t − at + const``, ``ψ'' = ye^t = a + dψ/dt``."""
    shape = others["concentration"]
    if link not in LOG_LINKS or not (observed.lowest >= 0 and shape.lowest > 0):
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, a = log_rate(eta, given), given["concentration"]
        return _grown(y, t) - a * t - (a - 1) * jnp.log(y) + gammaln(a)

    why = f"ψ = ye^t − at, t affine in η, a ≤ {shape.highest:g}: ψ'' = a + ψ', unbounded unless clipped"
    return recognised("Gamma", "exp", loss, why, growth=(shape.highest, 1.0))


def _exponential(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Rate ``e^t``, ``t = log c ± η``: ``ψ = ye^t − t``, ``ψ'' = ye^t = 1 + dψ/dt``."""
    if link not in LOG_LINKS or not observed.lowest >= 0:
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = log_rate(eta, given)
        return _grown(y, t) - t

    why = "ψ = ye^t − t, t affine in η: ψ'' = 1 + ψ', unbounded unless clipped"
    return recognised("Exponential", "exp", loss, why, growth=(1.0, 1.0))


def _inverse_gamma(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, rate ``e^t``: the Gamma loss of ``1/y``, ``y > 0``: ``ψ'' = a + dψ/dt``."""
    inner = _gamma(link, observed, others)
    if inner is None or not observed.lowest > 0:
        return None
    return Recognised(inner.family, lambda eta, y, given: inner.loss(eta, 1 / y, given) + 2 * jnp.log(y))


def _weibull(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Shape ``a``, log scale ``t``, ``z = (ye^{−t})^a``: ``ψ = z + at``, ``ψ'' = a²z = a(a − dψ/dt)``."""
    shape = others["concentration"]
    if link not in LOG_LINKS or not (observed.lowest > 0 and shape.lowest > 0):
        return None
    most = shape.highest

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, a = log_rate(eta, given), given["concentration"]
        return jnp.exp(a * (jnp.log(y) - t)) + a * t - jnp.log(a) - (a - 1) * jnp.log(y)

    why = f"ψ = (ye^{{−t}})^a + at, a ≤ {most:g}: ψ'' = a(a − ψ'), unbounded unless clipped"
    return recognised("Weibull", "exp", loss, why, growth=(up(most**2), most))


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

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        k = given["concentration"]
        a, b = k * jax.nn.sigmoid(eta), k * jax.nn.sigmoid(-eta)
        # Of Γ(a) = Γ(1 + a)/a the logarithm, which keeps its digits where a is next to 0.
        poles = jax.nn.softplus(eta) + jax.nn.softplus(-eta) - 2 * jnp.log(k)
        constant = gammaln(1 + a) + gammaln(1 + b) - gammaln(k) + poles
        return constant - (a - 1) * jnp.log(y) - (b - 1) * jnp.log1p(-y)

    why = "ψ = log B(κσ, κ(1−σ)) − κσ logit y: |ψ'| ≤ 1 + κ(0.224 + |logit y|/4); not convex"
    bend = up(score + most / 4 + 1)
    return recognised("BetaProportion", "logistic", loss, why, score=score, curvature=bend, convex=False)


POSITIVE: Mapping[tuple[str, str], Entry] = {
    ("Gamma", "rate"): Entry(_gamma, ("concentration",)),
    ("Exponential", "rate"): Entry(_exponential),
    ("InverseGamma", "rate"): Entry(_inverse_gamma, ("concentration",)),
    ("Weibull", "scale"): Entry(_weibull, ("concentration",)),
}
# NumPyro keeps the product of mean and concentration.
SHARES: Mapping[tuple[str, str], Entry] = {
    ("BetaProportion", "concentration1"): Entry(_share, ("concentration",))
}
