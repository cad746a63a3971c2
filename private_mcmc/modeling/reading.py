"""Reading a NumPyro model for privacy: its rows' own terms, its prior, and what is proved of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from private_mcmc.errors import DeclarationError, DoThisInstead
from private_mcmc.modeling.coupling import refuse_coupled_rows
from private_mcmc.modeling.cut import Cut, find_cut
from private_mcmc.modeling.predictor import Predictor, Row, build, columns
from private_mcmc.modeling.prior import PriorConstants, prior_constants
from private_mcmc.modeling.program import Program, trace
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.tracing import Anatomy, Model, Observation, Site, discover, terms


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
        predictor: the row's affine predictor, where one is proved.
        prior: proved constants of ``K``.
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
    prior: PriorConstants = field(repr=False)


def read(model: Model, rows: Rows, *, n: int, model_args: Mapping[str, Any] | None = None) -> RowModel:
    """Read a NumPyro model; no private data is needed or used.

    The model is run on one abstract row, which gives that row's term by construction: no other row is
    there to depend on. Rows are passed by the names in ``rows``, everything else by ``model_args``, which
    is public.

    Args:
        model: a callable with NumPyro primitives.
        rows: the columns of a row and their domains.
        n: number of rows (or its public bound).
        model_args: the model's other arguments.

    Raises:
        DeclarationError: the arguments do not fit the model.
        UnsupportedModel: the model has no such form, or it is not recognised; the message names the site.
    """
    public = dict(model_args or {})
    _check_arguments(model, rows, public, n)
    with jax.enable_x64(True):
        one = discover(model, _abstract(rows, 1), public)
        _refuse_growing_latents(one, discover(model, _abstract(rows, max(n, 2)), public))
        program = _program(model, rows, public, one, 1)
        _refuse_prior_on_data(program, one)
        _refuse_prior_on_count(program, _program(model, rows, public, one, max(n, 2)), one)
        refuse_coupled_rows(model, public, rows, one, jax.random.key(0))
        view = _viewer(model, rows, public, one)
        predictor = build(view, rows, one.dim)
        prior = prior_constants(program, one.latents)
        free = _data_free_outputs(program, one)
    return RowModel(
        rows=rows,
        dim=one.dim,
        sites=tuple(one.latents),
        observations=tuple(one.observations),
        names=_names(one.latents),
        neg_log_prior=functools.partial(_neg_log_prior, view, one),
        row_loss=functools.partial(_row_loss, view, predictor),
        constrain=functools.partial(_constrain, view, free),
        predictor=predictor,
        prior=prior,
    )


def _viewer(
    model: Model, rows: Rows, public: Mapping[str, Any], anatomy: Anatomy
) -> Callable[[], tuple[Program, Cut | None]]:
    """The program and its cut for the precision in force where it is called."""

    @functools.cache
    def at(x64: bool) -> tuple[Program, Cut | None]:
        program = _program(model, rows, public, anatomy, 1)
        return program, find_cut(program, rows, anatomy.observations)

    return lambda: at(bool(jax.config.jax_enable_x64))


def _neg_log_prior(
    view: Callable[[], tuple[Program, Cut | None]], anatomy: Anatomy, theta: jax.Array
) -> jax.Array:
    program, _ = view()
    parts = [
        program.outputs[f"{kind}:{site.name}"] for kind in ("prior", "jacobian") for site in anatomy.latents
    ]
    return -sum(program.run(parts, {program.inputs["theta"]: theta}))


def _row_loss(
    view: Callable[[], tuple[Program, Cut | None]], predictor: Predictor | None, theta: jax.Array, row: Row
) -> jax.Array:
    program, cut = view()
    given = {program.inputs["theta"]: theta, **columns(program, row)}
    if predictor is not None and cut is not None:
        return predictor.loss(program.run([cut.variable], given)[0], row)
    return program.run([program.outputs["loss"]], given)[0].reshape(())


def _constrain(
    view: Callable[[], tuple[Program, Cut | None]], free: tuple[str, ...], theta: jax.Array
) -> dict[str, jax.Array]:
    program, _ = view()
    values = program.run([program.outputs[key] for key in free], {program.inputs["theta"]: theta})
    return {key.split(":", 1)[1]: value for key, value in zip(free, values, strict=True)}


def _abstract(rows: Rows, count: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        name: jax.ShapeDtypeStruct((count, *domain.event_shape), jax.dtypes.canonicalize_dtype(domain.dtype))
        for name, domain in rows.items
    }


def _program(model: Model, rows: Rows, public: Mapping[str, Any], anatomy: Anatomy, count: int) -> Program:
    theta = jax.ShapeDtypeStruct((anatomy.dim,), jax.dtypes.canonicalize_dtype(np.float64))
    return trace(terms(model, public, anatomy.latents), theta=theta, **_abstract(rows, count))


def _check_arguments(model: Model, rows: Rows, public: Mapping[str, Any], n: int) -> None:
    if not n >= 1:
        raise DeclarationError(f"n={n}: the number of rows is at least 1.")
    if "theta" in rows.columns or "theta" in public:
        raise DeclarationError("a column or argument may not be called 'theta'; rename it.")
    both = sorted(rows.columns.keys() & public.keys())
    if both:
        raise DeclarationError(
            f"{both} are declared in Rows and given in model_args; a name is one or the other."
        )
    try:
        inspect.signature(model).bind(**dict.fromkeys([*rows.columns, *public]))
    except TypeError as error:
        raise DeclarationError(
            f"the model does not take the columns {sorted(rows.columns)} and model_args {sorted(public)}: {error}."
        ) from error


def _refuse_growing_latents(one: Anatomy, many: Anatomy) -> None:
    before = {site.name: site.shape for site in one.latents}
    for site in many.latents:
        if before.get(site.name) != site.shape:
            raise DoThisInstead(
                f"site {site.name!r} is a latent whose shape follows the number of rows"
                f"{f' (it is inside plate {site.plates[-1]!r})' if site.plates else ''}: each row would have "
                "parameters of its own. If it is data, declare its column in Rows; otherwise integrate it out "
                "or give it a public shape."
            )


def _refuse_prior_on_data(program: Program, anatomy: Anatomy) -> None:
    names = {"value": "support", "jacobian": "support", "prior": "prior"}
    for site in anatomy.latents:
        for kind, what in names.items():
            read = program.reads([program.outputs[f"{kind}:{site.name}"]]) - {"theta"}
            if read:
                raise DoThisInstead(
                    f"the {what} of site {site.name!r} depends on the rows (column {', '.join(sorted(read))}): "
                    "data may reach the potential through the rows' own terms only. Use a public constant, "
                    "passed through model_args."
                )


def _refuse_prior_on_count(one: Program, many: Program, anatomy: Anatomy) -> None:
    for site in anatomy.latents:
        for kind in ("value", "jacobian", "prior"):
            key = f"{kind}:{site.name}"
            if one.text([one.outputs[key]]) != many.text([many.outputs[key]]):
                raise DoThisInstead(
                    f"the prior of site {site.name!r} depends on the number of rows of the data; pass a public "
                    "number through model_args instead."
                )


def _data_free_outputs(program: Program, anatomy: Anatomy) -> tuple[str, ...]:
    values = [f"value:{site.name}" for site in anatomy.latents]
    extra = [f"deterministic:{name}" for name in anatomy.deterministics]
    return (*values, *(key for key in extra if program.reads([program.outputs[key]]) <= {"theta"}))


def _names(sites: list[Site]) -> tuple[str, ...]:
    names: list[str] = []
    for site in sites:
        if site.unconstrained_shape:
            indices = np.ndindex(site.unconstrained_shape)
            names += [f"{site.name}[{','.join(map(str, index))}]" for index in indices]
        else:
            names.append(site.name)
    return tuple(names)
