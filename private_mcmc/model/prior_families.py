"""Proved curvature of single priors on the unconstrained space, the transform's Jacobian included.

Each rule writes the potential out in a stable form (up to a constant) that is what runs: NumPyro clamps
probabilities, and so is flat, hence not convex, far out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, softplus
from jax.scipy.special import logsumexp

from private_mcmc.model.ir.evaluate import values
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.sites import Site

Potential = Callable[[jax.Array], Any]


@dataclass(frozen=True, eq=False)
class Separable:
    """``K = Σ_j k_j(u_j)`` with ``lower_j ≤ k_j'' ≤ upper_j``; ``potential`` of ``u`` in its own shape."""

    potential: Potential
    lower: np.ndarray
    upper: np.ndarray
    why: str


Rule = Callable[[Program, Site], Separable | None]


def parameter(program: Program, site: Site, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A parameter of the prior that is a public constant, broadcast to the site; NaN if it is not one."""
    target = site.shape if shape is None else shape
    variable = program.outputs.get(Output("given", site.name, name))
    if variable is None or program.reads([variable]):
        return np.full(target, np.nan)
    return np.broadcast_to(np.asarray(values(program, [variable], {})[0], np.float64), target)


def bounded(
    potential: Potential,
    lower: np.ndarray | float,
    upper: np.ndarray | float,
    shape: tuple[int, ...],
    why: str,
) -> Separable | None:
    """Broadcast the bounds to the site; ``None`` if one is not a number."""
    lows, highs = (np.broadcast_to(np.asarray(end, np.float64), shape) for end in (lower, upper))
    if np.any(np.isnan(lows) | np.isnan(highs)):
        return None
    return Separable(potential, lows, highs, why)


def positive(*values: np.ndarray) -> bool:
    """All numbers of all arrays are positive and finite; a parameter that is not public is not."""
    return all(bool(np.all((value > 0) & np.isfinite(value))) for value in values)


_MIXTURE = ("component.loc", "component.scale", "weights")


def _truncated(program: Program, site: Site) -> Separable | None:
    """``x = l + hσ(u)``, a Normal on ``[l, l+h]``: ``K = (x−m)²/2s² + log(1+e^u) + log(1+e^{−u})``.

    ``K'' = (x'² + (x−m)x'')/s² + 2σ(1−σ)`` with ``|x'| ≤ h/4``, ``|x''| ≤ h/(6√3)``, ``|x−m| ≤ D``.
    """
    loc, scale = parameter(program, site, "base.loc"), parameter(program, site, "base.scale")
    low, high = parameter(program, site, "low"), parameter(program, site, "high")
    if not positive(scale, high - low):
        return None
    width, farthest = high - low, np.maximum(np.abs(low - loc), np.abs(high - loc))
    bend = farthest * width / (6 * math.sqrt(3)) / scale**2
    return bounded(
        lambda u: 0.5 * jnp.square((low + width * sigmoid(u) - loc) / scale) + softplus(u) + softplus(-u),
        -bend,
        (width / 4 / scale) ** 2 + bend + 0.5,
        site.shape,
        "Normal on an interval, on the logit scale: K'' bounded, not of one sign",
    )


def _left_truncated(program: Program, site: Site) -> Separable | None:
    """``x = l + e^u``: ``K = (x−m)²/2s² − u``, ``K'' = t(2t + l − m)/s²``, ``t = e^u > 0``.

    Positive if ``l ≥ m``, at least ``−(m−l)²/8s²`` otherwise; unbounded above.
    """
    loc, scale = parameter(program, site, "base.loc"), parameter(program, site, "base.scale")
    low = parameter(program, site, "low")
    if not positive(scale):
        return None
    return bounded(
        lambda u: 0.5 * jnp.square((low + jnp.exp(u) - loc) / scale) - u,
        -(np.minimum(low - loc, 0.0) ** 2) / 8 / scale**2,
        math.inf,
        site.shape,
        "Normal above l, on the log scale: K'' ≥ −max(m−l, 0)²/8s², unbounded above",
    )


