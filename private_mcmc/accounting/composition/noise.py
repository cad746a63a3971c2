"""Statements of noise added to a released value."""

from __future__ import annotations

import math

from private_mcmc.accounting.assumptions import CLIPPED_RADIUS, ONE_DRAW, RELATION, moves
from private_mcmc.accounting.curves.curve import Concentrated, Curve, Gaussian, Laplace, Pure
from private_mcmc.accounting.rounding import product_up, root_up, sum_up
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency

_UP = 1 + 4 * math.ulp(1.0)


def _check(what: str, dim: int, grid: float, **positive: float) -> None:
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise DeclarationError(f"{what}: {name}={value} must be positive and finite.")
    if not (dim >= 1 and 0 <= grid < math.inf):
        raise DeclarationError(f"{what}: dim={dim}, grid={grid}: need dim ≥ 1 and a finite grid ≥ 0.")


def laplace(
    epsilon: float,
    *,
    adjacency: Adjacency,
    sensitivity: float,
    scale: float,
    grid: float = 0.0,
    dim: int = 1,
    what: str = "release",
) -> Statement:
    """``dim`` coordinates of L1 sensitivity ``η``, one Laplace draw of ``scale`` on each: ``epsilon``-DP.

    ``scale ≥ (η + dim·h)/ε``, where ``h`` is the grid the coordinates are rounded to (0: none).

    Raises:
        DeclarationError: if the scale is too small for ``epsilon``.
    """
    _check(what, dim, grid, epsilon=epsilon, sensitivity=sensitivity, scale=scale)
    if not scale * epsilon * _UP >= sensitivity + dim * grid:
        raise DeclarationError(
            f"{what}: scale={scale} is below (sensitivity + dim·grid)/epsilon = "
            f"{(sensitivity + dim * grid) / epsilon}."
        )
    argument = Argument(
        "Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006)",
        (moves(what, "L1"), RELATION[check_adjacency(adjacency)]),
        {
            "epsilon": epsilon,
            "sensitivity": sensitivity,
            "scale": scale,
            "grid": grid,
            "dim": dim,
            "what": what,
        },
        "noise.laplace",
    )
    # The scale may miss its exact value by a rounding: then the level is that of the scale.
    level = max(float(epsilon), product_up(sum_up((sensitivity, product_up(dim, grid))), over=(scale,)))
    curve: Curve = Laplace(level) if dim == 1 and grid == 0 else Pure(level)
    return Statement(check_adjacency(adjacency), (curve,), argument)


def gaussian(
    *,
    adjacency: Adjacency,
    sensitivity: float,
    scale: float,
    grid: float | None = None,
    dim: int = 1,
    what: str = "release",
) -> Statement:
    """``dim`` coordinates of L2 sensitivity ``Δ``, noise of standard deviation ``scale`` on each.

    ``grid=None``: exact Gaussian noise, ``Δ/σ``-GDP. A number: noise discretised to that grid, after
    rounding to it, which is ``(Δ + h√dim)²/(2σ²)``-zCDP and not exactly GDP (Canonne, Kamath,
    Steinke 2020).
    """
    _check(what, dim, grid or 0.0, sensitivity=sensitivity, scale=scale)
    return Statement(
        check_adjacency(adjacency),
        (_gaussian_curve(sensitivity, scale, grid, dim),),
        Argument(
            "Gaussian mechanism (Dong, Roth, Su 2022)"
            if grid is None
            else "discretised Gaussian mechanism (Canonne, Kamath, Steinke 2020)",
            (moves(what, "L2"), RELATION[check_adjacency(adjacency)]),
            {"sensitivity": sensitivity, "scale": scale, "grid": grid, "dim": dim, "what": what},
            "noise.gaussian",
        ),
    )


def _gaussian_curve(sensitivity: float, scale: float, grid: float | None, dim: int) -> Curve:
    if grid is None:
        return Gaussian(product_up(sensitivity, over=(scale,)))
    moved = sum_up((sensitivity, product_up(grid, root_up(float(dim)))))
    return Concentrated(product_up(moved, moved, 0.5, over=(scale, scale)))


def second_moments_sensitivity(radius: float, dim: int, adjacency: Adjacency) -> float:
    """Frobenius sensitivity of ``XᵀX`` for ``‖x‖ ≤ R``: ``√2 R²`` (``replace_one``, p ≥ 2) or ``R²``."""
    both = check_adjacency(adjacency) == "replace_one" and dim >= 2
    return product_up(root_up(2.0) if both else 1.0, radius, radius)


def second_moments(
    *, radius: float, noise_sd: float, dim: int, adjacency: Adjacency, grid: float | None = None
) -> Statement:
    """``XᵀX`` of rows ``‖x‖ ≤ R`` with symmetric Gaussian noise: ``√2R²/τ``- or ``R²/τ``-GDP.

    The noise has variance ``τ²`` on the diagonal and ``τ²`` or ``τ²/2`` off it. With a ``grid`` (on
    every entry of the triangle) the noise is discretised and the statement is zCDP.
    """
    _check("second moments", dim, grid or 0.0, radius=radius, noise_sd=noise_sd)
    size = second_moments_sensitivity(radius, dim, adjacency)
    # In the Frobenius norm an entry off the diagonal counts √2 times: at most dim² grid steps.
    curve = _gaussian_curve(size, noise_sd, grid, dim * dim)
    argument = Argument(
        "Gaussian mechanism on the second moments (Dong, Roth, Su 2022)",
        (CLIPPED_RADIUS, ONE_DRAW),
        {"radius": radius, "noise_sd": noise_sd, "dim": dim, "adjacency": adjacency, "grid": grid},
        "noise.second_moments",
    )
    return Statement(check_adjacency(adjacency), (curve,), argument)


def second_moments_noise(gdp: float, radius: float, dim: int, adjacency: Adjacency) -> float:
    """The noise standard deviation ``τ`` at which ``second_moments`` is ``gdp``-GDP, rounded up."""
    _check("second moments", dim, 0.0, gdp=gdp, radius=radius)
    return product_up(second_moments_sensitivity(radius, dim, adjacency), over=(gdp,))
