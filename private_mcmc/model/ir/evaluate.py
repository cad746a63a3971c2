"""Values of a program at one point, or at many at once, computed by NumPy and SciPy: nothing is compiled.

A model is evaluated only a few times while it is read, and compiling it would take longer. Primitives without
a function of NumPy's are left to JAX, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from private_mcmc.model.ir.flatten import flatten
from private_mcmc.model.ir.numpy_functions import FUNCTIONS, Array, elementwise
from private_mcmc.model.ir.program import Equation, Params, Program, Shape, Variable

_CALLS = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


def constants(program: Program, needed: Iterable[Variable]) -> dict[Variable, Any]:
    """The constants among these variables as NumPy's arrays; of opaque types (keys) as they are."""
    avals, found = program.avals, program.constants
    return {
        v: found[v] if _is_opaque(avals[v]) else np.asarray(found[v], avals[v].dtype)
        for v in needed
        if v in found
    }


def _is_opaque(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jax.dtypes.extended))


def last_uses(equations: Iterable[Equation], targets: Iterable[Variable]) -> dict[Variable, int]:
    """Where in the list of equations a variable is used last; of the targets, after all of them."""
    places = {variable: place for place, equation in enumerate(equations) for variable in equation.inputs}
    return {**places, **dict.fromkeys(targets, -1)}


def values(program: Program, targets: Iterable[Variable], given: Mapping[Variable, ArrayLike]) -> list[Array]:
    """The variables ``targets`` where the inputs (or other variables) in ``given`` have these values."""
    targets = list(targets)
    equations = program.slice(targets, given)
    last = last_uses(equations, targets)
    known = constants(program, last)
    for variable, value in given.items():
        aval = program.avals[variable]
        known[variable] = np.asarray(value).astype(aval.dtype).reshape(aval.shape)
    with np.errstate(all="ignore"):
        for place, equation in enumerate(equations):
            results = apply(program, equation, [known[variable] for variable in equation.inputs])
            for output, result in zip(equation.outputs, results, strict=True):
                known.setdefault(output, result)
            for variable in set(equation.inputs):
                if last[variable] == place:
                    del known[variable]
    return [np.asarray(known[variable]) for variable in targets]


def evaluate(program: Program, outputs: Sequence[Hashable], /, **inputs: ArrayLike) -> list[Array]:
    """Outputs of a program, by name, at these inputs."""
    given = {program.inputs[name]: value for name, value in inputs.items()}
    return values(program, [program.outputs[name] for name in outputs], given)


def called(equation: Equation, operands: list[Any]) -> tuple[Program, list[Any]] | None:
    """The program that the equation calls, whose inputs are called 0, 1, …, and with what."""
    if equation.name in _CALLS:
        body = equation.params[_CALLS[equation.name]]
    elif equation.name == "cond":
        branches = equation.params["branches"]
        body, operands = branches[int(np.clip(operands[0], 0, len(branches) - 1))], operands[1:]
    else:
        return None
    return flatten(body, map(str, range(len(operands))), range(len(equation.outputs))), operands


def apply(program: Program, equation: Equation, operands: list[Any]) -> Sequence[Any]:
    """The results of one equation."""
    inner = called(equation, operands)
    if inner is not None:
        body, arguments = inner
        return evaluate(body, [*body.outputs], **dict(zip(body.inputs, arguments, strict=True)))
    if equation.name == "split":
        return np.split(operands[0], np.cumsum(equation.params["sizes"])[:-1], equation.params["axis"])
    avals = [program.avals[output] for output in equation.outputs]
    result = None
    if len(avals) == 1 and all(isinstance(operand, np.ndarray) for operand in operands):
        result = _result(equation, operands, avals[0].shape)
    if result is not None:
        return [np.asarray(result, avals[0].dtype)]
    params = equation.primitive.get_bind_params(dict(equation.params))
    bound = equation.primitive.bind(*operands, **params)
    every = bound if equation.primitive.multiple_results else [bound]
    return [value if _is_opaque(value) else np.asarray(value) for value in every]


def _result(equation: Equation, operands: list[Array], shape: Shape) -> Array | None:
    function = elementwise(equation, operands)
    if function is not None:
        return function(*operands)
    general = FUNCTIONS.get(equation.name)
    return None if general is None else general(operands, equation.params, shape)


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
