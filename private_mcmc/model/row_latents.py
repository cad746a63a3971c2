"""Latents of single rows, summed out: missing values, the parts of a mixture, an effect for each row.

A latent in the plate of the rows is read as one more column of the row, so that everything that is asked of
a row's term is asked of it as well. The term is then minus the log of a finite sum over public values of that
column, ``v(θ, row) = −log Σ_q ω_q(θ, row) p(row | θ, u_q)`` with ``Σ_q ω_q = 1``: all values of a discrete
latent, and the points of a grid for a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from private_mcmc.domains import Binary, Categories, Domain, Real, Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.sites import Message, is_improper, masks, unwrap
from private_mcmc.model.tracing import ONE_AT_A_TIME, Feasible
from private_mcmc.records import Fields, Model, PublicArguments

Row = Mapping[str, jax.Array]
RowLoss = Callable[[jax.Array, Row], jax.Array]
# A tree of arrays ``(points, …)``.
Points = TypeVar("Points")

# Prior sds that the grid spans on either side, and its points, for one latent and for two. With spacing h a
# sum over a grid misses a Gaussian integrand of sd s by about exp(−2π²s²/h²) of it.
SPANS, POINTS = {1: 5.0, 2: 5.0}, {1: 37, 2: 21}
# Of other families: the ends on the unconstrained line, and the points.
END, PLAIN_POINTS = 8.0, 65
_MOST_POINTS, _MOST_CLASSES = 1024, 64
_ON_A_LINE = {"Normal": dist.transforms.IdentityTransform(), "LogNormal": dist.transforms.ExpTransform()}


@dataclass(frozen=True, eq=False)
class RowLatent:
    """One number of every row that is no data.

    Attributes:
        site: its name in the model.
        values: how many it may have, ``0`` for a real number.
        transform: from the real line onto its support, the identity for a discrete one.
        line: whether its distribution is a Normal, or the exponential of one.
    """

    site: str
    values: int
    transform: dist.transforms.Transform
    line: bool

    @property
    def column(self) -> str:
        """Under which it is read as a column: of its unconstrained value."""
        return f"{self.site} of the row"

    @property
    def domain(self) -> Domain:
        """What the column may be."""
        return Real() if not self.values else Binary() if self.values == 2 else Categories(self.values)


def with_columns(model: Model, latents: tuple[RowLatent, ...]) -> Model:
    """The model with the latents of rows as columns."""

    def run(**arguments: jax.Array) -> object:
        given = {latent.site: latent.transform(arguments.pop(latent.column)) for latent in latents}
        with handlers.condition(data=given):
            return model(**arguments)

    return run


def row_latents(
    model: Model, rows: Callable[[int], Fields], public: PublicArguments, count: int
) -> tuple[RowLatent, ...]:
    """The latents whose plate has as many elements as there are rows: 1, and ``count``.

    ``DoThisInstead`` where they are all that is said of rows; ``NotYetSupported`` for those that are not
    summed out, by name.
    """
    one = _sites(model, rows(1), public)
    single = [
        name for name, message in one.items() if not message["is_observed"] and 1 in _plates(message).values()
    ]
    # A model without such latents, as most are, is not run again.
    many = _sites(model, rows(count), public) if single else {}
    found = []
    for name in single:
        later = _plates(many.get(name, one[name]))
        if any(size == 1 and later.get(plate) == count for plate, size in _plates(one[name]).items()):
            _refuse_weights(name, one)
            found.append(_latent(name, one[name]))
    if found and not any(message["is_observed"] for message in one.values()):
        raise DoThisInstead(
            f"nothing is observed: sites {[latent.site for latent in found]} of every row are latents here. "
            "Declare the observed column in Rows and pass it as `obs=`."
        )
    if math.prod(_points(latent, found) for latent in found) > _MOST_POINTS:
        raise NotYetSupported(
            f"latents {[latent.site for latent in found]} of each row take too many values together "
            f"(at most {_MOST_POINTS} are summed over, and two real numbers)."
        )
    return tuple(found)


def classes_of(
    model: Model, rows: Fields, public: PublicArguments, persons: int
) -> tuple[tuple[RowLatent, ...], frozenset[str]]:
    """The discrete latents in plates of so many persons, and the names of these plates."""
    found, plates = [], set[str]()
    sites = _sites(model, rows, public)
    for name, message in sites.items():
        own = {frame.name for frame in message["cond_indep_stack"] if frame.size == persons}
        latent = own and not message["is_observed"] and message["fn"].support is not None
        if latent and message["fn"].support.is_discrete:
            _refuse_weights(name, sites)
            found.append(_latent(name, message, persons))
            plates |= own
    if math.prod(latent.values for latent in found) > _MOST_CLASSES:
        raise NotYetSupported(
            f"discrete latents {[each.site for each in found]} of a person: more than {_MOST_CLASSES} values."
        )
    return tuple(found), frozenset(plates)


def _plates(message: Message) -> dict[str, int]:
    return {frame.name: frame.size for frame in message["cond_indep_stack"]}


def _sites(model: Model, rows: Fields, public: PublicArguments) -> dict[str, Message]:
    """Sites of one run on abstract rows; a model that cannot be run is refused where it is read."""
    found: dict[str, Message] = {}

    def run(columns: Mapping[str, jax.Array]) -> None:
        with handlers.trace() as messages, handlers.seed(rng_seed=0), Feasible():
            model(**columns, **public)
        for name, message in messages.items():
            if message["type"] == "sample":
                found[name] = message

    with ONE_AT_A_TIME:
        try:
            jax.eval_shape(run, dict(rows))
        except Exception:
            return {}
    return found


def _refuse_weights(name: str, messages: Mapping[str, Message]) -> None:
    """Under a scale or a mask its density does not integrate to 1, by which the grid's weights are divided.

    Of ``obs_mask`` NumPyro makes a mask itself: where it holds the outcome does not read the latent.
    """
    site, message = name.removesuffix("_unobserved"), messages[name]
    missing = site != name and f"{site}_observed" in messages
    if message["scale"] is not None or len(masks(message["fn"])) > missing:
        raise NotYetSupported(
            f"site {name!r} is a latent of every row under handlers.scale or mask; put the handler around "
            "the observed sites alone."
        )


def _latent(name: str, message: Message, count: int = 1) -> RowLatent:
    fn, shape = unwrap(message["fn"]), jnp.shape(message["value"])
    if shape != (count,):
        raise DoThisInstead(
            f"site {name!r} has {math.prod(shape) // count} numbers for every row: single numbers are "
            "summed out. Write them as sites of their own, or integrate them out."
        )
    if is_improper(fn):
        raise DoThisInstead(
            f"site {name!r} is a latent of every row, and its density does not integrate to 1 "
            "(ImproperUniform): summing it out has no meaning. Give it a proper distribution."
        )
    identity = dist.transforms.IdentityTransform()
    kind = type(fn).__name__
    if kind.startswith("Bernoulli"):
        return RowLatent(name, 2, identity, False)
    if kind.startswith("Categorical"):
        logits = fn.logits if kind == "CategoricalLogits" else fn.probs
        return RowLatent(name, int(jnp.shape(logits)[-1]), identity, False)
    if fn.support is None or fn.support.is_discrete:
        raise DoThisInstead(
            f"site {name!r} is a discrete latent of every row ({kind}): Bernoulli and Categorical ones are "
            "summed out. Write it as one of these, or sum it out with MixtureSameFamily."
        )
    if kind in _ON_A_LINE:
        return RowLatent(name, 0, _ON_A_LINE[kind], True)
    if any(isinstance(part, jax.core.Tracer) for part in jax.tree.leaves(fn.support)):
        raise NotYetSupported(f"site {name!r}: the support of a row's own latent follows other values.")
    return RowLatent(name, 0, biject_to(fn.support), False)


def _points(latent: RowLatent, latents: list[RowLatent] | tuple[RowLatent, ...]) -> int:
    numbers = sum(not each.values for each in latents)
    if latent.values:
        return latent.values
    return _MOST_POINTS + 1 if numbers > 2 else POINTS[numbers] if latent.line else PLAIN_POINTS


def summed_loss(
    latents: tuple[RowLatent, ...], program: Program, row_loss: RowLoss, theta: jax.Array, row: Row
) -> jax.Array:
    """``v``: over all values of the row's latents; ``row_loss`` is that of the row with them as columns."""

    def run(keys: list[Output], columns: Row) -> list[jax.Array]:
        given = {variable: columns[name] for name, variable in program.inputs.items() if name in columns}
        outputs = [program.outputs[key] for key in keys]
        return program.run(outputs, given | {program.inputs["theta"]: theta})

    origin = {latent.column: jnp.zeros((), latent.domain.dtype) for latent in latents}
    lines = [_line(latent, latents, lambda keys: run(keys, {**row, **origin})) for latent in latents]
    grid = [part.ravel() for part in jnp.meshgrid(*lines, indexing="ij")]
    points = {latent.column: values for latent, values in zip(latents, grid, strict=True)}
    numbers = [latent for latent in latents if not latent.values]
    own = [Output("row", latent.site) for latent in latents]

    def scale(values: Row) -> jax.Array:
        """The log of a volume of the grid's numbers on their own supports."""
        pairs = [(latent.transform, values[latent.column]) for latent in numbers]
        steps = [transform.log_abs_det_jacobian(value, transform(value)) for transform, value in pairs]
        return sum(steps, jnp.zeros(()))

    def weight(values: Row) -> jax.Array:
        return scale(values) + sum((jnp.sum(part) for part in run(own, {**row, **values})), jnp.zeros(()))

    def joint(values: Row) -> jax.Array:
        return scale(values) - row_loss(theta, {**row, **values})

    return jax.nn.logsumexp(jax.vmap(weight)(points)) - log_total(jax.vmap(joint), points)


