"""Bounds of intermediate results over the declared row domain, by interval arithmetic on the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import jax
import numpy as np

from private_mcmc.modeling.interval_rules import RULES
from private_mcmc.modeling.program import Equation, Program, Variable, flatten
from private_mcmc.modeling.values import Value, anything, constant

_CALLS = {
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}


def bounds(program: Program, given: Mapping[Variable, Value], targets: Iterable[Variable]) -> list[Value]:
    """Bounds of ``targets`` for all values of the variables ``given`` within theirs.

    An input that is not given, and the result of any primitive without a rule, is unbounded.
    """
    targets = list(targets)
    known: dict[Variable, Value] = {}
    for variable, value in program.constants.items():
        known[variable] = _literal(value, program.shape(variable))
    for variable in program.inputs.values():
        known[variable] = anything(program.shape(variable), whole=_is_whole(program, variable))
    known.update(given)
    with np.errstate(all="ignore"):
        for equation in program.slice(targets, given):
            results = _apply(equation, [known[variable] for variable in equation.inputs], program)
            for output, result in zip(equation.outputs, results, strict=True):
                if output not in given:
                    known[output] = result
    return [known[variable] for variable in targets]


def _apply(equation: Equation, operands: list[Value], program: Program) -> list[Value]:
    if equation.name in _CALLS:
        return _inside(equation, operands)
    if equation.name in RULES and len(equation.outputs) == 1:
        shape = program.shape(equation.outputs[0])
        whole = _is_whole(program, equation.outputs[0])
        result = RULES[equation.name](operands, equation.params, shape)
        if result is not None and result.shape == shape:
            return [Value(result.lo, result.hi, result.norm, result.whole or whole, result.uniform)]
    return [anything(program.shape(output), whole=_is_whole(program, output)) for output in equation.outputs]


def _inside(equation: Equation, operands: list[Value]) -> list[Value]:
    closed = equation.params[_CALLS[equation.name]]
    names = [str(position) for position in range(len(operands))]
    outputs = [str(position) for position in range(len(equation.outputs))]
    inner = flatten(closed, names, outputs)
    given = {inner.inputs[name]: operand for name, operand in zip(names, operands, strict=True)}
    return bounds(inner, given, [inner.outputs[name] for name in outputs])


def _literal(value: object, shape: tuple[int, ...]) -> Value:
    if jax.dtypes.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.extended):
        return anything(shape)
    return constant(np.asarray(value))


def _is_whole(program: Program, variable: Variable) -> bool:
    dtype = program.avals[variable].dtype
    return not jax.dtypes.issubdtype(dtype, jax.dtypes.extended) and np.dtype(dtype).kind in "biu"
