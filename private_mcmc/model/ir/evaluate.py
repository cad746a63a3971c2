"""Values of a program at one point, or at many at once, computed by NumPy and SciPy: nothing is compiled.

A model is evaluated only a few times while it is read, and compiling it would take longer. Primitives without
a function of NumPy's are left to JAX, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from private_mcmc.model.ir.flatten import flatten
from private_mcmc.model.ir.numpy_functions import FUNCTIONS, Array, elementwise
from private_mcmc.model.ir.program import Equation, Params, Program, Shape, Variable

# Calls of functions with derivatives of their own; what is called is the parameter ``call_jaxpr``.
CALLS = ("custom_jvp_call", "custom_vjp_call")
# A value and whether its first axis is that of the points.
_Value: TypeAlias = tuple[Any, bool]


def values(program: Program, targets: Iterable[Variable], given: Mapping[Variable, ArrayLike]) -> list[Array]:
    """The variables ``targets`` where the inputs (or other variables) in ``given`` have these values."""
    found = _values(program, list(targets), {variable: (at, False) for variable, at in given.items()}, 1)
    return [np.asarray(value) for value, _ in found]


def evaluate(program: Program, outputs: Sequence[Hashable], /, **inputs: ArrayLike) -> list[Array]:
    """Outputs of a program, by name, at these inputs."""
    given = {program.inputs[name]: value for name, value in inputs.items()}
    return values(program, [program.outputs[name] for name in outputs], given)


def evaluate_each(program: Program, outputs: Sequence[Hashable], /, **inputs: np.ndarray) -> list[Array]:
    """Outputs of a program, by name, ``(points, …)``, at inputs that have such an axis, too."""
    count = len(next(iter(inputs.values())))
    given = {program.inputs[name]: (value, True) for name, value in inputs.items()}
    found = _values(program, [program.outputs[name] for name in outputs], given, count)
    return [_at_all(value, count) for value in found]


def _values(
    program: Program, targets: list[Variable], given: Mapping[Variable, _Value], count: int
) -> list[_Value]:
    equations = program.slice(targets, given)
    last = {variable: place for place, equation in enumerate(equations) for variable in equation.inputs}
    last |= dict.fromkeys(targets, -1)
    known = {v: (_constant(program, v), False) for v in last if v in program.constants}
    for variable, (value, many) in given.items():
        aval, array = program.avals[variable], np.asarray(value)
        known[variable] = array.astype(aval.dtype).reshape((*array.shape[:many], *aval.shape)), many
    with np.errstate(all="ignore"):
        for place, equation in enumerate(equations):
            results = _apply(program, equation, [known[v] for v in equation.inputs], count)
            for output, result in zip(equation.outputs, results, strict=True):
                known.setdefault(output, result)
            for variable in set(equation.inputs):
                if last[variable] == place:
                    del known[variable]
    return [known[variable] for variable in targets]


def _constant(program: Program, variable: Variable) -> Any:
    """As NumPy's array; of an opaque type (a key) as it is."""
    value, aval = program.constants[variable], program.avals[variable]
    return value if _is_opaque(aval) else np.asarray(value, aval.dtype)


def _is_opaque(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jax.dtypes.extended))


def _apply(program: Program, equation: Equation, operands: list[_Value], count: int) -> list[_Value]:
    """The results of one equation."""
    if equation.name == "cond":
        which, *operands = operands
        return _in_branches(program, equation, which, operands, count)
    if equation.name in CALLS:
        return _inside(equation.params["call_jaxpr"], operands, count)
    plain, many = [value for value, _ in operands], any(many for _, many in operands)
    avals = [program.avals[output] for output in equation.outputs]
    if len(avals) == 1 and all(isinstance(value, np.ndarray) for value in plain):
        result = (_together if many else _alone)(equation, operands, avals[0].shape, count)
        if result is not None:
            return [(np.asarray(result, avals[0].dtype), many)]
    if many:
        at_points = [
            _apply(program, equation, [(v[point] if of_all else v, False) for v, of_all in operands], count)
            for point in range(count)
        ]
        stacks = ([value for value, _ in parts] for parts in zip(*at_points, strict=True))
        return [((np if isinstance(one[0], np.ndarray) else jnp).stack(one), True) for one in stacks]
    if equation.name == "split":
        parts = np.split(plain[0], np.cumsum(equation.params["sizes"])[:-1], equation.params["axis"])
        return [(part, False) for part in parts]
    bound = equation.primitive.bind(*plain, **equation.primitive.get_bind_params(dict(equation.params)))
    every = bound if equation.primitive.multiple_results else [bound]
    return [(value if _is_opaque(value) else np.asarray(value), False) for value in every]


def _inside(body: jex.ClosedJaxpr, operands: list[_Value], count: int) -> list[_Value]:
    """The results of a program that an equation calls."""
    inner = flatten(body, map(str, range(len(operands))), range(len(body.jaxpr.outvars)))
    given = dict(zip(inner.inputs.values(), operands, strict=True))
    return _values(inner, [*inner.outputs.values()], given, count)


