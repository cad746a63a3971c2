"""A traced function as a flat list of equations that can be sliced, cut and evaluated.

Jaxprs nest (``jit``, ``remat``) and repeat equal subexpressions; here they are inlined and equal
equations are merged, so that a variable is one intermediate result of the model. Short loops of fixed
length are unrolled. Primitives with their own derivative rules, other loops and branches stay whole: what
happens inside them is not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from private_mcmc.errors import DoThisInstead
from private_mcmc.records import Fields

# Of products, as JAX names it: settings such as "BF16_BF16_F32" would narrow float64.
EXACT = "highest"
_MOST_STEPS = 64
_MOST_EQUATIONS = 4000


def unrolled(equation: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
    """The closed jaxpr of a ``scan`` without the loop, or ``None`` if it is no short loop of numbers."""
    if equation.primitive.name != "scan":
        return None
    body, length = equation.params["jaxpr"], equation.params["length"]
    types = [variable.aval.dtype for variable in (*equation.invars, *body.jaxpr.outvars)]
    opaque = any(jnp.issubdtype(dtype, jax.dtypes.extended) for dtype in types)
    if opaque or not 1 <= length <= _MOST_STEPS or length * len(body.eqns) > _MOST_EQUATIONS:
        return None
    # What is gone through or stacked has one axis more outside. JAX renames its own counts.
    carried = _as_inside(equation.outvars, body.jaxpr.outvars)
    consts = _as_inside(equation.invars, body.jaxpr.invars) - carried
    step = jex.jaxpr_as_fun(body)

    def straight(*operands: jax.Array) -> list[jax.Array]:
        fixed, state = list(operands[:consts]), list(operands[consts : consts + carried])
        columns: list[list[jax.Array]] = [[] for _ in body.jaxpr.outvars[carried:]]
        order = range(length)
        for index in reversed(order) if equation.params["reverse"] else order:
            entries = [jax.lax.index_in_dim(x, index, keepdims=False) for x in operands[consts + carried :]]
            results = step(*fixed, *state, *entries)
            state = list(results[:carried])
            for column, value in zip(columns, results[carried:], strict=True):
                column.append(value)
        if equation.params["reverse"]:
            columns = [column[::-1] for column in columns]
        return [*state, *(jnp.stack(column) for column in columns)]

    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]  # type: ignore
    return jax.make_jaxpr(straight)(*shapes)


def _as_inside(outside: Sequence[jex.Var | jex.Literal], inside: Sequence[jex.Var | jex.Literal]) -> int:
    """How many variables of a loop have as many axes as in its body."""
    return sum(len(x.aval.shape) == len(y.aval.shape) for x, y in zip(outside, inside, strict=True))  # type: ignore


Variable: TypeAlias = int
Params: TypeAlias = Fields
Shape: TypeAlias = tuple[int, ...]
# Of arrays; JAX's own type is that of all its abstract values.
Aval: TypeAlias = Any

Kind: TypeAlias = Literal[
    "prior", "jacobian", "value", "row", "density", "observed", "weight", "given", "deterministic"
]


class Output(NamedTuple):
    """The name of an output that belongs to a site; ``part`` is a parameter, or which weight."""

    kind: Kind
    site: str
    part: str = ""


_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}


@dataclass(frozen=True, eq=False)
class Equation:
    """``outputs = primitive(inputs, **params)``."""

    primitive: Any
    params: Params
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]

    @cached_property
    def name(self) -> str:
        """Name of the primitive."""
        return str(self.primitive.name)


@dataclass(frozen=True, eq=False)
class Program:
    """A pure function: inputs by name, equations in order, outputs by name.

    ``equations`` are in an order in which they can be evaluated; ``avals`` are shapes and dtypes.
    """

    inputs: Mapping[str, Variable]
    outputs: Mapping[Hashable, Variable]
    constants: Mapping[Variable, Any]
    equations: tuple[Equation, ...]
    avals: Mapping[Variable, Aval]

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
            if not wanted.intersection(equation.outputs) <= known:
                chosen.append(equation)
                wanted.update(equation.inputs)
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
        read = (variable for equation in self.slice(targets, given) for variable in equation.inputs)
        return frozenset([*targets, *read])

    def run(self, targets: Iterable[Variable], given: Mapping[Variable, Any]) -> list[Any]:
        """Values of ``targets``; ``given`` holds the inputs (or cut variables) that they need."""
        targets = list(targets)
        values = dict(self.constants)
        for variable, value in given.items():
            aval = self.avals[variable]
            values[variable] = jnp.asarray(value).astype(aval.dtype).reshape(aval.shape)
        for equation in self.slice(targets, given):
            operands = [values[variable] for variable in equation.inputs]
            params = equation.primitive.get_bind_params(dict(equation.params))
            results = equation.primitive.bind(*operands, **params)
            results = results if equation.primitive.multiple_results else [results]
            values.update(
                (output, result)
                for output, result in zip(equation.outputs, results, strict=True)
                if output not in given
            )
        return [values[variable] for variable in targets]

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Shape of a variable."""
        return tuple(self.avals[variable].shape)

    def size(self, variable: Variable) -> int:
        """Number of elements of a variable."""
        return int(np.prod(self.shape(variable), dtype=np.int64))

    def text(self, targets: Iterable[Variable], given: Mapping[Variable, str] | None = None) -> str:
        """What computes ``targets``, whatever the numbers of the variables and the order of the equations.

        ``given`` names variables that are taken as known.
        """
        targets = list(targets)
        names = {variable: name for name, variable in self.inputs.items()} | dict(given or {})
        lines: list[str] = []
        for equation in _depth_first(self.slice(targets, given or ()), targets):
            operands = [self._describe(variable, names) for variable in equation.inputs]
            for output in equation.outputs:
                names.setdefault(output, f"%{len(lines)}")
            outputs = [f"{names[output]}:{_type_text(self.avals[output])}" for output in equation.outputs]
            lines.append(f"{outputs} = {equation.name} {operands} {_describe_params(equation.params)}")
        return "\n".join([*lines, *(self._describe(variable, names) for variable in targets)])

    def _describe(self, variable: Variable, names: Mapping[Variable, str]) -> str:
        if variable in names:
            return names[variable]
        return f"{_type_text(self.avals[variable])}={_bytes(self.constants[variable])}"


