"""The terms of a row's loss: one for every observed site, with its link, its predictor and its family.

What runs is the table's form of the predictor, whatever its parameter was made by; that the two are one
function is looked at where the model is read, as all densities are (``model/refusals.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from private_mcmc.domains.rows import Rows
from private_mcmc.potential.bounds import Bounds, bounds, constant
from private_mcmc.potential.families import TABLE, LikelihoodFamily, Line, separate, total
from private_mcmc.potential.program import Level, Output, Program, Variable, affinity
from private_mcmc.potential.sites import Observation
from private_mcmc.records import RUN_ONCE

_LINKS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "exp": jnp.exp,
    "exp_neg": lambda eta: jnp.exp(-eta),
    "logistic": jax.nn.sigmoid,
    "ndtr": ndtr,
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
}
_PLACES = np.array([0.0, 0.1, -0.3, 1.0, -3.0, 7.0, -10.0, 30.0, -40.0, 100.0, -300.0])
_ROWS, _TOLERANCE = 4, 1e-9


@dataclass(frozen=True)
class Link:
    """``parameter = c·link(base)`` element by element, or along the last axis; ``c`` is free of the latents.

    ``scaled``: ``c`` is not 1.
    """

    name: str
    base: Variable
    scaled: bool = False


def cut_off(
    program: Program, target: Variable, most: float, levels: Mapping[Variable, Level]
) -> Variable | None:
    """The last affine variable of at most so many numbers that cuts the latents off from ``target``."""
    produced = (output for equation in program.slice([target]) for output in equation.outvars)
    for variable in reversed([program.inputs["theta"], *produced]):
        affine = levels[variable] is Level.AFFINE and program.size(variable) <= most
        if affine and "theta" not in program.reads([target], [variable]):
            return variable
    return None


def find_link(program: Program, rows: Rows, parameter: Variable) -> Link | None:
    """The link of a parameter to one affine variable, as some rows and values of that show; or ``None``."""
    levels = affinity(program, "theta")
    if levels[parameter] is Level.AFFINE:
        return Link("identity", parameter)
    base = cut_off(program, parameter, program.size(parameter), levels)
    if base is None or program.size(base) != program.size(parameter):
        return None
    read = program.reads([parameter], [base])
    columns = {name: column for name, column in rows.synthetic(0, _ROWS).items() if name in read}
    # Of several elements every one gets values of its own.
    shape = program.shape(parameter)
    etas = _PLACES.reshape(-1, *[1] * len(shape)) * np.cos(np.arange(math.prod(shape))).reshape(shape)

    def at(eta: jax.Array, row: Mapping[str, jax.Array]) -> jax.Array:
        return jnp.asarray(program.run([parameter], {**program.columns(row), base: eta})[0])

    with jax.enable_x64(True):
        every = jax.vmap(at, (0, None))
        run = jax.jit(jax.vmap(every, (None, 0)) if columns else every, compiler_options=RUN_ONCE)
        found = np.asarray(run(jnp.asarray(etas), columns)).reshape(-1, *etas.shape)
        for name, link in _LINKS.items():
            if "max" in name and not shape:
                continue
            wanted = np.asarray(link(jnp.asarray(etas)))
            with np.errstate(all="ignore"):
                factor = found[:, :1] / wanted[:1] if "max" not in name else np.ones(1)
                gap = np.abs(found - factor * wanted)
            if np.all(gap <= _TOLERANCE * np.abs(factor * wanted) + 1e-12 * np.abs(factor)):
                return Link(name, base, bool(np.any(np.abs(factor - 1) > _TOLERANCE)))
    return None


@dataclass(frozen=True, eq=False)
class Term:
    """An observed site whose loss is a known function of an affine variable.

    Attributes:
        site: the observed site.
        parameter: the distribution's parameter that the predictor makes.
        link: how it does.
        line: of the table.
        family: proved constants as a function of all elements of the predictor.
    """

    site: Observation
    parameter: str
    link: Link
    line: Line
    family: LikelihoodFamily

    def loss(self, program: Program, eta: jax.Array, given: Mapping[Variable, jax.Array]) -> jax.Array:
        """The term's loss at the predictor ``eta`` (the elements of its base, in order), a scalar."""
        parameter = program.outputs[Output("given", self.site.name, self.parameter)]
        base, needs = self.link.base, self.line.needs
        wanted = [*_read(program, self.site, self.line), *_weights(program, self.site)]
        observed, *rest = (jnp.asarray(value, dtype=float) for value in program.run(wanted, given))
        others = dict(zip(needs, rest, strict=False))
        if self.line.scaled:
            origin = jnp.zeros(program.shape(base), base.aval.dtype)
            there = program.run([parameter], {**given, base: origin})[0]
            others["log_multiplier"] = jnp.log(there) - math.log(AT_ZERO[self.link.name])
            others["sign"] = jnp.asarray(-1.0 if self.link.name == "exp_neg" else 1.0, eta.dtype)
        weights, shape = rest[len(needs) :], self.site.shape
        eta = eta.reshape(program.shape(parameter))
        if math.prod(shape) == 1 and all(
            np.size(x) == 1 for x in (eta, observed, *others.values(), *weights)
        ):
            # A single observation is a scalar: axes of length one slow a chain's step down.
            shape = ()
            eta, observed, others, weights = jax.tree.map(jnp.squeeze, (eta, observed, others, weights))
        values = jnp.broadcast_to(self.line.loss(eta, observed, others), shape)
        for weight in weights:
            values = jnp.where(weight > 0, weight * values, 0.0)
        return jnp.sum(values)


