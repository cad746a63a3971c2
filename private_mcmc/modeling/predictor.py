"""One number through which all latents act on a row: ``η = x(row)·θ + o(row)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.modeling.cut import Cut
from private_mcmc.modeling.families import LikelihoodFamily
from private_mcmc.modeling.intervals import bounds
from private_mcmc.modeling.program import Program, Variable, trace
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.values import of_domain

Row: TypeAlias = Mapping[str, Any]
View: TypeAlias = Callable[[], tuple[Program, Cut | None]]


@dataclass(frozen=True, eq=False)
class Predictor:
    """``v(θ, row) = ψ(η, row)``, ``η = x(row)·θ + o(row)``: proved from the program of one row.

    Every way from the latents to the row's loss passes through ``η``, and ``η`` is affine in the flat
    unconstrained ``θ``; so the row's gradient is ``ψ'(η)·x`` with ``x`` free of ``θ``.

    Attributes:
        design: ``row ↦ x``, shape ``(p,)``.
        offset: ``row ↦ o``.
        loss: ``(η, row) ↦ ψ``.
        radius: proved bound of ``‖x(row)‖`` over the row domain; ``inf`` if there is none.
        family: proved constants of ``ψ``.
    """

    design: Callable[[Row], jax.Array]
    offset: Callable[[Row], jax.Array]
    loss: Callable[[Any, Row], jax.Array]
    radius: float
    family: LikelihoodFamily


def columns(program: Program, row: Row) -> dict[Variable, Any]:
    """The row's values by the program's input variables."""
    return {program.inputs[name]: value for name, value in row.items() if name in program.inputs}


def build(view: View, rows: Rows, dim: int) -> Predictor | None:
    """The predictor of the program that ``view`` gives for the current precision; ``None`` without a cut."""
    _, cut = view()
    if cut is None:
        return None

    def eta(theta: jax.Array, row: Row) -> jax.Array:
        program, found = view()
        given = {program.inputs["theta"]: theta, **columns(program, row)}
        return program.run([found.variable], given)[0].reshape(())

    def origin() -> jax.Array:
        return jnp.zeros(dim, jax.dtypes.canonicalize_dtype(np.float64))

    def design(row: Row) -> jax.Array:
        return jax.grad(eta)(origin(), row)

    def offset(row: Row) -> jax.Array:
        return eta(origin(), row)

    def loss(value: Any, row: Row) -> jax.Array:
        program, found = view()
        given = columns(program, row)
        if found.loss is None:
            return program.run([program.outputs["loss"]], {**given, found.variable: value})[0].reshape(())
        observed, *others = program.run([found.observed, *found.parameters.values()], given)
        parameters = dict(zip(found.parameters, (as_number(other) for other in others), strict=True))
        return found.loss(as_number(value), as_number(observed), parameters)

    return Predictor(design, offset, loss, _radius(design, rows), cut.family)


def as_number(value: Any) -> jax.Array:
    """A single element as a float scalar of the current precision."""
    return jnp.asarray(value).astype(jax.dtypes.canonicalize_dtype(np.float64)).reshape(())


def _radius(design: Callable[[Row], jax.Array], rows: Rows) -> float:
    """Bound of the norm of ``x``, from the program that computes it."""
    shapes = {name: jax.ShapeDtypeStruct(domain.event_shape, domain.dtype) for name, domain in rows.items}
    program = trace(lambda **row: {"x": design(row)}, **shapes)
    given = {program.inputs[name]: of_domain(domain, leading=()) for name, domain in rows.items}
    (value,) = bounds(program, given, [program.outputs["x"]])
    return value.norm