def _depth_first(equations: Iterable[Equation], targets: Iterable[Variable]) -> list[Equation]:
    """The equations in the order in which a walk back from the targets needs them."""
    missing = {output: equation for equation in equations for output in equation.outputs}
    ordered: list[Equation] = []
    stack = list(targets)[::-1]
    while stack:
        equation = missing.get(stack[-1])
        waiting = [] if equation is None else [v for v in equation.inputs if v in missing]
        if equation is None or not waiting:
            stack.pop()
        if equation is not None and not waiting:
            ordered.append(equation)
            for output in equation.outputs:
                del missing[output]
        stack += waiting[::-1]
    return ordered


def abstract(shape: tuple[int, ...], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """An argument of ``trace`` of which only shape and dtype are known."""
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))  # type: ignore[no-untyped-call]


def trace(function: Callable[..., Mapping[Any, Any]], /, **inputs: object) -> Program:
    """The program of ``function(**inputs)``, which returns a mapping of names to arrays.

    ``inputs`` are arrays or ``ShapeDtypeStruct``; no value is used.
    """
    names: list[Hashable] = []

    def listed(given: Mapping[str, jax.Array]) -> list[jax.Array]:
        outputs = function(**given)
        names[:] = outputs.keys()
        return list(outputs.values())

    with jax.default_matmul_precision(EXACT):
        closed = jax.make_jaxpr(listed)(inputs)
    _refuse_side_effects(closed)
    return flatten(closed, sorted(inputs), names)


def flatten(closed: jex.ClosedJaxpr, inputs: Iterable[str], outputs: Iterable[Hashable]) -> Program:
    """The program of a closed jaxpr whose arguments and results have these names."""
    builder = _Builder()
    variables = [builder.fresh(variable.aval) for variable in closed.jaxpr.invars]
    results = builder.inline(closed.jaxpr, closed.consts, variables)
    return Program(
        inputs=dict(zip(inputs, variables, strict=True)),
        outputs=dict(zip(outputs, results, strict=True)),
        constants=builder.constants,
        equations=tuple(builder.equations),
        avals=builder.avals,
    )


