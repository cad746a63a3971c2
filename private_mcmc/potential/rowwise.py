"""Functions of one row, whoever made them, as programs that kernels may run for many rows by ``jax.vmap``.

``vmap`` gives every row its own value for JAX's own primitives. One of somebody else brings its own rule for
many rows at once, which may mix them (``jax.custom_batching.custom_vmap``), and a call to Python carries
values of private rows out of the compiled program. What runs is what was looked at: a jaxpr of JAX's own
primitives, told by identity, with copies of all constants.
"""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial, wraps
from typing import Any, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, primitives
from jax.typing import DTypeLike

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.potential.losses import incomplete_beta
from private_mcmc.system import ON_FEW_ROWS

# Of products, as JAX names it: settings such as "BF16_BF16_F32" would narrow float64.
EXACT = "highest"
Tree: TypeAlias = Any


def abstract(shape: tuple[int, ...], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """An argument of ``jax.make_jaxpr`` of which only shape and dtype are known."""
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype, True))  # type: ignore[no-untyped-call]


def row_shapes(rows: Rows) -> dict[str, jax.ShapeDtypeStruct]:
    """The columns of one row, without an axis of rows."""
    return {name: abstract(domain.event_shape, domain.dtype) for name, domain in rows.items}


def rowwise(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """``function`` of one row and of what all rows share, as the program that was looked at.

    **Guarantee**: under ``vmap`` over an argument, each value is computed of that entry of the argument alone
    and of what is not mapped over; nothing is printed or called back. ``function`` itself is called once for
    arguments of the same shapes and types: what it does later, or whoever made it, has no part in a run.
    ``DoThisInstead``, ``NotYetSupported``: as ``own_primitives``, when it is first called.
    """
    known: dict[Tree, tuple[jex.ClosedJaxpr, Tree]] = {}

    @wraps(function)
    def run(*arguments: Tree) -> Tree:
        leaves, kind = jax.tree.flatten(arguments)
        types = tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)  # type: ignore[no-untyped-call]
        # Of whole numbers alone the width of floats is told by none of them.
        asked = kind, types, jax.dtypes.canonicalize_dtype(np.float64)
        if asked not in known:
            known[asked] = own_primitives(function, *jax.tree.unflatten(kind, types))
        program, made = known[asked]
        return jax.tree.unflatten(made, jex.jaxpr_as_fun(program)(*leaves))

    return run


def of_rows(function: Callable[..., Tree], rows: Mapping[str, Tree]) -> Tree:
    """``function`` of every row, compiled."""
    return _mapped(*partial_parts(function), rows)


def partial_parts(function: Callable[..., Tree]) -> tuple[Callable[..., Tree], tuple[Tree, ...]]:
    """A partial function's parts: what was released is an argument, so that all stages share one program."""
    if isinstance(function, partial) and all(isinstance(one, float | np.ndarray) for one in function.args):
        return (function, ()) if function.keywords else (function.func, function.args)
    return function, ()


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _mapped(function: Callable[..., Tree], given: tuple[Tree, ...], rows: Mapping[str, Tree]) -> Tree:
    return mapped(partial(function, *given), rows)


_AT_ONCE = 2**12
# jaxlib's: LAPACK's work on a batch of fewer operations is done by the thread that calls it.
_UNDIVIDED = 200_000


def mapped(function: Callable[..., Tree], rows: Mapping[str, Tree], most: int = _AT_ONCE) -> Tree:
    """``function`` of every row, some at a time: of a person a program may hold kilobytes."""
    return at_each(rowwise(function), rows, most=most)


def at_each(function: Callable[..., Tree], *arguments: Tree, most: int = 2**31) -> Tree:
    """``jax.vmap(function)(*arguments)``, of fewer at a time where a call of LAPACK would divide them."""
    count = len(jax.tree.leaves(arguments)[0])
    size = count if count == 1 else min(most, rows_at_once(function, *first_of(arguments)))
    if size >= count:
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda one: function(*one), arguments, batch_size=size)


def first_of(rows: Tree) -> Tree:
    """Shapes and types of one of them."""
    return jax.tree.map(lambda leaf: abstract(leaf.shape[1:], leaf.dtype), rows)


