"""Upper bounds on what one exact posterior draw reveals, from proved constants."""

from __future__ import annotations

import math

from private_mcmc.accounting import (
    Statement,
    posterior_bounded,
    posterior_bounded_gradient,
    posterior_strongly_log_concave,
    row_sensitivity,
)
from private_mcmc.preflight.constants import Constants
from private_mcmc.target import Adjacency, Target


def certificates(known: Constants, *, n: int, temper: float, target: Target) -> tuple[Statement, ...]:
    """Every certificate whose assumptions are proved, best at the target first.

    - bounded log-likelihood: ``b = w·2r`` (``replace_one``) or ``w·r``, ``r`` the range of a row's loss;
    - strongly log-concave: ``Δ/√μ``-GDP, ``Δ = 2wC`` or ``wC``, for convex rows under a ``μ``-convex prior;
    - bounded gradient: ``2B/√μ_K``-GDP, ``B = wnC``.

    **Guarantee**: each holds for one exact draw of ``known.subject``. None where that is no posterior.
    """
    if known.subject == "no posterior":
        return ()
    found = []
    per_row = 2.0 if target.adjacency == "replace_one" else 1.0
    if math.isfinite(known.row_range):
        found.append(posterior_bounded(temper * per_row * known.row_range * (1 + 1e-12), target.adjacency))
    if known.strong_convexity > 0 and 0 < known.gradient < math.inf:
        if known.convex_rows:
            sensitivity = row_sensitivity(known.gradient, temper, target.adjacency)
            found.append(
                posterior_strongly_log_concave(sensitivity, known.strong_convexity, target.adjacency)
            )
        bound = temper * n * known.gradient * (1 + 1e-12)
        found.append(posterior_bounded_gradient(bound, known.strong_convexity, target.adjacency))
    return tuple(sorted(found, key=lambda statement: _rank(statement, target)))


def meets(statement: Statement, target: Target) -> bool:
    """Whether a statement certifies the target."""
    return statement.adjacency == target.adjacency and bool(statement.delta(target.epsilon) <= target.delta)


def gdp_constant(known: Constants, n: int, adjacency: Adjacency) -> float:
    """``k`` such that the best Gaussian certificate is ``w·k``-GDP; ``inf`` if there is none."""
    if not (known.strong_convexity > 0 and 0 < known.gradient < math.inf):
        return math.inf
    per_row = row_sensitivity(known.gradient, 1.0, adjacency)
    data = min(per_row, 2.0 * n * known.gradient) if known.convex_rows else 2.0 * n * known.gradient
    return data / math.sqrt(known.strong_convexity) * (1 + 1e-12)


def _rank(statement: Statement, target: Target) -> tuple[float, float]:
    return statement.delta(target.epsilon), statement.epsilon(max(target.delta, 1e-300))
