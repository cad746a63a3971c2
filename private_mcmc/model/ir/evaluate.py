"""Values of a program at given numbers, computed by NumPy and SciPy: nothing is compiled.

A model is evaluated only a few times while it is read, and compiling it would take longer. Primitives without
a function of NumPy's are left to JAX, one at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from private_mcmc.model.ir.numpy_functions import FUNCTIONS, Array, elementwise
from private_mcmc.model.ir.program import Equation, Program, Shape, Variable, flatten

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
