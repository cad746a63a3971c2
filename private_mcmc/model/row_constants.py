"""Proved constants of one row's loss as a function of all latents, before any clipping."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import Rows, few_values
from private_mcmc.model.ir.dependence import Level, Shape, affinity, smoothness
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.interval import anything, pinned
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.likelihoods.family import UNKNOWN, times
from private_mcmc.model.likelihoods.terms import FAMILIES, find_term, row_values
from private_mcmc.model.predictor import MultiPredictor
from private_mcmc.model.sites import Observation
from private_mcmc.records import Record

_REMEDY = "clip the rows (clip=…, guarantee='run')"
_SHRINKING = "the score grows without bound as the scale shrinks or the residual grows; fix the scale"
_DISPERSION = "the score in the dispersion grows with the mean; fix the dispersion"
_ZEROS = "no joint bound of share and rate is known; fix the share of zeros"
_TWO = {
    ("Normal", "scale"): _SHRINKING,
    ("LogNormal", "scale"): _SHRINKING,
    ("Laplace", "scale"): _SHRINKING,
    ("Logistic", "scale"): _SHRINKING,
    ("Gumbel", "scale"): _SHRINKING,
    ("StudentT", "scale"): "the score grows without bound as the scale shrinks; fix the scale",
    ("Cauchy", "scale"): "the score grows without bound as the scale shrinks; fix the scale",
    ("NegativeBinomial2", "concentration"): _DISPERSION,
    ("NegativeBinomialLogits", "concentration"): _DISPERSION,
    ("GammaPoisson", "concentration"): _DISPERSION,
    ("Gamma", "concentration"): _DISPERSION,
    ("Weibull", "concentration"): _DISPERSION,
    ("OrderedLogistic", "cutpoints"): (
        "the gaps between cut points are exponentials of unconstrained numbers, whose gradient grows "
        "without bound; fix the cut points"
    ),
    ("ZeroInflatedPoisson", "gate"): _ZEROS,
    ("ZeroInflatedProbs", "gate"): _ZEROS,
    ("ZeroInflatedLogits", "gate_logits"): _ZEROS,
    ("MixtureSameFamily", "weights"): "no joint bound of weights and components is known; fix the weights",
}


def missing_structure(program: Program, rows: Rows, observations: Sequence[Observation]) -> str:
    """What is not recognised about the observed sites that read the latents, in words."""
    levels = affinity(program, "theta")
    reasons = []
    for site in observations:
        if "theta" not in program.reads([program.outputs[Output("row", site.name)]]):
            continue
        if find_term(program, rows, site, levels) is None:
            reasons.append(f"site {site.name!r}: {_reason(_moving(program, site, levels), site)}")
    if not reasons:
        return f"the latents reach the observed sites through predictors that cannot be told apart; {_REMEDY}"
    return f"{'; '.join(reasons)}, or {_REMEDY}"


def _moving(program: Program, site: Observation, levels: Mapping[int, Level]) -> dict[str, Level]:
    given = {part: levels[variable] for part, variable in program.parts("given", site.name).items()}
    # Ordered families hold their probabilities beside the predictor that makes them.
    derived = {"difference", "probs"} if "predictor" in given else {"difference"}
    return {n: level for n, level in given.items() if level is not Level.CONSTANT and n not in derived}


def _reason(moving: Mapping[str, Level], site: Observation) -> str:
    family = site.family.split("(")[0]
    names = " and ".join(sorted(moving)) or "observed value"
    if len(moving) > 1:
        known = [text for (of, name), text in _TWO.items() if of == family and name in moving]
        text = known[0] if known else "no joint bound of these is known; fix all but one of them"
        return f"{names} of {site.family} depend on the latents: {text}"
    if not any(name == site.family for name, _ in FAMILIES):
        return f"no constants of {site.family} are proved; use another likelihood"
    return (
        f"{names} of {site.family} is no known link of a predictor affine in the latents (a product, a "
        "power or another function of them); write it as one, with fixed scales"
    )


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

    convex: bool = False
    gradient_bound: float = math.inf
    curvature_bound: float = math.inf
    range_bound: float = math.inf
    why: str = ""


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
        return RowConstants(gradient_bound=steepest, range_bound=spread, why=why)
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


Person = Mapping[str, jax.Array]


def person_loss(
    row_loss: Callable[[jax.Array, Person], jax.Array], theta: jax.Array, person: Person
) -> jax.Array:
    """``V = Σ_j v(θ, row_j)`` over the rows that the person has; columns are ``(k, …)``."""
    rows = {name: column for name, column in person.items() if name != OWN_ROWS}
    losses = jax.vmap(row_loss, in_axes=(None, 0))(theta, rows)
    return jnp.sum(jnp.where(person[OWN_ROWS] > 0, losses, 0.0))


def person_constants(each: RowConstants, count: int) -> RowConstants:
    """Those of a sum of up to ``count`` rows: every bound is for all of them, none for a difference of rows.

    Two persons may differ in how many rows they have, so that what the rows of both have in common does not
    cancel.
    """
    names = ("gradient_bound", "curvature_bound", "range_bound")
    larger: Record = {name: count * (1 + 2.0**-50) * getattr(each, name) for name in names}
    return replace(each, **larger, why=f"a sum of up to {count} rows, each: {each.why}")
