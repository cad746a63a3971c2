"""A traced function as a flat list of JAX's equations, which can be sliced, cut and run.

Jaxprs nest (``jit``, ``remat``) and repeat equal subexpressions; here they are inlined and equal equations
are merged, so that a variable is one intermediate result of the model. Primitives with their own derivative
rules, loops and branches stay whole: what happens inside them is not looked into.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from private_mcmc.errors import DeclarationError
from private_mcmc.potential.rowwise import constants_of, own_primitives
from private_mcmc.system import RUN_ONCE

# ``jax.extend.core.Var`` and ``JaxprEqn``, whose operands here are variables only, with shapes and types.
Variable: TypeAlias = Any
Equation: TypeAlias = Any
Kind: TypeAlias = Literal[
    "prior", "jacobian", "value", "row", "density", "class", "observed", "weight", "given", "deterministic"
]


class Output(NamedTuple):
    """The name of an output that belongs to a site; ``part`` is a parameter, or which weight."""

    kind: Kind
    site: str
    part: str = ""


# Parameters that none of our rules reads: where one is set, the primitive does not do what its name says.
_UNREAD: Mapping[str, str] = {
    "reshape": "dimensions",
    "scatter": "update_jaxpr",
    "mul": "out_dtype",
    "dot_general": "precision",
}


def name_of(equation: Equation) -> str:
    """Name of the primitive, by which rules know it; where it does something else, another one."""
    name = str(equation.primitive.name)
    value = equation.params.get(_UNREAD.get(name, ""))
    # A precision of at least the operands' changes nothing.
    parts = value if isinstance(value, tuple) else () if value is None else (value,)
    plain = all(isinstance(part, jax.lax.Precision) for part in parts)
    return name if plain else f"{name} by {_UNREAD[name]}"


@dataclass(frozen=True, eq=False)
class Program:
    """A pure function: inputs by name, equations in an order in which they can be run, outputs by name."""

    inputs: Mapping[str, Variable]
    outputs: Mapping[Hashable, Variable]
    constants: Mapping[Variable, Any]
    equations: tuple[Equation, ...]

    @cached_property
    def producers(self) -> Mapping[Variable, Equation]:
        """Which equation makes a variable."""
        return {output: equation for equation in self.equations for output in equation.outvars}

    def parts(self, kind: Kind, site: str) -> dict[str, Variable]:
        """All outputs of a kind that belong to a site, by their parts."""
        return {
            name.part: variable
            for name, variable in self.outputs.items()
            if isinstance(name, Output) and (name.kind, name.site) == (kind, site)
        }

    def slice(self, targets: Iterable[Variable], given: Iterable[Variable] = ()) -> list[Equation]:
        """The equations that ``targets`` need when the variables ``given`` are known."""
        known, wanted = set(given), set(targets)
        chosen = []
        for equation in reversed(self.equations):
            if not wanted.intersection(equation.outvars) <= known:
                chosen.append(equation)
                wanted.update(equation.invars)
        return chosen[::-1]

    def reads(self, targets: Iterable[Variable], given: Iterable[Variable] = ()) -> frozenset[str]:
        """Names of the inputs that ``targets`` may depend on when ``given`` are known.

        A proof of independence: an input that is not named is not an operand of any equation on any way
        to the targets.
        """
        known = set(given)
        read = self.uses(targets, known) - known
        return frozenset(name for name, variable in self.inputs.items() if variable in read)

    def uses(self, targets: Iterable[Variable], given: Iterable[Variable] = ()) -> frozenset[Variable]:
        """All variables that ``targets`` may depend on when ``given`` are known, themselves included."""
        targets = list(targets)
        read = (variable for equation in self.slice(targets, given) for variable in equation.invars)
        return frozenset([*targets, *read])

    def operations(self, target: Variable) -> list[Hashable] | None:
        """What computes ``target``, in terms of inputs and constants: equal lists compute equal values.

        ``None`` where it cannot be compared. Rules of derivatives have no part in values.
        """
        names: dict[Variable, Hashable] = {variable: name for name, variable in self.inputs.items()}
        names |= {variable: _content(value, variable.aval) for variable, value in self.constants.items()}
        found: list[Hashable] = []
        for equation in self.slice([target]):
            names.update({one: (len(found), place) for place, one in enumerate(equation.outvars)})
            params = [(name, _told(value)) for name, value in sorted(equation.params.items())]
            kinds = [str(one.aval) for one in equation.outvars]
            found.append((equation.primitive, *params, *kinds, *(names[one] for one in equation.invars)))
        return [*found, names[target]] if _hashable(tuple(found)) else None

    def columns(self, row: Mapping[str, Any]) -> dict[Variable, Any]:
        """A row's values by the variables of the inputs; columns that nothing reads may be left out."""
        return {variable: row[name] for name, variable in self.inputs.items() if name in row}

    def run(self, targets: Iterable[Variable], given: Mapping[Variable, Any]) -> list[Any]:
        """Values of ``targets``; ``given`` holds the inputs (or cut variables) that they need.

        ``DeclarationError`` in float32, where a model may be another program: all is proved of this one.
        """
        if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
            raise DeclarationError(
                "a model is evaluated in float64: call numpyro.enable_x64() first, or do it under "
                "`with jax.enable_x64(True):`."
            )
        targets = list(targets)
        values = dict(self.constants)
        equations = self.slice(targets, given)
        read = {*targets, *(variable for equation in equations for variable in equation.invars)}
        # In the order given, not in that of a set: what is traced here is hashed, saved and compared.
        for variable, value in given.items():
            if variable in read:
                number = jnp.asarray(value)
                values[variable] = number.astype(variable.aval.dtype).reshape(variable.aval.shape)
        for equation in equations:
            operands = [values[variable] for variable in equation.invars]
            params = equation.primitive.get_bind_params(dict(equation.params))
            results = equation.primitive.bind(*operands, **params)
            results = results if equation.primitive.multiple_results else [results]
            for output, result in zip(equation.outvars, results, strict=True):
                if output not in given:
                    values[output] = result
        return [values[variable] for variable in targets]

    def evaluate(
        self, names: Iterable[Hashable], each: bool = False, /, **inputs: ArrayLike
    ) -> list[np.ndarray]:
        """Outputs by name at these inputs, compiled in float64; ``each``: ``(points, …)`` of both."""
        targets = [self.outputs[name] for name in names]

        def at(given: Mapping[str, jax.Array]) -> list[Any]:
            return self.run(targets, {self.inputs[name]: value for name, value in given.items()})

        with jax.enable_x64(True):
            run = jax.jit(jax.vmap(at) if each and inputs else at, compiler_options=RUN_ONCE)
            return [np.asarray(value) for value in run(dict(inputs))]

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Shape of a variable."""
        return tuple(variable.aval.shape)

    def size(self, variable: Variable) -> int:
        """Number of elements of a variable."""
        return int(np.prod(self.shape(variable), dtype=np.int64))


_INLINED = {
    **dict.fromkeys(("jit", "pjit", "remat2", "checkpoint"), "jaxpr"),
    "closed_call": "call_jaxpr",
}


def trace(function: Callable[..., Mapping[Any, Any]], /, **inputs: object) -> Program:
    """The program of ``function(**inputs)``, which returns a mapping of names to arrays.

    ``inputs`` are arrays or ``ShapeDtypeStruct``; no value is used. Raises as ``own_primitives``.
    """
    names: list[Hashable] = []

    def listed(given: Mapping[str, jax.Array]) -> list[jax.Array]:
        outputs = function(**given)
        names[:] = outputs.keys()
        return list(outputs.values())

    closed, _ = own_primitives(listed, inputs)
    builder = _Builder()
    variables = [jex.Var(variable.aval) for variable in closed.jaxpr.invars]
    results = builder.inline(closed.jaxpr, closed.consts, variables)
    return Program(
        inputs=dict(zip(sorted(inputs), variables, strict=True)),
        outputs=dict(zip(names, results, strict=True)),
        constants=builder.constants,
        equations=tuple(builder.equations),
    )


class _Builder:
    """Collects equations, merging equal ones."""

    def __init__(self) -> None:
        self.constants: dict[Variable, Any] = {}
        self.equations: list[Equation] = []
        self._seen: dict[Hashable, list[Variable]] = {}

    def inline(
        self, jaxpr: jex.Jaxpr, consts: Iterable[Any], arguments: Iterable[Variable]
    ) -> list[Variable]:
        """The results of a jaxpr of these arguments; its equations are added."""
        scope: dict[jex.Var, Variable] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            scope[variable] = self._constant(value, variable.aval)

        def look_up(atom: jex.Var | jex.Literal) -> Variable:
            return self._constant(atom.val, atom.aval) if isinstance(atom, jex.Literal) else scope[atom]

        for equation in jaxpr.eqns:
            operands = [look_up(atom) for atom in equation.invars]
            inner: Any = equation.params.get(_INLINED.get(equation.primitive.name, ""))
            if inner is None:
                results = self._add(equation, operands)
            else:
                plain, held = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                results = self.inline(plain, held, operands)
            scope.update(zip(equation.outvars, results, strict=True))
        return [look_up(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any, aval: Any) -> Variable:
        key = _content(value, aval)
        if key not in self._seen:
            self._seen[key] = [jex.Var(aval)]
            self.constants[self._seen[key][0]] = value
        return self._seen[key][0]

    def _add(self, equation: Equation, operands: list[Variable]) -> list[Variable]:
        key = (equation.primitive, *operands, *sorted(equation.params.items()))
        mergeable = _hashable(key) and not list(jex.jaxprs_in_params(equation.params))
        if mergeable and key in self._seen:
            return self._seen[key]
        outputs = [jex.Var(variable.aval) for variable in equation.outvars]
        self.equations.append(equation.replace(invars=operands, outvars=outputs))
        if mergeable:
            self._seen[key] = outputs
        return outputs


def _content(value: Any, aval: Any) -> Hashable:
    """Of a constant its type and its bytes; of opaque types (keys), which one it is."""
    opaque = jnp.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.extended)
    content = id(value) if opaque else np.asarray(value).tobytes()
    return "constant", aval.dtype, tuple(aval.shape), bool(getattr(aval, "weak_type", False)), content


def _told(value: Any) -> Hashable:
    """A parameter; programs and functions, which are other objects at every trace, by text and constants."""
    if isinstance(value, tuple | list):
        return tuple(map(_told, value))
    if not (callable(value) or hasattr(value, "eqns")):
        return value  # type: ignore[no-any-return]
    constants = constants_of(value) if hasattr(value, "eqns") else ()
    return _ADDRESS.sub("", str(value)), *(np.asarray(one).tobytes() for one in constants)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def same(
    left: Program, one: Variable, right: Program, other: Variable, known: dict[Variable, Variable]
) -> bool:
    """Whether two results are made of the pairs ``known`` by the same operations; found pairs are added.

    Unlike values at points this tells programs apart that differ far out alone.
    """
    one, other = _unmoved(left, one), _unmoved(right, other)
    if one in known or (left is right and one is other):
        return known.get(one, one) is other
    if one in left.constants and other in right.constants:
        first, second = (np.asarray(program.constants[at]) for program, at in ((left, one), (right, other)))
        return first.dtype == second.dtype and np.array_equal(first, second)
    made, like = left.producers.get(one), right.producers.get(other)
    if made is None or like is None or made.primitive is not like.primitive:
        return False
    texts = [_ADDRESS.sub("", str(sorted(equation.params.items()))) for equation in (made, like)]
    if texts[0] != texts[1] or made.outvars.index(one) != like.outvars.index(other):
        return False
    orders = [like.invars, like.invars[::-1]] if made.primitive.name in ("add", "mul") else [like.invars]
    if not any(
        len(made.invars) == len(order)
        and all(same(left, a, right, b, known) for a, b in zip(made.invars, order, strict=True))
        for order in orders
    ):
        return False
    known[one] = other
    return True


# Functions print with their address in this process.
_ADDRESS = re.compile("0x[0-9a-f]+")
_STILL = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type", "copy")


def _unmoved(program: Program, variable: Variable) -> Variable:
    """Before axes of length one were added or taken away."""
    while (made := program.producers.get(variable)) is not None and made.primitive.name in _STILL:
        (before, *others), kind = made.invars, variable.aval
        if others or program.size(before) != program.size(variable) or before.aval.dtype != kind.dtype:
            break
        variable = before
    return variable


class Level(IntEnum):
    """How a value depends on the input, the other inputs held fixed. ``UNKNOWN`` is what is not proved."""

    CONSTANT = 0
    AFFINE = 1
    UNKNOWN = 2


# Linear in all operands together.
_MOVES = ("reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "slice", "split", "rev")
_SUMS = ("add", "sub", "add_any", "neg", "reduce_sum", "cumsum", "real", "copy", "copy_p", "pad")
_LINEAR = frozenset([*_SUMS, *_MOVES, "convert_element_type", "concatenate", "stack"])
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


def affinity(program: Program, *names: str, known: Container[Variable] = ()) -> Mapping[Variable, Level]:
    """Level of every variable in the inputs ``names`` together; ``known`` variables are constants.

    ``AFFINE`` is a proof: the value is ``A·inputs + b`` with ``A`` and ``b`` functions of the other inputs.
    Primitives that are not listed, custom derivative rules (whose gradient may differ from that of the
    value), loops and branches make ``UNKNOWN`` of anything that is not constant.
    """
    levels = dict.fromkeys(program.constants, Level.CONSTANT)
    levels.update({v: Level.AFFINE if n in names else Level.CONSTANT for n, v in program.inputs.items()})
    for equation in program.equations:
        result = _level(equation, [levels[variable] for variable in equation.invars])
        if result is Level.AFFINE and _rounds(equation):
            result = Level.UNKNOWN
        levels.update({v: Level.CONSTANT if v in known else result for v in equation.outvars})
    return levels


def _rounds(equation: Equation) -> bool:
    """The result is a narrower float than an operand, or no float at all."""
    inputs = [variable.aval.dtype for variable in equation.invars]
    widest = max((dtype.itemsize for dtype in inputs if jnp.issubdtype(dtype, jnp.floating)), default=0)
    results = [variable.aval.dtype for variable in equation.outvars]
    return any(not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize < widest for dtype in results)


def _level(equation: Equation, levels: list[Level]) -> Level:
    worst = max(levels, default=Level.CONSTANT)
    if worst is not Level.AFFINE:
        return worst
    moving = {position for position, level in enumerate(levels) if level is Level.AFFINE}
    name = name_of(equation)
    linear = (
        name in _LINEAR
        or moving <= set(_LINEAR_AT.get(name, ()))
        or (name in _BILINEAR and len(moving) == 1)
        or (name == "integer_pow" and equation.params["y"] == 1)
    )
    return Level.AFFINE if linear else Level.UNKNOWN


# Of a loop without a fixed end, so many turns.
_TURNS = 32


def work_of(equations: Iterable[Equation]) -> int:
    """About how many numbers they compute."""
    total = 0
    for equation in equations:
        turns = _TURNS if equation.primitive.name == "while" else equation.params.get("length") or 1
        inner = sum(work_of(getattr(one, "jaxpr", one).eqns) for one in jex.jaxprs_in_params(equation.params))
        own = sum(math.prod(getattr(output.aval, "shape", ())) for output in equation.outvars)
        total += turns * inner if inner else own
    return total


def without_cancellation(program: Program, levels: Mapping[Variable, Level]) -> Program:
    """The program whose affine values are sums of sizes, of inputs that are sizes: nothing cancels.

    The rounding of an affine value is a small multiple of ``2⁻⁵³`` times its sum of sizes.
    """
    equations: list[Equation] = []
    sizes: dict[Variable, Variable] = {}
    for equation in program.equations:
        if levels[equation.outvars[0]] is Level.AFFINE:
            floats = [one for one in equation.invars if jnp.issubdtype(one.aval.dtype, jnp.floating)]
            for one in dict.fromkeys(floats):
                if levels[one] is Level.CONSTANT and one not in sizes:
                    sizes[one] = jex.Var(one.aval)
                    made = {"invars": [one], "outvars": [sizes[one]], "params": {}}
                    equations.append(equation.replace(primitive=jax.lax.abs_p, **made))
            kind = {"sub": jax.lax.add_p, "neg": jax.lax.abs_p}.get(name_of(equation), equation.primitive)
            equation = equation.replace(
                primitive=kind, invars=[sizes.get(one, one) for one in equation.invars]
            )
        equations.append(equation)
    return replace(program, equations=tuple(equations))
