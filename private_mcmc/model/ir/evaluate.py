"""Values of a program at one point, or at many at once, computed by NumPy and SciPy: nothing is compiled.

A model is evaluated only a few times while it is read, and compiling it would take longer. Primitives without
a function of NumPy's are left to JAX, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from private_mcmc.model.ir.flatten import abstract, flatten, trace
from private_mcmc.model.ir.program import Equation, Params, Program, Shape, Variable

# Calls of functions with derivatives of their own; what is called is the parameter ``call_jaxpr``.
CALLS = ("custom_jvp_call", "custom_vjp_call")


def evaluate(program: Program, outputs: Sequence[Hashable], /, **inputs: ArrayLike) -> list[Array]:
    """Outputs of a program, by name, at these inputs."""
    given = {program.inputs[name]: value for name, value in inputs.items()}
    return values(program, [program.outputs[name] for name in outputs], given)


def evaluate_each(program: Program, outputs: Sequence[Hashable], /, **inputs: np.ndarray) -> list[Array]:
    """Outputs of a program, by name, ``(points, …)``, at inputs that have such an axis, too."""
    count = len(next(iter(inputs.values())))
    together = _at_points(program, tuple(outputs), frozenset(inputs), count)
    return evaluate(together, [*together.outputs], **inputs)


@lru_cache(maxsize=16)
def _at_points(program: Program, outputs: tuple[Hashable, ...], names: frozenset[str], count: int) -> Program:
    """The program of ``count`` points at once, as JAX's own rules of ``vmap`` make it."""
    targets = [program.outputs[name] for name in outputs]

    def at_one(given: Mapping[str, jax.Array]) -> list[jax.Array]:
        return program.run(targets, {program.inputs[name]: value for name, value in given.items()})

    with jax.enable_x64(True):
        avals = {name: program.avals[program.inputs[name]] for name in names}
        shapes = {name: abstract((count, *aval.shape), aval.dtype) for name, aval in avals.items()}
        return trace(lambda **given: dict(enumerate(jax.vmap(at_one)(given))), **shapes)


def values(program: Program, targets: Iterable[Variable], given: Mapping[Variable, ArrayLike]) -> list[Array]:
    """The variables ``targets`` where the inputs (or other variables) in ``given`` have these values."""
    targets = list(targets)
    equations = program.slice(targets, given)
    last = {variable: place for place, equation in enumerate(equations) for variable in equation.inputs}
    last |= dict.fromkeys(targets, -1)
    known = {variable: _constant(program, variable) for variable in last if variable in program.constants}
    for variable, value in given.items():
        aval = program.avals[variable]
        known[variable] = np.asarray(value).astype(aval.dtype).reshape(aval.shape)
    with np.errstate(all="ignore"):
        for place, equation in enumerate(equations):
            results = _apply(program, equation, [known[variable] for variable in equation.inputs])
            for output, result in zip(equation.outputs, results, strict=True):
                known.setdefault(output, result)
            for variable in set(equation.inputs):
                if last[variable] == place:
                    del known[variable]
    return [np.asarray(known[variable]) for variable in targets]


def _constant(program: Program, variable: Variable) -> Any:
    """As NumPy's array; of an opaque type (a key) as it is."""
    value, aval = program.constants[variable], program.avals[variable]
    return value if _is_opaque(aval) else np.asarray(value, aval.dtype)


def _is_opaque(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jax.dtypes.extended))


def _apply(program: Program, equation: Equation, operands: list[Any]) -> Sequence[Any]:
    """The results of one equation."""
    if equation.name in CALLS:
        return _inside(equation.params["call_jaxpr"], operands)
    if equation.name == "cond":
        branches = equation.params["branches"]
        return _inside(branches[int(np.clip(operands[0], 0, len(branches) - 1))], operands[1:])
    if equation.name == "split":
        return np.split(operands[0], np.cumsum(equation.params["sizes"])[:-1], equation.params["axis"])
    avals = [program.avals[output] for output in equation.outputs]
    if len(avals) == 1 and all(isinstance(operand, np.ndarray) for operand in operands):
        result = _by_numpy(equation, operands, avals[0].shape)
        if result is not None:
            return [np.asarray(result, avals[0].dtype)]
    bound = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(dict(equation.params)))
    every = bound if equation.primitive.multiple_results else [bound]
    return [value if _is_opaque(value) else np.asarray(value) for value in every]


def _inside(body: jex.ClosedJaxpr, operands: list[Any]) -> list[Array]:
    """The results of a program that an equation calls."""
    inner = flatten(body, map(str, range(len(operands))), range(len(body.jaxpr.outvars)))
    return values(inner, inner.outputs.values(), dict(zip(inner.inputs.values(), operands, strict=True)))


def _by_numpy(equation: Equation, operands: list[Array], shape: Shape) -> Array | None:
    function = elementwise(equation, operands)
    if function is not None:
        return function(*operands)
    general = FUNCTIONS.get(equation.name)
    return None if general is None else general(operands, equation.params, shape)


