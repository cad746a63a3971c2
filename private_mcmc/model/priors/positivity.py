"""Is a value positive, and never zero, whatever the latents are? Bounds alone cannot tell ``e^u`` from 0."""

from __future__ import annotations

from collections.abc import Mapping

from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Equation, Program, Variable

_ALWAYS = frozenset(["exp", "logistic"])
# Positive where all operands are.
_OF_ALL = frozenset(["mul", "div", "min", "add", "concatenate", "pow"])
_KEEP = ("copy", "convert_element_type", "rev", "slice", "squeeze", "reshape", "transpose", "expand_dims")
_SUMS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "cumprod")
# Positive where the first operand is.
_OF_FIRST = frozenset(
    [*_KEEP, *_SUMS, "broadcast_in_dim", "sqrt", "rsqrt", "square", "integer_pow", "log1p", "expm1"]
)


def is_positive(program: Program, variable: Variable) -> bool:
    """Every element is defined and positive for all inputs, in real arithmetic: proved from the equations."""
    equations = program.slice([variable])
    variables = list(program.uses([variable]))
    known = dict(zip(variables, bounds(program, {}, variables), strict=True))
    positive = {v for v in variables if known[v].defined and known[v].lowest > 0}
    for equation in equations:
        if all(known[v].defined for v in equation.inputs) and _makes(equation, positive, known):
            positive.update(equation.outputs)
    return variable in positive


def _makes(equation: Equation, positive: set[Variable], known: Mapping[Variable, Interval]) -> bool:
    inputs = equation.inputs
    if equation.name in _ALWAYS:
        return True
    if equation.name in ("add", "max") and any(v in positive for v in inputs):
        return equation.name == "max" or all(known[v].lowest >= 0 for v in inputs)
    if equation.name in _OF_ALL:
        needed = inputs[:1] if equation.name == "pow" else inputs
        return all(v in positive for v in needed)
    return equation.name in _OF_FIRST and inputs[0] in positive
