"""How a distribution's parameter is made of an affine predictor: proved by comparing programs.

A link is recognised when the part of the program between the predictor and the parameter is, equation by
equation, the program of a known function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import erf, ndtr
from jax.scipy.stats import norm

from private_mcmc.modeling.affinity import Level
from private_mcmc.modeling.program import Equation, Program, Variable, abstract, trace

_MOST_CANDIDATES = 8
_TRANSPARENT = frozenset(
    ["reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "convert_element_type"]
)

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
    "cloglog": (
        lambda eta: 1 - jnp.exp(-jnp.exp(eta)),
        lambda eta: -jnp.expm1(-jnp.exp(eta)),
    ),
    "softmax": (jax.nn.softmax,),
}


@dataclass(frozen=True)
class Link:
    """``parameter = link(base)``; ``exp`` and ``exp_neg`` up to a positive factor free of the latents."""

    name: str
    base: Variable


def find_link(program: Program, levels: Mapping[Variable, Level], parameter: Variable) -> Link | None:
    """The link of a parameter to one affine variable, or ``None``."""
    producers = {output: equation for equation in program.equations for output in equation.outputs}
    parameter = _plain(program, producers, levels, parameter)
    if levels[parameter] is Level.AFFINE:
        return Link("identity", parameter)
    exponential = _exponential(program, producers, levels, parameter)
    if exponential is not None:
        base, sign = exponential
        return Link("exp" if sign > 0 else "exp_neg", base)
    candidates = [v for v in program.uses([parameter]) if levels[v] is Level.AFFINE]
    for base in sorted(candidates, reverse=True)[:_MOST_CANDIDATES]:
        name = _spelled(program, base, parameter)
        if name is not None:
            return Link(name, base)
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
        if not jnp.issubdtype(program.avals[source].dtype, jnp.floating):
            break
        variable = source
    return variable


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
        if name == "softmax" and not aval.shape:
            continue
        if any(_text(spelling, aval.shape, aval.dtype) == found for spelling in spellings):
            return name
    return None


@functools.lru_cache(maxsize=256)
def _text(spelling: Callable[[jax.Array], jax.Array], shape: tuple[int, ...], dtype: Any) -> str:
    known = trace(lambda eta: {"out": spelling(eta)}, eta=abstract(shape, dtype))
    return known.text([known.outputs["out"]])


def _exponential(
    program: Program,
    producers: Mapping[Variable, Equation],
    levels: Mapping[Variable, Level],
    variable: Variable,
) -> tuple[Variable, int] | None:
    """``(base, ±1)`` where the variable is ``c·exp(±base)`` with ``c`` free of the latents."""
    variable = _plain(program, producers, levels, variable)
    equation = producers.get(variable)
    if equation is None:
        return None
    if equation.name == "exp":
        base = equation.inputs[0]
        return (base, 1) if levels[base] is Level.AFFINE else None
    if equation.name not in ("mul", "div"):
        return None
    left, right = equation.inputs
    if program.size(variable) not in (program.size(left), program.size(right)):
        return None
    if levels[right] is Level.CONSTANT and program.size(left) == program.size(variable):
        return _exponential(program, producers, levels, left)
    if levels[left] is Level.CONSTANT and program.size(right) == program.size(variable):
        found = _exponential(program, producers, levels, right)
        if found is None or equation.name == "mul":
            return found
        return found[0], -found[1]
    return None