class _Builder:
    """Collects equations, merging equal ones."""

    def __init__(self) -> None:
        self.avals: dict[Variable, Aval] = {}
        self.constants: dict[Variable, Any] = {}
        self.equations: list[Equation] = []
        self._seen: dict[Hashable, tuple[Variable, ...]] = {}

    def fresh(self, aval: Aval) -> Variable:
        variable = len(self.avals)
        self.avals[variable] = aval
        return variable

    def constant(self, value: Any, aval: Aval) -> Variable:
        key = ("constant", _constant_key(value, aval))
        if key not in self._seen:
            variable = self.fresh(aval)
            self.constants[variable] = value
            self._seen[key] = (variable,)
        return self._seen[key][0]

    def inline(
        self, jaxpr: jex.Jaxpr, consts: Iterable[Any], arguments: Iterable[Variable]
    ) -> list[Variable]:
        scope: dict[jex.Var, Variable] = {}
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            scope[variable] = self.constant(value, variable.aval)
        scope.update(zip(jaxpr.invars, arguments, strict=True))

        def look_up(atom: jex.Var | jex.Literal) -> Variable:
            return self.constant(atom.val, atom.aval) if isinstance(atom, jex.Literal) else scope[atom]

        for equation in jaxpr.eqns:
            operands = tuple(look_up(atom) for atom in equation.invars)
            inner: Any = equation.params.get(_INLINED.get(equation.primitive.name, "")) or unrolled(equation)
            if inner is None:
                results = self._add(equation, operands)
            else:
                plain, held = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                results = tuple(self.inline(plain, held, operands))
            scope.update(zip(equation.outvars, results, strict=True))
        return [look_up(atom) for atom in jaxpr.outvars]

    def _add(self, equation: jex.JaxprEqn, operands: tuple[Variable, ...]) -> tuple[Variable, ...]:
        key = (equation.primitive.name, operands, tuple(sorted(equation.params.items())))
        mergeable = _hashable(key) and not list(jex.jaxprs_in_params(equation.params))
        if mergeable and key in self._seen:
            return self._seen[key]
        outputs = tuple(self.fresh(variable.aval) for variable in equation.outvars)
        self.equations.append(Equation(equation.primitive, equation.params, operands, outputs))
        if mergeable:
            self._seen[key] = outputs
        return outputs


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _describe_params(params: Params) -> str:
    # Functions print with memory addresses; their names and traced bodies are enough to tell them apart.
    shown = {k: getattr(v, "__qualname__", k) if callable(v) else v for k, v in params.items()}
    held = [_bytes(value) for v in params.values() for value in getattr(v, "consts", ())]
    return repr((sorted((k, v) for k, v in shown.items() if "_fun" not in k), held))


def _constant_key(value: Any, aval: Aval) -> tuple[Hashable, ...]:
    return (_type_text(aval), bool(getattr(aval, "weak_type", False)), _bytes(value))


def _type_text(aval: Aval) -> str:
    return f"{aval.dtype}{tuple(aval.shape)}"


def _bytes(value: Any) -> str:
    if jnp.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.extended):
        return f"opaque {id(value)}"
    return np.asarray(value).tobytes().hex()


def _refuse_side_effects(closed: jex.ClosedJaxpr) -> None:
    if closed.effects or _calls_back(closed.jaxpr):
        raise DoThisInstead(
            "the model prints or calls back to Python (jax.debug, pure_callback, io_callback), which would "
            "carry values of private rows out of the compiled program; remove these calls."
        )


def _calls_back(jaxpr: jex.Jaxpr) -> bool:
    return any(
        "callback" in equation.primitive.name
        or "debug" in equation.primitive.name
        or any(_calls_back(getattr(inner, "jaxpr", inner)) for inner in jex.jaxprs_in_params(equation.params))
        for equation in jaxpr.eqns
    )