def _normal_mixture(program: Program, site: Site) -> Separable | None:
    """``K = −log Σ w_k N(u; m_k, s²)``, one ``s``: ``K'' = 1/s² − Var_w(m)/s⁴ ∈ [1/s² − R²/4s⁴, 1/s²]``.

    ``R`` is the range of the means; the variance of a variable within it is at most ``R²/4``.
    """
    sizes = [program.shape(program.outputs[Output("given", site.name, name)]) for name in _MIXTURE]
    shape = np.broadcast_shapes(*sizes, (*site.shape, 1))
    loc, scale, weights = (parameter(program, site, name, shape) for name in _MIXTURE)
    top = 1 / scale[..., 0] ** 2
    same = bool(np.all(scale == scale[..., :1])) and positive(scale) and bool(np.all(weights >= 0))
    if not same or shape[:-1] != site.shape:
        return None

    def potential(u: jax.Array) -> jax.Array:
        squares = 0.5 * jnp.square((u[..., None] - loc) / scale)
        return -logsumexp(-squares, b=weights, axis=-1)

    return bounded(
        potential,
        top - np.ptp(loc, axis=-1) ** 2 / 4 * top**2,
        top,
        site.shape,
        "mixture of Normals of one scale: 1/s² − R²/4s⁴ ≤ K'' ≤ 1/s², R the range of the means",
    )


def _pushed_normal(program: Program, site: Site) -> Separable | None:
    """A Normal pushed through the very transform of its support: on the unconstrained space, a Normal."""
    free = site.unconstrained_shape
    loc, scale = (parameter(program, site, name, free) for name in ("base.loc", "base.scale"))
    if not positive(scale):
        return None
    top = 1 / scale**2
    why = "a Normal through the support's own transform: K'' = 1/s²"
    return bounded(lambda u: 0.5 * jnp.square((u - loc) / scale), top, top, free, why)


NORMALS: Mapping[tuple[str, str], Rule] = {
    ("MixtureSameFamily(Normal)", "real"): _normal_mixture,
    ("TransformedDistribution(Normal)", "orderedvector"): _pushed_normal,
    ("TransformedDistribution(Normal)", "positive"): _pushed_normal,
    ("LeftTruncatedDistribution(Normal)", "greaterthaneq"): _left_truncated,
    ("TwoSidedTruncatedDistribution(Normal)", "interval"): _truncated,
}


def _location_scale(form: Potential, lower: float, upper: float, why: str) -> Rule:
    """``K = form(z)``, ``z = (u−m)/s``, where ``lower ≤ form'' ≤ upper``: divided by ``s²``."""

    def rule(program: Program, site: Site) -> Separable | None:
        loc, scale = parameter(program, site, "loc"), parameter(program, site, "scale")
        if not positive(scale):
            return None
        low, high = lower / scale**2, upper / scale**2
        return bounded(lambda u: form((u - loc) / scale), low, high, site.shape, f"{site.family}: {why}")

    return rule


# A log-normal prior is normal in its logarithm, which is the unconstrained coordinate.
_normal = _location_scale(lambda z: 0.5 * jnp.square(z), 1.0, 1.0, "K'' = 1/s²")
_laplace = _location_scale(jnp.abs, 0.0, math.inf, "K = |u−m|/s, convex, neither smooth nor strongly convex")
_logistic = _location_scale(lambda z: z + 2 * softplus(-z), 0.0, 0.5, "K'' = 2σ(1−σ)/s², in (0, 1/(2s²)]")
_gumbel = _location_scale(
    lambda z: z + jnp.exp(-z), 0.0, math.inf, "K'' = e^{−z}/s², positive, neither bounded below nor above"
)
_soft_laplace = _location_scale(lambda z: jnp.logaddexp(z, -z), 0.0, 1.0, "K'' = sech²(z)/s², in (0, 1/s²]")


