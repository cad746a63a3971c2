"""Statements of single mechanisms (noise on a value, exact draws of posteriors), and of several together."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

from private_mcmc.accounting.curves import Curve, Gaussian, Pure, combine
from private_mcmc.accounting.rounding import norm_up, product_up, root_down, root_up, sum_up
from private_mcmc.accounting.statement import (
    RULES,
    Argument,
    Statement,
    again,
    common_unit,
    of_persons,
    stated,
)
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.records import Record
from private_mcmc.report import at_least, at_most
from private_mcmc.target import Adjacency, Unit, check_adjacency, check_count, check_positive


def laplace(
    epsilon: float,
    *,
    adjacency: Adjacency,
    sensitivity: float,
    scale: float,
    grid: float = 0.0,
    dim: int = 1,
    what: str = "release",
    num_rows: int | None = None,
) -> Statement:
    """``dim`` coordinates of L1 sensitivity ``η``, one Laplace draw of ``scale`` on each: ``epsilon``-DP.

    ``scale ≥ (η + dim·h)/ε``, where ``h`` is the grid the coordinates are rounded to (0: none). Of a scale
    that is a rounding too small the level is what it gives; a smaller one is refused. ``num_rows``: ``n``,
    under ``add_remove`` the public ``n_max``, for which the sensitivity holds.
    """
    constants: Record = {"epsilon": epsilon, "sensitivity": sensitivity, "scale": scale}
    for name, value in constants.items():
        check_positive(name, value)
    check_count("dim", dim)
    if not 0 <= grid < math.inf:
        raise DeclarationError(f"grid={grid}: a finite number, at least 0.")
    moved = sum_up((sensitivity, product_up(dim, grid)))
    needed = product_up(moved, over=(scale,))
    if not needed <= epsilon * (1 + 2.0**-48):
        raise DeclarationError(
            f"{what}: scale={scale} is below (sensitivity + dim·grid)/epsilon = {moved / epsilon}."
        )
    curve = Pure(max(float(epsilon), needed))
    constants |= {"grid": grid, "dim": dim, "what": what}
    theorem = "Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006)"
    lines = (f"{what}: two values on adjacent data differ by at most the sensitivity in L1",)
    return stated("noise.laplace", theorem, lines, constants, curve, adjacency=adjacency, num_rows=num_rows)


def gaussian(
    *,
    adjacency: Adjacency,
    sensitivity: float,
    scale: float,
    dim: int = 1,
    what: str = "release",
    num_rows: int | None = None,
) -> Statement:
    """``dim`` coordinates of L2 sensitivity ``Δ``, Gaussian noise of sd ``scale`` on each: ``Δ/σ``-GDP.

    For noise on a grid give the sensitivity with the grid's charge and the sd of the Gaussian that it is as
    good as: ``GaussianNoise.charged_sensitivity`` and ``.gaussian_scale``. ``num_rows``: as of ``laplace``.
    """
    check_positive("sensitivity", sensitivity)
    check_positive("scale", scale)
    check_count("dim", dim)
    constants: Record = {"sensitivity": sensitivity, "scale": scale, "dim": dim, "what": what}
    curve = Gaussian(product_up(sensitivity, over=(scale,)))
    lines = (f"{what}: two values on adjacent data differ by at most the sensitivity in L2",)
    theorem = "Gaussian mechanism (Dong, Roth, Su 2022)"
    return stated("noise.gaussian", theorem, lines, constants, curve, adjacency=adjacency, num_rows=num_rows)


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
    theorem = "strongly log-concave posterior (Gopi, Lee, Liu 2022)"
    return _posterior("posterior.strongly_log_concave", theorem, adjacency, 1.0, constants, num_rows)


def posterior_bounded_gradient(
    gradient_bound: float, prior_strong_convexity: float, adjacency: Adjacency, num_rows: int | None = None
) -> Statement:
    """One exact posterior draw is ``2B/√μ_K``-GDP when only ``|wΣ∇v|_* ≤ B`` and ``K`` is ``μ_K``-convex.

    ``num_rows``: the number of rows that ``B`` is for.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1, by the Langevin limit.
    """
    constants = {"gradient_bound": gradient_bound, "prior_strong_convexity": prior_strong_convexity}
    theorem = "bounded data gradient, log-concave prior (Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1)"
    return _posterior("posterior.bounded_gradient", theorem, adjacency, 2.0, constants, num_rows)


def _posterior(
    rule: str,
    theorem: str,
    adjacency: Adjacency,
    factor: float,
    given: dict[str, float],
    num_rows: int | None,
) -> Statement:
    """``factor · first/√second``-GDP of one exact draw, the numbers for every data set of the row domain."""
    moved, convexity = given.values()
    if not (moved >= 0 and 0 < convexity < math.inf):
        raise DeclarationError(f"{given}: the first is at least 0, the second positive and finite.")
    constants: Record = {name: float(value) for name, value in given.items()}
    curve = Gaussian(product_up(factor, moved, over=(root_down(float(convexity)),)))
    lines = ("the constants hold for every data set of the row domain", "the draw is exact")
    return stated(rule, theorem, lines, constants, curve, adjacency=adjacency, num_rows=num_rows)


def adaptive(
    budget: float,
    adjacency: Adjacency,
    stages: tuple[Statement, ...],
    unit: Unit | None = None,
    num_rows: int | None = None,
) -> Statement:
    """``B``-GDP for stages ``m_1, m_2, …`` with ``Σ m_j² ≤ B²``, each chosen from what was released before.

    **Guarantee**: ``budget``-GDP, the declared budget and never the realised sum. **Assumptions**: the budget
    was fixed before the first stage; every stage's ``m_j`` holds given the earlier outputs. ``NotPrivate``
    if they cost more, in exact fractions. Source: Smith, Thakurta 2022 (fully adaptive composition of
    Gaussian DP).
    """
    check_positive("budget", budget)
    spent = Fraction(0)
    for stage in stages:
        if stage.gdp is None or stage.gdp == math.inf:
            raise NotPrivate(f"the stage {stage.argument.theorem!r} has no finite Gaussian DP statement.")
        spent += Fraction(stage.gdp) ** 2
    if not spent <= Fraction(budget) ** 2:
        cost = norm_up(stage.gdp for stage in stages if stage.gdp is not None)
        raise NotPrivate(
            f"the stages cost {at_most(cost, 12)}-GDP, more than the budget {at_least(budget, 12)}."
        )
    lines = ("the budget was fixed before the first stage", "each stage holds for every earlier output")
    theorem = "fully adaptive composition under a Gaussian DP budget (Smith, Thakurta 2022)"
    whom: dict[str, Any] = {"adjacency": adjacency, "num_rows": num_rows, "unit": unit}
    most = float(budget)
    return stated("adaptive", theorem, lines, {"budget": most}, Gaussian(most), parts=stages, **whom)


_MOST_CANDIDATES = 64


def compose(*statements: Statement) -> Statement:
    """The statement of releasing everything that ``statements`` speak of, the minimum over curves taken last.

    **Assumptions**: independent randomness; mechanisms fixed in advance, or post-processing that was. Two
    statements of one run are refused (one chain is one mechanism: what is computed from its released states
    is free, more of it is not), as are different adjacencies or units.
    """
    if not statements:
        raise DeclarationError("compose needs at least one statement.")
    if len(statements) == 1:
        return statements[0]
    unit = common_unit(statements)
    theorem = f"composition of {len(statements)} independent mechanisms (Dong, Roth, Su 2022)"
    lines = ("the mechanisms use independent randomness and were fixed in advance",)
    persons = () if unit is None else (of_persons(unit),)
    argument = Argument(theorem, persons + lines, {}, "composition")
    curves = _together([statement.curves for statement in statements])
    return Statement(statements[0].adjacency, curves, argument, parts=statements, unit=unit)


def _together(options: list[tuple[Curve, ...]]) -> tuple[Curve, ...]:
    """One curve of each mechanism together: every choice, or two telling ones where these are too many."""
    if math.prod(map(len, options)) <= _MOST_CANDIDATES:
        return tuple(dict.fromkeys(map(combine, product(*options))))
    keys: tuple[Callable[[Curve], float], ...] = (lambda curve: curve.gdp, lambda curve: curve.epsilon(0.0))
    best = (tuple(min(curves, key=key) for curves in options) for key in keys)
    return tuple(dict.fromkeys(map(combine, best)))


RULES |= {
    "noise.laplace": again(laplace),
    "noise.gaussian": again(gaussian),
    "posterior.strongly_log_concave": again(posterior_strongly_log_concave),
    "posterior.bounded_gradient": again(posterior_bounded_gradient),
    "composition": lambda given: compose(*given.parts),
    "adaptive": lambda given: adaptive(
        adjacency=given.adjacency, stages=given.parts, unit=given.unit, **given.argument.constants
    ),
}
