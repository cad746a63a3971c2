"""The losses that run: minus NumPyro's log densities as functions of a predictor, smooth wherever it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.scipy import special
from jax.scipy.special import gammaln, xlogy

# Parameters of a distribution: their values at one row.
Given: TypeAlias = Mapping[str, jax.Array]


@jax.custom_jvp
def softplus(x: jax.Array) -> jax.Array:
    """``log(1 + e^x)``; its derivative is computed as ``σ(x)``, several times faster in a chain's step."""
    return jax.nn.softplus(x)


softplus.defjvps(lambda tangent, value, x: jax.nn.sigmoid(x) * tangent)

# From here on outwards seven terms of the expansion of a Normal's tail are exact to rounding.
_TAIL = -40.0


@jax.custom_jvp
def log_ndtr(x: jax.Array) -> jax.Array:
    """``log Φ(x)``, with the slope ``φ/Φ``, of which JAX's own loses all digits by ``−10⁵``."""
    return special.log_ndtr(x)


def _inverse_mills(x: jax.Array) -> jax.Array:
    near, far = jnp.maximum(x, _TAIL), jnp.minimum(x, _TAIL)
    inside = jnp.exp(-0.5 * jnp.square(near) - log_ndtr(near) - 0.5 * math.log(2 * math.pi))
    i = 1 / jnp.square(far)
    series = 1 - i * (1 - 3 * i * (1 - 5 * i * (1 - 7 * i * (1 - 9 * i))))
    return jnp.where(x < _TAIL, -far / series, inside)


log_ndtr.defjvps(lambda tangent, value, x: _inverse_mills(x) * tangent)


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
    upper = jnp.where(last, 0.0, jax.nn.softplus(eta - above))
    lower = jnp.where(first, 0.0, jax.nn.softplus(below - eta))
    return upper + lower - jnp.where(first | last, 0.0, jnp.log(-jnp.expm1(-gap)))


def negative_binomial(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    t, k = log_rate(eta, given), given["concentration"]
    return (k + y) * jax.nn.softplus(t) - k * t - (gammaln(k + y) - gammaln(k) - gammaln(y + 1))


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
    poles = jax.nn.softplus(eta) + jax.nn.softplus(-eta) - 2 * jnp.log(k)
    constant = gammaln(1 + a) + gammaln(1 + b) - gammaln(k) + poles
    return constant - (a - 1) * jnp.log(y) - (b - 1) * jnp.log1p(-y)
