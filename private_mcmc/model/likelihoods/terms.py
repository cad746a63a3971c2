"""The terms of a row's loss: one for every observed site, with its predictor and its family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.dependence import Level
from private_mcmc.model.ir.interval import Interval, between, constant, of_domain
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Output, Program, Variable
from private_mcmc.model.likelihoods.continuous import (
    CENTRED,
    POSITIVE,
    REAL,
    SHARES,
    TRUNCATED,
    log_softplus,
    with_softplus,
)
from private_mcmc.model.likelihoods.derived import CENSORED
from private_mcmc.model.likelihoods.discrete import CATEGORIES, WHOLE, inflated_entries, mixture_entries
from private_mcmc.model.likelihoods.family import Entry, LikelihoodFamily, Loss, Recognised, separate, total
from private_mcmc.model.likelihoods.links import AT_ZERO, Link, find_link, same_elements
from private_mcmc.model.sites import Observation

_COUNTS = {**WHOLE, **CATEGORIES}
_PLAIN = {**_COUNTS, **REAL, **POSITIVE, **with_softplus({**WHOLE, **POSITIVE})}

FAMILIES: Mapping[tuple[str, str], Entry] = {
    **_PLAIN,
    **SHARES,
    **TRUNCATED,
    **CENSORED,
    **mixture_entries(_PLAIN),
    **inflated_entries({name: _PLAIN[name] for name in _COUNTS}),
    **CENTRED,
}

_SLACK = 2.0**-50


@dataclass(frozen=True, eq=False)
class Term:
    """An observed site whose loss is a known function of an affine variable.

    Attributes:
        site: the observed site.
        parameter: the distribution's parameter that the predictor makes.
        link: the link's name.
        single: proved constants per element of the predictor (per vector where ``joint``).
        family: proved constants as a function of all elements of the predictor.
        loss: the family's formula, elementwise or over the last axis.
        joint: the loss couples the elements along the last axis.
    """

    site: Observation
    parameter: str
    link: str
    single: LikelihoodFamily
    family: LikelihoodFamily
    loss: Loss
    joint: bool


def row_values(program: Program, rows: Rows) -> dict[Variable, Interval]:
    """Bounds of the program's row inputs."""
    return {program.inputs[name]: of_domain(domain) for name, domain in rows.items}


def find_term(
    program: Program, rows: Rows, site: Observation, levels: Mapping[Variable, Level]
) -> Term | None:
    """The term of an observed site, where distribution, link and shapes are recognised."""
    for (family, parameter), entry in FAMILIES.items():
        variable = program.outputs.get(Output("given", site.name, parameter))
        if family != site.family or variable is None:
            continue
        link = find_link(program, levels, variable)
        if link is None or not _rest_is_free(program, levels, site, entry):
            continue
        found = _recognise(program, rows, site, entry, parameter, variable, link)
        if found is not None:
            return _with_shape(program, rows, site, parameter, variable, link, found)
    return None


def _weights(program: Program, site: Observation) -> list[Variable]:
    return list(program.parts("weight", site.name).values())


def _rest_is_free(
    program: Program, levels: Mapping[Variable, Level], site: Observation, entry: Entry
) -> bool:
    needed = [Output("given", site.name, name) for name in entry.needs]
    names = needed if entry.centred else [Output("observed", site.name), *needed]
    variables = [program.outputs.get(name) for name in names]
    return all(v is not None and levels[v] is Level.CONSTANT for v in variables) and all(
        levels[v] is Level.CONSTANT for v in _weights(program, site)
    )


def _recognise(
    program: Program,
    rows: Rows,
    site: Observation,
    entry: Entry,
    parameter: str,
    variable: Variable,
    link: Link,
) -> Recognised | None:
    given = row_values(program, rows)
    wanted = [program.outputs[Output("given", site.name, name)] for name in entry.needs]
    observed, *rest = bounds(program, given, [program.outputs[Output("observed", site.name)], *wanted])
    others = dict(zip(entry.needs, rest, strict=True))
    observed = constant(np.zeros(observed.shape)) if entry.centred else observed
    if _capped(program, site):
        others["capped"] = constant(np.asarray(1.0))
    others["classes"] = constant(np.asarray(program.shape(variable)[-1] if program.shape(variable) else 1))
    if link.name in AT_ZERO:
        multiplier = _multiplier(program, given, variable, link)
        if not multiplier.lowest > 0:
            return None
        others["multiplier"] = multiplier
    try:
        return entry.rule(link.name, observed, others)
    except ArithmeticError:  # Of a scale whose square no float holds, nothing is proved.
        return None


