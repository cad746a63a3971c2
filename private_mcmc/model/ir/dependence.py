"""How a value depends on one input: constantly, affinely, smoothly, or in a way that is not proved.

Automatic differentiation is meaningless at a kink or a jump: the second derivative of ``|x|`` comes out as
zero. A bound on derivatives is a bound on the function only where it is smooth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlog1py, xlogy

from private_mcmc.model.ir.flatten import abstract, flatten, trace
from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.ir.intervals import bounds, overflowing
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


class Shape(IntEnum):
    """How a value depends on the input: not at all, smoothly, with kinks, or in a way not understood."""

    FREE = 0
    SMOOTH = 1
    CONTINUOUS = 2
    ROUGH = 3


_ARITHMETIC = ("add", "sub", "add_any", "neg", "mul", "div", "integer_pow", "pow", "square", "dot_general")
_COLLECT = ("concatenate", "stack", "pad", "reduce_sum", "cumsum", "copy", "copy_p", "reduce_prod", "cumprod")
_EXPONENTIALS = ("exp", "expm1", "log", "log1p", "logistic", "tanh", "asinh", "sqrt", "rsqrt")
_ANALYTIC = (*_EXPONENTIALS, "sin", "cos", "atan")
_SPECIAL = ("erf", "erfc", "erf_inv", "lgamma", "digamma")
_SMOOTH = frozenset([*_ARITHMETIC, *_MOVES, *_COLLECT, *_ANALYTIC, *_SPECIAL])
_CONTINUOUS = frozenset(["max", "min", "clamp", "abs", "reduce_max", "reduce_min"])
# True of every real number, whatever it is.
_ALWAYS_SAME = frozenset(["eq", "ne", "le", "ge", "lt", "gt"])


def smoothness(program: Program, name: str, output: str, given: Mapping[Variable, Interval]) -> Shape:
    """How ``output`` depends on the input ``name``, over the bounds ``given`` of all inputs."""
    equations = program.slice([program.outputs[output]])
    known = _bounds_of_all(program, equations, given)
    shapes = {variable: Shape.FREE for variable in (*program.constants, *program.inputs.values())}
    shapes[program.inputs[name]] = Shape.SMOOTH
    asked = (
        variable for equation in equations if _is_guard(program, equation) for variable in equation.inputs
    )
    guards = [variable for variable in asked if name in program.reads([variable])]
    if overflowing(program, given, guards):
        return Shape.ROUGH
    return _walk(program, equations, shapes, known)[program.outputs[output]]


def _bounds_of_all(
    program: Program, equations: list[Equation], given: Mapping[Variable, Interval]
) -> dict[Variable, Interval]:
    results = [variable for equation in equations for variable in (*equation.inputs, *equation.outputs)]
    return dict(zip(results, bounds(program, given, results), strict=True))


def _walk(
    program: Program,
    equations: list[Equation],
    shapes: dict[Variable, Shape],
    known: Mapping[Variable, Interval],
) -> dict[Variable, Shape]:
    for equation in equations:
        shape = _shape(program, equation, shapes, known)
        for output in equation.outputs:
            shapes[output] = Shape.FREE if output in known and known[output].is_point else shape
    return shapes


def _shape(
    program: Program, equation: Equation, shapes: Mapping[Variable, Shape], known: Mapping[Variable, Interval]
) -> Shape:
    inputs = [shapes[variable] for variable in equation.inputs]
    worst = max(inputs, default=Shape.FREE)
    if worst in (Shape.FREE, Shape.ROUGH):
        return worst
    name = equation.name
    if name in _SMOOTH:
        return worst
    if name in _CONTINUOUS:
        return worst if _decided(equation, known) else max(worst, Shape.CONTINUOUS)
    if name == "select_n":
        return Shape.ROUGH if inputs[0] is not Shape.FREE else worst
    if _is_guard(program, equation):
        return Shape.FREE
    if name == "convert_element_type":
        target = program.avals[equation.outputs[0]].dtype
        return worst if target == np.float64 else Shape.ROUGH
    if name == "custom_jvp_call" and _is_known(equation):
        return _inside(equation, inputs, known)
    return Shape.ROUGH


def _decided(equation: Equation, known: Mapping[Variable, Interval]) -> bool:
    """The bounds keep ``max``, ``min``, ``abs`` away from their kinks."""
    values = [known[variable] for variable in equation.inputs if variable in known]
    if len(values) != len(equation.inputs):
        return False
    if equation.name == "abs":
        return bool(np.all((values[0].lo > 0) | (values[0].hi < 0)))
    if equation.name in ("max", "min"):
        a, b = values
        return bool(np.all((a.lo > b.hi) | (a.hi < b.lo)))
    if equation.name == "clamp":
        low, a, high = values
        return bool(np.all((a.lo > low.hi) & (a.hi < high.lo)))
    return False


def _is_guard(program: Program, equation: Equation) -> bool:
    """``isfinite(x)``, ``x = x`` and comparisons with an infinity, which only look for NaN and overflow."""
    if equation.name == "is_finite" or equation.name not in _ALWAYS_SAME:
        return equation.name == "is_finite"
    left, right = equation.inputs
    constants = [program.constants.get(variable) for variable in (left, right)]
    return left == right or any(value is not None and np.all(np.isinf(value)) for value in constants)


def _inside(equation: Equation, inputs: list[Shape], known: Mapping[Variable, Interval]) -> Shape:
    names = [str(position) for position in range(len(inputs))]
    inner = flatten(equation.params["call_jaxpr"], names, ["out"])
    given = {
        inner.inputs[name]: known[variable]
        for name, variable in zip(names, equation.inputs, strict=True)
        if variable in known
    }
    equations = inner.slice([inner.outputs["out"]])
    values = _bounds_of_all(inner, equations, given)
    shapes = dict.fromkeys(inner.constants, Shape.FREE)
    shapes.update({inner.inputs[name]: shape for name, shape in zip(names, inputs, strict=True)})
    return _walk(inner, equations, shapes, values)[inner.outputs["out"]]


def _is_known(equation: Equation) -> bool:
    """JAX's own functions, whose derivative rules are those of their bodies."""
    if len(equation.inputs) != 2 or len(equation.outputs) != 1:
        return False
    avals = [variable.aval for variable in equation.params["call_jaxpr"].jaxpr.invars]
    found = flatten(equation.params["call_jaxpr"], ["a", "b"], ["out"])
    body, slope = found.text([found.outputs["out"]]), _slope(_called(equation), avals)
    return any((_body(one, avals), _slope(one, avals)) == (body, slope) for one in (xlogy, xlog1py))


def _called(equation: Equation) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        params = equation.primitive.get_bind_params(dict(equation.params))
        return jnp.asarray(equation.primitive.bind(a, b, **params)[0])

    return function


def _slope(function: Callable[[jax.Array, jax.Array], jax.Array], avals: list[jax.core.ShapedArray]) -> str:
    """The derivative that comes with a function: another one may stand beside the same body."""
    a, b = (abstract(tuple(aval.shape), aval.dtype) for aval in avals)
    found = trace(lambda a, b, da, db: {"out": jax.jvp(function, (a, b), (da, db))[1]}, a=a, b=b, da=a, db=b)
    return found.text([found.outputs["out"]])


def _body(function: Callable[[jax.Array, jax.Array], jax.Array], avals: list[jax.core.ShapedArray]) -> str:
    a, b = (abstract(tuple(aval.shape), aval.dtype) for aval in avals)
    outer = trace(lambda a, b: {"out": function(a, b)}, a=a, b=b)
    calls = [equation for equation in outer.equations if equation.name == "custom_jvp_call"]
    if len(calls) != 1:
        return ""
    inner = flatten(calls[0].params["call_jaxpr"], ["a", "b"], ["out"])
    return inner.text([inner.outputs["out"]])