def _student_t(program: Program, site: Site) -> Separable | None:
    """``K = ½(ν+1) log(1+r²/νs²)``: ``K''`` between ``−(ν+1)/8νs²`` and ``(ν+1)/νs²``; not convex."""
    loc, scale = parameter(program, site, "loc"), parameter(program, site, "scale")
    nu = np.ones(site.shape) if site.family == "Cauchy" else parameter(program, site, "df")
    if not positive(scale, nu):
        return None
    top = (nu + 1) / (nu * scale**2)
    return bounded(
        lambda u: 0.5 * (nu + 1) * jnp.log1p(jnp.square((u - loc) / scale) / nu),
        -top / 8,
        top,
        site.shape,
        f"{site.family}: −(ν+1)/(8νs²) ≤ K'' ≤ (ν+1)/(νs²), not convex",
    )


def _rule(
    names: tuple[str, ...],
    form: Callable[..., jax.Array],
    why: str,
    top: float | Callable[..., np.ndarray] = math.inf,
) -> Rule:
    """``K = form(u, *parameters)``, ``0 ≤ K'' ≤ top(*parameters)``, of positive parameters so named."""

    def rule(program: Program, site: Site) -> Separable | None:
        given = [parameter(program, site, name) for name in names]
        if not positive(*given):
            return None
        upper = top(*given) if callable(top) else top
        return bounded(lambda u: form(u, *given), 0.0, upper, site.shape, f"{site.family} on the {why}")

    return rule


_POSITIVE = "positive, neither bounded below nor above"
# On the log scale, ``x = e^u``, on the logit scale ``x = σ(u)``.
_half_normal = _rule(
    ("scale",), lambda u, s: 0.5 * jnp.exp(2 * u) / s**2 - u, f"log scale: K'' = 2e^{{2u}}/s², {_POSITIVE}"
)
_half_cauchy = _rule(
    ("scale",),
    lambda u, s: softplus(2 * (u - jnp.log(s))) - u,
    "log scale: K'' = 4t/(1+t)², t = e^{2u}/s², in (0, 1]",
    top=1.0,
)
_gamma = _rule(
    ("concentration", "rate"), lambda u, a, r: r * jnp.exp(u) - a * u, f"log scale: K'' = re^u, {_POSITIVE}"
)
_exponential = _rule(("rate",), lambda u, r: r * jnp.exp(u) - u, f"log scale: K'' = re^u, {_POSITIVE}")
_inverse_gamma = _rule(
    ("concentration", "rate"),
    lambda u, a, r: r * jnp.exp(-u) + a * u,
    f"log scale: K'' = re^{{−u}}, {_POSITIVE}",
)
_weibull = _rule(
    ("concentration", "scale"),
    lambda u, a, s: jnp.exp(a * (u - jnp.log(s))) - a * u,
    f"log scale: K'' = a²(e^u/s)^a, {_POSITIVE}",
)
_beta = _rule(
    ("concentration1", "concentration0"),
    lambda u, a, b: a * softplus(-u) + b * softplus(u),
    "logit scale: K'' = (a+b)σ(1−σ), in (0, (a+b)/4]",
    top=lambda a, b: (a + b) / 4,
)


def _uniform(program: Program, site: Site) -> Separable | None:
    """``x = l + (h−l)σ(u)``: the Jacobian alone, ``K'' = 2σ(1−σ) ∈ (0, ½]``."""
    low, high = parameter(program, site, "low"), parameter(program, site, "high")
    if not positive(high - low):
        return None
    return bounded(
        lambda u: softplus(-u) + softplus(u),
        0.0,
        0.5,
        site.shape,
        "Uniform on the logit scale: K'' = 2σ(1−σ), in (0, 1/2]",
    )