# Beside the largest term these are 0 in float64.
_NOTHING = -800.0


def log_total(terms: Callable[[Points], jax.Array], points: Points) -> jax.Array:
    """``log Σ_q exp(term_q)`` over points of which some may overflow, to a rate of ``e^800``, say.

    Such a term adds 0, but its gradient is no number, and neither is 0 times it. In the place of its point
    stands that of the largest term.
    """
    found = jax.lax.stop_gradient(terms(points))
    found = jnp.where(jnp.isfinite(found), found, -jnp.inf)
    best = jnp.argmax(found)
    counts = found - found[best] > _NOTHING

    def placed(leaf: jax.Array) -> jax.Array:
        return jnp.where(counts.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, leaf[best])

    return jax.nn.logsumexp(jnp.where(counts, terms(jax.tree.map(placed, points)), -jnp.inf))


def _line(
    latent: RowLatent, latents: tuple[RowLatent, ...], run: Callable[[list[Output]], list[jax.Array]]
) -> jax.Array:
    """The latent's values, of a Normal over its own mean in units of its sd."""
    if latent.values:
        return jnp.arange(latent.values, dtype=latent.domain.dtype)
    if not latent.line:
        return jnp.linspace(-END, END, PLAIN_POINTS)
    numbers = sum(not each.values for each in latents)
    loc, scale = run([Output("given", latent.site, name) for name in ("loc", "scale")])
    grid = jnp.linspace(-1.0, 1.0, POINTS[numbers]) * SPANS[numbers]
    return jnp.ravel(loc)[0] + jnp.ravel(scale)[0] * grid


def columns_of(rows: Rows, latents: tuple[RowLatent, ...]) -> Rows:
    """The declaration with the latents' columns."""
    return Rows(**rows.columns, **{latent.column: latent.domain for latent in latents})
