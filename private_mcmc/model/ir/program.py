"""A traced function as a flat list of equations that can be sliced, cut and evaluated."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.records import Fields

# Of products, as JAX names it: settings such as "BF16_BF16_F32" would narrow float64.
EXACT = "highest"
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


# Parameters that none of our rules reads: where one is set, the primitive does not do what its name says.
_UNREAD: Mapping[str, str] = {
    "reshape": "dimensions",
    "scatter": "update_jaxpr",
    "mul": "out_dtype",
    "dot_general": "precision",
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
        """Name of the primitive, by which rules know it; where it does something else, another one."""
        name = str(self.primitive.name)
        unread = _UNREAD.get(name, "")
        return name if _says_nothing(self.params.get(unread)) else f"{name} by {unread}"


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

    @cached_property
    def producers(self) -> Mapping[Variable, Equation]:
        """Which equation makes a variable."""
        return {output: equation for equation in self.equations for output in equation.outputs}

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
        equations = self.slice(targets, given)
        read = {*targets, *(variable for equation in equations for variable in equation.inputs)}
        for variable in read.intersection(given):
            aval, value = self.avals[variable], jnp.asarray(given[variable])
            values[variable] = value.astype(aval.dtype).reshape(aval.shape)
        for equation in equations:
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
            outputs = [f"{names[output]}:{type_text(self.avals[output])}" for output in equation.outputs]
            lines.append(f"{outputs} = {equation.name} {operands} {_describe_params(equation.params)}")
        return "\n".join([*lines, *(self._describe(variable, names) for variable in targets)])

    def _describe(self, variable: Variable, names: Mapping[Variable, str]) -> str:
        if variable in names:
            return names[variable]
        return f"{type_text(self.avals[variable])}={bytes_of(self.constants[variable])}"


def _says_nothing(value: object) -> bool:
    """A parameter that is not set, or a precision of at least the operands'."""
    parts = value if isinstance(value, tuple) else () if value is None else (value,)
    return all(isinstance(part, jax.lax.Precision) for part in parts)


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


def _describe_params(params: Params) -> str:
    # Functions print with memory addresses; their names and traced bodies are enough to tell them apart.
    shown = {k: getattr(v, "__qualname__", k) if callable(v) else v for k, v in params.items()}
    held = [bytes_of(value) for v in params.values() for value in getattr(v, "consts", ())]
    return repr((sorted((k, v) for k, v in shown.items() if "_fun" not in k), held))


def type_text(aval: Aval) -> str:
    """Type and shape, as text."""
    return f"{aval.dtype}{tuple(aval.shape)}"


def bytes_of(value: Any) -> str:
    """An array's bytes, as text; of opaque types (keys), which one it is."""
    if jnp.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.extended):
        return f"opaque {id(value)}"
    return np.asarray(value).tobytes().hex()
