"""Latents of single rows and of persons, summed out: missing values, the parts of a mixture, effects.

A latent in the plate of the rows, or of the persons, is read as one more column of the row, so that
everything that is asked of a row's term is asked of it as well. The term of a row is then minus the log of a
finite sum over values of that column, ``v(θ, row) = −log Σ_q ω_q(θ, row) p(row | θ, u_q)``: all values of a
discrete latent, whose ``ω_q`` add up to 1, and the points of a grid for a number, laid anew a fixed number
of times by this row and ``θ`` alone. Its slope is taken with the points held fixed, and may be that of no
function: such models run as paths, whose slopes are clipped, and nothing else is claimed of them. That of a
person is in ``integrated``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from private_mcmc.domains import Binary, Categories, Domain, Real, Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.program import Output, Program
from private_mcmc.model.sites import Message, ModelSites, family_name, is_improper, masks, unwrap
from private_mcmc.model.tracing import ONE_AT_A_TIME, Feasible, Whole, discover
from private_mcmc.records import Fields, Model, PublicArguments

Row = Mapping[str, jax.Array]
RowLoss = Callable[[jax.Array, Row], jax.Array]
# A tree of arrays ``(points, …)``.
Points = TypeVar("Points")

# Prior sds that a grid spans on either side, and its points, for one latent and for two: of a grid for all
# that a latent may be, and of the first of those that follow a row. With spacing h a sum over a grid misses a
# Gaussian integrand of sd s by about exp(−2π²s²/h²) of it.
_SPAN, POINTS = 5.0, {1: 37, 2: 21}
# The first one is dense around 0, and reaches rows that a latent's distribution is not meant for.
_FAR, _DENSE, _FIRST_POINTS = 40.0, 4.0, {1: 25, 2: 17}
# Of other families: the ends on the unconstrained line, and the points.
END, PLAIN_POINTS = 8.0, 65
# So often a grid is laid anew over what is left of the last one: where terms are above e^{−18} of the most.
_ZOOMS, _DROP = 3, 18.0
_MOST_POINTS, _MOST_CLASSES, _MOST_NUMBERS = 1024, 64, 2
_ON_A_LINE = {"Normal": dist.transforms.IdentityTransform(), "LogNormal": dist.transforms.ExpTransform()}


_BY_HAND = (
    "Of a discrete one, the outcome's probabilities are those that it chooses between, each times its own, "
    "added up; along a series, the forward algorithm by jax.lax.scan, in a numpyro.factor of the row."
)
# How the columns of latents are called; no argument of a model has such a name.
OF_A_ROW, OF_A_PERSON = " of the row", " of the person"


@dataclass(frozen=True, eq=False)
class RowLatent:
    """What a row, or its person, has that is no data: a number, a few of them, or one of several values.

    Attributes:
        site: its name in the model.
        values: how many it may have, ``0`` for real numbers.
        transform: from the real line onto its support, the identity for a discrete one.
        line: whether its distribution is a Normal, or the exponential of one.
        of: the end of its column's name: a row's, or a person's.
        dim: how many numbers it is on the unconstrained space; ``None`` for a single one.
    """

    site: str
    values: int
    transform: dist.transforms.Transform
    line: bool
    of: str = OF_A_ROW
    dim: int | None = None

    @property
    def column(self) -> str:
        """Under which it is read as a column: of its unconstrained value."""
        return self.site + self.of

    @property
    def domain(self) -> Domain:
        """What the column may be."""
        if not self.values:
            return Real(self.dim)
        return Binary() if self.values == 2 else Categories(self.values)

    @property
    def numbers(self) -> int:
        """How many real numbers it is."""
        return 0 if self.values else 1 if self.dim is None else self.dim


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
            f"(at most {_MOST_POINTS} are summed over, and two real numbers). {_BY_HAND}"
        )
    return tuple(found)


def persons_latents(
    model: Model, rows: Fields, public: PublicArguments, identifiers: str, persons: int
) -> tuple[tuple[RowLatent, ...], str]:
    """The latents of each of so many persons, and the name of the plate that they are in.

    ``DoThisInstead`` without such a plate; ``NotYetSupported`` for what is not summed out, by name.
    """
    sites = _sites(model, rows, public)
    if not sites:
        discover(model, rows, public)  # says why the model cannot be run
    found, plates = [], set[str]()
    for name, message in sites.items():
        own = {plate for plate, size in _plates(message).items() if size == persons}
        if own and not message["is_observed"]:
            if len(_plates(message)) > 1:
                raise NotYetSupported(
                    f"site {name!r} lies in plates {tuple(_plates(message))}; of persons' latents only one."
                )
            _refuse_weights(name, sites)
            found.append(_latent(name, message, persons, OF_A_PERSON))
            plates |= own
    if len(plates) != 1:
        unread = " Without such latents leave the argument out: whose rows are whose is known without it."
        raise DoThisInstead(
            f"the model takes the identifiers {identifiers!r}: put the latents of persons into "
            f"one plate of the public number of persons, n={persons} (of {len(plates)} such plates)."
            f"{'' if plates else unread}"
        )
    names = [latent.site for latent in found]
    numbers = sum(latent.numbers for latent in found)
    if numbers > _MOST_NUMBERS:
        raise NotYetSupported(
            f"plate {min(plates)!r}: each person has {numbers} latent numbers ({names}), and at most "
            f"{_MOST_NUMBERS} are integrated out; share some among persons."
        )
    if math.prod(latent.values or 1 for latent in found) > _MOST_CLASSES:
        raise NotYetSupported(f"discrete latents of a person, of {names}: more than {_MOST_CLASSES} values.")
    return tuple(found), min(plates)


def _plates(message: Message) -> dict[str, int]:
    return {frame.name: frame.size for frame in message["cond_indep_stack"]}


def _sites(model: Model, rows: Fields, public: PublicArguments) -> dict[str, Message]:
    """Sites of one run on abstract rows; a model that cannot be run is refused where it is read."""
    found: dict[str, Message] = {}

    def run(columns: Mapping[str, jax.Array]) -> None:
        with handlers.trace() as messages, handlers.seed(rng_seed=0), Feasible(), Whole(ModelSites()):
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
            "the observed sites alone, and give missing values an obs_mask= of their own site."
        )


def _latent(name: str, message: Message, count: int = 1, of: str = OF_A_ROW) -> RowLatent:
    whose = of.split()[-1]
    fn, shape = unwrap(message["fn"]), jnp.shape(message["value"])
    if math.prod(shape) == count and shape != (count,):
        raise DoThisInstead(
            f"site {name!r} has one number for every {whose}, in shape {shape}: latents are summed out where "
            "their plate is the last dimension. Put that plate at dim=-1, and repeated outcomes of a "
            f"{whose} into sites of their own or into one with to_event(1)."
        )
    if shape[:1] != (count,) or (of == OF_A_ROW and shape != (count,)):
        raise DoThisInstead(
            f"site {name!r} has {math.prod(shape) // count} numbers for every {whose}: single numbers are "
            f"summed out. Write them as sites of their own, or integrate them out. {_BY_HAND}"
        )
    if is_improper(fn):
        raise DoThisInstead(
            f"site {name!r} is a latent of every {whose}, and its density does not integrate to 1 "
            "(ImproperUniform): summing it out has no meaning. Give it a proper distribution."
        )
    identity = dist.transforms.IdentityTransform()
    kind = type(fn).__name__
    if shape == (count,) and kind.startswith("Bernoulli"):
        return RowLatent(name, 2, identity, False, of)
    if shape == (count,) and kind.startswith("Categorical"):
        logits = fn.logits if kind == "CategoricalLogits" else fn.probs
        return RowLatent(name, int(jnp.shape(logits)[-1]), identity, False, of)
    if fn.support is None or fn.support.is_discrete:
        raise DoThisInstead(
            f"site {name!r} is a discrete latent of every {whose} ({kind}): Bernoulli and Categorical ones "
            "are summed out. Write it as one of these, or sum it out with MixtureSameFamily."
        )
    line = family_name(fn) in _ON_A_LINE
    if not line and any(isinstance(part, jax.core.Tracer) for part in jax.tree.leaves(fn.support)):
        raise NotYetSupported(f"site {name!r}: the support of a {whose}'s own latent follows other values.")
    transform = _ON_A_LINE[kind] if line else biject_to(message["fn"].support)
    free = transform.inverse_shape(shape)[1:]
    if len(free) > 1:
        raise NotYetSupported(f"site {name!r}: a {whose}'s own latents are numbers or vectors of numbers.")
    return RowLatent(name, 0, transform, line, of, free[0] if free else None)


def _points(latent: RowLatent, latents: list[RowLatent]) -> int:
    if latent.values:
        return latent.values
    numbers = sum(each.numbers for each in latents)
    return _MOST_POINTS + 1 if numbers > _MOST_NUMBERS else POINTS[numbers] if latent.line else PLAIN_POINTS


@dataclass(frozen=True, eq=False)
class Summed:
    """All that some latents may be together, and how probable that is, by the program of a model.

    Attributes:
        latents: read as columns of ``program``.
        finer: with how many grids and times as many points more, to compare others with.
    """

    latents: tuple[RowLatent, ...]
    program: Program
    finer: int = 0

    def run(self, keys: Sequence[Output], theta: jax.Array, columns: Row) -> list[jax.Array]:
        """Outputs of the program; columns that it does not read may be left out."""
        inputs, outputs = self.program.inputs, self.program.outputs
        given = {inputs[name]: value for name, value in columns.items() if name in inputs}
        return self.program.run([outputs[key] for key in keys], given | {inputs["theta"]: theta})

    def density(self, theta: jax.Array, columns: Row) -> jax.Array:
        """The log density of the latents on their own supports."""
        parts = self.run([Output("row", latent.site) for latent in self.latents], theta, columns)
        return jnp.sum(jnp.stack([jnp.sum(part) for part in parts]))

    def atoms(self, theta: jax.Array, row: Row) -> tuple[Row, jax.Array]:
        """What the latents may be, as columns ``(points, …)``, and the logs of the probabilities."""
        points = self._points(self._axes(first=False), theta, row)
        return points, jax.nn.log_softmax(jax.vmap(functools.partial(self._weight, theta, row))(points))

    def total(self, theta: jax.Array, row: Row, term: Callable[[Row], jax.Array]) -> jax.Array:
        """``−log Σ_q ω_q exp(term(u_q))`` over points that follow the row."""
        atoms = self.near(theta, row, term)
        return -log_total(lambda atoms: jax.vmap(lambda at, weight: weight + term(at))(*atoms), atoms)

    def near(self, theta: jax.Array, row: Row, term: Callable[[Row], jax.Array]) -> tuple[Row, jax.Array]:
        """Points where ``e^{term}`` times the density of the latents is not negligible, and log weights.

        A fixed number of grids, each over what is left of the last one; they follow ``θ`` and this row alone.
        That the points move with ``θ`` is no part of the slopes, which are sums over them as well.
        """
        weight = functools.partial(self._weight, theta, row)
        axes = self._axes(first=True)
        free = [not each.values for each in self.latents for _ in range(each.numbers or 1)]

        def nearer(_: int, axes: list[jax.Array]) -> list[jax.Array]:
            found = jax.vmap(lambda at: weight(at) + term(at))(self._points(axes, theta, row))
            found = jax.lax.stop_gradient(found)
            found = jnp.where(jnp.isfinite(found), found, -jnp.inf).reshape([len(axis) for axis in axes])
            keep = jnp.moveaxis(found > jnp.max(found) - _DROP, 0, -1)
            windows = []
            for axis, one in zip(axes, free, strict=True):
                places = jnp.any(keep, axis=tuple(range(keep.ndim - 1)))
                windows.append(_window(axis, places) if one else axis)
                keep = jnp.moveaxis(keep, 0, -1)
            return windows

        if any(free):
            axes = jax.lax.fori_loop(0, _ZOOMS + self.finer, nearer, axes)
        widths = [jnp.log(axis[1] - axis[0]) for axis, one in zip(axes, free, strict=True) if one]
        points = self._points(axes, theta, row)
        return points, jax.vmap(weight)(points) + sum(widths, jnp.zeros(()))

    def _weight(self, theta: jax.Array, row: Row, at: Row) -> jax.Array:
        """The log density of the latents, of numbers in those of the axes.

        Under the mask of an obs_mask nothing reads a latent: there all its values have the same weight.
        """
        total = jnp.zeros(())
        for each in self.latents:
            keys = [Output("row", each.site), Output("weight", each.site, "mask0")]
            found = self.run([key for key in keys if key in self.program.outputs], theta, {**row, **at})
            own, even = jnp.sum(found[0]), -math.log(max(each.values, 1))
            if each.numbers:
                x, (end, count) = at[each.column], self._grid(each, first=True)
                own += jnp.sum(each.transform.log_abs_det_jacobian(x, each.transform(x)))
                own += jnp.sum(jnp.log(self._scale(each, theta, row)[1]))
                even = -each.numbers * math.log(2 * end * count / (count - 1))
            total += own if len(found) == 1 else jnp.where(jnp.all(found[1]), own, even)
        return total

    def _grid(self, latent: RowLatent, first: bool) -> tuple[float, int]:
        """The end and the points of the values of a number, of a Normal in units of its sd."""
        numbers = sum(each.numbers for each in self.latents)
        if not latent.line:
            return _FAR if first else END, PLAIN_POINTS * (1 + self.finer)
        return (_FAR, _FIRST_POINTS[numbers] * (1 + self.finer)) if first else (_SPAN, POINTS[numbers])

    def _axes(self, first: bool) -> list[jax.Array]:
        axes = []
        for each in self.latents:
            end, count = self._grid(each, first) if each.numbers else (0.0, 0)
            axis = jnp.linspace(-end, end, count) if count else jnp.arange(each.values)
            if end == _FAR:
                axis = _FAR * jnp.sinh(_DENSE * axis / _FAR) / math.sinh(_DENSE)
            axes += [axis] * (each.numbers or 1)
        return axes

    def _scale(self, latent: RowLatent, theta: jax.Array, row: Row) -> tuple[jax.Array, jax.Array]:
        """Location and sd of each number of a Normal, where other latents are 0; 0 and 1 of others."""
        if not latent.line:
            return jnp.zeros(latent.numbers), jnp.ones(latent.numbers)
        origin = {each.column: jnp.zeros(each.domain.event_shape, each.domain.dtype) for each in self.latents}
        keys = [Output("given", latent.site, name) for name in ("loc", "scale")]
        ends = self.run(keys, theta, {**row, **origin})
        centres, sds = (jnp.broadcast_to(jnp.ravel(end), (latent.numbers,)) for end in ends)
        return centres, sds

    def _points(self, axes: Sequence[jax.Array], theta: jax.Array, row: Row) -> Row:
        """Columns ``(points, …)`` of every combination of the values on the axes."""
        grid = [part.ravel() for part in jnp.meshgrid(*axes, indexing="ij")]
        found = {}
        for latent in self.latents:
            own, grid = grid[: latent.numbers or 1], grid[latent.numbers or 1 :]
            if latent.line:
                own = [c + sd * x for c, sd, x in zip(*self._scale(latent, theta, row), own, strict=True)]
            found[latent.column] = jnp.stack(own, axis=-1) if latent.dim is not None else own[0]
        return {each.column: found[each.column].astype(each.domain.dtype) for each in self.latents}


def _window(axis: jax.Array, keep: jax.Array) -> jax.Array:
    """As many points between the neighbours of those that are kept; all of them where none is."""
    places, last = jnp.arange(len(axis)), len(axis) - 1
    keep = keep | ~jnp.any(keep)
    low = jnp.maximum(jnp.min(jnp.where(keep, places, last)) - 1, 0)
    high = jnp.minimum(jnp.max(jnp.where(keep, places, 0)) + 1, last)
    return axis[low] + (axis[high] - axis[low]) * jnp.linspace(0.0, 1.0, len(axis))


def summed_loss(summed: Summed, row_loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """``v``: over all values of the row's latents; ``row_loss`` is that of the row with them as columns."""

    def term(values: Row) -> jax.Array:
        return -row_loss(theta, {**row, **values})

    return summed.total(theta, row, term)


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


def columns_of(rows: Rows, latents: tuple[RowLatent, ...]) -> Rows:
    """The declaration with the latents' columns."""
    return Rows(**rows.columns, **{latent.column: latent.domain for latent in latents})
