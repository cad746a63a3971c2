"""The terms of a row's loss: one for every observed site, with its link, its predictor and its family.

A link is recognised when the part of the program between the predictor and the parameter is, equation by
equation, the program of a known function.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erf, ndtr
from jax.scipy.stats import norm

from private_mcmc.domains.rows import Rows
from private_mcmc.potential.families import TABLE, LikelihoodFamily, Line, separate, total
from private_mcmc.potential.flatten import abstract, trace
from private_mcmc.potential.program import Level, Output, Program, Variable, name_of
from private_mcmc.potential.ranges import Range, between, constant, of_rows
from private_mcmc.potential.sites import Observation

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
AT_ZERO: Mapping[str, float] = {"exp": 1.0, "exp_neg": 1.0, "scaled_logistic": 0.5}
_INVERSE = {"exp": "exp_neg", "exp_neg": "exp"}


@dataclass(frozen=True)
class Link:
    """``parameter = link(base)``, element by element or along the last axis, which is then that of both.

    The links in ``AT_ZERO`` are so up to a factor free of the latents.
    """

    name: str
    base: Variable


def find_link(program: Program, levels: Mapping[Variable, Level], parameter: Variable) -> Link | None:
    """The link of a parameter to one affine variable, or ``None``."""
    plain = same_elements(program, parameter, levels)
    if levels[plain] is Level.AFFINE:
        return Link("identity", plain)
    found = _scaled(program, levels, plain)
    if found is None or found[0] == "scaled_logistic":
        found = _named(program, levels, plain) or found
    if found is None:
        return None
    name, base = found
    if name in _ALONG_AN_AXIS and program.shape(base)[-1:] != program.shape(parameter)[-1:]:
        return None
    return Link(name, base)


def _named(program: Program, levels: Mapping[Variable, Level], parameter: Variable) -> _Found | None:
    made = [output for equation in program.slice([parameter]) for output in equation.outvars]
    candidates = [v for v in [*program.inputs.values(), *made] if levels[v] is Level.AFFINE]
    for base in candidates[::-1][:_MOST_CANDIDATES]:
        name = _spelled(program, base, parameter)
        if name is not None:
            return name, base
    return None


def same_elements(
    program: Program, variable: Variable, levels: Mapping[Variable, Level] | None = None
) -> Variable:
    """Go back to where all elements of a variable come from, unchanged and in order.

    With ``levels`` no further than to what is affine.
    """
    while variable in program.producers and name_of(program.producers[variable]) in _TRANSPARENT:
        source = program.producers[variable].invars[0]
        types = [end.aval.dtype for end in (source, variable)]
        rounds = jnp.issubdtype(types[0], jnp.floating) and types[0] != types[1]
        if program.size(source) != program.size(variable) or rounds or types[1].itemsize < types[0].itemsize:
            break
        if levels is not None and levels[variable] is Level.AFFINE:
            break
        variable = source
    return variable


def _spelled(program: Program, base: Variable, parameter: Variable) -> str | None:
    if "theta" in program.reads([parameter], [base]):
        return None
    found = program.text([parameter], {base: "eta"})
    aval = base.aval
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


def _scaled(program: Program, levels: Mapping[Variable, Level], variable: Variable) -> _Found | None:
    """``c·link(base)`` with ``c`` free of the latents and a link of ``AT_ZERO``."""
    variable = same_elements(program, variable, levels)
    equation = program.producers.get(variable)
    if equation is None:
        return None
    name = name_of(equation)
    if name == "exp":
        base = equation.invars[0]
        return ("exp", base) if levels[base] is Level.AFFINE else None
    if name in ("mul", "div"):
        left, right = equation.invars
        if levels[right] is Level.CONSTANT and program.size(left) == program.size(variable):
            return _scaled(program, levels, left)
        if levels[left] is Level.CONSTANT and program.size(right) == program.size(variable):
            found = _scaled(program, levels, right)
            if found is None or name == "mul":
                return found
            return (_INVERSE[found[0]], found[1]) if found[0] in _INVERSE else None
    found = _named(program, levels, variable)
    if found is not None and found[0] == "logistic":
        return "scaled_logistic", found[1]
    return None


@dataclass(frozen=True, eq=False)
class Term:
    """An observed site whose loss is a known function of an affine variable.

    Attributes:
        site: the observed site.
        parameter: the distribution's parameter that the predictor makes.
        link: the link's name.
        base: the affine variable.
        line: of the table.
        family: proved constants as a function of all elements of the predictor.
    """

    site: Observation
    parameter: str
    link: str
    base: Variable
    line: Line
    family: LikelihoodFamily


def find_term(
    program: Program, rows: Rows, site: Observation, levels: Mapping[Variable, Level]
) -> Term | None:
    """The term of an observed site, where distribution, link and shapes are recognised."""
    for (name, parameter), lines in TABLE.items():
        variable = program.outputs.get(Output("given", site.name, parameter))
        if name != site.family or variable is None:
            continue
        link = find_link(program, levels, variable)
        line = None if link is None else lines.get(link.name)
        if link is None or line is None:
            continue
        wanted = [Output("observed", site.name), *(Output("given", site.name, need) for need in line.needs)]
        variables = [*(program.outputs.get(key) for key in wanted), *_weights(program, site)]
        if all(v is not None and levels[v] is Level.CONSTANT for v in variables):
            family = _family(program, rows, site, line, variable, link)
            if family is not None:
                return _with_shape(
                    program, rows, Term(site, parameter, link.name, link.base, line, family), link
                )
    return None


def _weights(program: Program, site: Observation) -> list[Variable]:
    return list(program.parts("weight", site.name).values())


def _family(
    program: Program, rows: Rows, site: Observation, line: Line, variable: Variable, link: Link
) -> LikelihoodFamily | None:
    wanted = [Output("observed", site.name), *(Output("given", site.name, need) for need in line.needs)]
    observed, *rest = of_rows(program, rows, [program.outputs[key] for key in wanted])
    others = dict(zip(line.needs, rest, strict=True))
    if _capped(program, site):
        others["capped"] = constant(np.asarray(1.0))
    others["classes"] = constant(np.asarray(program.shape(variable)[-1] if program.shape(variable) else 1))
    if link.name in AT_ZERO:
        others["multiplier"] = _multiplier(program, rows, variable, link)
        if not others["multiplier"].lowest > 0:
            return None
    return line.family(observed, others)


def _capped(program: Program, site: Observation) -> bool:
    """The observed value is the smaller one of something and the distribution's ``total_count``."""
    total_count = program.outputs.get(Output("given", site.name, "total_count"))
    if total_count is None:
        return False
    top, observed = (
        same_elements(program, v) for v in (total_count, program.outputs[Output("observed", site.name)])
    )
    equation = program.producers.get(observed)
    return (
        equation is not None
        and name_of(equation) == "min"
        and top in [same_elements(program, operand) for operand in equation.invars]
    )


