"""Tracing a function and flattening its jaxpr into a program.

Jaxprs nest (``jit``, ``remat``) and repeat equal subexpressions; here they are inlined and equal
equations are merged, so that a variable is one intermediate result of the model. Short loops of fixed
length are unrolled. Primitives with their own derivative rules, other loops and branches stay whole: what
happens inside them is not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from private_mcmc.domains.rows import Rows
from private_mcmc.model.program import Equation, Program, Variable, bytes_of, type_text
from private_mcmc.potential.rowwise import abstract, own_primitives

_MOST_STEPS = 64
_MOST_EQUATIONS = 4000
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}


def row_shapes(rows: Rows) -> dict[str, jax.ShapeDtypeStruct]:
    """Arguments of ``trace`` for one row, without an axis of rows."""
    return {name: abstract(domain.event_shape, domain.dtype) for name, domain in rows.items}


def trace(function: Callable[..., Mapping[Any, Any]], /, **inputs: object) -> Program:
    """The program of ``function(**inputs)``, which returns a mapping of names to arrays.

    ``inputs`` are arrays or ``ShapeDtypeStruct``; no value is used. Raises as ``own_primitives``.
    """
    names: list[Hashable] = []

    def listed(given: Mapping[str, jax.Array]) -> list[jax.Array]:
        outputs = function(**given)
        names[:] = outputs.keys()
        return list(outputs.values())

    closed = own_primitives(listed, inputs)
    builder = _Builder()
    variables = [jex.Var(variable.aval) for variable in closed.jaxpr.invars]
    results = builder.inline(closed.jaxpr, closed.consts, variables)
    return Program(
        inputs=dict(zip(sorted(inputs), variables, strict=True)),
        outputs=dict(zip(names, results, strict=True)),
        constants=builder.constants,
        equations=tuple(builder.equations),
    )


class _Builder:
    """Collects equations, merging equal ones."""

    def __init__(self) -> None:
        self.constants: dict[Variable, Any] = {}
        self.equations: list[Equation] = []
        self._seen: dict[Hashable, list[Variable]] = {}

    def inline(
        self, jaxpr: jex.Jaxpr, consts: Iterable[Any], arguments: Iterable[Variable]
    ) -> list[Variable]:
        """The results of a jaxpr of these arguments; its equations are added."""
        scope: dict[jex.Var, Variable] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            scope[variable] = self._constant(value, variable.aval)

        def look_up(atom: jex.Var | jex.Literal) -> Variable:
            return self._constant(atom.val, atom.aval) if isinstance(atom, jex.Literal) else scope[atom]

        for equation in jaxpr.eqns:
            operands = [look_up(atom) for atom in equation.invars]
            inner: Any = equation.params.get(_INLINED.get(equation.primitive.name, "")) or _unrolled(equation)
            if inner is None:
                results = self._add(equation, operands)
            else:
                plain, held = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                results = self.inline(plain, held, operands)
            scope.update(zip(equation.outvars, results, strict=True))
        return [look_up(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any, aval: Any) -> Variable:
        key = ("constant", type_text(aval), bool(getattr(aval, "weak_type", False)), bytes_of(value))
        if key not in self._seen:
            self._seen[key] = [jex.Var(aval)]
            self.constants[self._seen[key][0]] = value
        return self._seen[key][0]

    def _add(self, equation: Equation, operands: list[Variable]) -> list[Variable]:
        key = (equation.primitive, *operands, *sorted(equation.params.items()))
        mergeable = _hashable(key) and not list(jex.jaxprs_in_params(equation.params))
        if mergeable and key in self._seen:
            return self._seen[key]
        outputs = [jex.Var(variable.aval) for variable in equation.outvars]
        self.equations.append(equation.replace(invars=operands, outvars=outputs))
        if mergeable:
            self._seen[key] = outputs
        return outputs


def _unrolled(equation: Equation) -> jex.ClosedJaxpr | None:
    """The closed jaxpr of a ``scan`` without the loop, or ``None`` if it is no short loop of numbers."""
    if equation.primitive.name != "scan":
        return None
    body, length = equation.params["jaxpr"], equation.params["length"]
    types = [variable.aval.dtype for variable in (*equation.invars, *body.jaxpr.outvars)]
    opaque = any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in types)
    if opaque or not 1 <= length <= _MOST_STEPS or length * len(body.eqns) > _MOST_EQUATIONS:
        return None
    # What is gone through or stacked has one axis more outside. JAX renames its own counts.
    carried = _as_inside(equation.outvars, body.jaxpr.outvars)
    consts = _as_inside(equation.invars, body.jaxpr.invars) - carried
    step, order = jex.jaxpr_as_fun(body), range(length)

    def straight(*operands: jax.Array) -> list[jax.Array]:
        fixed, state = list(operands[:consts]), list(operands[consts : consts + carried])
        stacked: dict[int, list[jax.Array]] = {}
        for index in reversed(order) if equation.params["reverse"] else order:
            entries = [jax.lax.index_in_dim(x, index, keepdims=False) for x in operands[consts + carried :]]
            results = step(*fixed, *state, *entries)
            state, stacked[index] = list(results[:carried]), list(results[carried:])
        columns = zip(*(stacked[index] for index in order), strict=True)
        return [*state, *(jnp.stack(column) for column in columns)]

    return jax.make_jaxpr(straight)(*(abstract(v.aval.shape, v.aval.dtype) for v in equation.invars))


def _as_inside(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    """How many variables of a loop have as many axes as in its body."""
    return sum(len(x.aval.shape) == len(y.aval.shape) for x, y in zip(outside, inside, strict=True))


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