# Links of which the table holds any multiple, with their value at zero.
AT_ZERO: Mapping[str, float] = {"exp": 1.0, "exp_neg": 1.0, "logistic": 0.5}


def find_term(
    program: Program, rows: Rows, site: Observation, levels: Mapping[Variable, Level]
) -> Term | None:
    """The term of an observed site, where distribution, link, outcome and shapes are those of a line."""
    for (name, parameter), lines in TABLE.items():
        variable = program.outputs.get(Output("given", site.name, parameter))
        if name != site.family or variable is None or levels[variable] is Level.CONSTANT:
            continue
        link = find_link(program, rows, variable)
        line = None if link is None else lines.get(link.name)
        if link is None or line is None or (link.scaled and not line.scaled):
            continue
        keys = [Output("observed", site.name), *(Output("given", site.name, need) for need in line.needs)]
        if not all(key in program.outputs for key in keys):
            continue
        if all(levels[v] is Level.CONSTANT for v in [*_read(program, site, line), *_weights(program, site)]):
            family = _family(program, rows, site, line, variable, link)
            return None if family is None else Term(site, parameter, link, line, family)
    return None


def _read(program: Program, site: Observation, line: Line) -> list[Variable]:
    needs = [Output("given", site.name, need) for need in line.needs]
    return [program.outputs[key] for key in (Output("observed", site.name), *needs)]


def _weights(program: Program, site: Observation) -> list[Variable]:
    return list(program.parts("weight", site.name).values())


def _family(
    program: Program, rows: Rows, site: Observation, line: Line, parameter: Variable, link: Link
) -> LikelihoodFamily | None:
    """What the line proves of all elements: each of the predictor's enters one or several observations."""
    weights, shape = _weights(program, site), program.shape(parameter)
    found = bounds(program, rows, [*_read(program, site, line), *weights])
    blocks = shape[:-1] if line.joint else shape
    each = program.shape(program.outputs[Output("density", site.name)])
    if found is None or not all(
        _broadcasts(one, site.shape) for one in (blocks, *map(program.shape, weights))
    ):
        return None
    # A weight multiplies the log density, which has been summed over the event's axes.
    if any(program.size(one) > 1 and each != tuple(site.shape) for one in weights):
        return None
    observed, others = found[0], dict(zip(line.needs, found[1:], strict=False))
    others["classes"] = constant(shape[-1] if shape else 1)
    if line.scaled:
        multiplier = _multiplier(program, rows, parameter, link)
        if multiplier is None or not multiplier.lowest > 0:
            return None
        others["multiplier"] = multiplier
    heavy = found[1 + len(line.needs) :]
    if not all(one.lowest >= 0 for one in heavy):
        return None
    single = line.family(observed, others)
    if single is None:
        return None
    single = single.weighted(math.prod(one.highest for one in heavy))
    count = math.prod(blocks)
    return separate([total([single] * (math.prod(site.shape) // max(count, 1)))] * count)


def _multiplier(program: Program, rows: Rows, parameter: Variable, link: Link) -> Bounds | None:
    """The factor ``c``: the parameter at ``η = 0`` over the link there."""
    found = bounds(program, rows, [parameter], {link.base: jnp.zeros(program.shape(link.base))})
    if found is None:
        return None
    return Bounds(found[0].lo / AT_ZERO[link.name], found[0].hi / AT_ZERO[link.name])


def _broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(tuple(shape), tuple(full)) == tuple(full)
    except ValueError:
        return False
