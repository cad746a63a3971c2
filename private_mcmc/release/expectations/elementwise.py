"""Proved slopes of values that are entry-by-entry functions of affine maps: predictions, clamps, squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.model.ir.affinity import Level
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Equation, Program, Variable

FloatArray = npt.NDArray[np.float64]
Factor = Callable[[FloatArray, FloatArray], FloatArray]

# Largest slope of a function of one number; of the bounds of its argument where it has none everywhere.
_SLOPES: Mapping[str, float] = {
    "logistic": 0.25 * (1 + 1e-12),
    "tanh": 1.0,
    "sin": 1.0,
    "cos": 1.0,
    "atan": 1.0,
    "abs": 1.0,
    "neg": 1.0,
    "copy": 1.0,
    "erf": 2 / math.sqrt(math.pi) * (1 + 1e-12),
    "erfc": 2 / math.sqrt(math.pi) * (1 + 1e-12),
}
_ONE_LIPSCHITZ_IN_EACH = frozenset(["add", "sub", "max", "min", "clamp"])
_SAME_ENTRIES = frozenset(["reshape", "squeeze", "expand_dims", "broadcast_in_dim"])


@dataclass(frozen=True, eq=False)
class Chain:
    """``value_j = g_j(inner_j)`` with ``inner`` affine and ``g_j`` of slope at most ``factors_j``.

    Attributes:
        inner: the affine variable.
        factors: of its shape.
    """

    inner: Variable
    factors: FloatArray


def chain(program: Program, levels: Mapping[Variable, Level], target: Variable) -> Chain | None:
    """Walk from ``target`` back to an affine variable through functions of single entries; ``None`` if
    anything else is met.
    """
    variable, factors = target, np.ones(program.shape(target))
    while levels[variable] is Level.UNKNOWN:
        producer = next(e for e in reversed(program.equations) if variable in e.outputs)
        step = _step(program, levels, producer)
        if step is None:
            return None
        variable, slope = step
        if math.prod(program.shape(variable)) != factors.size:
            return None
        with np.errstate(all="ignore"):
            factors = factors.reshape(program.shape(variable)) * slope
    return Chain(variable, factors) if bool(np.all(np.isfinite(factors))) else None


def _step(
    program: Program, levels: Mapping[Variable, Level], equation: Equation
) -> tuple[Variable, float | FloatArray] | None:
    """The operand that moves, and the slope in it."""
    moving = {v for v in equation.inputs if levels[v] is not Level.CONSTANT}
    if len(moving) != 1 or len(equation.outputs) != 1:
        return None
    (operand,) = moving
    name, once = equation.name, equation.inputs.count(operand) == 1
    if name in _SLOPES:
        return operand, _SLOPES[name]
    if name in _SAME_ENTRIES or (name in _ONE_LIPSCHITZ_IN_EACH and once):
        return operand, 1.0
    if name in ("mul", "div") and once:
        return _scaled(program, equation, operand)
    if name == "square" or (name == "mul" and not once):
        return operand, 2 * _largest(program, operand) * (1 + 1e-12)
    if name == "integer_pow" and equation.params["y"] >= 1:
        power = int(equation.params["y"])
        return operand, power * _largest(program, operand) ** (power - 1) * (1 + 1e-12)
    return None


def _scaled(program: Program, equation: Equation, operand: Variable) -> tuple[Variable, FloatArray] | None:
    """Slope of a product with a constant, or of a quotient by one."""
    if equation.name == "div" and equation.inputs[0] != operand:
        return None
    other = next(v for v in equation.inputs if v != operand)
    size = np.abs(np.asarray(program.run([other], {})[0], dtype=np.float64))
    with np.errstate(divide="ignore"):
        return operand, size if equation.name == "mul" else 1 / size


def _largest(program: Program, variable: Variable) -> FloatArray:
    """Bound on the absolute value of every entry; ``inf`` where none is proved."""
    (found,) = bounds(program, {}, [variable])
    largest: FloatArray = np.maximum(np.abs(found.lo), np.abs(found.hi)).astype(np.float64)
    return largest
