"""Proved curvature of priors made of Normals: truncated, mixed, pushed through a transform."""

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
