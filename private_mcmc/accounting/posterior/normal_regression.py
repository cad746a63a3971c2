"""Normal regression in one dimension: a bound on the divergence of posteriors with bounded rows.

Rows ``|x| ≤ R``, ``|y| ≤ Y``, noise precision ``β`` (temper included), prior ``N(0, 1/α)``. The posteriors of
adjacent data sets are ``N(m_1, 1/a_1)`` and ``N(m_2, 1/a_2)``; with ``N(m_2, 1/a_1)`` in between, one leg is
a shift of the mean and the other a change of scale about a common mean. Both divergences are
monotone, in the shift and in the ratio of precisions, and are taken at their largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from private_mcmc.accounting.assumptions import BOUNDED_PAIRS, EXACT_DRAW, RELATION
from private_mcmc.accounting.composition.compose import capped
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Points
from private_mcmc.accounting.posterior.conjugate import triangle_bound
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency

_CELLS = 4000
_UP = 1 + 1e-12


@dataclass(frozen=True)
class Extremes:
    """The largest shift of the mean, in standard deviations, and the largest ratio of precisions."""

    shift: float
    ratio: float


def extremes(
    precision: float, noise: float, *, radius: float, response: float, n: int, adjacency: Adjacency
) -> Extremes:
    """Largest shift ``|m_1−m_2|√a_1`` and ratio ``a_1/a_2`` over all data sets of at most ``n`` rows.

    With ``A = α + βs``, ``s`` the other rows' ``Σx² ≤ (n−1)R²``: ``|m_i − m_0| ≤ βR(Y + R|m_0|)/A`` and
    ``|m_0| ≤ βY min(√(s(n−1)), (n−1)R)/A``. A replaced row moves twice, one that is absent in one of the
    data sets once. The maximum over ``s`` is bounded cell by cell.
    """
    top = (n - 1) * radius**2
    edges = np.concatenate([[0.0], np.geomspace(top * 1e-12, top, _CELLS)]) if top > 0 else np.zeros(2)
    low, high = edges[:-1], edges[1:]
    others = np.minimum(np.sqrt(high * (n - 1)), (n - 1) * radius)
    center = noise * response * others / (precision + noise * low)
    move = noise * radius * (response + radius * center) / (precision + noise * low)
    moves = 2 if adjacency == "replace_one" else 1
    shift = moves * move * np.sqrt(precision + noise * (high + radius**2))
    return Extremes(float(np.max(shift)) * _UP, (1 + noise * radius**2 / precision) * _UP)


def scale_divergence(ratio: float, epsilon: float) -> float:
    """``δ(ε)`` in the worse order of two centred normals with this ratio ``≥ 1`` of precisions."""
    if not ratio > 1:
        return 0.0
    gap = 0.5 * math.log(ratio)
    # The wider law against the narrower one: its tails, |x| > c, c in sds of the wider one.
    wide = math.sqrt(2 * (epsilon + gap) / (ratio - 1))
    best = _two_tails(wide) - math.exp(epsilon + _log_two_tails(wide * math.sqrt(ratio)))
    if gap > epsilon:
        narrow = math.sqrt(2 * (gap - epsilon) / (ratio - 1))
        inside = (1 - _two_tails(narrow * math.sqrt(ratio))) - math.exp(epsilon) * (1 - _two_tails(narrow))
        best = max(best, inside)
    return min(1.0, max(0.0, best) + 1e-13)


def normal_regression(found: Extremes, epsilon: float) -> float:
    """``δ(ε)`` of the two parts together; the law in between may have the mean of either end."""
    return triangle_bound(
        lambda at: gdp.delta(found.shift, at), lambda at: scale_divergence(found.ratio, at), epsilon
    )


def posterior_normal_regression(
    precision: float,
    noise: float,
    *,
    radius: float,
    response: float,
    n: int,
    epsilons: tuple[float, ...],
    adjacency: Adjacency = "replace_one",
) -> Statement:
    """The posterior slope of ``y = θx + N(0, 1/β)`` under ``θ ~ N(0, 1/α)``, at most ``n`` rows.

    **Guarantee**: one exact posterior draw satisfies every point of the curve under the adjacency.
    **Assumptions**: the model is this regression, ``|x| ≤ R``, ``|y| ≤ Y`` for every row.

    Args:
        precision: ``α``.
        noise: ``β``, times the temper.
        radius: ``R``.
        response: ``Y``.
        n: number of rows (its bound under ``add_remove``).
        epsilons: where the curve is evaluated.
        adjacency: the relation.

    Raises:
        DeclarationError: for constants that are not positive and finite.

    Source: Gaussian divergences and the triangle inequality of hockey-stick divergences.
    """
    for name, value in (
        ("precision", precision),
        ("noise", noise),
        ("radius", radius),
        ("response", response),
    ):
        if not 0 < value < math.inf:
            raise DeclarationError(f"Normal regression: {name}={value} must be positive and finite.")
    found = extremes(precision, noise, radius=radius, response=response, n=n, adjacency=adjacency)
    points = tuple((float(at), normal_regression(found, at)) for at in epsilons)
    argument = Argument(
        "Normal regression in one dimension: a shift and a change of scale of Gaussian posteriors",
        (BOUNDED_PAIRS, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {
            "precision": precision, "noise": noise, "radius": radius, "response": response, "n": n,
            "epsilons": tuple(float(at) for at in epsilons),
        },
        "posterior.normal_regression",
    )  # fmt: skip
    return capped(Statement(adjacency, (Points(points),), argument), n)


def _log_two_tails(at: float) -> float:
    return math.log(2.0) + float(log_ndtr(-at))


def _two_tails(at: float) -> float:
    return math.exp(_log_two_tails(at))