_SLACK = 2.0**-50


def _multiplier(program: Program, rows: Rows, variable: Variable, link: Link) -> Range:
    """The factor ``c`` of ``c·link(η)``: the parameter at ``η = 0`` over the link there."""
    origin = constant(np.zeros(program.shape(link.base)))
    (there,) = of_rows(program, rows, [variable], {link.base: origin})
    return between(there.lo / AT_ZERO[link.name] * (1 - _SLACK), there.hi / AT_ZERO[link.name] * (1 + _SLACK))


def _with_shape(program: Program, rows: Rows, term: Term, link: Link) -> Term | None:
    """Count the elements: every one of the predictor's enters one or several observations."""
    site = term.site
    shape = program.shape(program.outputs[Output("given", site.name, term.parameter)])
    full, blocks = site.shape, shape[:-1] if term.line.joint else shape
    if program.size(link.base) != math.prod(shape) or not _broadcasts(blocks, full):
        return None
    heaviest = 1.0
    for weight in _weights(program, site):
        if not _broadcasts(program.shape(weight), full) or not _fits(program, site, weight, full):
            return None
        (value,) = of_rows(program, rows, [weight])
        if not value.lowest >= 0:
            return None
        heaviest *= value.highest
    count = math.prod(blocks)
    single = total([term.family.weighted(heaviest)] * (math.prod(full) // max(count, 1)))
    return replace(term, family=separate([single] * count))


def _broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    try:
        return np.broadcast_shapes(tuple(shape), tuple(full)) == tuple(full)
    except ValueError:
        return False


def _fits(program: Program, site: Observation, weight: Variable, full: Sequence[int]) -> bool:
    """A weight multiplies the log density, which has been summed over the event's axes."""
    return program.size(weight) == 1 or program.shape(program.outputs[Output("density", site.name)]) == tuple(
        full
    )


def evaluate(
    program: Program, term: Term, base: Variable, eta: jax.Array, given: Mapping[Variable, jax.Array]
) -> jax.Array:
    """The term's loss at the predictor ``eta`` (the elements of ``base``, in order), a scalar."""
    site, needs = term.site, term.line.needs
    parameter = program.outputs[Output("given", site.name, term.parameter)]
    needed = [program.outputs[Output("given", site.name, name)] for name in needs]
    wanted = [program.outputs[Output("observed", site.name)], *needed, *_weights(program, site)]
    observed, *rest = (jnp.asarray(value, dtype=float) for value in program.run(wanted, given))
    others = dict(zip(needs, rest, strict=False))
    if term.link in AT_ZERO:
        origin = jnp.zeros(program.shape(base), base.aval.dtype)
        there = program.run([parameter], {**given, base: origin})[0]
        others["log_multiplier"] = jnp.log(there) - math.log(AT_ZERO[term.link])
        others["sign"] = jnp.asarray(-1.0 if term.link == "exp_neg" else 1.0, eta.dtype)
    weights = rest[len(needs) :]
    eta, shape = eta.reshape(program.shape(parameter)), site.shape
    one = math.prod(shape) == 1 and shape == site.shape
    if one and all(np.size(x) == 1 for x in (eta, observed, *others.values(), *weights)):
        # A single observation is a scalar: axes of length one slow a chain's step down.
        shape = ()
        eta, observed, others, weights = jax.tree.map(jnp.squeeze, (eta, observed, others, weights))
    values = jnp.broadcast_to(term.line.loss(eta, observed, others), shape)
    for weight in weights:
        values = jnp.where(weight > 0, weight * values, 0.0)
    return jnp.sum(values)
