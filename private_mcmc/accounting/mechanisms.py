"""Statements of single mechanisms: noise on a value, one posterior draw, a run behind a noised test."""

from __future__ import annotations

import math
from collections.abc import Callable

from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import (
    Concentrated,
    Curve,
    Gaussian,
    Laplace,
    Pure,
)
from private_mcmc.accounting.rounding import product_up, root_down, root_up, sum_up
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record
from private_mcmc.target import Adjacency, check_adjacency


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
    """
    _check(what, dim, grid, epsilon=epsilon, sensitivity=sensitivity, scale=scale)
    constants: Record = {"epsilon": epsilon, "sensitivity": sensitivity, "scale": scale}
    constants |= {"grid": grid, "dim": dim, "what": what}
    argument = Argument.of("noise.laplace", check_adjacency(adjacency), constants)
    return Statement(adjacency, laplace_curves(constants), argument)


def laplace_curves(c: Constants) -> tuple[Curve, ...]:
    """The level of ``epsilon``, or what a scale that is a rounding too small gives; refused further below."""
    level, sensitivity, scale, moved = (
        c["epsilon"],
        c["sensitivity"],
        c["scale"],
        product_up(c["dim"], c["grid"]),
    )
    needed = product_up(sum_up((sensitivity, moved)), over=(scale,))
    if not needed <= level * (1 + 2.0**-48):
        raise DeclarationError(
            f"{c['what']}: scale={scale} is below (sensitivity + dim·grid)/epsilon = "
            f"{(sensitivity + moved) / level}."
        )
    level = max(float(level), needed)
    return (Laplace(level) if c["dim"] == 1 and c["grid"] == 0 else Pure(level),)


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
    constants: Record = {"sensitivity": sensitivity, "scale": scale, "grid": grid, "dim": dim, "what": what}
    argument = Argument.of("noise.gaussian", check_adjacency(adjacency), constants)
    return Statement(adjacency, gaussian_curves(constants), argument)


def gaussian_curves(c: Constants) -> tuple[Curve, ...]:
    """GDP without a grid, zCDP with one."""
    return (_gaussian_curve(c["sensitivity"], c["scale"], c["grid"], c["dim"]),)


def _gaussian_curve(sensitivity: float, scale: float, grid: float | None, dim: int) -> Curve:
    if grid is None:
        return Gaussian(product_up(sensitivity, over=(scale,)))
    moved = sum_up((sensitivity, product_up(grid, root_up(float(dim)))))
    return Concentrated(product_up(moved, moved, 0.5, over=(scale, scale)))


def second_moments_sensitivity(radius: float, dim: int, adjacency: Adjacency) -> float:
    """Frobenius sensitivity of ``XᵀX`` for ``‖x‖ ≤ R``: ``√2 R²`` (``replace_one``, p ≥ 2) or ``R²``."""
    both = check_adjacency(adjacency) == "replace_one" and dim >= 2
    return product_up(root_up(2.0) if both else 1.0, radius, radius)


def posterior_strongly_log_concave(
    sensitivity: float, strong_convexity: float, adjacency: Adjacency, num_rows: int | None = None
) -> Statement:
    """One exact posterior draw is ``Δ/√μ``-GDP when every ``U_D`` is ``μ``-strongly convex.

    ``num_rows``: the number of rows that ``μ`` was proved for, where it depends on that.

    Source: Gopi, Lee, Liu 2022.
    """
    if not (sensitivity >= 0 and 0 < strong_convexity < math.inf):
        raise DeclarationError(
            f"sensitivity={sensitivity}, strong_convexity={strong_convexity}: need Δ ≥ 0 and a finite μ > 0."
        )
    constants: Record = {"sensitivity": float(sensitivity), "strong_convexity": float(strong_convexity)}
    return _posterior(
        "strongly_log_concave",
        adjacency,
        constants | ({} if num_rows is None else {"num_rows": num_rows}),
        strongly_log_concave_curves,
    )


def strongly_log_concave_curves(c: Constants) -> tuple[Curve, ...]:
    """``Δ/√μ``-GDP."""
    return (Gaussian(product_up(c["sensitivity"], over=(root_down(c["strong_convexity"]),))),)


def posterior_bounded_gradient(
    gradient_bound: float, prior_strong_convexity: float, adjacency: Adjacency, num_rows: int | None = None
) -> Statement:
    """One exact posterior draw is ``2B/√μ_K``-GDP when only ``|wΣ∇v|_* ≤ B`` and ``K`` is ``μ_K``-convex.

    ``num_rows``: the number of rows that ``B`` is for.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1, by the Langevin limit.
    """
    if not (gradient_bound >= 0 and 0 < prior_strong_convexity < math.inf):
        raise DeclarationError(
            f"gradient_bound={gradient_bound}, prior_strong_convexity={prior_strong_convexity}: "
            "need B ≥ 0 and a finite μ_K > 0."
        )
    constants: Record = {
        "gradient_bound": float(gradient_bound),
        "prior_strong_convexity": float(prior_strong_convexity),
    }
    return _posterior(
        "bounded_gradient",
        adjacency,
        constants | ({} if num_rows is None else {"num_rows": num_rows}),
        bounded_gradient_curves,
    )


def bounded_gradient_curves(c: Constants) -> tuple[Curve, ...]:
    """``2B/√μ_K``-GDP."""
    least = root_down(c["prior_strong_convexity"])
    return (Gaussian(product_up(2.0, c["gradient_bound"], over=(least,))),)


def _posterior(
    rule: str,
    adjacency: Adjacency,
    constants: Record,
    curves: Callable[[Constants], tuple[Curve, ...]],
) -> Statement:
    """One exact draw from a posterior whose constants hold for every data set of the row domain."""
    argument = Argument.of(f"posterior.{rule}", check_adjacency(adjacency), constants)
    return Statement(adjacency, curves(constants), argument)


def run_distance_at_least(epsilon: float, posterior_delta: float, run_delta: float) -> float:
    """A total variation that the run exceeds for one of two adjacent data sets, rounded down.

    If the run is ``(ε, δ_n)``-DP and the posterior is **not** ``(ε, δ)``-DP, ``δ > δ_n`` (or refused), then
    ``TV > (δ − δ_n) e^{−ε}/(1 + e^{−ε})``: such a run is not close to its posterior.

    Source: BJRD Proposition 3.4.
    """
    gdp.check_epsilon(epsilon)
    gdp.check_delta(posterior_delta)
    gdp.check_delta(run_delta)
    if not posterior_delta > run_delta:
        raise DeclarationError(
            f"posterior_delta={posterior_delta} is not above run_delta={run_delta}: nothing follows."
        )
    decay = math.exp(-epsilon)
    return (posterior_delta - run_delta) * decay / (1 + decay) * (1 - 2.0**-48)
