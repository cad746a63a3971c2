"""Values of a program at many points at once: NumPy's, with a leading axis of points.

What depends on no input is computed once, what NumPy computes along an axis for all points together, and the
rest point by point.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model.ir.evaluate import apply, called, constants, last_uses
from private_mcmc.model.ir.numpy_functions import FUNCTIONS, Array, elementwise
from private_mcmc.model.ir.program import Equation, Params, Program, Shape, Variable

# A value and whether its first axis is that of the points.
_Value: TypeAlias = tuple[Any, bool]


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
    last = last_uses(equations, targets)
    known: dict[Variable, _Value] = {v: (value, False) for v, value in constants(program, last).items()}
    for variable, (value, many) in given.items():
        known[variable] = np.asarray(value).astype(program.avals[variable].dtype), many
    with np.errstate(all="ignore"):
        for place, equation in enumerate(equations):
            results = _apply(program, equation, [known[v] for v in equation.inputs], count)
            for output, result in zip(equation.outputs, results, strict=True):
                known.setdefault(output, result)
            for variable in set(equation.inputs):
                if last[variable] == place:
                    del known[variable]
    return [known[variable] for variable in targets]


def _apply(program: Program, equation: Equation, operands: list[_Value], count: int) -> list[_Value]:
    plain = [value for value, _ in operands]
    if not any(many for _, many in operands):
        return [(result, False) for result in apply(program, equation, plain)]
    if equation.name == "cond" and operands[0][1]:
        return _in_branches(program, equation, operands)
    inner = called(equation, [operands[0][0], *operands[1:]] if equation.name == "cond" else operands)
    if inner is not None:
        body, arguments = inner
        given = dict(zip(body.inputs.values(), arguments, strict=True))
        return _values(body, [*body.outputs.values()], given, count)
    avals = [program.avals[output] for output in equation.outputs]
    if len(avals) == 1 and all(isinstance(value, np.ndarray) for value in plain):
        result = _together(equation, operands, avals[0].shape, count)
        if result is not None:
            return [(np.asarray(result, avals[0].dtype), True)]
    at_points = [
        apply(program, equation, [value[point] if many else value for value, many in operands])
        for point in range(count)
    ]
    return [
        (np.stack(parts) if isinstance(parts[0], np.ndarray) else jnp.stack(parts), True)
        for parts in zip(*at_points, strict=True)
    ]


def _in_branches(program: Program, equation: Equation, operands: list[_Value]) -> list[_Value]:
    """Every point takes the branch of its own number."""
    which = operands[0][0]
    results = [np.empty((len(which), *program.shape(v)), program.avals[v].dtype) for v in equation.outputs]
    for branch in np.unique(which):
        here = which == branch
        given = [(value[here], True) if many else (value, False) for value, many in operands[1:]]
        found = _apply(program, equation, [(branch, False), *given], int(here.sum()))
        for result, value in zip(results, found, strict=True):
            result[here] = value[0]
    return [(result, True) for result in results]


def _together(equation: Equation, operands: list[_Value], shape: Shape, count: int) -> Array | None:
    """The result at all points by one call of NumPy, or ``None``."""
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
