"""Upper bounds on what one exact posterior draw reveals, from proved constants."""

from __future__ import annotations

import math

from private_mcmc.accounting import (
    Statement,
    capped,
    posterior_bounded,
    posterior_bounded_gradient,
    posterior_strongly_log_concave,
    row_sensitivity,
)
from private_mcmc.model import RowModel
from private_mcmc.preflight.certify.conjugates import conjugate_certificates
from private_mcmc.preflight.certify.constants import Constants
from private_mcmc.target import Target


def certificates(
    row_model: RowModel,
    known: Constants,
    *,
    n: int,
    temper: float,
    target: Target,
    whole_curve: bool = True,
) -> tuple[Statement, ...]:
    """Every certificate whose assumptions are proved, best at the target first.

    - bounded log-likelihood: ``b = w·2r`` (``replace_one``) or ``w·r``, ``r`` the range of a row's loss,
      under a proper prior;
    - strongly log-concave: ``Δ/√μ``-GDP, ``Δ = 2wC`` or ``wC``, ``μ`` the prior's for convex rows, and
      the prior's less ``wn`` times a row's curvature for others;
    - bounded gradient: ``2B/√μ_K``-GDP, ``B = wnC``;
    - exact conjugate families, where clipping is idle.

    ``whole_curve=False`` leaves the exact ones at the target's ε alone, which is quicker.

    **Guarantee**: each holds for one exact draw of ``known.subject``. None where that is no posterior.
    """
    if known.subject == "no posterior":
        return ()
    found = []
    per_row = 2.0 if target.adjacency == "replace_one" else 1.0
    if math.isfinite(known.row_range) and known.proper:
        range_b = _product(temper, per_row * known.row_range * (1 + 1e-12))
        found.append(posterior_bounded(range_b, target.adjacency))
    if known.strong_convexity > 0 and 0 < known.gradient < math.inf:
        mu = known.convexity(temper * n)
        if mu > 0:
            sensitivity = _product(temper, row_sensitivity(known.gradient, 1.0, target.adjacency))
            found.append(capped(posterior_strongly_log_concave(sensitivity, mu, target.adjacency), n))
        bound = _product(temper, n * known.gradient * (1 + 1e-12))
        gradient = posterior_bounded_gradient(bound, known.strong_convexity, target.adjacency)
        found.append(capped(gradient, n))
    if known.subject == "posterior":
        found += conjugate_certificates(row_model, n=n, temper=temper, target=target, whole_curve=whole_curve)
    return tuple(sorted(found, key=lambda statement: _rank(statement, target)))


def meets(statement: Statement, target: Target) -> bool:
    """Whether a statement certifies the target."""
    return statement.adjacency == target.adjacency and bool(statement.delta(target.epsilon) <= target.delta)


def _product(first: float, second: float) -> float:
    """Of two bounds; what is too small for a float is still not nothing."""
    return max(first * second, 1e-300) if second > 0 else 0.0


def _rank(statement: Statement, target: Target) -> tuple[float, float]:
    return statement.delta(target.epsilon), statement.epsilon(max(target.delta, 1e-300))
