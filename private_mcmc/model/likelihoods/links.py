"""How a distribution's parameter is made of an affine predictor: proved by comparing programs.

A link is recognised when the part of the program between the predictor and the parameter is, equation by
equation, the program of a known function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erf, ndtr
from jax.scipy.stats import norm

from private_mcmc.model.ir.dependence import Level
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.program import Equation, Program, Variable

_MOST_CANDIDATES = 8
_TRANSPARENT = frozenset(
    ["reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "convert_element_type"]
)

_Found = tuple[str, Variable]
# Links along the last axis; all others act on each element.
_ALONG_AN_AXIS = ("softmax", "log_softmax")

_SPELLINGS: Mapping[str, tuple[Callable[[jax.Array], jax.Array], ...]] = {
    "logistic": (
        jax.nn.sigmoid,
        lambda eta: dist.biject_to(dist.constraints.unit_interval)(eta),
        lambda eta: 1 / (1 + jnp.exp(-eta)),
        lambda eta: jnp.exp(eta) / (1 + jnp.exp(eta)),
    ),
    "ndtr": (
        ndtr,
        norm.cdf,
        lambda eta: dist.Normal(0, 1).cdf(eta),
        lambda eta: 0.5 * (1 + erf(eta / jnp.sqrt(2))),
        lambda eta: 0.5 * (1 + erf(eta / jnp.sqrt(2.0))),
    ),
    "cloglog": (lambda eta: 1 - jnp.exp(-jnp.exp(eta)), lambda eta: -jnp.expm1(-jnp.exp(eta))),
    "softplus": (jax.nn.softplus, lambda eta: jnp.log1p(jnp.exp(eta)), lambda eta: jnp.log(1 + jnp.exp(eta))),
    "softmax": (
        jax.nn.softmax,
        lambda eta: jnp.exp(jax.nn.log_softmax(eta)),
        lambda eta: jnp.exp(eta) / jnp.exp(eta).sum(-1, keepdims=True),
    ),
    "log_softmax": (
        jax.nn.log_softmax,
        lambda eta: eta - jax.nn.logsumexp(eta, axis=-1, keepdims=True),
        lambda eta: jnp.log(jax.nn.softmax(eta)),
    ),
}

# Links of a parameter up to a positive factor free of the latents, with their value at zero.
AT_ZERO: Mapping[str, float] = {
    "exp": 1.0,
    "exp_neg": 1.0,
    "softplus": math.log(2),
    "one_over_softplus": 1 / math.log(2),
    "scaled_logistic": 0.5,
}
_TIMES_LOGISTIC = "scaled_logistic"
_INVERSE = {
    "exp": "exp_neg",
    "exp_neg": "exp",
    "softplus": "one_over_softplus",
    "one_over_softplus": "softplus",
}


@dataclass(frozen=True)
class Link:
    """``parameter = link(base)``, element by element or along the last axis, which is then that of both.

    The links in ``AT_ZERO`` are so up to a factor free of the latents.
    """

    name: str
    base: Variable


def find_link(program: Program, levels: Mapping[Variable, Level], parameter: Variable) -> Link | None:
    """The link of a parameter to one affine variable, or ``None``."""
    producers = {output: equation for equation in program.equations for output in equation.outputs}
    plain = _plain(program, producers, levels, parameter)
    if levels[plain] is Level.AFFINE:
        return Link("identity", plain)
    found = _scaled(program, producers, levels, plain)
    if found is None or found[0] == _TIMES_LOGISTIC:
        found = _named(program, levels, plain) or found
    if found is None:
        return None
    name, base = found
    if name in _ALONG_AN_AXIS and program.shape(base)[-1:] != program.shape(parameter)[-1:]:
        return None
    return Link(name, base)


def _named(program: Program, levels: Mapping[Variable, Level], parameter: Variable) -> _Found | None:
    candidates = [v for v in program.uses([parameter]) if levels[v] is Level.AFFINE]
    for base in sorted(candidates, reverse=True)[:_MOST_CANDIDATES]:
        name = _spelled(program, base, parameter)
        if name is not None:
            return name, base
    return None


def _plain(
    program: Program,
    producers: Mapping[Variable, Equation],
    levels: Mapping[Variable, Level],
    variable: Variable,
) -> Variable:
    """Go back over primitives that hand all elements on unchanged, in order."""
    while levels[variable] is not Level.AFFINE and variable in producers:
        equation = producers[variable]
        source = equation.inputs[0]
        if equation.name not in _TRANSPARENT or program.size(source) != program.size(variable):
            break
        if _rounds(program, source, variable):
            break
        variable = source
    return variable


def _rounds(program: Program, source: Variable, result: Variable) -> bool:
    """Not a float, or one that is made narrower."""
    types = [program.avals[end].dtype for end in (source, result)]
    floats = all(jnp.issubdtype(kind, jnp.floating) for kind in types)
    return not floats or types[1].itemsize < types[0].itemsize


def same_elements(program: Program, variable: Variable) -> Variable:
    """Go back to where all elements of a variable come from, unchanged and in order."""
    producers = {output: equation for equation in program.equations for output in equation.outputs}
    while variable in producers and producers[variable].name in _TRANSPARENT:
        source = producers[variable].inputs[0]
        types = [program.avals[end].dtype for end in (source, variable)]
        rounds = jnp.issubdtype(types[0], jnp.floating) and types[0] != types[1]
        if program.size(source) != program.size(variable) or rounds or types[1].itemsize < types[0].itemsize:
            break
        variable = source
    return variable


def _spelled(program: Program, base: Variable, parameter: Variable) -> str | None:
    if "theta" in program.reads([parameter], [base]):
        return None
    found = program.text([parameter], {base: "eta"})
    aval = program.avals[base]
    for name, spellings in _SPELLINGS.items():
        if name in _ALONG_AN_AXIS and not aval.shape:
            continue
        if any(_text(spelling, aval.shape, aval.dtype) == found for spelling in spellings):
            return name
    return None


@functools.lru_cache(maxsize=4096)
def _text(spelling: Callable[[jax.Array], jax.Array], shape: tuple[int, ...], dtype: np.dtype) -> str:
    known = trace(lambda eta: {"out": spelling(eta)}, eta=abstract(shape, dtype))
    return known.text([known.outputs["out"]])


def _scaled(
    program: Program,
    producers: Mapping[Variable, Equation],
    levels: Mapping[Variable, Level],
    variable: Variable,
) -> _Found | None:
    """``c·link(base)`` with ``c`` free of the latents and a link of ``AT_ZERO``."""
    variable = _plain(program, producers, levels, variable)
    equation = producers.get(variable)
    if equation is None:
        return None
    if equation.name == "exp":
        base = equation.inputs[0]
        return ("exp", base) if levels[base] is Level.AFFINE else None
    if equation.name in ("mul", "div"):
        left, right = equation.inputs
        if levels[right] is Level.CONSTANT and program.size(left) == program.size(variable):
            return _scaled(program, producers, levels, left)
        if levels[left] is Level.CONSTANT and program.size(right) == program.size(variable):
            found = _scaled(program, producers, levels, right)
            if found is None or equation.name == "mul":
                return found
            return (_INVERSE[found[0]], found[1]) if found[0] in _INVERSE else None
    found = _named(program, levels, variable)
    if found is not None and found[0] == "logistic":
        return _TIMES_LOGISTIC, found[1]
    return found if found is not None and found[0] in AT_ZERO else None
