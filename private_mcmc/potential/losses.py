"""The losses that run: minus NumPyro's log densities as functions of a predictor, smooth wherever it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.scipy import special
from jax.scipy.special import gammaln, xlog1py, xlogy

# Parameters of a distribution: their values at one row.
Given: TypeAlias = Mapping[str, jax.Array]


@jax.custom_jvp
def softplus(x: jax.Array) -> jax.Array:
    """``log(1 + e^x)``; its derivative is computed as ``σ(x)``, several times faster in a chain's step."""
    return jax.nn.softplus(x)


softplus.defjvps(lambda tangent, value, x: jax.nn.sigmoid(x) * tangent)

# ``e^{t²} erfc t`` as quotients of polynomials: between .46 and 4, and beyond (Cody 1969), to rounding.
_NEAR = (
    "2.15311535474403846e-8 .564188496988670089 8.88314979438837594 66.1191906371416295 298.635138197400131 "
    "881.952221241769090 1712.04761263407058 2051.07837782607147 1230.33935479799725",
    "1 15.7449261107098347 117.693950891312499 537.181101862009858 1621.38957456669019 "
    "3290.79923573345963 4362.61909014324716 3439.36767414372164 1230.33935480374942",
)
_FAR = (
    "1.63153871373020978e-2 .305326634961232344 .360344899949804439 .125781726111229246 "
    "1.60837851487422766e-2 6.58749161529837803e-4",
    "1 2.56852019228982242 1.87295284992346725 .527905102951428412 6.05183413124413191e-2 "
    "2.33520497626869185e-3",
)


@jax.custom_jvp
def log_ndtr(x: jax.Array) -> jax.Array:
    """``log Φ(x)``, with the slope ``φ/Φ``, of which JAX's own loses all digits by ``−10⁵``."""
    return special.log_ndtr(x)


def _quotient(parts: tuple[str, str], at: jax.Array) -> jax.Array:
    sums = [jnp.zeros_like(at), jnp.zeros_like(at)]
    for k, part in enumerate(parts):
        for coefficient in part.split():
            sums[k] = sums[k] * at + float(coefficient)
    return sums[0] / sums[1]


def _inverse_mills(x: jax.Array) -> jax.Array:
    t = -x * math.sqrt(0.5)
    near, far, small = jnp.clip(t, 0.46, 4.0), jnp.maximum(t, 4.0), jnp.maximum(x, -0.7)
    # Farther to the left an exponential of squares would lose as many units as they are large.
    right = jnp.exp(-0.5 * jnp.square(small) - log_ndtr(small) - 0.5 * math.log(2 * math.pi))
    z = 1 / jnp.square(far)
    beyond = (math.sqrt(1 / math.pi) - z * _quotient(_FAR, z)) / far
    left = math.sqrt(2 / math.pi) / jnp.where(t > 4.0, beyond, _quotient(_NEAR, near))
    return jnp.where(x < -0.7, left, right)


log_ndtr.defjvps(lambda tangent, value, x: _inverse_mills(x) * tangent)


# How many pairs of terms, Lentz's two numbers, the value, and by what the last term changed it.
_Fraction: TypeAlias = tuple[jax.Array, ...]


@jax.custom_jvp
@jnp.vectorize
def incomplete_beta(a: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
    """``I_x(a, b)``, entry by entry: JAX's own loop goes on until the last is done, and moves the others.

    By its continued fraction (https://dlmf.nist.gov/8.17.E22), evaluated as Lentz did.
    """
    turned = x > (a + 1) / (a + b + 2)
    a, b, x = jnp.where(turned, b, a), jnp.where(turned, a, b), jnp.where(turned, 1 - x, x)

    def goes_on(state: _Fraction) -> jax.Array:
        m, *_, factor = state
        close = float(jnp.finfo(x.dtype).eps)  # type: ignore[no-untyped-call]
        return (m < 2**12) & (jnp.abs(factor - 1) > close)

    def two_terms(state: _Fraction) -> _Fraction:
        m, c, d, value, _ = state
        k = a + 2 * m
        for term in (m * (b - m) * x / ((k - 1) * k), -(a + m) * (a + b + m) * x / (k * (k + 1))):
            c, d = 1 + term / c, 1 / (1 + term * d)
            value = value * c * d
        return m + 1, c, d, value, c * d

    one, first = jnp.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    start: _Fraction = one, one, first, first, 0 * one
    fraction = jax.lax.while_loop(goes_on, two_terms, start)[3]
    power = jnp.exp(xlogy(a, x) + xlog1py(b, -x) + gammaln(a + b) - gammaln(a + 1) - gammaln(b))
    value = jnp.where(turned, 1 - power * fraction, power * fraction)
    return jnp.where((a >= 0) & (b >= 0), value, jnp.nan)


@partial(incomplete_beta.defjvp, symbolic_zeros=True)
def _moved_beta(
    at: tuple[jax.Array, ...], by: tuple[jax.Array | SymbolicZero, ...]
) -> tuple[jax.Array, jax.Array]:
    a, b, x = at
    constant = gammaln(a + b) - gammaln(a) - gammaln(b)
    in_x = jnp.exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) + constant)
    moved = [
        (in_x if k == 2 else jnp.vectorize(jax.jacfwd(incomplete_beta.fun, k))(*at)) * one
        for k, one in enumerate(by)
        if not isinstance(one, SymbolicZero)
    ]
    return incomplete_beta(a, b, x), jnp.asarray(sum(moved))