def _in_branches(
    program: Program, equation: Equation, which: _Value, operands: list[_Value], count: int
) -> list[_Value]:
    """Every point takes the branch of its own number."""
    branches, (numbers, many) = equation.params["branches"], which
    numbers = np.clip(numbers, 0, len(branches) - 1).astype(int)
    if not many:
        return _inside(branches[int(numbers)], operands, count)
    results = [np.empty((count, *program.shape(v)), program.avals[v].dtype) for v in equation.outputs]
    for branch in np.unique(numbers):
        here = numbers == branch
        given = [(value[here], True) if of_all else (value, False) for value, of_all in operands]
        found = _inside(branches[branch], given, int(here.sum()))
        for result, value in zip(results, found, strict=True):
            result[here] = value[0]
    return [(result, True) for result in results]


def _alone(equation: Equation, operands: list[_Value], shape: Shape, count: int) -> Array | None:
    """The result at one point by one call of NumPy, or ``None``."""
    plain = [value for value, _ in operands]
    function = elementwise(equation, plain)
    if function is not None:
        return function(*plain)
    general = FUNCTIONS.get(equation.name)
    return None if general is None else general(plain, equation.params, shape)


def _together(equation: Equation, operands: list[_Value], shape: Shape, count: int) -> Array | None:
    """The same at all points."""
    function = elementwise(equation, [value for value, _ in operands])
    if function is not None:
        return function(*(_aligned(value, many, len(shape)) for value, many in operands))
    general, shifted = FUNCTIONS.get(equation.name), _shifted(equation, count)
    if general is None or shifted is None:
        return None
    return general([_at_all(operand, count) for operand in operands], shifted, (count, *shape))


def _aligned(value: Array, many: bool, rank: int) -> Array:
    """Axes of length 1 after that of the points, where the operand has fewer than the result."""
    missing = rank + 1 - value.ndim
    return value.reshape(len(value), *(1,) * missing, *value.shape[1:]) if many and missing else value


def _at_all(operand: _Value, count: int) -> Array:
    value, many = operand
    return np.asarray(value) if many else np.broadcast_to(value, (count, *np.shape(value)))


def _later(axes: Iterable[int]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def _led(axes: Iterable[int]) -> tuple[int, ...]:
    return (0, *_later(axes))


def _next(axis: int) -> int:
    return axis + 1


def _contraction(numbers: Any) -> Any:
    contracted, (left, right) = numbers
    return tuple(map(_later, contracted)), (_led(left), _led(right))


def _gathered(numbers: jax.lax.GatherDimensionNumbers) -> jax.lax.GatherDimensionNumbers:
    return jax.lax.GatherDimensionNumbers(
        offset_dims=_later(numbers.offset_dims),
        collapsed_slice_dims=_later(numbers.collapsed_slice_dims),
        start_index_map=_later(numbers.start_index_map),
        operand_batching_dims=_led(numbers.operand_batching_dims),
        start_indices_batching_dims=_led(numbers.start_indices_batching_dims),
    )


def _scattered(numbers: jax.lax.ScatterDimensionNumbers) -> jax.lax.ScatterDimensionNumbers:
    return jax.lax.ScatterDimensionNumbers(
        update_window_dims=_later(numbers.update_window_dims),
        inserted_window_dims=_later(numbers.inserted_window_dims),
        scatter_dims_to_operand_dims=_later(numbers.scatter_dims_to_operand_dims),
        operand_batching_dims=_led(numbers.operand_batching_dims),
        scatter_indices_batching_dims=_led(numbers.scatter_indices_batching_dims),
    )


_REDUCTIONS = ("sum", "prod", "max", "min", "and", "or")
# Parameters that name axes, and what they are with one more axis before the others.
_SHIFTS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    **{f"reduce_{name}": {"axes": _later} for name in _REDUCTIONS},
    **{name: {} for name in ("reshape", "squeeze", "expand_dims", "convert_element_type", "integer_pow")},
    **{name: {} for name in ("cholesky", "triangular_solve")},
    **{name: {"axis": _next} for name in ("stack", "cumsum", "cumprod")},
    "sort": {"dimension": _next},
    "concatenate": {"dimension": _next},
    "broadcast_in_dim": {"broadcast_dimensions": _led},
    "transpose": {"permutation": _led},
    "rev": {"dimensions": _later},
    "dot_general": {"dimension_numbers": _contraction},
    "gather": {"dimension_numbers": _gathered, "slice_sizes": lambda sizes: (1, *sizes)},
    **{name: {"dimension_numbers": _scattered} for name in ("scatter", "scatter-add")},
}


def _shifted(equation: Equation, count: int) -> Params | None:
    params = equation.params
    if equation.name == "slice":
        return {
            "start_indices": (0, *params["start_indices"]),
            "limit_indices": (count, *params["limit_indices"]),
            "strides": params["strides"] and (1, *params["strides"]),
        }
    shifts = _SHIFTS.get(equation.name)
    return None if shifts is None else {**params, **{name: by(params[name]) for name, by in shifts.items()}}
