"""Loops of a fixed, small number of steps, written out as straight code."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp

_MOST_STEPS = 64
_MOST_EQUATIONS = 4000


def unrolled(equation: Any) -> Any | None:
    """The closed jaxpr of a ``scan`` without the loop, or ``None`` if it is no short loop of numbers."""
    if equation.primitive.name != "scan":
        return None
    body, length = equation.params["jaxpr"], equation.params["length"]
    types = [variable.aval.dtype for variable in (*equation.invars, *body.jaxpr.outvars)]
    opaque = any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in types)
    if opaque or not 1 <= length <= _MOST_STEPS or length * len(body.eqns) > _MOST_EQUATIONS:
        return None
    consts, carried = equation.params["num_consts"], equation.params["num_carry"]
    step = jex.jaxpr_as_fun(body)

    def straight(*operands: jax.Array) -> list[jax.Array]:
        fixed, state = list(operands[:consts]), list(operands[consts : consts + carried])
        columns: list[list[jax.Array]] = [[] for _ in body.jaxpr.outvars[carried:]]
        order = range(length)
        for index in reversed(order) if equation.params["reverse"] else order:
            entries = [jax.lax.index_in_dim(x, index, keepdims=False) for x in operands[consts + carried :]]
            results = step(*fixed, *state, *entries)
            state = list(results[:carried])
            for column, value in zip(columns, results[carried:], strict=True):
                column.append(value)
        if equation.params["reverse"]:
            columns = [column[::-1] for column in columns]
        return [*state, *(jnp.stack(column) for column in columns)]

    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]  # type: ignore[no-untyped-call]
    return jax.make_jaxpr(straight)(*shapes)