def rows_at_once(program: Callable[..., Tree], *row: Tree) -> int:
    """How many rows ``vmap`` may take: so few that no call of LAPACK divides them among XLA's threads.

    It waits for these threads, and a program with as many such calls at once as there are waits for ever.
    """
    solvers = {one for one in vars(jax.lax.linalg).values() if isinstance(one, Primitive)}
    called = (each for each in _all(jax.make_jaxpr(program)(*row).jaxpr) if each.primitive in solvers)
    shapes = [getattr(atom.aval, "shape", ()) for each in called for atom in each.invars]
    work = max((10 * math.prod(shape) * max(shape[-2:], default=1) for shape in shapes), default=0)
    return max(1, _UNDIVIDED // (work + 1))


def own_primitives(function: Callable[..., Tree], *types: Tree) -> tuple[jex.ClosedJaxpr, Tree]:
    """The jaxpr of a function, without what indices promise, and its results' tree; nobody can change it.

    ``DoThisInstead`` for a program that prints or calls back; ``NotYetSupported`` for primitives that are not
    JAX's own or do not go row by row, and for keys that follow an argument, by name.
    """
    with jax.default_matmul_precision(EXACT):
        closed, made = jax.make_jaxpr(function, return_shape=True)(*types)
    owned: jex.ClosedJaxpr = _owned(closed)
    _refuse_unknown(owned)
    _refuse_mixed_keys(owned)
    return owned, jax.tree.structure(made)


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
    # One class with the above from JAX 0.12 on, where each jaxpr may have its constants.
    jex.Jaxpr: ("eqns", "consts") if issubclass(jex.Jaxpr, jex.ClosedJaxpr) else ("eqns",),
    jex.JaxprEqn: ("invars", "params"),
}


def _owned(value: Any) -> Any:
    """``value`` with copies of all arrays, which their owner may write to before the run.

    JAX's may lie in the memory of NumPy's: ``jnp.asarray`` on a CPU makes no copy of an aligned one.
    """
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            return copy.deepcopy(value)
    if isinstance(value, jex.Literal):
        return jex.Literal(_owned(value.val), value.aval)  # type: ignore[no-untyped-call]
    if isinstance(value, Mapping):
        return {name: _owned(entry) for name, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_owned, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_owned, value))  # in which solvers keep their programs
    for kind, names in _HOLDERS.items():
        if isinstance(value, kind):
            parts = {name: _owned(getattr(value, name)) for name in names}
            if isinstance(value, jex.JaxprEqn):
                if function := _in_place(value):
                    called = jax.make_jaxpr(jax.jit(function))(*(one.aval for one in value.invars)).eqns[0]
                    return _owned(value.replace(primitive=called.primitive, params=called.params))
                parts["params"] = _without_promises(value.primitive.name, parts["params"])
            return value.replace(**parts)  # type: ignore
    return value


# Arrays that nothing was written to (jnp.empty): on accelerators they hold whatever was there before, perhaps
# another row.
_UNSET = ("empty", "empty2")


def _in_place(equation: jex.JaxprEqn) -> Callable[..., Tree] | None:
    """What runs in place of an operation whose own rules are not asked, if it is one."""
    made: Any = equation.params.get("_prim")
    if equation.primitive.name in _UNSET:
        zeros: Any = equation.outvars[0].aval
        return lambda *_: jnp.zeros(zeros.shape, zeros.dtype)
    if equation.primitive is jax.lax.regularized_incomplete_beta_p:
        return incomplete_beta
    if made is None or _operation(equation) not in _own():
        return None
    # JAX makes it of others (``jnp.searchsorted``, from 0.12): an object, whose rules for many rows and for
    # slopes anybody may have set.
    return lambda *given: jax.tree.leaves(type(made).expand(made, *jax.tree.unflatten(made.in_tree, given)))


# JAX's own whose results under vmap are not those row by row, or that carry a state from call to call.
_MIXED = ("rng_bit_generator", "rng_uniform")
# Generators whose bits for many keys are those of the keys one by one.
_KEY_BY_KEY = ("threefry2x32", "chacha20")