def _capped(program: Program, site: Observation) -> bool:
    """The observed value is the smaller one of something and the distribution's ``total_count``."""
    total = program.outputs.get(Output("given", site.name, "total_count"))
    if total is None:
        return False
    producers = {output: equation for equation in program.equations for output in equation.outputs}
    top, observed = (
        same_elements(program, v) for v in (total, program.outputs[Output("observed", site.name)])
    )
    equation = producers.get(observed)
    return (
        equation is not None
        and equation.name == "min"
        and top in [same_elements(program, operand) for operand in equation.inputs]
    )


def _multiplier(
    program: Program, given: Mapping[Variable, Interval], variable: Variable, link: Link
) -> Interval:
    """The factor ``c`` of ``c·link(η)``: the parameter at ``η = 0`` over the link there."""
    origin = constant(np.zeros(program.shape(link.base)))
    (there,) = bounds(program, {**given, link.base: origin}, [variable])
    return between(there.lo / AT_ZERO[link.name] * (1 - _SLACK), there.hi / AT_ZERO[link.name] * (1 + _SLACK))


def _with_shape(
    program: Program,
    rows: Rows,
    site: Observation,
    parameter: str,
    variable: Variable,
    link: Link,
    found: Recognised,
) -> Term | None:
    """Count the elements: every one of the predictor's enters one or several observations."""
    shape, full = program.shape(variable), _summed_shape(site)
    blocks = shape[:-1] if found.joint else shape
    if program.size(link.base) != math.prod(shape) or not _broadcasts(blocks, full):
        return None
    heaviest = 1.0
    for weight in _weights(program, site):
        if not _broadcasts(program.shape(weight), full) or not _fits(program, site, weight, full):
            return None
        (value,) = bounds(program, row_values(program, rows), [weight])
        if not value.lowest >= 0:
            return None
        heaviest *= value.highest
    count = math.prod(blocks)
    single = found.family.weighted(heaviest)
    single = total([single] * (math.prod(full) // max(count, 1)))
    return Term(
        site=site,
        parameter=parameter,
        link=link.name,
        single=single,
        family=separate([single] * count),
        loss=found.loss,
        joint=found.joint,
    )


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


def base_of(program: Program, levels: Mapping[Variable, Level], term: Term) -> Variable | None:
    """The term's predictor in a program of the same model, if it is found there too."""
    variable = program.outputs.get(Output("given", term.site.name, term.parameter))
    link = None if variable is None else find_link(program, levels, variable)
    return link.base if link is not None and link.name == term.link else None


def evaluate(
    program: Program, term: Term, base: Variable, eta: jax.Array, given: Mapping[Variable, jax.Array]
) -> jax.Array:
    """The term's loss at the predictor ``eta`` (the elements of ``base``, in order), a scalar."""
    site, entry = term.site, FAMILIES[(term.site.family, term.parameter)]
    parameter = program.outputs[Output("given", site.name, term.parameter)]
    first = parameter if entry.centred else program.outputs[Output("observed", site.name)]
    needed = [program.outputs[Output("given", site.name, name)] for name in entry.needs]
    wanted = [first, *needed, *_weights(program, site)]
    if entry.centred:
        given = {**given, parameter: jnp.zeros(program.shape(parameter))}
    observed, *rest = (jnp.asarray(value, dtype=float) for value in program.run(wanted, given))
    others = dict(zip(entry.needs, rest, strict=False))
    if term.link in AT_ZERO:
        origin = jnp.zeros(program.shape(base), program.avals[base].dtype)
        there = program.run([parameter], {**given, base: origin})[0]
        others["log_multiplier"] = jnp.log(there) - math.log(AT_ZERO[term.link])
        falls = term.link in ("exp_neg", "one_over_softplus")
        others["sign"] = jnp.asarray(-1.0 if falls else 1.0, eta.dtype)
    if "softplus" in term.link:
        eta = log_softplus(eta)
    weights = rest[len(entry.needs) :]
    eta, shape = eta.reshape(program.shape(parameter)), _summed_shape(site)
    one = math.prod(shape) == 1 and shape == site.shape
    if one and all(np.size(x) == 1 for x in (eta, observed, *others.values(), *weights)):
        # A single observation is a scalar: axes of length one slow a chain's step down.
        shape = ()
        eta, observed, others, weights = jax.tree.map(jnp.squeeze, (eta, observed, others, weights))
    values = jnp.broadcast_to(term.loss(eta, observed, others), shape)
    for weight in weights:
        values = jnp.where(weight > 0, weight * values, 0.0)
    return jnp.sum(values)


def _summed_shape(site: Observation) -> tuple[int, ...]:
    """Shape of the elements whose losses add up."""
    return site.shape[:-1] if site.family.startswith("Multinomial") else site.shape
