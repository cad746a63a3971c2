"""A row's term and a prior as they are proposed to kernels: which lines of the tables their sites are of.

What runs is the line's form of the predictor. That the two are one function is told by the operations that
make parameter and density; densities are looked at, besides, where the model is read (``model/refusals.py``).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr
from jax.typing import ArrayLike
from numpyro.distributions.transforms import SigmoidTransform

from private_mcmc.domains.rows import Rows
from private_mcmc.model.bounds import MOST_LINES, ends_of_rows, proposed_radius, proved_radius
from private_mcmc.model.program import Kind, Level, Output, Program, Variable, affinity, name_of, same, trace
from private_mcmc.model.sites import Latent, Observation
from private_mcmc.potential.families import TABLE, Interval, Line
from private_mcmc.potential.potential import RowTerm
from private_mcmc.potential.predictor import MULTIPLIER, OUTCOME, WEIGHT, Predictor, Row, Term
from private_mcmc.potential.prior import OF_ANY_SIGN, OwnPrior, PriorConstants
from private_mcmc.potential.prior import TABLE as PRIORS
from private_mcmc.potential.rowwise import abstract, row_shapes

# Every link as it may be written: a parameter is compared with these operation by operation, since values
# at points do not tell programs apart that differ far out, as by ``jnp.where(eta > 400, …)``.
_LINKS: Mapping[str, tuple[Callable[[jax.Array], jax.Array], ...]] = {
    "exp": (jnp.exp,),
    "exp_neg": (lambda eta: 1 / jnp.exp(eta), lambda eta: jnp.exp(-eta)),
    "logistic": (
        jax.nn.sigmoid,
        # Of latents in the unit interval, held off its ends by NumPyro.
        SigmoidTransform(),
        lambda eta: 1 / (1 + jnp.exp(-eta)),
        lambda eta: jnp.exp(eta) / (1 + jnp.exp(eta)),
    ),
    "ndtr": (ndtr, lambda eta: 0.5 * (1 + erf(eta / math.sqrt(2)))),
    "softmax": (
        jax.nn.softmax,
        lambda eta: jnp.exp(jax.nn.log_softmax(eta)),
        lambda eta: jnp.exp(eta) / jnp.sum(jnp.exp(eta), axis=-1, keepdims=True),
    ),
    "log_softmax": (jax.nn.log_softmax, lambda eta: eta - jax.nn.logsumexp(eta, axis=-1, keepdims=True)),
}
_MOST_CUTS = 8


@functools.lru_cache(maxsize=64)
def _forms(shape: tuple[int, ...]) -> tuple[tuple[str, Program], ...]:
    """The links of a predictor of this shape."""
    with jax.enable_x64(True):
        return tuple(
            (name, trace(lambda eta, form=form: {"link": form(eta)}, eta=abstract(shape, np.float64)))
            for name, forms in _LINKS.items()
            if shape or "max" not in name
            for form in forms
        )


@dataclass(frozen=True)
class Link:
    """``parameter = c·link(base)`` element by element, or along the last axis; ``c`` is free of the latents.

    ``scaled``: ``c`` is not 1.
    """

    name: str
    base: Variable
    scaled: bool = False


def cuts(program: Program, target: Variable, levels: Mapping[Variable, Level]) -> Iterator[Variable]:
    """Affine variables each of which cuts the latents off from ``target``, the last one first."""
    produced = (output for equation in program.slice([target]) for output in equation.outvars)
    for variable in reversed([program.inputs["theta"], *produced]):
        if levels[variable] is Level.AFFINE and "theta" not in program.reads([target], [variable]):
            yield variable


def find_link(program: Program, parameter: Variable) -> Link | None:
    """The link of a parameter to one affine variable, as its operations show; or ``None``."""
    levels = affinity(program, "theta")
    if levels[parameter] is Level.AFFINE:
        return Link("identity", parameter)
    size = program.size(parameter)
    bases = (base for base in cuts(program, parameter, levels) if program.size(base) == size)
    # A link may begin with what is affine, too, as that of a Normal with x/√2.
    links = (_named(program, parameter, base) for base in itertools.islice(bases, _MOST_CUTS))
    return next((link for link in links if link is not None), None)


def _named(program: Program, parameter: Variable, base: Variable) -> Link | None:
    """The link that the parameter, or what factors free of the base multiply, is of the base."""
    scaled, size = False, program.size(base)
    while program.size(parameter) == size:
        for name, form in _forms(program.shape(base)):
            if same(program, parameter, form, form.outputs["link"], {base: form.inputs["eta"]}):
                return Link(name, base, scaled)
        made = program.producers.get(parameter)
        moving = [] if made is None else [one for one in made.invars if base in program.uses([one])]
        if made is None or len(moving) != 1 or name_of(made) not in ("mul", "div"):
            return None
        if name_of(made) == "div" and moving[0] is made.invars[1]:
            link = _named(program, moving[0], base)
            return Link("exp_neg", base, True) if link is not None and link.name == "exp" else None
        parameter, scaled = moving[0], True
    return None


# Links of which the table holds any multiple, with their value at zero.
AT_ZERO: Mapping[str, float] = {"exp": 1.0, "exp_neg": 1.0, "logistic": 0.5}


def row_term(program: Program, rows: Rows, observations: Sequence[Observation], dim: int) -> RowTerm:
    """The term that runs for a program of one row: through affine predictors, where it has some."""
    loss, theta = program.outputs["loss"], program.inputs["theta"]
    levels = affinity(program, "theta")
    keys = {site: program.outputs[Output("row", site.name)] for site in observations}
    moving = [site for site, key in keys.items() if "theta" in program.reads([key])]
    found = [_find_term(program, rows, site, levels) for site in moving]
    terms = [one for one in found if one is not None]
    cut = next((one for one in cuts(program, loss, levels) if program.size(one) == 1), None)
    if not (terms and len(terms) == len(found)):
        terms = []
    if not terms and cut is None:

        def plain(at: jax.Array, row: Row) -> jax.Array:
            return jnp.reshape(program.run([loss], {theta: at, **program.columns(row)})[0], ())

        return RowTerm(plain, rows)
    bases = tuple(dict.fromkeys(base for base, _, _ in terms)) or (cut,)
    edges = np.cumsum([0, *(program.size(base) for base in bases)])
    places = {base: slice(*ends) for base, *ends in zip(bases, edges, edges[1:], strict=False)}
    fixed = [key for site, key in keys.items() if site not in moving]

    def rest(row: Row) -> jax.Array:
        values = program.run(fixed, program.columns(row))
        return functools.reduce(jnp.add, [-jnp.asarray(value) for value in values], jnp.zeros(()))

    def unknown(eta: jax.Array, row: Row) -> jax.Array:
        return jnp.reshape(program.run([loss], {**program.columns(row), bases[0]: eta})[0], ())

    def eta(at: jax.Array, row: Row) -> jax.Array:
        values = program.run(bases, {theta: at, **program.columns(row)})
        return jnp.concatenate([value.ravel() for value in values])

    of_terms = tuple((term, places[base]) for base, term, _ in terms)
    predictors = Predictor(eta, int(edges[-1]), dim, of_terms, rest, None if terms else unknown)
    radius = known = proved_radius(predictors, rows)
    if not known < math.inf and predictors.size <= MOST_LINES:
        radius = proposed_radius(predictors.length, rows)
    shifts, sure = ends_of_rows(program, rows, bases, {theta: jnp.zeros(dim)})
    farthest = max((max(-one.lowest, one.highest) for one in shifts or ()), default=math.inf)
    predictors = replace(
        predictors,
        radius=radius,
        farthest=farthest,
        proved=radius == known and sure and all(each for _, _, each in terms),
        centred=sure and farthest == 0.0,
        reads=_read_by_slope(predictors.loss, rows) if predictors.size == 1 else frozenset(),
    )
    return RowTerm(predictors, rows)


def _find_term(
    program: Program, rows: Rows, site: Observation, levels: Mapping[Variable, Level]
) -> tuple[Variable, Term, bool] | None:
    """Predictor and term of an observed site of a line of the table, and whether its ends are proved."""
    for (name, parameter), lines in TABLE.items():
        variable = program.outputs.get(Output("given", site.name, parameter))
        if name != site.family or variable is None or levels[variable] is Level.CONSTANT:
            continue
        link = find_link(program, variable)
        line = None if link is None else lines.get(link.name)
        if link is None or line is None or (link.scaled and not line.scaled):
            return None
        if _of_its_class(program, "row", site.name):
            return _term(program, rows, site, levels, variable, link, line)
    return None


def _of_its_class(program: Program, kind: Kind, site: str) -> bool:
    """Whether its density is that of its class and parameters: no method of it was changed."""
    own, usual = program.outputs[Output(kind, site)], program.outputs[Output("class", site)]
    return same(program, own, program, usual, {})


def _term(
    program: Program,
    rows: Rows,
    site: Observation,
    levels: Mapping[Variable, Level],
    parameter: Variable,
    link: Link,
    line: Line,
) -> tuple[Variable, Term, bool] | None:
    keys = {OUTCOME: Output("observed", site.name)}
    keys |= {need: Output("given", site.name, need) for need in line.needs}
    weights, shape = list(program.parts("weight", site.name).values()), program.shape(parameter)
    if not all(key in program.outputs for key in keys.values()):
        return None
    wanted = [*(program.outputs[key] for key in keys.values()), *weights]
    summed = program.shape(program.outputs[Output("density", site.name)]) != tuple(site.shape)
    parts = (shape[:-1] if line.joint else shape, *map(program.shape, weights))
    if (
        not all(levels[one] is Level.CONSTANT for one in wanted)
        or not all(_broadcasts(one, site.shape) for one in parts)
        # A weight multiplies the log density, which has been summed over the event's axes.
        or (summed and any(program.size(one) > 1 for one in weights))
    ):
        return None
    known = {link.base: jnp.zeros(program.shape(link.base))}
    if line.scaled:
        wanted.append(parameter)
    found, proved = ends_of_rows(program, rows, wanted, known)
    if found is None:
        return None
    ends = dict(zip(keys, found, strict=False))
    if weights:
        heavy = found[len(keys) : len(keys) + len(weights)]
        if not all(one.lowest >= 0 for one in heavy):
            return None
        ends[WEIGHT] = Interval(np.zeros(()), np.asarray(math.prod(one.highest for one in heavy)))
    if line.scaled:
        ends[MULTIPLIER] = Interval(*(end / AT_ZERO[link.name] for end in found[-1]))

    def read(row: Row) -> dict[str, jax.Array]:
        values = program.run(wanted, {**program.columns(row), **known})
        given = dict(zip(keys, values, strict=False))
        if weights:
            given[WEIGHT] = math.prod(values[len(keys) : len(keys) + len(weights)])
        return given | ({MULTIPLIER: values[-1] / AT_ZERO[link.name]} if line.scaled else {})

    term = Term(line, shape, tuple(site.shape), read, ends, link.name == "exp_neg")
    return None if term.family is None else (link.base, term, proved)


def _read_by_slope(loss: Callable[[ArrayLike, Row], jax.Array], rows: Rows) -> frozenset[str]:
    """The columns that the loss reads besides the predictor, or a part of it that is free of it."""

    def slope(**row: jax.Array) -> dict[str, jax.Array]:
        value, slope = jax.value_and_grad(loss)(jnp.zeros(()), row)
        return {"slope": slope, "loss": value}

    program = trace(slope, **row_shapes(rows))
    return program.reads(program.outputs.values())


def without_lines(program: Program, observations: Sequence[Observation]) -> str:
    """Which observed sites are no likelihoods of the table, in words."""
    levels = affinity(program, "theta")
    found = []
    for site in observations:
        given = program.parts("given", site.name)
        moving = [name for name, variable in given.items() if levels[variable] is not Level.CONSTANT]
        # Ordered families hold their probabilities beside the predictor that makes them.
        words = " and ".join(sorted(set(moving) - ({"probs"} if "predictor" in given else set())))
        if moving or "theta" in program.reads([program.outputs[Output("row", site.name)]]):
            found.append(f"site {site.name!r}: {words or 'the value'} of {site.family}")
    return (
        f"{'; '.join(found)}: no likelihood of one affine predictor with proved constants, so that nothing "
        "is proved of its rows; clip the rows (clip=…, guarantee='run')"
    )


def _broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(tuple(shape), tuple(full)) == tuple(full)
    except ValueError:
        return False


def read_prior(program: Program, sites: Sequence[Latent], terms: Sequence[str] = ()) -> PriorConstants:
    """The prior of a program of one row. With ``terms`` of latents alone no site is independent of others."""
    own = [] if terms else _with_lines(program, sites)
    named = {part.site.name for part in own}
    rest = [site for site in sites if site.name not in named]
    targets = [program.outputs[key] for key in [*_densities(rest), *(Output("row", name) for name in terms)]]
    where = np.concatenate(
        [np.zeros(0, int), *(np.arange(site.slice.start, site.slice.stop) for site in rest)]
    )
    dim = program.shape(program.inputs["theta"])[0]

    def potential(theta: jax.Array) -> jax.Array:
        return -jnp.sum(jnp.stack(program.run(targets, {program.inputs["theta"]: theta})))

    slope = jax.grad(lambda u: potential(jnp.zeros(dim, u.dtype).at[where].set(u)))
    gaussian = _quadratic(slope, len(where)) if rest else None
    return PriorConstants(sites, own, potential, gaussian, tuple(terms))


def _with_lines(program: Program, sites: Sequence[Latent]) -> list[OwnPrior]:
    """The sites with a line of the table that depend on no other, whose parameters are public."""
    uses = {site.name: program.uses(program.outputs[key] for key in _densities([site])) for site in sites}
    values = {site.name: program.outputs[Output("value", site.name)] for site in sites}

    def coupled(name: str, other: str) -> bool:
        return name != other and (values[other] in uses[name] or values[name] in uses[other])

    lines = [
        (site, PRIORS[site.family, site.support])
        for site in sites
        if (site.family, site.support) in PRIORS
        and _of_its_class(program, "prior", site.name)
        and not any(coupled(site.name, other) for other in uses)
    ]
    keys = [Output("given", site.name, name) for site, line in lines for name in line.names]
    known = [key for key in keys if key in program.outputs and not program.reads([program.outputs[key]])]
    values_of = (value.astype(np.float64) for value in program.evaluate(known))
    public = dict(zip(known, values_of, strict=True))
    found = []
    for site, line in lines:
        given = [public.get(Output("given", site.name, name), np.nan) for name in line.names]
        fits = [
            np.all(np.isfinite(value)) and (name in OF_ANY_SIGN or np.all(value > 0))
            for name, value in zip(line.names, given, strict=True)
        ]
        if all(fits):
            found.append(OwnPrior(site, line, [np.broadcast_to(v, site.unconstrained_shape) for v in given]))
    return found


def _densities(sites: Sequence[Latent]) -> list[Output]:
    return [Output(kind, site.name) for kind in ("prior", "jacobian") for site in sites]


def _quadratic(slope: Callable[[jax.Array], jax.Array], size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Slope at zero and Hessian of a potential whose slope is proved affine, or ``None``.

    Such a potential is quadratic: its second derivative anywhere is its second derivative everywhere.
    """
    first = trace(lambda u: {"slope": slope(u)}, u=abstract((size,), np.float64))
    if affinity(first, "u")[first.outputs["slope"]] is Level.UNKNOWN:
        return None
    shape = abstract((size,), np.float64)
    both = trace(lambda u: {"slope": slope(u), "second": jax.jacfwd(slope)(u)}, u=shape)
    at_zero, second = both.evaluate(["slope", "second"], u=np.zeros(size))
    even = np.allclose(second, second.T, rtol=1e-9, atol=1e-12)
    return (at_zero, (second + second.T) / 2) if even and np.all(np.isfinite(second)) else None
