"""Proved constants of one row's loss as a function of all latents, before any clipping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.cases import few_values
from private_mcmc.model.ir.interval import anything, pinned
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Program, abstract, trace
from private_mcmc.model.ir.smoothness import Shape, smoothness
from private_mcmc.model.likelihoods.family import UNKNOWN, times
from private_mcmc.model.likelihoods.terms import row_values
from private_mcmc.model.predictor import MultiPredictor
from private_mcmc.model.reasons import missing_structure
from private_mcmc.model.sites import Observation

_WIDEST = 200.0
# A steeper bound is one of rounding at the edge of the floats.
_STEEPEST = 1e9
_KINKS = Shape.CONTINUOUS


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


def row_constants(
    program: Program, rows: Rows, predictor: MultiPredictor | None, observations: Sequence[Observation]
) -> RowConstants:
    """Chain rule through the predictors: ``‖∇v‖ ≤ ‖A‖·‖ψ'‖``, ``‖∇²v‖ ≤ ‖A‖²·‖ψ''‖``.

    Without predictors, interval arithmetic on the gradient in all latents, which bounds it only where
    every parameter of the likelihood is bounded.
    """
    spread = loss_range(program, rows)
    if predictor is None:
        steepest = _gradient_bound(program, rows)
        why = f"interval arithmetic on the gradient: ‖∇v‖ ≤ {steepest:.6g}"
        if math.isinf(steepest):
            why = missing_structure(program, rows, observations)
        return RowConstants(False, steepest, math.inf, spread, why)
    family, radius = predictor.family, predictor.radius
    proved = family.name != UNKNOWN.name or math.isfinite(family.score_bound)
    why = family.why if proved else missing_structure(program, rows, observations)
    return RowConstants(
        convex=family.convex,
        gradient_bound=times(radius, family.score_bound),
        curvature_bound=times(times(radius, radius), family.curvature_bound),
        # A recognised family is evaluated by its own formula, which NumPyro's clamps do not bound.
        range_bound=spread if family.name == UNKNOWN.name else family.range_bound,
        why=f"{why}; ‖∂η/∂θ‖ ≤ {radius:.6g} over the row domain",
    )


def _gradient_bound(program: Program, rows: Rows) -> float:
    """Bound of ``‖∇v‖`` in the unconstrained latents, all of them unbounded; kinks are allowed."""
    theta, loss = program.inputs["theta"], program.outputs["loss"]
    values = row_values(program, rows)
    if smoothness(program, "theta", "loss", {**values, theta: anything(program.shape(theta))}) > _KINKS:
        return math.inf

    def gradient(theta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        given = {program.inputs[name]: value for name, value in row.items()}
        slope = jax.grad(
            lambda point: jnp.reshape(program.run([loss], {program.inputs["theta"]: point, **given})[0], ())
        )
        return {"gradient": slope(theta)}

    shapes = {name: abstract(program.shape(v), program.avals[v].dtype) for name, v in program.inputs.items()}
    derived = trace(gradient, **shapes)
    given = {derived.inputs[name]: values[program.inputs[name]] for name, _ in rows.items}
    worst = 0.0
    for case in few_values(rows):
        fixed = {derived.inputs[name]: pinned(given[derived.inputs[name]], at) for name, at in case.items()}
        (slope,) = bounds(derived, {**given, **fixed}, [derived.outputs["gradient"]])
        worst = max(worst, slope.norm)
    return worst if worst <= _STEEPEST else math.inf


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
