"""Tracing a function and flattening its jaxpr into a program.

Jaxprs nest (``jit``, ``remat``) and repeat equal subexpressions; here they are inlined and equal
equations are merged, so that a variable is one intermediate result of the model. Short loops of fixed
length are unrolled. Primitives with their own derivative rules, other loops and branches stay whole: what
happens inside them is not looked into.

A program is traced for one row and run for all of them by ``jax.vmap``, which gives every row its own value
for JAX's own primitives. One of somebody else brings its own rule for many rows at once, which may mix them
(``jax.custom_batching.custom_vmap``): nothing that was proved of one row would hold, and it is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, primitives
from jax.typing import DTypeLike

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.program import EXACT, Equation, Program, Variable, bytes_of, type_text

_MOST_STEPS = 64
_MOST_EQUATIONS = 4000
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}


def abstract(shape: tuple[int, ...], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """An argument of ``trace`` of which only shape and dtype are known."""
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))  # type: ignore[no-untyped-call]


def row_shapes(rows: Rows) -> dict[str, jax.ShapeDtypeStruct]:
    """Arguments of ``trace`` for one row, without an axis of rows."""
    return {name: abstract(domain.event_shape, domain.dtype) for name, domain in rows.items}


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
    refuse_unknown(closed)
    refuse_mixed_keys(closed)
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
            inner: Any = equation.params.get(_INLINED.get(equation.primitive.name, "")) or _unrolled(equation)
            if inner is None:
                results = self._add(equation, operands)
            else:
                plain, held = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                results = self.inline(plain, held, operands)
            scope.update(zip(equation.outvars, results, strict=True))
        return [look_up(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any, aval: Any) -> Variable:
        key = ("constant", type_text(aval), bool(getattr(aval, "weak_type", False)), bytes_of(value))
        if key not in self._seen:
            self._seen[key] = [jex.Var(aval)]
            self.constants[self._seen[key][0]] = _owned(value)
        return self._seen[key][0]

    def _add(self, equation: Equation, operands: list[Variable]) -> list[Variable]:
        key = (equation.primitive, *operands, *sorted(equation.params.items()))
        mergeable = _hashable(key) and not list(jex.jaxprs_in_params(equation.params))
        if mergeable and key in self._seen:
            return self._seen[key]
        outputs = [jex.Var(variable.aval) for variable in equation.outvars]
        params = _without_promises(equation.primitive.name, _owned(equation.params))
        self.equations.append(equation.replace(invars=operands, outvars=outputs, params=params))
        if mergeable:
            self._seen[key] = outputs
        return outputs


def _unrolled(equation: Equation) -> jex.ClosedJaxpr | None:
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
    step, order = jex.jaxpr_as_fun(body), range(length)

    def straight(*operands: jax.Array) -> list[jax.Array]:
        fixed, state = list(operands[:consts]), list(operands[consts : consts + carried])
        stacked: dict[int, list[jax.Array]] = {}
        for index in reversed(order) if equation.params["reverse"] else order:
            entries = [jax.lax.index_in_dim(x, index, keepdims=False) for x in operands[consts + carried :]]
            results = step(*fixed, *state, *entries)
            state, stacked[index] = list(results[:carried]), list(results[carried:])
        columns = zip(*(stacked[index] for index in order), strict=True)
        return [*state, *(jnp.stack(column) for column in columns)]

    return jax.make_jaxpr(straight)(*(abstract(v.aval.shape, v.aval.dtype) for v in equation.invars))


def _as_inside(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    """How many variables of a loop have as many axes as in its body."""
    return sum(len(x.aval.shape) == len(y.aval.shape) for x, y in zip(outside, inside, strict=True))


_MODE = jax.lax.GatherScatterMode
# What XLA does with indices that leave the array.
_OUTSIDE = {"gather": _MODE.CLIP} | dict.fromkeys(
    ("scatter", "scatter-add", "scatter-sub"), _MODE.FILL_OR_DROP
)


def _without_promises(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Without what an index promises (``b[g]`` does, by default): to be inside, once only, in order.

    Where it is not so, values keep to the array while slopes backwards drop out: no gradient of any function.
    """
    if name not in _OUTSIDE:
        return params
    outside = _OUTSIDE[name] if params["mode"] is _MODE.PROMISE_IN_BOUNDS else params["mode"]
    return {**params, "mode": outside, "unique_indices": False, "indices_are_sorted": False}