def _dirichlet(program: Program, site: Site) -> Separable | None:
    """Stick breaking with ``σ(u_i − log(m−i))``, ``m`` sticks: ``Beta(α_i, Σ_{j>i} α_j)`` each, independent.

    ``K'' = (Σ_{j≥i} α_j)σ(1−σ)``.
    """
    alpha = parameter(program, site, "concentration")
    if not positive(alpha):
        return None
    rest = np.cumsum(alpha[..., ::-1], axis=-1)[..., ::-1]
    first, later = alpha[..., :-1], rest[..., 1:]
    sticks = site.unconstrained_shape[-1]
    shift = np.log(sticks - np.arange(sticks))
    return bounded(
        lambda u: first * softplus(-(u - shift)) + later * softplus(u - shift),
        0.0,
        rest[..., :-1] / 4,
        site.unconstrained_shape,
        "Dirichlet by stick breaking: independent Betas, K'' = (Σ_{j≥i} α_j)σ(1−σ)",
    )


def _lkj(program: Program, site: Site) -> Separable | None:
    """Partial correlations ``tanh u``, independent, ``K = −c log(1−tanh²u)``, ``K'' = 2c sech²u ∈ (0, 2c]``.

    The one in row ``i``, column ``j < i`` of the Cholesky factor of size ``d`` has
    ``c = η + (d−2−j)/2`` (vine construction of Lewandowski, Kurowicka, Joe 2009, Jacobian included).
    """
    size = site.shape[-1]
    eta = parameter(program, site, "concentration", site.unconstrained_shape[:-1])
    if not positive(eta):
        return None
    columns = np.tril_indices(size, -1)[1]
    weight = eta[..., None] + (size - 2 - columns) / 2
    return bounded(
        lambda u: jnp.asarray(2 * weight) * (u + softplus(-2 * u)),
        0.0,
        2 * weight,
        site.unconstrained_shape,
        f"{site.family}: independent partial correlations tanh u, K'' = 2c·sech²u, in (0, 2c]",
    )


def _improper(program: Program, site: Site) -> Separable | None:
    """A constant density on the real line: ``K = 0``."""
    return bounded(
        lambda u: jnp.zeros_like(u),
        0.0,
        0.0,
        site.shape,
        "ImproperUniform: K = 0, which no posterior can rest on",
    )


SEPARABLE: Mapping[tuple[str, str], Rule] = {
    ("Normal", "real"): _normal,
    ("LogNormal", "positive"): _normal,
    ("StudentT", "real"): _student_t,
    ("Cauchy", "real"): _student_t,
    ("Laplace", "real"): _laplace,
    ("Logistic", "real"): _logistic,
    ("Gumbel", "real"): _gumbel,
    ("SoftLaplace", "real"): _soft_laplace,
    ("HalfNormal", "positive"): _half_normal,
    ("HalfCauchy", "positive"): _half_cauchy,
    ("Exponential", "positive"): _exponential,
    ("Gamma", "positive"): _gamma,
    ("Chi2", "positive"): _gamma,
    ("InverseGamma", "positive"): _inverse_gamma,
    ("Weibull", "positive"): _weibull,
    ("Beta", "unitinterval"): _beta,
    ("Uniform", "interval"): _uniform,
    ("Dirichlet", "simplex"): _dirichlet,
    ("LKJCholesky", "corrcholesky"): _lkj,
    ("LKJ", "corrmatrix"): _lkj,
    ("ImproperUniform", "real"): _improper,
    **NORMALS,
}

# Gaussian whatever their loc, as long as everything else is constant.
_VECTOR_GAUSSIAN = (
    "MultivariateNormal",
    "LowRankMultivariateNormal",
    "MatrixNormal",
    "CirculantNormal",
    "CAR",
)
GAUSSIAN = frozenset(["Normal", "GaussianRandomWalk", "ZeroSumNormal", *_VECTOR_GAUSSIAN])
