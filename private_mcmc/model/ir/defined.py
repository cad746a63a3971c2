"""Where a primitive gives a number: division by zero and functions outside their domains give none.

NaN and the infinities of a division by zero pass through bounded functions (``tanh``, ``clamp``) and turn
into ordinary values in comparisons, so bounds alone would not notice them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.ir.program import Equation


def is_defined(equation: Equation, operands: Sequence[Interval]) -> bool:
    """Every result is a number, for all operands within their bounds."""
    if equation.name == "select_n":
        which, *cases = operands
        possible = [np.any((which.lo <= index) & (which.hi >= index)) for index in range(len(cases))]
        return all(case.defined for case, used in zip(cases, possible, strict=True) if used)
    if _inverts(equation, operands) and not _nonzero(operands[0]):
        return False
    inside = _DOMAINS.get(equation.name)
    return all(operand.defined for operand in operands) and (inside is None or inside(operands[-1]))


def _inverts(equation: Equation, operands: Sequence[Interval]) -> bool:
    """Some power may be negative."""
    if equation.name == "integer_pow":
        return bool(equation.params["y"] < 0)
    return equation.name == "pow" and operands[1].lowest < 0


def _nonzero(value: Interval) -> bool:
    return bool(np.all((value.lo > 0) | (value.hi < 0)))


def _above(edge: float) -> Callable[[Interval], bool]:
    return lambda value: value.lowest >= edge


# Of the last operand. A logarithm of zero is the limit −∞, of either zero.
_DOMAINS: Mapping[str, Callable[[Interval], bool]] = {
    "div": _nonzero,
    "rem": _nonzero,
    "rsqrt": lambda value: value.lowest > 0,
    "lgamma": lambda value: value.lowest > 0,
    "sqrt": _above(0.0),
    "log": _above(0.0),
    "log1p": _above(-1.0),
}
