"""The posterior slope of a regression whose rows lie near one line: pairs with a bounded ratio.

Prior ``N(0, 1/α)``, noise precision ``β`` (temper included), rows ``x_l ≤ x ≤ x_h``, ``|y/x − c| ≤ g``. With
``z`` the other rows' ``Σx²``, ``a = α + βz``, and ``r_0`` their mean ratio, weighted by ``x²`` (any ratio of
the domain without others), a row puts the posterior's mean at ``r_0 + p(r − r_0) − αr_0/(a + βx²)``,
``p = βx²/(a + βx²)``. Of two rows the ``p(r − r_0)`` differ by at most ``2gp_h``: ratios on both sides of
``r_0`` are at most ``2g`` apart, and on one side the larger term counts. The last terms differ by at most
``αβ(|c| + g)(x_h² − x_l²)/((a + βx_l²)(a + βx_h²))``. Times the root of a precision these fall with ``z``, as
does the ratio of the precisions; ``z ≥ (n−1)x_l²``.
"""

from __future__ import annotations

import math

from private_mcmc.accounting.assumptions import EXACT_DRAW, RATIO_PAIRS, RELATION
from private_mcmc.accounting.composition import capped
from private_mcmc.accounting.curves.curve import Points
from private_mcmc.accounting.posterior.normal import Extremes, normal_regression
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError

_UP = 1 + 1e-11


def ratio_extremes(
    precision: float, noise: float, *, x_low: float, x_high: float, center: float, width: float, n: int
) -> Extremes:
    """Largest shift of the mean in standard deviations and largest ratio of precisions, one row replaced."""
    low, high = x_low * x_low, x_high * x_high
    least = (precision + noise * (n - 1) * low) * (1 - 1e-12)
    shortest, longest = least + noise * low, least + noise * high
    pulled = 2 * noise * high * width / longest
    shrunk = precision * (abs(center) + width) * noise * (high - low) / shortest / longest
    moved = (pulled + shrunk) * math.sqrt(longest)
    ratio = 1 + noise * (high - low) / shortest
    return Extremes(moved * _UP, ratio * _UP)


def posterior_normal_ratio(
    precision: float,
    noise: float,
    *,
    x_low: float,
    x_high: float,
    center: float,
    width: float,
    n: int,
    epsilons: tuple[float, ...],
) -> Statement:
    """The posterior slope of ``y = θx + N(0, 1/β)`` under ``θ ~ N(0, 1/α)``, one of ``n`` rows replaced.

    **Guarantee**: one exact posterior draw satisfies every point of the curve under ``replace_one``.
    **Assumptions**: the model is this regression, every row lies in the domain.

    Args:
        precision: ``α``.
        noise: ``β``, times the temper.
        x_low: smallest ``x``, above 0.
        x_high: largest ``x``.
        center: ``c``, what ratios ``y/x`` are near.
        width: ``g``, how near.
        n: number of rows.
        epsilons: where the curve is evaluated.

    Raises:
        DeclarationError: for constants that are not positive and finite.

    Source: Gaussian divergences; the domain of Heller, Fetaya 2023, (5).
    """
    held = {"precision": precision, "noise": noise, "x_low": x_low, "x_high": x_high, "width": width}
    if not (all(0 < value < math.inf for value in held.values()) and math.isfinite(center)):
        raise DeclarationError(f"Normal regression of bounded ratio: {held} must be positive and finite.")
    if not (x_low <= x_high and n >= 1):
        raise DeclarationError(f"Normal regression of bounded ratio: x_low={x_low}, x_high={x_high}, n={n}.")
    found = ratio_extremes(precision, noise, x_low=x_low, x_high=x_high, center=center, width=width, n=n)
    points = tuple((float(at), normal_regression(found, at)) for at in epsilons)
    argument = Argument(
        "Normal regression of bounded ratio: a shift and a change of scale of Gaussian posteriors",
        (RATIO_PAIRS, EXACT_DRAW, RELATION["replace_one"]),
        {**held, "center": center, "n": n, "epsilons": tuple(float(at) for at in epsilons)},
        "posterior.normal_ratio",
    )
    return capped(Statement("replace_one", (Points(points),), argument), n)
