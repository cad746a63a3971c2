"""What is proved of one exact posterior draw, for every data set of the domain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from private_mcmc.accounting import (
    Statement,
    capped,
    of_unit,
    posterior_bounded_gradient,
    posterior_strongly_log_concave,
    row_sensitivity,
)
from private_mcmc.model import RowModel
from private_mcmc.potential.chain_constants import largest_eigenvalue, never_clips
from private_mcmc.potential.families import times
from private_mcmc.preflight.conjugates import Conjugate, conjugate, conjugate_certificate
from private_mcmc.schedule import Matrix
from private_mcmc.target import Target, check_positive

# In the place of the gradient of rows that read no parameter.
_LEAST = 1e-300


Subject = Literal["posterior", "Huberised posterior", "no posterior"]


@dataclass(frozen=True)
class Constants:
    """Constants of ``U = K + w Σ v_i`` for every data set of the domain, in one metric.

    Attributes:
        subject: the density that certificates and refutations are about. ``no posterior`` when rows of
            several predictors, or none, are clipped: the clipped field is then no gradient. A loss
            of one predictor whose derivative is clipped is again a function of it, its "Huberised" version.
        gradient: proved bound ``C`` on one row's gradient, clipping included; ``inf`` if there is none.
        gradient_free: the same without clipping.
        curvature: proved bound on the Hessian of one row, clipping included.
        strong_convexity: ``μ_K`` of the prior.
        convex_rows: every row's loss is convex, clipping included.
        conjugate: the conjugate family, if rows are proved to be of one and are not clipped.
    """

    subject: Subject
    gradient: float
    gradient_free: float
    curvature: float
    strong_convexity: float
    convex_rows: bool
    conjugate: Conjugate | None

    def convexity(self, weight: float) -> float:
        """``μ`` of ``U`` for rows of total weight ``weight``: ``μ_K``, less what they may bend down."""
        if self.convex_rows:
            return self.strong_convexity
        loss = times(weight, self.curvature)
        return max(self.strong_convexity - loss * (1 + 1e-9), 0.0) if math.isfinite(loss) else 0.0


def constants(row_model: RowModel, clip: float | None, preconditioner: Matrix | None = None) -> Constants:
    """Collect the constants of a model whose rows are clipped at ``clip`` (``None``: not clipped).

    All of them in the metric of ``preconditioner``, in which clipping is measured too.
    """
    if clip is not None:
        check_positive("clip", clip)
    rows = row_model.constants
    widest = largest_eigenvalue(preconditioner)
    # Of the model itself nothing is proved where kernels may have to shorten a design, or hold an outcome.
    steep, bend = (rows.gradient_bound, rows.curvature_bound) if rows.proved else (math.inf, math.inf)
    free = times(math.sqrt(widest) * (1 + 1e-15), steep)
    idle = clip is None or never_clips(free, clip, row_model)
    single = row_model.predictor is not None
    return Constants(
        subject="posterior" if idle else ("Huberised posterior" if single else "no posterior"),
        gradient=max(free if clip is None else min(free, clip), _LEAST),
        gradient_free=free,
        curvature=times(widest * (1 + 1e-15), bend),
        strong_convexity=row_model.prior.in_metric(preconditioner)[0],
        convex_rows=rows.convex and rows.proved and (idle or single),
        # Of persons it would have to be maximised again, over every number of rows on each side.
        conjugate=conjugate(row_model) if idle and row_model.unit is None else None,
    )


def certificates(
    row_model: RowModel, known: Constants, *, n: int, temper: float, target: Target, whole_curve: bool = True
) -> tuple[Statement, ...]:
    """Every certificate whose assumptions are proved, best at the target first.

    - strongly log-concave: ``Δ/√μ``-GDP, ``Δ = 2wC`` or ``wC``, ``μ`` the prior's for convex rows, and
      the prior's less ``wn`` times a row's curvature for others;
    - bounded gradient: ``2B/√μ_K``-GDP, ``B = wnC``;
    - exact conjugate families, where clipping is idle.

    ``whole_curve=False`` leaves the exact ones at the target's ε alone, which is quicker.

    **Guarantee**: each holds for one exact draw of ``known.subject``. None where that is no posterior.
    """
    if known.subject == "no posterior":
        return ()
    found: list[Statement] = []
    if known.strong_convexity > 0 and known.gradient < math.inf:
        mu = known.convexity(temper * n)
        if mu > 0:
            sensitivity = _product(temper, row_sensitivity(known.gradient, 1.0, target.adjacency))
            found.append(capped(posterior_strongly_log_concave(sensitivity, mu, target.adjacency, n), n))
        bound = _product(temper, n * known.gradient * (1 + 1e-12))
        gradient = posterior_bounded_gradient(bound, known.strong_convexity, target.adjacency, n)
        found.append(capped(gradient, n))
    if known.conjugate is not None:
        exact = conjugate_certificate(
            known.conjugate, n=n, temper=temper, target=target, whole_curve=whole_curve
        )
        found += [] if exact is None else [exact]

    def rank(statement: Statement) -> tuple[float, float]:
        return statement.delta(target.epsilon), statement.epsilon(max(target.delta, 1e-300))

    return tuple(sorted((of_unit(statement, row_model.unit) for statement in found), key=rank))


def meets(statement: Statement, target: Target) -> bool:
    """Whether a statement certifies the target."""
    return statement.adjacency == target.adjacency and bool(statement.delta(target.epsilon) <= target.delta)


def _product(first: float, second: float) -> float:
    """Of two bounds; what is too small for a float is still not nothing."""
    return max(first * second, _LEAST) if second > 0 else 0.0
