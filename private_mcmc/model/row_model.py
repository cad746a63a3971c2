"""What a NumPyro model is read as, and what is proved of a row's loss as a function of all latents."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import Rows
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.ir.dependence import Level, Shape, affinity, smoothness
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.interval import anything
from private_mcmc.model.ir.intervals import bounds, row_cases, row_values
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.likelihoods.derived import FAMILIES
from private_mcmc.model.likelihoods.family import UNKNOWN, times
from private_mcmc.model.likelihoods.terms import find_term
from private_mcmc.model.predictor import MultiPredictor, Predictor, Row
from private_mcmc.model.prior import PriorConstants
from private_mcmc.model.sites import Observation, Site
from private_mcmc.records import Model, Record
from private_mcmc.target import Unit

_REMEDY = "clip the rows (clip=…, guarantee='run')"
_SHRINKING = "the score grows without bound as the scale shrinks or the residual grows; fix the scale"
_SMALL_SCALE = "the score grows without bound as the scale shrinks; fix the scale"
_DISPERSION = "the score in the dispersion grows with the mean; fix the dispersion"
_ZEROS = "no joint bound of share and rate is known; fix the share of zeros"
_CUTS = (
    "the gaps between cut points are exponentials of unconstrained numbers, whose gradient grows without "
    "bound; fix the cut points"
)
_TWO = {
    **{(name, "scale"): _SHRINKING for name in ("Normal", "LogNormal", "Laplace", "Logistic", "Gumbel")},
    **{(name, "scale"): _SMALL_SCALE for name in ("StudentT", "Cauchy")},
    **{
        (name, "concentration"): _DISPERSION
        for name in ("NegativeBinomial2", "NegativeBinomialLogits", "GammaPoisson", "Gamma", "Weibull")
    },
    ("OrderedLogistic", "cutpoints"): _CUTS,
    **{(f"ZeroInflated{name}", "gate"): _ZEROS for name in ("Poisson", "Probs")},
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


@dataclass(frozen=True, eq=False)
class RowModel:
    """A model as the sum of a data-free potential and one term per row: ``U = K(θ) + w Σ_i v(θ, d_i)``.

    All functions are pure, traceable and free of the data: rows are arguments. They work in float64 under
    ``jax.enable_x64`` and in float32 otherwise. ``θ`` is the flat vector of all latents on NumPyro's
    unconstrained space.

    Attributes:
        rows: the row declaration.
        dim: ``p``, the length of ``θ``.
        sites: the latent sites and where they lie in ``θ``.
        observations: the observed sites.
        names: a name for every coordinate of ``θ``, for example ``w[2]``.
        neg_log_prior: ``θ ↦ K``, log-Jacobian of the transforms included.
        row_loss: ``(θ, row) ↦ v``, minus the log likelihood of one row; ``row`` maps column names to
            values of the domains' event shapes.
        constrain: ``θ ↦`` constrained values of the sites, and deterministic sites that read no row.
        predictor: the row's one affine predictor, where that is proved.
        predictors: all affine predictors of the row as one vector, where they are proved.
        constants: proved constants of ``v`` in ``θ``, before clipping.
        prior: proved constants of ``K``.
        program: the model on one abstract row in float64, for further proofs about its form.
        unit: where a person with several rows is what is called a row above: who that is. ``predictor`` and
            ``predictors`` are ``None`` then, and ``program`` is that of one of its rows.
        each: the reading of one of a person's rows by itself.
        own: a person's own latents, which are integrated out.
        model: the model as it is run on rows; of persons with latents, on those of one person.
    """

    rows: Rows
    dim: int
    sites: tuple[Site, ...]
    observations: tuple[Observation, ...]
    names: tuple[str, ...]
    neg_log_prior: Callable[[jax.Array], jax.Array] = field(repr=False)
    row_loss: Callable[[jax.Array, Row], jax.Array] = field(repr=False)
    constrain: Callable[[jax.Array], dict[str, jax.Array]] = field(repr=False)
    predictor: Predictor | None = field(repr=False)
    predictors: MultiPredictor | None = field(repr=False)
    constants: RowConstants = field(repr=False)
    prior: PriorConstants = field(repr=False)
    program: Program = field(repr=False)
    model: Model = field(repr=False)
    unit: Unit | None = None
    each: RowModel | None = field(default=None, repr=False)
    own: OwnLatents | None = field(default=None, repr=False)


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
    slopes = (bounds(derived, known, [derived.outputs["gradient"]])[0] for known in row_cases(derived, rows))
    worst = max(slope.norm for slope in slopes)
    return worst if worst <= _STEEPEST else math.inf


def loss_range(program: Program, rows: Rows) -> float:
    """Bound of ``sup_θ v − inf_θ v`` for each row, by interval arithmetic; ``θ`` is unbounded."""
    losses = (bounds(program, known, [program.outputs["loss"]])[0] for known in row_cases(program, rows))
    widest = max(loss.highest - loss.lowest for loss in losses)
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


def program_mark(function: Callable[..., object], *shapes: object) -> str:
    """A hash of a traced function: its operations and every constant in them."""
    with jax.enable_x64(True):
        program = jax.make_jaxpr(function)(*shapes)
    # Functions print with their address in this process.
    mark = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr)).encode())
    for constant in _constants(program):
        mark.update(np.asarray(constant).tobytes())
    return mark.hexdigest()


def model_marks(reading: RowModel) -> list[str]:
    """Of the prior and of a row's loss, with their gradients: a function may come with its own derivative."""
    with jax.enable_x64(True):
        theta = jnp.zeros(reading.dim)
        row = {name: jnp.zeros(domain.event_shape, domain.dtype) for name, domain in reading.rows.items}
    prior, loss = jax.value_and_grad(reading.neg_log_prior), jax.value_and_grad(reading.row_loss)
    return [program_mark(prior, theta), program_mark(loss, theta, row)]


def _constants(program: Any) -> Iterator[object]:
    """The constants of a closed jaxpr and of those inside it, which do not print them."""
    yield from getattr(program, "consts", ())
    for equation in getattr(program, "jaxpr", program).eqns:
        for inner in jax.tree.leaves(tuple(equation.params.values())):
            if hasattr(inner, "eqns"):
                yield from _constants(inner)