Array: TypeAlias = np.ndarray
Function: TypeAlias = Callable[[Sequence[Array], Params, Shape], Array | None]

_OF_FLOATS: Mapping[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "cbrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "div": np.divide,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": special.expit,
    "lgamma": special.gammaln,
    "digamma": special.digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erfinv,
}
_OF_NUMBERS: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "max": np.maximum,
    "min": np.minimum,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "is_finite": np.isfinite,
    "copy": np.asarray,
    "copy_p": np.asarray,
    "stop_gradient": np.asarray,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
}
_REDUCTIONS: Mapping[str, Callable[..., Array]] = {
    **{f"reduce_{name}": getattr(np, name) for name in ("sum", "prod", "max", "min")},
    "reduce_and": np.all,
    "reduce_or": np.any,
}


def _reduction(function: Callable[..., Array]) -> Function:
    return lambda x, params, shape: np.asarray(function(x[0], axis=tuple(params["axes"])))


def _convert(operands: Sequence[Array], params: Params, shape: Shape) -> Array | None:
    (value,), dtype = operands, np.dtype(params["new_dtype"])
    if value.dtype.kind == "f" and dtype.kind in "iu":
        # JAX has rules of its own for what is not a number or beyond the type's range.
        ends = np.iinfo(params["new_dtype"])
        if not np.all((value >= max(ends.min, -(2**30))) & (value <= min(ends.max, 2**30))):
            return None
    return value.astype(dtype)


def _integer_pow(operands: Sequence[Array], params: Params, shape: Shape) -> Array:
    power = params["y"]
    return np.asarray(1 / operands[0] ** -power if power < 0 else operands[0] ** power)


def _broadcast(operands: Sequence[Array], params: Params, shape: Shape) -> Array:
    sizes = [1] * len(shape)
    for axis, target in enumerate(params["broadcast_dimensions"]):
        sizes[target] = operands[0].shape[axis]
    return np.broadcast_to(operands[0].reshape(sizes), shape)


def _iota(operands: Sequence[Array], params: Params, shape: Shape) -> Array:
    sizes = [1] * len(shape)
    sizes[params["dimension"]] = -1
    return np.broadcast_to(np.arange(shape[params["dimension"]]).reshape(sizes), shape)


def _slice(operands: Sequence[Array], params: Params, shape: Shape) -> Array:
    strides = params["strides"] or (1,) * len(shape)
    ends = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return operands[0][tuple(slice(*entry) for entry in ends)]


def _pad(operands: Sequence[Array], params: Params, shape: Shape) -> Array | None:
    if any(low < 0 or high < 0 for low, high, _ in params["padding_config"]):
        return None
    padded = np.full(shape, operands[1])
    config = zip(params["padding_config"], operands[0].shape, strict=True)
    padded[tuple(slice(low, low + n + inner * max(n - 1, 0), inner + 1) for (low, _, inner), n in config)] = (
        operands[0]
    )
    return padded


def _running_sum(operands: Sequence[Array], params: Params, shape: Shape) -> Array:
    axis = params["axis"]
    if params["reverse"]:
        return np.flip(np.cumsum(np.flip(operands[0], axis), axis), axis)
    return np.cumsum(operands[0], axis)


def _dot_general(operands: Sequence[Array], params: Params, shape: Shape) -> Array:
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    fresh = count()
    a, b = ([-1] * operand.ndim for operand in operands)
    for mine, other in (*zip(batch_a, batch_b, strict=True), *zip(contract_a, contract_b, strict=True)):
        a[mine] = b[other] = next(fresh)
    a, b = ([next(fresh) if axis < 0 else axis for axis in axes] for axes in (a, b))
    free = [axis for axis in (*a, *b) if (axis in a) != (axis in b)]
    return np.asarray(np.einsum(operands[0], a, operands[1], b, [*(a[i] for i in batch_a), *free]))


FUNCTIONS: Mapping[str, Function] = {
    **{name: _reduction(function) for name, function in _REDUCTIONS.items()},
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), lambda x, params, shape: x[0].reshape(shape)),
    "convert_element_type": _convert,
    "integer_pow": _integer_pow,
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    "transpose": lambda x, params, shape: np.transpose(x[0], params["permutation"]),
    "rev": lambda x, params, shape: np.flip(x[0], params["dimensions"]),
    "concatenate": lambda x, params, shape: np.concatenate(x, params["dimension"]),
    "stack": lambda x, params, shape: np.stack(x, params["axis"]),
    "slice": _slice,
    "pad": _pad,
    "cumsum": _running_sum,
    "dot_general": _dot_general,
}


def elementwise(equation: Equation, operands: Sequence[Array]) -> Callable[..., Array] | None:
    """NumPy's function of numbers, if it is one of these operands."""
    function = _OF_NUMBERS.get(equation.name)
    if function is None and all(operand.dtype.kind == "f" for operand in operands[:1]):
        function = _OF_FLOATS.get(equation.name)
    return function
