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
from private_mcmc.model.families import UNKNOWN, times
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.predictor import MultiPredictor, Predictor, Row
from private_mcmc.model.prior import PriorConstants
from private_mcmc.model.program import Level, Output, Program, affinity
from private_mcmc.model.sites import Observation, Site
from private_mcmc.records import Model, PublicArguments, Record
from private_mcmc.target import Unit


def missing_structure(program: Program, observations: Sequence[Observation]) -> str:
    """Which observed sites are no likelihoods of the table, in words."""
    levels = affinity(program, "theta")
    found = []
    for site in observations:
        given = program.parts("given", site.name)
        moving = [name for name, variable in given.items() if levels[variable] is not Level.CONSTANT]
        # Ordered families hold their probabilities beside the predictor that makes them.
        words = " and ".join(sorted(set(moving) - ({"probs"} if "predictor" in given else set())))
        if moving or "theta" in program.reads([program.outputs[Output("row", site.name)]]):
            found.append(f"site {site.name!r}: {words or 'the value'} of {site.family}")
    return (
        f"{'; '.join(found)}: no likelihood of one affine predictor with proved constants, so that nothing "
        "is proved of its rows; clip the rows (clip=…, guarantee='run')"
    )


@dataclass(frozen=True)
class RowConstants:
    """What is proved of ``v(θ, row)`` for every row of the domain and every ``θ``, in Euclidean norm.

    In the metric of a preconditioner ``M`` the gradient bound grows by ``λ_max(M)^{1/2}`` and the
    curvature bound by ``λ_max(M)``.

    Attributes:
        convex: ``v`` is convex in ``θ``.
        gradient_bound: ``‖∇v‖ ≤ gradient_bound``.
        curvature_bound: ``‖∇²v‖ ≤ curvature_bound``.
        why: the argument.
    """

    convex: bool = False
    gradient_bound: float = math.inf
    curvature_bound: float = math.inf
    why: str = ""


@dataclass(frozen=True, eq=False)
class RowModel:
    """A model as the sum of a data-free potential and one term per row: ``U = K(θ) + w Σ_i v(θ, d_i)``.

    All functions are pure, traceable and free of the data: rows are arguments. They are evaluated in float64
    (``jax.enable_x64``), as in every run: of them, there, everything is proved. ``θ`` is the flat vector of
    all latents on NumPyro's unconstrained space.

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
        public: the public arguments that it was read with.
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
    public: PublicArguments = field(default_factory=dict, repr=False)


def row_constants(
    program: Program, predictor: MultiPredictor | None, observations: Sequence[Observation]
) -> RowConstants:
    """Chain rule through the predictors: ``‖∇v‖ ≤ ‖A‖·‖ψ'‖``, ``‖∇²v‖ ≤ ‖A‖²·‖ψ''‖``."""
    if predictor is None or predictor.family.name == UNKNOWN.name:
        return RowConstants(why=missing_structure(program, observations))
    family, radius = predictor.family, predictor.radius
    return RowConstants(
        convex=family.convex,
        gradient_bound=times(radius, family.score_bound),
        curvature_bound=times(times(radius, radius), family.curvature_bound),
        why=(
            f"{family.why}; over the row domain |ψ'| ≤ {family.score_bound:.6g}, "
            f"|ψ''| ≤ {family.curvature_bound:.6g}, ‖∂η/∂θ‖ ≤ {radius:.6g}"
        ),
    )


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
    names = ("gradient_bound", "curvature_bound")
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