def _grown(y: jax.Array, t: jax.Array) -> jax.Array:
    """``ye^t`` of ``y ≥ 0``: 0 of 0 however large ``e^t`` is, where floats know neither it nor its slope."""
    some = y > 0
    return jnp.where(some, jnp.exp(jnp.where(some, t, 0.0) + jnp.log(jnp.where(some, y, 1.0))), 0.0)


def log_rate(eta: jax.Array, given: Given) -> jax.Array:
    """``log(c e^{±η})``, the logarithm of a rate or a scale that the predictor makes."""
    return given["log_multiplier"] + given["sign"] * eta


def binomial(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    n = given.get("total_count", jnp.ones(()))
    y = jnp.minimum(y, n)
    return n * softplus(eta) - y * eta - _ways(n, y)


def binomial_probit(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    n = given.get("total_count", jnp.ones(()))
    y = jnp.minimum(y, n)
    return -y * log_ndtr(eta) - (n - y) * log_ndtr(-eta) - _ways(n, y)


def _ways(n: jax.Array, y: jax.Array) -> jax.Array:
    return gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)


def chosen(eta: jax.Array, y: jax.Array) -> jax.Array:
    index = jnp.broadcast_to(y.astype(jnp.int32)[..., None], (*eta.shape[:-1], 1))
    return jnp.take_along_axis(eta, index, axis=-1)[..., 0]


def poisson(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    t = log_rate(eta, given)
    return jnp.exp(t) - y * t + gammaln(y + 1)


def categorical(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    return jax.nn.logsumexp(eta, axis=-1) - chosen(eta, y)


def ordered(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    cutpoints = given["cutpoints"]
    count = cutpoints.shape[-1]
    index = jnp.broadcast_to(y.astype(jnp.int32), eta.shape)[..., None]
    spread = jnp.broadcast_to(cutpoints, (*eta.shape, count))
    above = jnp.take_along_axis(spread, jnp.minimum(index, count - 1), axis=-1)[..., 0]
    below = jnp.take_along_axis(spread, jnp.maximum(index - 1, 0), axis=-1)[..., 0]
    first, last = index[..., 0] == 0, index[..., 0] == count
    gap = jnp.where(first | last, 1.0, above - below)
    upper = jnp.where(last, 0.0, softplus(eta - above))
    lower = jnp.where(first, 0.0, softplus(below - eta))
    return upper + lower - jnp.where(first | last, 0.0, jnp.log(-jnp.expm1(-gap)))


def negative_binomial(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    t, k = log_rate(eta, given), given["concentration"]
    return (k + y) * softplus(t) - k * t - (gammaln(k + y) - gammaln(k) - gammaln(y + 1))


def student_t(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    nu, s = given["df"], given["scale"]
    constant = jnp.log(s) + 0.5 * jnp.log(nu * math.pi) + gammaln(nu / 2) - gammaln((nu + 1) / 2)
    return 0.5 * (nu + 1) * jnp.log1p(jnp.square((y - eta) / s) / nu) + constant


def normal(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    scale = given["scale"]
    return 0.5 * jnp.square((y - eta) / scale) + jnp.log(math.sqrt(2 * math.pi) * scale)


def gamma(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    t, a = log_rate(eta, given), given.get("concentration", jnp.ones(()))
    return _grown(y, t) - a * t - xlogy(a - 1, y) + gammaln(a)


def weibull(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    t, a = log_rate(eta, given), given["concentration"]
    return jnp.exp(a * (jnp.log(y) - t)) + a * t - jnp.log(a) - (a - 1) * jnp.log(y)


def beta(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    k = given["concentration"]
    a, b = k * jax.nn.sigmoid(eta), k * jax.nn.sigmoid(-eta)
    # Of Γ(a) = Γ(1 + a)/a the logarithm, which keeps its digits where a is next to 0.
    poles = softplus(eta) + softplus(-eta) - 2 * jnp.log(k)
    constant = gammaln(1 + a) + gammaln(1 + b) - gammaln(k) + poles
    return constant - (a - 1) * jnp.log(y) - (b - 1) * jnp.log1p(-y)
