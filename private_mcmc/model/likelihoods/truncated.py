"""Proved constants of a Normal truncated to a known interval, as a function of its location."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import Entry, LikelihoodFamily, Recognised, Recogniser

_LOG_2PI = math.log(2 * math.pi)


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