def _operation(equation: jex.JaxprEqn) -> tuple[Primitive, type]:
    """The primitive, and the class of those that JAX 0.12 makes of others, which all have one primitive."""
    return equation.primitive, type(equation.params.get("_prim"))


@cache
def _own() -> frozenset[tuple[Primitive, type]]:
    spaces = (primitives, jax.lax, jax.lax.linalg)
    found = (one for space in spaces for one in vars(space).values())
    own = {(one, type(None)) for one in found if isinstance(one, Primitive)}
    # Some have no public name: those that JAX's own functions are made of.
    with jax.ensure_compile_time_eval():
        key = jax.random.key(0)
    for function in (
        lambda: jax.random.wrap_key_data(jax.random.key_data(jax.random.clone(key))),  # type: ignore[no-untyped-call]
        lambda: jax.lax.platform_dependent(0.0, cpu=jnp.negative, default=jnp.abs),
        lambda: jnp.searchsorted(jnp.nonzero(jnp.ones(3), size=3)[0], 1),
    ):
        own.update(_operation(equation) for equation in _all(jax.make_jaxpr(function)().jaxpr))
    return frozenset(own)


def _refuse_unknown(closed: jex.ClosedJaxpr) -> None:
    """Refuse calls to Python, primitives that are not JAX's own, and those that do not go row by row."""
    equations = list(_all(closed.jaxpr))
    for equation in equations:
        if _is_collective(equation):
            raise NotYetSupported(
                f"the model calls {equation.primitive.name!r} over a named axis, as of the devices that rows "
                "lie on, which mixes them: write it with jax.numpy and jax.lax of one row."
            )
    if closed.effects or any(
        word in equation.primitive.name for equation in equations for word in ("callback", "debug")
    ):
        raise DoThisInstead(
            "the model prints or calls back to Python (jax.debug, pure_callback, io_callback), which would "
            "carry values of private rows out of the compiled program; remove these calls."
        )
    for equation in equations:
        primitive, kind = _operation(equation)
        name = primitive.name if kind is type(None) else kind.__name__
        if name in _MIXED or "_prim" in equation.params or (primitive, kind) not in _own():
            raise NotYetSupported(
                f"the model calls {name!r}, whose rule for many rows at once is not JAX's own and may mix "
                "them (jax.custom_batching.custom_vmap, foreign functions, kernels, primitives of other "
                "libraries): write it with jax.numpy and jax.lax."
            )


def _is_collective(equation: jex.JaxprEqn) -> bool:
    """Whether it names an axis, of devices or of a map; all others are numbered."""
    named = [equation.params.get(name) for name in ("axes", "axis_name")]
    axes = [axis for one in named for axis in (one if isinstance(one, tuple) else (one,))]
    return any(axis is not None and not isinstance(axis, int | np.integer) for axis in axes)


def _refuse_mixed_keys(closed: jex.ClosedJaxpr) -> None:
    """Refuse random numbers of ``rbg`` keys that follow an input: for many keys they are the first one's."""
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
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in jex.jaxprs_in_params(equation.params):
            yield from _all(inner)


def _generator(atom: jex.Var | jex.Literal) -> str:
    """The name of the generator of a key; empty for what is no key."""
    generator = getattr(getattr(atom.aval, "dtype", None), "_impl", None)
    return "" if generator is None else str(generator.name)


def program_mark(function: Callable[..., object], *shapes: object) -> str:
    """A hash of a traced function: its operations and every constant in them; by whatever JAX is set to."""
    with jax.enable_x64(True), jax.default_matmul_precision(None):
        program = jax.make_jaxpr(function)(*shapes)
    # Functions print with their address in this process.
    mark = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr)).encode())
    for constant in constants_of(program):
        mark.update(np.asarray(constant).tobytes())
    return mark.hexdigest()


def constants_of(program: Any) -> Iterator[object]:
    """All constants in a jaxpr, those of inner ones too."""
    yield from getattr(program, "consts", ())
    for equation in getattr(program, "jaxpr", program).eqns:
        for inner in jax.tree.leaves(tuple(equation.params.values())):
            if hasattr(inner, "eqns"):
                yield from constants_of(inner)
