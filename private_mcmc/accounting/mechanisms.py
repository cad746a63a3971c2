"""Statements of single mechanisms: noise on a value, one exact draw of a posterior."""

from __future__ import annotations

import math

from private_mcmc.accounting.curves.curve import Curve, Gaussian, Laplace, Pure
from private_mcmc.accounting.rounding import product_up, root_down, root_up, sum_up
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constants, Record
from private_mcmc.target import Adjacency, check_adjacency, check_count, check_positive


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
    for name, value in {"epsilon": epsilon, "sensitivity": sensitivity, "scale": scale}.items():
        check_positive(name, value)
    check_count("dim", dim)
    if not 0 <= grid < math.inf:
        raise DeclarationError(f"grid={grid}: a finite number, at least 0.")
    constants: Record = {"epsilon": epsilon, "sensitivity": sensitivity, "scale": scale}
    constants |= {"grid": grid, "dim": dim, "what": what}
    argument = Argument.of("noise.laplace", check_adjacency(adjacency), constants)
    return Statement(adjacency, laplace_curves(constants), argument)


def laplace_curves(c: Constants) -> tuple[Curve, ...]:
    """The level of ``epsilon``, or what a scale that is a rounding too small gives; refused further below."""
    level, moved = c["epsilon"], sum_up((c["sensitivity"], product_up(c["dim"], c["grid"])))
    needed = product_up(moved, over=(c["scale"],))
    if not needed <= level * (1 + 2.0**-48):
        raise DeclarationError(
            f"{c['what']}: scale={c['scale']} is below (sensitivity + dim·grid)/epsilon = {moved / level}."
        )
    level = max(float(level), needed)
    return (Laplace(level) if c["dim"] == 1 and c["grid"] == 0 else Pure(level),)


def gaussian(
    *, adjacency: Adjacency, sensitivity: float, scale: float, dim: int = 1, what: str = "release"
) -> Statement:
    """``dim`` coordinates of L2 sensitivity ``Δ``, Gaussian noise of sd ``scale`` on each: ``Δ/σ``-GDP.

    For noise on a grid give the sensitivity with the grid's charge and the sd of the Gaussian that it is as
    good as: ``GaussianNoise.charged_sensitivity`` and ``.gaussian_scale``.
    """
    check_positive("sensitivity", sensitivity)
    check_positive("scale", scale)
    check_count("dim", dim)
    constants: Record = {"sensitivity": sensitivity, "scale": scale, "dim": dim, "what": what}
    argument = Argument.of("noise.gaussian", check_adjacency(adjacency), constants)
    return Statement(adjacency, gaussian_curves(constants), argument)


def gaussian_curves(c: Constants) -> tuple[Curve, ...]:
    """``Δ/σ``-GDP."""
    return (Gaussian(product_up(c["sensitivity"], over=(c["scale"],))),)


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
    constants = {"sensitivity": sensitivity, "strong_convexity": strong_convexity}
    return _posterior("strongly_log_concave", adjacency, constants, num_rows)


def posterior_bounded_gradient(
    gradient_bound: float, prior_strong_convexity: float, adjacency: Adjacency, num_rows: int | None = None
) -> Statement:
    """One exact posterior draw is ``2B/√μ_K``-GDP when only ``|wΣ∇v|_* ≤ B`` and ``K`` is ``μ_K``-convex.

    ``num_rows``: the number of rows that ``B`` is for.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1, by the Langevin limit.
    """
    constants = {"gradient_bound": gradient_bound, "prior_strong_convexity": prior_strong_convexity}
    return _posterior("bounded_gradient", adjacency, constants, num_rows)


def _posterior(rule: str, adjacency: Adjacency, given: dict[str, float], num_rows: int | None) -> Statement:
    """One exact draw from a posterior whose constants hold for every data set of the row domain."""
    moved, convexity = given.values()
    if not (moved >= 0 and 0 < convexity < math.inf):
        raise DeclarationError(f"{given}: the first is at least 0, the second positive and finite.")
    constants: Record = {name: float(value) for name, value in given.items()}
    constants |= {} if num_rows is None else {"num_rows": num_rows}
    argument = Argument.of(f"posterior.{rule}", check_adjacency(adjacency), constants)
    return Statement(adjacency, posterior_curves(constants), argument)


def posterior_curves(c: Constants) -> tuple[Curve, ...]:
    """``Δ/√μ``-GDP, or ``2B/√μ_K``-GDP."""
    if "sensitivity" in c:
        return (Gaussian(product_up(c["sensitivity"], over=(root_down(c["strong_convexity"]),))),)
    least = root_down(c["prior_strong_convexity"])
    return (Gaussian(product_up(2.0, c["gradient_bound"], over=(least,))),)
