"""Proved constants of one row's loss as a function of all latents, before any clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.modeling.cases import few_values
from private_mcmc.modeling.family import UNKNOWN, times
from private_mcmc.modeling.intervals import bounds
from private_mcmc.modeling.predictor import MultiPredictor
from private_mcmc.modeling.program import Program
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.site_terms import row_values
from private_mcmc.modeling.values import pinned

_WIDEST = 200.0


@dataclass(frozen=True)
class RowConstants:
    """What is proved of ``v(θ, row)`` for every row of the domain and every ``θ``, in Euclidean norm.

    In the metric of a preconditioner ``M`` the gradient bound grows by ``λ_max(M)^{1/2}`` and the
    curvature bound by ``λ_max(M)``.

    Attributes:
        convex: ``v`` is convex in ``θ``.
        gradient_bound: ``‖∇v‖ ≤ gradient_bound``.
        curvature_bound: ``‖∇²v‖ ≤ curvature_bound``.
        range_bound: ``sup_θ v − inf_θ v`` for each row.
        why: the argument.
    """

    convex: bool
    gradient_bound: float
    curvature_bound: float
    range_bound: float
    why: str


def row_constants(program: Program, rows: Rows, predictor: MultiPredictor | None) -> RowConstants:
    """Chain rule through the predictors: ``‖∇v‖ ≤ ‖A‖·‖ψ'‖``, ``‖∇²v‖ ≤ ‖A‖²·‖ψ''‖``."""
    spread = loss_range(program, rows)
    if predictor is None:
        why = "the loss has no affine predictors that are recognised"
        return RowConstants(False, math.inf, math.inf, spread, why)
    family, radius = predictor.family, predictor.radius
    return RowConstants(
        convex=family.convex,
        gradient_bound=times(radius, family.score_bound),
        curvature_bound=times(times(radius, radius), family.curvature_bound),
        # A recognised family is evaluated by its own formula, which NumPyro's clamps do not bound.
        range_bound=spread if family.name == UNKNOWN.name else family.range_bound,
        why=f"{family.why}; ‖∂η/∂θ‖ ≤ {radius:.6g} over the row domain",
    )


def loss_range(program: Program, rows: Rows) -> float:
    """Bound of ``sup_θ v − inf_θ v`` for each row, by interval arithmetic; ``θ`` is unbounded."""
    values = row_values(program, rows)
    widest = 0.0
    for case in few_values(rows):
        fixed = {program.inputs[name]: pinned(values[program.inputs[name]], at) for name, at in case.items()}
        (loss,) = bounds(program, {**values, **fixed}, [program.outputs["loss"]])
        widest = max(widest, loss.highest - loss.lowest)
    # A wider range than this is that of a clamp at the smallest float, not one of the model.
    return widest if 0 <= widest <= _WIDEST else math.inf
