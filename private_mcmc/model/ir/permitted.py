"""What a model's program may be made of: a row's numbers come from that row, and stay in the program.

A program is traced for one row and run for all of them by ``jax.vmap``. That gives every row its own value
for JAX's own primitives. A primitive of somebody else brings its own rule for many rows at once, which may
mix them, as ``jax.custom_batching.custom_vmap`` allows: then nothing that was proved of one row holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import jax
import jax.extend.core as jex
from jax.extend.core import Primitive, primitives

from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.ir.program import Program

# JAX's own, of which it makes no name public.
_NAMED = ("platform_index", "random_clone", "random_unwrap", "random_wrap")
# JAX's own whose results under vmap are not those row by row, or that carry a state from call to call.
_MIXED = ("rng_bit_generator", "rng_uniform")
_OWN_DERIVATIVES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
# Generators whose bits for many keys are those of the keys one by one.
_KEY_BY_KEY = ("threefry2x32", "chacha20")


@cache
def _own() -> frozenset[Primitive]:
    spaces = (primitives, jax.lax, jax.lax.linalg)
    return frozenset(one for space in spaces for one in vars(space).values() if isinstance(one, Primitive))


def refuse_unknown(closed: jex.ClosedJaxpr) -> None:
    """Refuse calls to Python, primitives that are not JAX's own, and those that do not go row by row.

    Raises:
        DoThisInstead: for a program that prints or calls back.
        NotYetSupported: for any other, by the name of the primitive.
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

    Raises:
        NotYetSupported: naming the generator.
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


def has_own_derivatives(program: Program) -> bool:
    """Whether some function in it comes with a derivative of its own."""
    inner = (part for each in program.equations for part in jex.jaxprs_in_params(each.params))
    names = {each.name for each in program.equations} | {
        one.primitive.name for part in inner for one in _all(part)
    }
    return not names.isdisjoint(_OWN_DERIVATIVES)


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
