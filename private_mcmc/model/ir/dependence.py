"""How a value depends on one input: not at all, affinely, or in a way that is not proved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

import jax.numpy as jnp

from private_mcmc.model.ir.program import Equation, Program, Variable


class Level(IntEnum):
    """How a value depends on the input, the other inputs held fixed. ``UNKNOWN`` is what is not proved."""

    CONSTANT = 0
    AFFINE = 1
    UNKNOWN = 2


_MOVES = ("reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "slice", "split", "rev")
# Linear in all operands together.
_SUMS = ("add", "sub", "add_any", "neg", "reduce_sum", "cumsum", "real")
_LINEAR = frozenset(
    [*_SUMS, *_MOVES, "convert_element_type", "concatenate", "stack", "pad", "copy", "copy_p"]
)
# Linear in the operands at these positions when all the others are constant.
_LINEAR_AT: Mapping[str, Iterable[int]] = {
    **dict.fromkeys(("div", "gather", "dynamic_slice"), (0,)),
    "dynamic_update_slice": (0, 1),
    "triangular_solve": (1,),
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add"), (0, 2)),
    "select_n": range(1, 100),
}
# Linear in each of two operands when the other one is constant.
_BILINEAR = frozenset(["mul", "dot_general", "conv_general_dilated"])


def affinity(program: Program, name: str) -> Mapping[Variable, Level]:
    """Level of every variable in the input ``name``.

    ``AFFINE`` is a proof: the value is ``A·input + b`` with ``A`` and ``b`` functions of the other inputs.
    Primitives that are not listed, custom derivative rules (whose gradient may differ from that of the
    value), loops and branches make ``UNKNOWN`` of anything that is not constant.
    """
    levels = dict.fromkeys(program.constants, Level.CONSTANT)
    levels.update({v: Level.AFFINE if n == name else Level.CONSTANT for n, v in program.inputs.items()})
    for equation in program.equations:
        result = _level(equation, [levels[variable] for variable in equation.inputs])
        if result is Level.AFFINE and _rounds(equation, program):
            result = Level.UNKNOWN
        levels.update(dict.fromkeys(equation.outputs, result))
    return levels


def _rounds(equation: Equation, program: Program) -> bool:
    """The result is a narrower float than an operand, or no float at all."""
    inputs = [program.avals[variable].dtype for variable in equation.inputs]
    widest = max((dtype.itemsize for dtype in inputs if jnp.issubdtype(dtype, jnp.floating)), default=0)
    results = [program.avals[variable].dtype for variable in equation.outputs]
    return any(not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize < widest for dtype in results)


def _level(equation: Equation, levels: list[Level]) -> Level:
    worst = max(levels, default=Level.CONSTANT)
    if worst is not Level.AFFINE:
        return worst
    moving = [position for position, level in enumerate(levels) if level is Level.AFFINE]
    name = equation.name
    if name in _LINEAR:
        return Level.AFFINE
    if name in _LINEAR_AT:
        return Level.AFFINE if set(moving) <= set(_LINEAR_AT[name]) else Level.UNKNOWN
    if name in _BILINEAR:
        return Level.AFFINE if len(moving) == 1 else Level.UNKNOWN
    power_of_one = name == "integer_pow" and equation.params["y"] == 1
    return Level.AFFINE if power_of_one else Level.UNKNOWN