# What constants may lie in, inside the parameters of an equation.
_HOLDERS: Mapping[type, tuple[str, ...]] = {
    jex.ClosedJaxpr: ("jaxpr", "consts"),
    jex.Jaxpr: ("eqns",),
    jex.JaxprEqn: ("invars", "params"),
}


def _owned(value: Any) -> Any:
    """``value`` with copies of NumPy's arrays: whoever wrote the model may write to them before it runs."""
    if isinstance(value, np.ndarray):
        return copy.deepcopy(value)
    if isinstance(value, jex.Literal):
        return jex.Literal(_owned(value.val), value.aval)  # type: ignore[no-untyped-call]
    if isinstance(value, Mapping):
        return {name: _owned(entry) for name, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_owned, value))
    for kind, names in _HOLDERS.items():
        if isinstance(value, kind):
            return value.replace(**{name: _owned(getattr(value, name)) for name in names})  # type: ignore
    return value


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


# JAX's own, of which it makes no name public.
_NAMED = ("platform_index", "random_clone", "random_unwrap", "random_wrap")
# JAX's own whose results under vmap are not those row by row, or that carry a state from call to call.
_MIXED = ("rng_bit_generator", "rng_uniform")
# Generators whose bits for many keys are those of the keys one by one.
_KEY_BY_KEY = ("threefry2x32", "chacha20")


@cache
def _own() -> frozenset[Primitive]:
    spaces = (primitives, jax.lax, jax.lax.linalg)
    return frozenset(one for space in spaces for one in vars(space).values() if isinstance(one, Primitive))


def refuse_unknown(closed: jex.ClosedJaxpr) -> None:
    """Refuse calls to Python, primitives that are not JAX's own, and those that do not go row by row.

    ``DoThisInstead`` for a program that prints or calls back; ``NotYetSupported`` for any other, by the name
    of the primitive.
    """
    equations = list(_all(closed.jaxpr))
    if closed.effects or any(
        word in equation.primitive.name for equation in equations for word in ("callback", "debug")
    ):
        raise DoThisInstead(
            "the model prints or calls back to Python (jax.debug, pure_callback, io_callback), which would "
            "carry values of private rows out of the compiled program; remove these calls."
        )
    for equation in equations:
        name = equation.primitive.name
        if name in _MIXED or (equation.primitive not in _own() and name not in _NAMED):
            raise NotYetSupported(
                f"the model calls {name!r}, whose rule for many rows at once is not JAX's own and may mix "
                "them (jax.custom_batching.custom_vmap, foreign functions, kernels, primitives of other "
                "libraries): write it with jax.numpy and jax.lax."
            )


def refuse_mixed_keys(closed: jex.ClosedJaxpr) -> None:
    """Refuse random numbers of ``rbg`` keys that follow an input: for many keys they are the first one's.

    ``NotYetSupported``, naming the generator.
    """
    if all(_generator(atom) in ("", *_KEY_BY_KEY) for each in _all(closed.jaxpr) for atom in each.invars):
        return
    follows = set(closed.jaxpr.invars)
    for equation in closed.jaxpr.eqns:
        inputs = [one for one in equation.invars if isinstance(one, jex.Var) and one in follows]
        if inputs:
            follows.update(equation.outvars)
        inner = [found for part in jex.jaxprs_in_params(equation.params) for found in _all(part)]
        for each in [equation, *inner] if inputs else ():
            for atom in each.invars:
                name = _generator(atom)
                if name and name not in _KEY_BY_KEY:
                    raise NotYetSupported(
                        f"the model draws numbers of a key that follows rows or latents, of the generator "
                        f"{name!r}, under which rows share their numbers: take jax.random.key(…, "
                        "impl='threefry2x32')."
                    )


def _all(jaxpr: jex.Jaxpr) -> Iterator[jex.JaxprEqn]:
    """All equations, those inside others too."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in jex.jaxprs_in_params(equation.params):
            yield from _all(inner)


def _generator(atom: jex.Var | jex.Literal) -> str:
    """The name of the generator of a key; empty for what is no key."""
    generator = getattr(getattr(atom.aval, "dtype", None), "_impl", None)
    return "" if generator is None else str(generator.name)
